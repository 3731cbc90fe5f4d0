// One colour per drafter, the same on every visit. style.css has a hue for each number.
import { byId, element } from "./dom.js";
import { node } from "./tree.js";

const TINTS = new Map([
  ["ngram-simple", 1],
  ["ngram-map-k", 2],
  ["ngram-map-k4v", 3],
  ["ngram-mod", 4],
  ["ngram-cache", 5],
  ["suffix", 6],
  ["grammar", 7],
  ["draft-simple", 0],
  ["draft-eagle3", 9],
  ["draft-mtp", 10],
  ["draft-dflash", 11],
  ["draft-dspark", 12],
]);
const OTHER = 8;
const LONGEST_LEGEND = 24;

const known = new Set();

function tintOf(source) {
  return TINTS.get(source) ?? OTHER;
}

/** Guessed text, as nodes of the tree. The space before a word stays plain: easier on the eye. */
export function guess(source, text) {
  const word = text.replace(/^ (?=\S)/, "");
  const about = { class: "tint", "data-tint": tintOf(source), "data-source": source, title: `guessed by ${source}` };
  const span = node("span", about, [word]);
  return word === text ? [span] : [" ", span];
}

/** A drafter's name in its colour. */
export function chip(source) {
  const name = element("span", "tint", source);
  name.dataset.tint = tintOf(source);
  name.dataset.source = source;
  return name;
}

export function addToLegend(source) {
  if (known.has(source) || known.size >= LONGEST_LEGEND) return;
  known.add(source);
  byId("legend").append(element("li", "", chip(source)));
}
