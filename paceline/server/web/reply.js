// What the model answers, as it is seen: thoughts, text, figures, and what can be done with it.
import { announce, Announcer } from "./announcer.js";
import { copy } from "./clipboard.js";
import { button, element, removeOnwards } from "./dom.js";
import { summary } from "./figures.js";
import { TextView } from "./text.js";

export class ReplyView {
  #node;
  #again;
  #grown;
  #announcer = new Announcer();
  #thoughts = null;
  #body = element("div", "body");
  #content = new TextView(this.#body, () => this.#grown());
  #waiting = element("p", "waiting", "…");

  constructor(node, again, grown) {
    this.#node = node;
    this.#again = again;
    this.#grown = grown;
    node.append(this.#waiting, this.#body);
    node.classList.add("streaming");
  }

  pushReasoning(pieces) {
    if (!pieces.length) return;
    this.#waiting.remove();
    this.#thoughts ??= this.#addThoughts();
    for (const { text, source } of pieces) this.#thoughts.view.push(text, source);
  }

  pushContent(pieces) {
    if (!pieces.length) return;
    this.#waiting.remove();
    this.#thoughts?.done();
    for (const { text, source } of pieces) {
      this.#content.push(text, source);
      this.#announcer.push(text);
    }
  }

  finish(text, timings, note = "") {
    this.#waiting.remove();
    this.#thoughts?.done();
    this.#content.finish();
    this.#announcer.finish();
    this.#node.classList.remove("streaming");
    const parts = [note, ...summary(timings)].filter(Boolean);
    if (parts.length) this.#node.append(element("p", "footnote", parts.join(" · ")));
    if (text || this.#thoughts) this.#addActions(text);
    this.#grown();
  }

  fail(message) {
    const retry = button("Try again", () => this.#again(this));
    const box = element("div", "error", element("p", "", message), retry);
    box.setAttribute("role", "alert");
    this.#node.querySelector(".actions .again")?.remove();
    this.#node.append(box);
    this.#grown();
  }

  removeOnwards() {
    removeOnwards(this.#node);
  }

  #addActions(text) {
    const again = button("Regenerate", () => this.#again(this), "Regenerate this reply");
    again.className = "again";
    this.#node.append(element("div", "actions", button("Copy", (pressed) => copy(text, pressed), "Copy this reply"), again));
  }

  #addThoughts() {
    const thoughts = new Thoughts(() => this.#grown());
    this.#body.before(thoughts.node);
    announce("Thinking");
    return thoughts;
  }
}

/** Open while the model thinks, folded when it answers, unless the reader has chosen. */
class Thoughts {
  #title = element("summary", "", "Thinking…");
  #text = element("div", "body");
  #chosen = false;
  node = element("details", "reasoning", this.#title, this.#text);

  constructor(drawn) {
    this.view = new TextView(this.#text, drawn);
    this.node.open = true;
    this.#title.addEventListener("click", () => (this.#chosen = true));
  }

  done() {
    if (this.#title.textContent === "Thoughts") return;
    this.#title.textContent = "Thoughts";
    this.view.finish();
    if (!this.#chosen) this.node.open = false;
  }
}
