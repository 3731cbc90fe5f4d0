// Pieces: bits of text with the drafter that guessed them, {text, source}; a null source is the model itself.

/** Finds the pieces of streamed text. Tags are cut out of it and possible tags held back, so it may lag behind them. */
export class PieceFinder {
  #waiting = [];

  /** The text as pieces. It always adds up to the text; what no piece explains has no source. */
  take(text, pieces = []) {
    append(this.#waiting, pieces);
    if (!text) return [];
    const known = this.#waiting.map((piece) => piece.text).join("");
    const at = known.indexOf(text);
    return at >= 0 ? this.#takeFrom(at, text.length) : this.#takeAll(text, known);
  }

  #takeFrom(at, length) {
    const [, rest] = cut(this.#waiting, at);
    const [found, later] = cut(rest, length);
    this.#waiting = later;
    return found;
  }

  #takeAll(text, known) {
    const waiting = this.#waiting;
    this.#waiting = [];
    if (!known || !text.endsWith(known)) return [{ text, source: null }];
    return [{ text: text.slice(0, -known.length), source: null }, ...waiting];
  }
}

/** Add pieces to a list; neighbours of one source become one. */
export function append(list, pieces) {
  for (const { text, source } of pieces) {
    const last = list.at(-1);
    if (last && last.source === source) last.text += text;
    else if (text) list.push({ text, source });
  }
}

/** Where a text was guessed, [from, length, source] each: all that has to be kept beside the text. */
export function marksOf(pieces) {
  const marks = [];
  let at = 0;
  for (const { text, source } of pieces) {
    if (source !== null) marks.push([at, text.length, source]);
    at += text.length;
  }
  return marks;
}

/** The pieces of a text again. Marks that make no sense are passed over. */
export function piecesOf(text, marks) {
  const pieces = [];
  let at = 0;
  for (const [from, length, source] of marks) {
    if (from < at || from + length > text.length) continue;
    append(pieces, [{ text: text.slice(at, from), source: null }, { text: text.slice(from, from + length), source }]);
    at = from + length;
  }
  append(pieces, [{ text: text.slice(at), source: null }]);
  return pieces;
}

function cut(pieces, at) {
  const [before, after] = [[], []];
  for (const { text, source } of pieces) {
    const n = Math.max(0, at);
    if (n > 0) before.push({ text: text.slice(0, n), source });
    if (text.length > n) after.push({ text: text.slice(n), source });
    at -= text.length;
  }
  return [before, after];
}
