// The page: the wiring of everything on it.
import * as api from "./api.js";
import { Chat } from "./chat.js";
import { byId, load, percent, save } from "./dom.js";
import { Drawer } from "./drawer.js";
import { showReplyFigures } from "./figures.js";
import { offerDefaults, offerDrafters, setUpSettings } from "./settings.js";
import { Shelf } from "./shelf.js";
import { Monitor, showStats } from "./stats.js";
import { Transcript } from "./transcript.js";

const prompt = byId("prompt");
const shelf = new Shelf();
const chat = new Chat(new Transcript(), {
  busyChanged: showBusy,
  figures: showReplyFigures,
  cut: () => prompt.focus(), // the button that had it is gone
  failed: (error) => (error.status === 401 ? monitor.lock() : monitor.recheck()),
  changed: keep,
});
const monitor = new Monitor(showState, (stats) => {
  showStats(stats);
  offerDrafters((stats.drafters ?? []).map(({ name }) => name));
});

function keep(conversation) {
  const kept = shelf.keep(conversation);
  if (conversation !== chat.conversation) return;
  byId("unkept").hidden = kept;
  save("sessionStorage", "current", conversation.id);
}

function open(conversation) {
  prompt.value = chat.open(conversation) || prompt.value;
  byId("unkept").hidden = true;
  save("sessionStorage", "current", chat.conversation.id);
  fitPrompt();
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
  if (state !== "ready") return;
  byId("unlock").hidden = true;
  api.props().then(offerDefaults, () => {}); // without them the fields say less
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

function setUpComposer() {
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  prompt.addEventListener("input", fitPrompt);
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  byId("stop").addEventListener("click", () => chat.stop());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.isComposing && !document.querySelector("dialog[open]")) chat.stop();
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
new Drawer(shelf, chat, open);
open(shelf.load(load("sessionStorage", "current", "")) ?? undefined);
byId("new-chat").addEventListener("click", () => {
  open();
  prompt.focus();
});
