// How a block of Markdown looks: one node of the tree for each.
import { inline, leaves } from "./inline.js";
import { node } from "./tree.js";

const LOOKS = { code, heading, rule, quote, list, table, paragraph };

export const look = (block) => LOOKS[block.kind](block);

function paragraph({ passage }) {
  return node("p", { class: "lines" }, inline(passage));
}

/** The page has three levels of its own. */
function heading({ level, passage }) {
  return node(`h${Math.min(6, level + 3)}`, { class: `title-${level}` }, inline(passage));
}

function rule() {
  return node("hr");
}

function quote({ blocks }) {
  return node("blockquote", {}, blocks.map(look));
}

function list({ ordered, start, items }) {
  const rows = items.map((item) => node("li", {}, item.map(look)));
  return ordered ? node("ol", { start: start === 1 ? null : start }, rows) : node("ul", {}, rows);
}

function code({ language, passage }) {
  const name = `Code ${language}`.trim();
  const button = node("button", { type: "button", class: "copy", "aria-label": `Copy ${name.toLowerCase()}` }, ["Copy"]);
  const head = node("figcaption", {}, [node("span", { class: "language" }, [language]), button]);
  const frame = node("pre", { tabindex: 0, role: "group", "aria-label": name }, [node("code", {}, leaves(passage))]);
  return node("figure", { class: "code" }, [head, frame]); // wide code scrolls, also by keyboard
}

function table({ align, head, rows }) {
  const cell = (tag) => (passage, column) => node(tag, { class: align[column] }, inline(passage));
  const row = (tag, passages) => node("tr", {}, passages.map(cell(tag)));
  const body = rows.map((passages) => row("td", passages));
  const whole = node("table", {}, [node("thead", {}, [row("th", head)]), node("tbody", {}, body)]);
  return node("div", { class: "table", tabindex: 0, role: "group", "aria-label": "Table" }, [whole]);
}
