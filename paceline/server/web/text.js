// Model text as it streams in: Markdown with tints, drawn once a frame. Blocks that are complete are never drawn again,
// and one that takes long to draw is drawn less often: the model may need the same processor.
import { look } from "./blocks.js";
import { blocks } from "./markdown.js";
import { Passage } from "./passage.js";
import { addToLegend } from "./tints.js";
import { patch } from "./tree.js";

/** The start of a line that may turn out to be a fence, a heading, a list. */
const UNDECIDED = /(?:^|\n)[ \t]*(?:`{1,2}|~{1,2}|[-*_+]{1,3}|#{1,6}|>|\d{1,9}[.)]?)[ \t]?$/;

const CHEAP_MS = 8;
const REST = 4; // times as long as drawing took

export class TextView {
  #root;
  #drawn;
  #tail = new Passage(); // from the last block that may still change
  #last = null; // the element before it
  #waiting = false;
  #frame = 0;
  #timer = 0;
  #cost = 0;

  constructor(root, drawn = () => {}) {
    this.#root = root;
    this.#drawn = drawn;
  }

  push(text, source = null) {
    this.#tail.append(text, source);
    if (source !== null) addToLegend(source);
    if (this.#waiting) return;
    this.#waiting = true;
    if (this.#cost < CHEAP_MS) this.#drawNext();
    else this.#timer = setTimeout(() => this.#drawNext(), REST * this.#cost);
  }

  #drawNext() {
    this.#frame = requestAnimationFrame(() => this.#draw(UNDECIDED.exec(this.#tail.text)?.index));
  }

  /** Show what was held back, once nothing more will come. */
  finish() {
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
    this.#draw();
  }

  #draw(end) {
    const began = performance.now();
    this.#waiting = false;
    const shown = this.#tail.slice(0, end);
    const lines = shown.lines();
    const found = blocks(lines);
    patch(this.#root, found.map(look), this.#last ? this.#last.nextSibling : this.#root.firstChild);
    const nWhole = lines.length - (shown.text.endsWith("\n") ? 0 : 1);
    this.#keep(found.filter(({ at, kind }) => at + (kind === "table" ? 1 : 0) < nWhole), lines);
    this.#cost = performance.now() - began;
    this.#drawn();
  }

  /** A block is final when another has begun behind it, on a line that is complete; a table begins with two. */
  #keep(found, lines) {
    for (let n = 1; n < found.length; n++) this.#last = this.#last ? this.#last.nextSibling : this.#root.firstChild;
    const from = lines.slice(0, found.at(-1)?.at ?? 0).reduce((sum, { text }) => sum + text.length, 0);
    if (from) this.#tail = this.#tail.slice(from);
  }
}
