// Small helpers: elements, kept values, numbers for people.

export const byId = (id) => document.getElementById(id);

export function element(tag, className = "", ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children); // strings become text nodes
  return node;
}

/** `act` is called with the button. */
export function button(label, act, description = label) {
  const made = element("button", "", label);
  made.type = "button";
  if (description !== label) made.setAttribute("aria-label", description);
  made.addEventListener("click", () => act(made));
  return made;
}

/** Takes a node out of the page, and all that follows it. */
export function removeOnwards(node) {
  while (node.nextSibling) node.nextSibling.remove();
  node.remove();
}

export function load(storage, name, fallback) {
  try {
    return JSON.parse(window[storage].getItem(`paceline.${name}`)) ?? fallback;
  } catch {
    return fallback; // blocked storage or somebody else's value
  }
}

export function save(storage, name, value) {
  try {
    window[storage].setItem(`paceline.${name}`, JSON.stringify(value));
  } catch {
    // blocked or full: the page works without memory
  }
}

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
export const share = (part, whole) => (whole > 0 ? Math.min(1, part / whole) : null);
export const percent = (value) => (isNumber(value) ? `${Math.round(value * 100)} %` : "–");
export const count = (value) => (isNumber(value) ? value.toLocaleString("en") : "–");
export const speed = (value) => (isNumber(value) ? value.toFixed(value < 100 ? 1 : 0) : "–");
export const times = (value) => (isNumber(value) ? `${value.toFixed(2)}×` : "–");
