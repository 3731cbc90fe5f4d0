// One colour per drafter, the same on every visit. style.css has a hue for each number.
import { byId, element } from "./dom.js";

const TINTS = {
  "ngram-simple": 1,
  "ngram-map-k": 2,
  "ngram-map-k4v": 3,
  "ngram-mod": 4,
  "ngram-cache": 5,
  suffix: 6,
  grammar: 7,
};
const DRAFT_MODEL = 0;
const OTHER = 8;

const known = new Set();

function tintOf(source) {
  return source.startsWith("draft-") ? DRAFT_MODEL : (TINTS[source] ?? OTHER);
}

export function tinted(source, ...children) {
  const node = element("span", "tint", ...children);
  node.dataset.tint = tintOf(source);
  node.dataset.source = source;
  return node;
}

export function addToLegend(source) {
  if (known.has(source)) return;
  known.add(source);
  byId("legend").append(element("li", "", tinted(source, source)));
}
