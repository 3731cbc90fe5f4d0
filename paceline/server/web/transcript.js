// The conversation as it is seen.
import { announce, Announcer, hush } from "./announcer.js";
import { copy } from "./clipboard.js";
import { byId, element } from "./dom.js";
import { summary } from "./figures.js";
import { TextView } from "./text.js";

const NEAR_END_PX = 60;

export class Transcript {
  #log = byId("log");
  #empty = byId("empty");
  #followsEnd = true;
  #lastTop = 0;

  constructor() {
    this.#log.addEventListener("scroll", () => this.#noticeScroll());
    this.#log.addEventListener("click", copyCode);
  }

  /** Only the reader scrolls up: text that outruns our own scrolling must not end the following. */
  #noticeScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.#log;
    if (scrollHeight - scrollTop - clientHeight < NEAR_END_PX) this.#followsEnd = true;
    else if (scrollTop < this.#lastTop) this.#followsEnd = false;
    this.#lastTop = scrollTop;
  }

  clear() {
    this.#log.replaceChildren(this.#empty);
    hush();
    this.#followsEnd = true;
  }

  /** The talk goes on: what failed cannot be tried again, what was never answered not be edited. */
  settle() {
    for (const reply of this.#log.querySelectorAll("article.reply")) {
      reply.querySelector(".error button")?.remove();
      if (!reply.querySelector(":scope > .body").hasChildNodes()) reply.previousElementSibling.querySelector(".actions")?.remove();
    }
  }

  /** What somebody wrote; `edited` hears what it should have been, and the view. */
  addUser(text, edited) {
    this.#followsEnd = true;
    return new UserView(this.#add(article("user", "You")), text, edited);
  }

  /** `again` is asked for another reply than this one. */
  addReply(again) {
    return new ReplyView(this.#add(article("reply", "Model")), again, () => this.follow());
  }

  follow() {
    requestAnimationFrame(() => {
      if (this.#followsEnd) this.#log.scrollTop = this.#log.scrollHeight;
    });
  }

  #add(node) {
    this.#empty.remove();
    this.#log.append(node);
    this.follow();
    return node;
  }
}

function article(kind, speaker) {
  return element("article", kind, element("h3", "unseen", speaker));
}

function button(label, act, description = label) {
  const made = element("button", "", label);
  made.type = "button";
  if (description !== label) made.setAttribute("aria-label", description);
  made.addEventListener("click", () => act(made));
  return made;
}

function copyCode({ target }) {
  const pressed = target.closest("button.copy");
  if (pressed) copy(pressed.closest("figure").querySelector("code").textContent, pressed);
}

/** Takes a view out of the page, and all that followed it. */
function removeFrom(node) {
  while (node.nextSibling) node.nextSibling.remove();
  node.remove();
}

class UserView {
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
    removeFrom(this.#node);
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

class ReplyView {
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
    removeFrom(this.#node);
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
