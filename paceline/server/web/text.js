// Model text as it streams in: lines, fenced code, tints. It reaches the page through text nodes only.
import { element } from "./dom.js";
import { addToLegend, tinted } from "./tints.js";

const MAY_BE_FENCE = /^[ \t]*(`{0,2}|`{3,}[^`\n]*\n?)$/;
const OPENING = /^[ \t]*(`{3,})([^`\n]*)/;
const CLOSING = /^[ \t]*(`{3,})[ \t]*\n?$/;

/** Grows with every piece and never redraws: cost and selection do not depend on the length. */
export class TextView {
  #root;
  #block = null; // what text goes into: a <div> or the <code> of a fence
  #fence = ""; // the backticks that opened the current code block
  #held = []; // the start of a line that may turn out to be a fence
  #inLine = false;

  constructor(root) {
    this.#root = root;
  }

  push(text, source = null) {
    for (const part of text.split(/(?<=\n)/)) this.#pushPart(part, source);
  }

  /** Show what was held back, once nothing more will come. */
  finish() {
    const line = this.#heldText();
    if (!this.#takeFence(line)) this.#release();
    this.#held = [];
  }

  #pushPart(part, source) {
    if (this.#inLine) this.#write(part, source);
    else this.#hold(part, source);
    if (part.endsWith("\n")) this.#inLine = false;
  }

  #hold(part, source) {
    this.#held.push({ text: part, source });
    const line = this.#heldText();
    if (!MAY_BE_FENCE.test(line)) return this.#release();
    if (!line.endsWith("\n")) return;
    if (this.#takeFence(line)) this.#held = [];
    else this.#release();
  }

  #heldText() {
    return this.#held.map((piece) => piece.text).join("");
  }

  #release() {
    for (const { text, source } of this.#held) this.#write(text, source);
    this.#held = [];
    this.#inLine = true;
  }

  #takeFence(line) {
    if (this.#fence) return this.#closeCode(line);
    const opening = OPENING.exec(line);
    if (!opening) return false;
    this.#openCode(opening[1], opening[2].trim());
    return true;
  }

  #openCode(fence, language) {
    this.#trimEnd();
    this.#fence = fence;
    this.#block = element("code");
    const frame = element("pre", "", this.#block);
    frame.tabIndex = 0; // wide code scrolls, also by keyboard
    frame.dataset.language = language;
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", `Code ${language}`.trim());
    this.#root.append(frame);
  }

  #closeCode(line) {
    const closing = CLOSING.exec(line);
    if (!closing || closing[1].length < this.#fence.length) return false;
    this.#trimEnd();
    this.#fence = "";
    this.#block = null;
    return true;
  }

  #write(text, source) {
    if (!this.#block) {
      text = text.replace(/^\n+/, ""); // the blocks' margins already part them
      if (!text) return;
      this.#block = this.#root.appendChild(element("div", "lines"));
    }
    if (this.#endsWith(source)) textIn(this.#block.lastChild).appendData(text);
    else if (source === null) this.#block.append(text);
    else this.#writeGuess(text, source);
  }

  #writeGuess(text, source) {
    const word = text.replace(/^ (?=\S)/, ""); // the space between words stays plain: easier on the eye
    if (word !== text) this.#write(" ", null);
    this.#block.append(guessed(source, word));
  }

  #endsWith(source) {
    const last = this.#block.lastChild;
    return last !== null && (last.dataset?.source ?? null) === source;
  }

  #trimEnd() {
    for (let last = this.#block?.lastChild; last; last = this.#block.lastChild) {
      const text = textIn(last);
      text.data = text.data.replace(/\n+$/, "");
      if (text.data) return;
      last.remove();
    }
  }
}

function guessed(source, text) {
  const node = tinted(source, text);
  node.title = `guessed by ${source}`;
  addToLegend(source);
  return node;
}

const textIn = (node) => node.firstChild ?? node;
