// The conversation as it is seen and heard.
import { byId, count, element, isNumber, percent, share, speed } from "./dom.js";
import { TextView } from "./text.js";

const NEAR_END_PX = 60;
const FENCE_LINES = /^[ \t]*`{3,}.*$/gm;
const SENTENCE_END = /^[\s\S]*(?:[.!?]\s|\n)/;

/** Says each finished sentence once; the visible log is no live region, or every token would be read out. */
class Announcer {
  #region = byId("announcer");
  #pending = "";

  push(text) {
    this.#pending += text;
    const finished = SENTENCE_END.exec(this.#pending)?.[0];
    if (!finished) return;
    this.#pending = this.#pending.slice(finished.length);
    this.say(finished);
  }

  finish() {
    this.say(this.#pending);
    this.#pending = "";
  }

  say(text) {
    const spoken = text.replace(FENCE_LINES, "").trim();
    if (!spoken) return;
    this.#region.append(element("p", "", spoken));
    while (this.#region.childElementCount > 4) this.#region.firstChild.remove();
  }
}

export class Transcript {
  #log = byId("log");
  #empty = byId("empty");
  #followsEnd = true;
  #lastTop = 0;

  constructor() {
    this.#log.addEventListener("scroll", () => this.#noticeScroll());
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
    byId("announcer").replaceChildren();
    this.#followsEnd = true;
  }

  addUser(text) {
    this.#followsEnd = true;
    return this.#add(article("user", "You", element("div", "lines", text)));
  }

  addReply() {
    return new ReplyView(this.#add(article("reply", "Model")), () => this.follow());
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

function article(kind, speaker, ...children) {
  return element("article", kind, element("h3", "unseen", speaker), ...children);
}

class ReplyView {
  #node;
  #grown;
  #announcer = new Announcer();
  #thoughts = null;
  #body = element("div", "body");
  #content = new TextView(this.#body);
  #waiting = element("p", "waiting", "…");

  constructor(node, grown) {
    this.#node = node;
    this.#grown = grown;
    node.append(this.#waiting, this.#body);
    node.classList.add("streaming");
  }

  pushReasoning(pieces) {
    if (!pieces.length) return;
    this.#waiting.remove();
    this.#thoughts ??= this.#addThoughts();
    for (const { text, source } of pieces) this.#thoughts.view.push(text, source);
    this.#grown();
  }

  pushContent(pieces) {
    if (!pieces.length) return;
    this.#waiting.remove();
    this.#thoughts?.done();
    for (const { text, source } of pieces) {
      this.#content.push(text, source);
      this.#announcer.push(text);
    }
    this.#grown();
  }

  finish(timings, note = "") {
    this.#waiting.remove();
    this.#thoughts?.done();
    this.#content.finish();
    this.#announcer.finish();
    this.#node.classList.remove("streaming");
    const parts = [note, ...summary(timings)].filter(Boolean);
    if (parts.length) this.#node.append(element("p", "footnote", parts.join(" · ")));
    this.#grown();
  }

  fail(message, retry) {
    const button = element("button", "", "Try again");
    button.type = "button";
    button.addEventListener("click", retry);
    const box = element("div", "error", element("p", "", message), button);
    box.setAttribute("role", "alert");
    this.#node.append(box);
    this.#grown();
  }

  remove() {
    this.#node.remove();
  }

  #addThoughts() {
    const thoughts = new Thoughts();
    this.#body.before(thoughts.node);
    this.#announcer.say("Thinking");
    return thoughts;
  }
}

/** Open while the model thinks, folded when it answers, unless the reader has chosen. */
class Thoughts {
  #title = element("summary", "", "Thinking…");
  #text = element("div", "body");
  #chosen = false;
  node = element("details", "reasoning", this.#title, this.#text);
  view = new TextView(this.#text);

  constructor() {
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

function summary(timings) {
  if (!isNumber(timings?.predicted_n)) return [];
  const parts = [`${count(timings.predicted_n)} tokens`, `${speed(timings.predicted_per_second)} tokens/s`];
  if (timings.draft_n > 0) {
    const accepted = percent(share(timings.draft_n_accepted, timings.draft_n));
    parts.push(`${count(timings.draft_n_accepted)} of ${count(timings.draft_n)} drafted accepted (${accepted})`);
  }
  return parts;
}
