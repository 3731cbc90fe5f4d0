// What a screen reader is told while text streams in.
import { byId, element } from "./dom.js";

const N_KEPT = 4;
const LONGEST_SENTENCE = 2000;
const SENTENCE_END = /^[\s\S]*(?:[.!?]\s|\n)/;
const FENCE_LINES = /^[ \t]*(?:`{3,}|~{3,}).*$/gm;
const MARKS = /^[ \t]*#{1,6}[ \t]|\*\*|__|`/gm;

/** Says each finished sentence once; the visible log is no live region, or every token would be read out. */
export class Announcer {
  #pending = "";

  push(text) {
    this.#pending += text;
    if (this.#pending.length > LONGEST_SENTENCE) return this.finish();
    const finished = SENTENCE_END.exec(this.#pending)?.[0];
    if (!finished) return;
    this.#pending = this.#pending.slice(finished.length);
    announce(finished);
  }

  finish() {
    announce(this.#pending);
    this.#pending = "";
  }
}

export function announce(text) {
  const region = byId("announcer");
  const spoken = text.replace(FENCE_LINES, "").replace(MARKS, "").trim();
  if (!spoken) return;
  region.append(element("p", "", spoken));
  while (region.childElementCount > N_KEPT) region.firstChild.remove();
}

/** Old text is not news. */
export const hush = () => byId("announcer").replaceChildren();
