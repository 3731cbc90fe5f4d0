// Markdown within a line: emphasis, code, links. HTML stays what it is, text; pictures become links. Reading takes time
// in proportion to the text, whatever it holds: nothing is looked for twice, and nesting has an end.
import { guess } from "./tints.js";
import { add, node } from "./tree.js";

const TOKEN =
  /\\[*_`~#|$<>]|`+|!?\[((?:[^[\]\\\n]|\\.){1,400})\]\(<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,500}\)[^\s()<>]{0,500}){0,4})>?(?: "[^"\n]{0,400}")?\)|<https?:\/\/[^\s<>]{1,2000}>|\bhttps?:\/\/[^\s<>`"*|]{1,2000}|\*+|_+|~~/g;
const SAFE = /^(?:https?:\/\/|mailto:)[^\s]+$/i;
const TRAILING = /[.,;:!?'\])]+$/; // more often the sentence's than the address's
const MAX_DEPTH = 12;
const PUNCTUATION = /[\p{P}\p{S}]/u;

/** The children of a paragraph, a heading, a cell. */
export function inline(passage, links = true) {
  return new Inline(passage, links).read();
}

/** A passage as it is: strings, and a span for each run of guessed text. */
export function leaves(passage) {
  const children = [];
  for (const { text, source } of passage.runs()) add(children, source === null ? [text] : guess(source, text));
  return children;
}

class Inline {
  #passage;
  #text;
  #links;
  #open = [{ mark: "", n: 0, at: 0, children: [] }]; // emphasis that has begun, under it the whole
  #unclosed = new Set(); // lengths of backticks that nothing closes from here on

  constructor(passage, links) {
    this.#passage = passage;
    this.#text = passage.text;
    this.#links = links;
  }

  read() {
    TOKEN.lastIndex = 0;
    let shown = 0;
    for (let match = TOKEN.exec(this.#text); match; match = TOKEN.exec(this.#text)) {
      const from = match.index;
      const end = this.#take(match, shown);
      if (end > from) shown = end;
      TOKEN.lastIndex = Math.max(end, from + match[0].length);
    }
    this.#plain(shown, this.#text.length);
    while (this.#open.length > 1) this.#abandon();
    return this.#open[0].children;
  }

  /** Where to go on; not beyond the start of the match where it means nothing. */
  #take(match, shown) {
    const from = match.index;
    const end = from + match[0].length;
    const first = match[0][0];
    const wanted = this.#meaning(match, first, from, end);
    if (!wanted) return from;
    this.#plain(shown, from);
    return wanted();
  }

  #meaning(match, first, from, end) {
    if (first === "\\") return () => (this.#plain(from + 1, end), end);
    if (first === "`") return this.#code(from, end);
    if (match[1] !== undefined) return this.#links && SAFE.test(match[2]) ? () => this.#link(match, end) : null;
    if (first === "<") return this.#links ? () => this.#address(from + 1, end - 1, end) : null;
    if (first === "h") return this.#links ? () => this.#bareAddress(match[0], from) : null;
    return () => this.#emphasis(first, from, end);
  }

  #current() {
    return this.#open.at(-1).children;
  }

  #plain(from, end) {
    if (end > from) add(this.#current(), leaves(this.#passage.slice(from, end)));
  }

  #code(from, end) {
    const fence = end - from;
    if (this.#unclosed.has(fence)) return null;
    const closing = this.#closing(fence, end);
    if (closing < 0) {
      this.#unclosed.add(fence);
      return null;
    }
    return () => {
      add(this.#current(), [node("code", {}, leaves(unpadded(this.#passage.slice(end, closing))))]);
      return closing + fence;
    };
  }

  #closing(fence, at) {
    for (;;) {
      const found = this.#text.indexOf("`", at);
      if (found < 0) return -1;
      for (at = found; this.#text[at] === "`"; ) at++;
      if (at - found === fence) return found;
    }
  }

  #link(match, end) {
    const from = match.index + match[0].indexOf("[") + 1;
    const said = inline(this.#passage.slice(from, from + match[1].length), false);
    add(this.#current(), [anchor(match[2], said)]);
    return end;
  }

  #bareAddress(matched, from) {
    const end = from + matched.length - (TRAILING.exec(matched)?.[0].length ?? 0);
    return this.#address(from, end, end);
  }

  #address(from, to, end) {
    const said = leaves(this.#passage.slice(from, to));
    add(this.#current(), [anchor(this.#text.slice(from, to), said)]);
    return end;
  }

  #emphasis(mark, from, end) {
    const { opens, closes } = flanks(this.#text, mark, from, end);
    let n = end - from;
    while (closes && n > 0) {
      const closed = this.#close(mark, n);
      if (!closed) break;
      n -= closed;
    }
    if (n > 0 && opens && this.#open.length <= MAX_DEPTH) this.#open.push({ mark, n, at: end - n, children: [] });
    else this.#plain(end - n, end);
    return end;
  }

  /** How many marks the nearest fitting emphasis needed to end: 0, 1 or 2. */
  #close(mark, n) {
    const at = this.#open.findLastIndex((each) => each.mark === mark && (mark !== "~" || each.n === 2));
    if (at < 1) return 0;
    while (this.#open.length > at + 1) this.#abandon();
    const opened = this.#open.at(-1);
    const used = Math.min(opened.n, n, 2);
    const whole = node(mark === "~" ? "s" : used === 2 ? "strong" : "em", {}, opened.children);
    opened.n -= used;
    opened.children = [whole];
    if (opened.n === 0) {
      this.#open.pop();
      add(this.#current(), [whole]);
    }
    return used;
  }

  /** It was no emphasis: its marks are text. */
  #abandon() {
    const { at, n, children } = this.#open.pop();
    this.#plain(at, at + n);
    add(this.#current(), children);
  }
}

/** CommonMark's rule: a mark before a word opens, one after a word closes, and underscores within words do neither. */
function flanks(text, mark, from, end) {
  const before = text[from - 1] ?? " ";
  const after = text[end] ?? " ";
  const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
  const [signBefore, signAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
  const left = !spaceAfter && (!signAfter || spaceBefore || signBefore);
  const right = !spaceBefore && (!signBefore || spaceAfter || signAfter);
  if (mark !== "_") return { opens: left, closes: right };
  return { opens: left && (!right || signBefore), closes: right && (!left || signAfter) };
}

function unpadded(passage) {
  const padded = /^ .*\S.* $/s.test(passage.text);
  return padded ? passage.slice(1, passage.text.length - 1) : passage;
}

function anchor(address, said) {
  const elsewhere = { href: address, title: address, target: "_blank", rel: "noopener noreferrer nofollow" };
  return node("a", elsewhere, said);
}
