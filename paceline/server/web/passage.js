// A passage: text that remembers, for each character, the drafter that guessed it; null is the model itself.

export class Passage {
  text;
  #sources;

  constructor(text = "", sources = Array(text.length).fill(null)) {
    this.text = text;
    this.#sources = sources;
  }

  append(text, source = null) {
    this.text += text;
    for (let n = text.length; n > 0; n--) this.#sources.push(source);
  }

  slice(from, to = this.text.length) {
    return new Passage(this.text.slice(from, to), this.#sources.slice(from, to));
  }

  trim() {
    const end = this.text.trimEnd().length;
    return this.slice(Math.min(end, this.text.length - this.text.trimStart().length), end);
  }

  /** Each with its newline. */
  lines() {
    const lines = [];
    for (let at = 0; at < this.text.length; ) {
      const end = this.text.indexOf("\n", at) + 1 || this.text.length;
      lines.push(this.slice(at, end));
      at = end;
    }
    return lines;
  }

  /** {text, source}: neighbours of one source together. */
  runs() {
    const runs = [];
    for (let at = 0; at < this.text.length; ) {
      const source = this.#sources[at];
      let end = at + 1;
      while (end < this.text.length && this.#sources[end] === source) end++;
      runs.push({ text: this.text.slice(at, end), source });
      at = end;
    }
    return runs;
  }

  static join(passages) {
    return new Passage(passages.map((each) => each.text).join(""), passages.flatMap((each) => each.#sources));
  }
}
