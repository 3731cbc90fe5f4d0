// What somebody asked, as it is seen; it can be edited.
import { button, element, removeOnwards } from "./dom.js";

export class UserView {
  #node;
  #text;
  #shown;

  constructor(node, text, edited) {
    this.#node = node;
    this.#text = text;
    const edit = button("Edit", () => this.#edit(edited), "Edit this message");
    this.#shown = [element("div", "lines", text), element("div", "actions", edit)];
    node.append(...this.#shown);
  }

  removeOnwards() {
    removeOnwards(this.#node);
  }

  #edit(edited) {
    const form = editForm(this.#text, (text) => (text === null ? this.#restore(form) : edited(text, this)));
    for (const each of this.#shown) each.remove();
    this.#node.append(form);
    form.querySelector("textarea").focus();
  }

  #restore(form) {
    form.remove();
    this.#node.append(...this.#shown);
    this.#shown[1].firstChild.focus();
  }
}

/** Calls back with the new text, or with null. */
function editForm(text, done) {
  const field = element("textarea");
  field.value = text;
  field.rows = Math.min(12, text.split("\n").length + 1);
  field.setAttribute("aria-label", "Edit this message; what follows it is dropped");
  const send = element("button", "primary", "Send");
  const form = element("form", "edit", field, element("div", "row", send, button("Cancel", () => done(null))));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim()) done(field.value.trim());
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    event.stopPropagation(); // it would stop the reply
    done(null);
  });
  return form;
}
