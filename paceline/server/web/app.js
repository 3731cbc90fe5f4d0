// The page: a chat, and the wiring of everything around it.
import * as api from "./api.js";
import { byId, load, percent, save, share, speed } from "./dom.js";
import { append, PieceFinder } from "./pieces.js";
import { requestOptions, setUpSettings, systemMessages } from "./settings.js";
import { Monitor, showStats } from "./stats.js";
import { Transcript } from "./transcript.js";

const NOTES = { length: "stopped at the limit of tokens" };

class Chat {
  #messages = load("sessionStorage", "messages", []);
  #transcript = new Transcript();
  #running = null; // the AbortController of the reply being streamed

  constructor() {
    this.unanswered = this.#messages.at(-1)?.role === "user" ? this.#messages.pop().content : "";
    for (const message of this.#messages) this.#restore(message);
    byId("announcer").replaceChildren(); // old text is not news
  }

  get busy() {
    return this.#running !== null;
  }

  async send(text) {
    if (this.#messages.at(-1)?.role === "user") this.#messages.pop(); // it was never answered
    document.querySelectorAll(".error button").forEach((button) => button.remove());
    this.#messages.push({ role: "user", content: text });
    this.#transcript.addUser(text);
    this.#keep();
    await this.#reply();
  }

  stop() {
    this.#running?.abort();
  }

  clear() {
    this.stop();
    this.#running = null;
    this.#messages = [];
    this.#transcript.clear();
    showFigures(null);
    this.#keep();
  }

  async #reply() {
    const controller = (this.#running = new AbortController());
    const reply = { role: "assistant", content: "", reasoning: [], pieces: [], timings: null };
    const view = this.#transcript.addReply();
    const finder = new PieceFinder();
    let note = "";
    let problem = null;
    showBusy();
    try {
      for await (const chunk of api.chat(this.#request(), controller.signal)) {
        note = this.#take(chunk, reply, view, finder) ?? note;
      }
    } catch (error) {
      if (controller.signal.aborted) note = "stopped";
      else problem = error;
    }
    view.finish(reply.timings, note);
    if (controller !== this.#running) return; // a new chat has begun meanwhile
    this.#running = null;
    if (reply.content) this.#messages.push(reply);
    if (problem) this.#fail(problem, view);
    this.#keep();
    showBusy();
  }

  #request() {
    const history = this.#messages.map(({ role, content }) => ({ role, content }));
    return { messages: [...systemMessages(), ...history], stream: true, timings_per_token: true, ...requestOptions() };
  }

  #take(chunk, reply, view, finder) {
    const choice = chunk.choices?.[0];
    const thought = finder.take(choice?.delta?.reasoning_content, chunk.paceline?.pieces);
    const said = finder.take(choice?.delta?.content);
    view.pushReasoning(thought);
    view.pushContent(said);
    append(reply.reasoning, thought);
    append(reply.pieces, said);
    reply.content += said.map((piece) => piece.text).join("");
    if (chunk.timings) {
      reply.timings = chunk.timings;
      showFigures(chunk.timings);
    }
    return NOTES[choice?.finish_reason];
  }

  #fail(error, view) {
    const retry = () => {
      view.remove();
      byId("prompt").focus(); // the button that had it is gone
      if (this.#messages.at(-1)?.role === "assistant") this.#messages.pop(); // a part of a reply
      this.#reply();
    };
    view.fail(error.message, retry);
    if (error.status === 401) monitor.lock();
    else monitor.recheck();
  }

  #restore(message) {
    if (message.role === "user") return this.#transcript.addUser(message.content);
    const view = this.#transcript.addReply();
    view.pushReasoning(message.reasoning);
    view.pushContent(message.pieces);
    view.finish(message.timings);
    showFigures(message.timings);
  }

  #keep() {
    save("sessionStorage", "messages", this.#messages);
  }
}

const prompt = byId("prompt");
const chat = new Chat();
const monitor = new Monitor(showState, showStats);

function showFigures(timings) {
  byId("speed").textContent = timings?.predicted_n > 1 ? speed(timings.predicted_per_second) : "–";
  byId("accepted").textContent = percent(share(timings?.draft_n_accepted, timings?.draft_n));
}

function showBusy() {
  const stopHadFocus = document.activeElement === byId("stop");
  byId("send").hidden = chat.busy;
  byId("stop").hidden = !chat.busy;
  if (stopHadFocus && !chat.busy) prompt.focus();
}

function canSend() {
  return !["loading", "locked"].includes(monitor.state);
}

function showState(state, progress) {
  byId("loading").hidden = state !== "loading";
  byId("offline").hidden = state !== "offline";
  byId("send").disabled = !canSend();
  showProgress(progress);
  if (state === "locked") askForKey();
  else if (state === "ready") byId("unlock").hidden = true;
}

function showProgress(progress) {
  const bar = byId("progress");
  if (progress === null) bar.removeAttribute("value");
  else bar.value = progress;
  byId("loading-text").textContent = progress === null ? "Loading the model…" : `Loading the model… ${percent(progress)}`;
}

function askForKey() {
  byId("unlock-error").textContent = api.hasKey() ? "The server refused this key." : "";
  byId("unlock").hidden = false;
  byId("api-key").focus();
}

function submit() {
  const text = prompt.value.trim();
  if (!text || chat.busy || !canSend()) return;
  prompt.value = "";
  fitPrompt();
  chat.send(text);
}

function fitPrompt() {
  prompt.style.blockSize = "auto";
  prompt.style.blockSize = `${prompt.scrollHeight + prompt.offsetHeight - prompt.clientHeight}px`;
}

function startNewChat() {
  chat.clear();
  showBusy();
  prompt.focus();
}

function setUpComposer() {
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  prompt.value = chat.unanswered;
  fitPrompt();
  prompt.addEventListener("input", fitPrompt);
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  byId("stop").addEventListener("click", () => chat.stop());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.isComposing && !byId("settings").open) chat.stop();
  });
}

function setUpUnlock() {
  byId("unlock").addEventListener("submit", (event) => {
    event.preventDefault();
    api.useKey(byId("api-key").value.trim());
    byId("api-key").value = "";
    monitor.recheck();
    prompt.focus();
  });
}

function setUpTint() {
  const box = byId("tint");
  const apply = () => document.body.classList.toggle("untinted", !box.checked);
  box.checked = load("localStorage", "tint", true);
  apply();
  box.addEventListener("change", () => {
    apply();
    save("localStorage", "tint", box.checked);
  });
}

function setUpStatsPanel() {
  const wide = matchMedia("(min-width: 60rem)");
  const apply = () => (byId("stats").open = wide.matches);
  wide.addEventListener("change", apply);
  apply();
}

setUpComposer();
setUpUnlock();
setUpTint();
setUpSettings();
setUpStatsPanel();
byId("new-chat").addEventListener("click", startNewChat);
