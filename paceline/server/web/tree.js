// A tree of what shall be on the page, and the page made to match it. What already matches stays: selections, focus and
// a pressed button survive while text streams in. Text only ever becomes text nodes.

/** A node of the tree. Children are nodes and strings; attributes of null are left out. */
export function node(tag, attributes = {}, children = []) {
  return { tag, attributes, children };
}

/** Add to a list of children; strings that meet become one. */
export function add(children, more) {
  for (const child of more) {
    if (typeof child === "string" && typeof children.at(-1) === "string") children[children.length - 1] += child;
    else if (child !== "") children.push(child);
  }
}

/** Make the children of a parent match, from `first` to the last. */
export function patch(parent, wanted, first = parent.firstChild) {
  let old = first;
  for (const child of wanted) {
    const next = old?.nextSibling ?? null;
    patchChild(parent, old, child);
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

function patchChild(parent, old, wanted) {
  if (typeof wanted === "string") patchText(parent, old, wanted);
  else if (old?.localName === wanted.tag) patchElement(old, wanted);
  else put(parent, old, patchElement(document.createElement(wanted.tag), wanted));
}

function patchText(parent, old, text) {
  if (old?.nodeType !== Node.TEXT_NODE) put(parent, old, document.createTextNode(text));
  else if (text.startsWith(old.data)) old.appendData(text.slice(old.length));
  else old.data = text;
}

function patchElement(element, { attributes, children }) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  }
  for (const name of element.getAttributeNames()) {
    if ((attributes[name] ?? null) === null) element.removeAttribute(name);
  }
  patch(element, children);
  return element;
}

function put(parent, old, fresh) {
  if (old) old.replaceWith(fresh);
  else parent.append(fresh);
}
