// The conversation as it is seen.
import { hush } from "./announcer.js";
import { copy } from "./clipboard.js";
import { byId, element } from "./dom.js";
import { UserView } from "./question.js";
import { ReplyView } from "./reply.js";

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
      if (!reply.querySelector(":scope > .body").hasChildNodes()) reply.previousElementSibling?.querySelector(".actions")?.remove();
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

function copyCode({ target }) {
  const pressed = target.closest("button.copy");
  if (pressed) copy(pressed.closest("figure").querySelector("code").textContent, pressed);
}
