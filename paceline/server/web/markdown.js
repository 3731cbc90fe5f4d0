// Markdown's blocks: paragraphs, headings, code, lists, quotes, tables, rules. Reads lines, each a passage, and says for
// every block at which line it begins: all but the last are final, however the text goes on.
import { Passage } from "./passage.js";

const MAX_DEPTH = 10;
const MAX_COLUMNS = 50;
const FENCE = /^[ \t]*(`{3,}|~{3,})[ \t]*([^\s`]*)([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|\n|$)/;
const QUOTE = /^ {0,3}> ?/;
const MARKER = /^([ \t]*)([-*+]|(\d{1,9})[.)])([ \t]+|\n|$)/;
const INDENT = /^[ \t]*/;
const TAB = 4;

export function blocks(lines, depth = 0) {
  return new Blocks(lines, depth).read();
}

class Blocks {
  #lines;
  #depth;
  #at = 0;

  constructor(lines, depth) {
    this.#lines = lines;
    this.#depth = depth;
  }

  read() {
    const found = [];
    while (this.#at < this.#lines.length) {
      const at = this.#at;
      if (isBlank(this.#text())) this.#at++;
      else found.push({ ...this.#next(), at });
    }
    return found;
  }

  #text(ahead = 0) {
    return this.#lines[this.#at + ahead]?.text ?? "";
  }

  #next() {
    return this.#code() ?? this.#heading() ?? this.#rule() ?? this.#nested() ?? this.#table() ?? this.#paragraph();
  }

  #nested() {
    return this.#depth < MAX_DEPTH ? (this.#quote() ?? this.#list()) : null;
  }

  #code() {
    const opening = FENCE.exec(this.#text());
    if (!opening) return null;
    const indent = indentOf(this.#text());
    const inside = [];
    for (this.#at++; this.#at < this.#lines.length; this.#at++) {
      if (closes(this.#text(), opening[1])) {
        this.#at++;
        break;
      }
      inside.push(dedent(this.#lines[this.#at], indent));
    }
    return { kind: "code", language: opening[2], passage: chomp(Passage.join(inside)) };
  }

  #heading() {
    const mark = HEADING.exec(this.#text());
    if (!mark) return null;
    const passage = this.#lines[this.#at++].slice(mark[0].length).trim();
    const tail = /(?:^|\s)#+$/.exec(passage.text)?.index ?? passage.text.length;
    return { kind: "heading", level: mark[1].length, passage: passage.slice(0, tail) };
  }

  #rule() {
    if (!isRule(this.#text())) return null;
    this.#at++;
    return { kind: "rule" };
  }

  #quote() {
    const inside = [];
    for (let mark; (mark = QUOTE.exec(this.#text())); this.#at++) inside.push(this.#lines[this.#at].slice(mark[0].length));
    return inside.length ? { kind: "quote", blocks: blocks(inside, this.#depth + 1) } : null;
  }

  #list() {
    const first = marker(this.#text());
    if (!first) return null;
    const items = [];
    for (let mark = first; mark && mark.ordered === first.ordered && !isRule(this.#text()); mark = marker(this.#text())) {
      items.push(blocks(this.#item(mark), this.#depth + 1));
    }
    return { kind: "list", ordered: first.ordered, start: first.number, items };
  }

  /** The lines of one item: what is indented, and a paragraph that goes on without being so. */
  #item(mark) {
    const inside = [this.#lines[this.#at].slice(mark.length)];
    for (this.#at++; this.#at < this.#lines.length; this.#at++) {
      const text = this.#text();
      const afterBlank = isBlank(this.#text(-1));
      if (!isBlank(text) && indentOf(text) < mark.indent + 2 && (afterBlank || marker(text) || interrupts(text))) break;
      inside.push(dedent(this.#lines[this.#at], mark.width));
    }
    return inside;
  }

  #table() {
    const head = this.#isTable() ? cells(this.#lines[this.#at]) : null;
    if (!head) return null;
    const align = cells(this.#lines[this.#at + 1]).map(({ text }) => alignment(text));
    const rows = [];
    for (this.#at += 2; this.#text().includes("|") && !interrupts(this.#text()); this.#at++) {
      const row = cells(this.#lines[this.#at]);
      rows.push(head.map((_, column) => row[column] ?? new Passage()));
    }
    return { kind: "table", align, head, rows };
  }

  #isTable() {
    if (!this.#text().includes("|") || !/^[-:|\s]*-[-:|\s]*$/.test(this.#text(1))) return false;
    const head = cells(this.#lines[this.#at]);
    const line = cells(this.#lines[this.#at + 1]);
    return head.length === line.length && head.length <= MAX_COLUMNS && line.every(({ text }) => /^:?-+:?$/.test(text));
  }

  #paragraph() {
    const inside = [this.#lines[this.#at++]];
    while (this.#at < this.#lines.length && !isBlank(this.#text()) && !interrupts(this.#text()) && !this.#isTable()) {
      inside.push(this.#lines[this.#at++]);
    }
    return { kind: "paragraph", passage: Passage.join(inside).trim() };
  }
}

const isBlank = (text) => text.trim() === "";
const isRule = (text) => /^([-*_])\1{2,}$/.test(text.replace(/[ \t\n]/g, ""));

/** Whether a line ends the paragraph before it. */
function interrupts(text) {
  if (FENCE.test(text) || HEADING.test(text) || QUOTE.test(text) || isRule(text)) return true;
  const mark = marker(text);
  return mark !== null && !isBlank(text.slice(mark.length)) && (!mark.ordered || mark.number === 1 || mark.indent > 0);
}

function closes(text, fence) {
  const line = text.trim();
  return line.length >= fence.length && line === fence[0].repeat(line.length);
}

function marker(text) {
  const match = MARKER.exec(text);
  if (!match) return null;
  const gap = match[4].length > TAB ? 1 : match[4].replace("\n", "").length;
  const length = match[1].length + match[2].length + gap;
  const indent = indentOf(text);
  return { ordered: match[3] !== undefined, number: Number(match[3] ?? 0), indent, length, width: indent + length - match[1].length };
}

function indentOf(text) {
  let width = 0;
  for (const character of INDENT.exec(text)[0]) width += character === "\t" ? TAB : 1;
  return width;
}

function dedent(line, width) {
  let at = 0;
  for (let gone = 0; gone < width && " \t".includes(line.text[at] || "x"); at++) gone += line.text[at] === "\t" ? TAB : 1;
  return line.slice(at);
}

const chomp = (passage) => (passage.text.endsWith("\n") ? passage.slice(0, passage.text.length - 1) : passage);

function cells(line) {
  let row = line.trim();
  if (row.text.startsWith("|")) row = row.slice(1);
  if (/(?:^|[^\\])\|$/.test(row.text)) row = row.slice(0, row.text.length - 1);
  const found = [];
  let from = 0;
  for (let at = 0; at < row.text.length; at++) {
    if (row.text[at] === "\\") at++;
    else if (row.text[at] === "|") {
      found.push(row.slice(from, at).trim());
      from = at + 1;
    }
  }
  return [...found, row.slice(from).trim()];
}

function alignment(text) {
  if (!text.endsWith(":")) return null;
  return text.startsWith(":") ? "center" : "end";
}
