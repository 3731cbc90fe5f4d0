// What the server tells about itself once a second: drafters, slots, speed.
import * as api from "./api.js";
import { byId, count, element, isNumber, percent, share, speed } from "./dom.js";
import { acceptance, showSpeedup } from "./figures.js";
import { addToLegend, chip } from "./tints.js";

const POLL_MS = 1000;
const N_POSITIONS = 16;

/** Watches the server while the tab is visible. States: unknown, loading, ready, locked, offline. */
export class Monitor {
  state = "unknown";
  #onState;
  #onStats;
  #hasStats = true;
  #timer = 0;
  #checking = false;

  constructor(onState, onStats) {
    this.#onState = onState;
    this.#onStats = onStats;
    document.addEventListener("visibilitychange", () => this.#tick());
    this.#tick();
  }

  /** Look again now: there is a new key, or a request failed. */
  recheck() {
    this.state = "unknown";
    this.#tick();
  }

  lock() {
    this.#become("locked");
  }

  async #tick() {
    clearTimeout(this.#timer);
    if (document.hidden || this.#checking) return;
    this.#checking = true;
    await this.#check().catch((error) => this.#take(error));
    this.#checking = false;
    this.#timer = setTimeout(() => this.#tick(), POLL_MS);
  }

  async #check() {
    if (this.state === "locked") return;
    if (this.state !== "ready" || !this.#hasStats) {
      const { ready, progress } = await api.health();
      if (!ready) return this.#become("loading", progress);
    }
    if (this.#hasStats) this.#onStats(await api.stats());
    this.#become("ready");
  }

  #take(error) {
    if (error.status === 401) return this.#become("locked");
    if (error.status === 503) return this.#become("unknown");
    if (!error.status) return this.#become("offline");
    if (error.status === 404) this.#hasStats = false; // switched off, or another server
    this.#become("ready");
  }

  #become(state, progress = null) {
    const changed = state !== this.state || state === "loading";
    this.state = state;
    if (changed) this.#onState(state, progress);
  }
}

let shown = "";

export function showStats(stats) {
  const news = JSON.stringify(stats);
  if (news === shown) return;
  shown = news;
  byId("model").textContent = baseName(stats.model ?? "");
  byId("model").title = stats.model ?? "";
  showSpeedup(stats);
  byId("server-speed").textContent = `All slots together: ${speed(stats.speed)} tokens/s`;
  showDrafters(stats.drafters ?? []);
  byId("slots").replaceChildren(...(stats.slots ?? []).map(slotRow));
}

const baseName = (model) => model.split(/[\\/]/).pop();

function showDrafters(drafters) {
  if (!drafters.length) return;
  for (const { name } of drafters) addToLegend(name);
  byId("drafters").replaceChildren(...drafters.map(drafterRow));
}

function drafterRow(drafter) {
  const accepted = acceptance(drafter.n_accepted, drafter.n_tokens);
  const head = element("div", "head", chip(drafter.name), element("strong", "", accepted));
  const numbers =
    `${count(drafter.n_accepted)} of ${count(drafter.n_tokens)} tokens accepted, ` +
    `drafted in ${count(drafter.n_drafts)} of ${count(drafter.n_calls)} calls`;
  const row = element("div", "drafter", head, bar(share(drafter.n_accepted, drafter.n_tokens)), element("p", "quiet", numbers));
  row.dataset.tint = head.firstChild.dataset.tint;
  const positions = (drafter.acceptance_by_position ?? []).slice(0, N_POSITIONS);
  if (positions.length) row.append(positionBars(positions));
  return row;
}

function bar(value) {
  const fill = element("span");
  fill.style.inlineSize = `${100 * clamp(value)}%`;
  return element("div", "bar", fill); // the number stands beside it
}

function positionBars(positions) {
  const bars = positions.map((value, index) => positionBar(value, index + 1));
  const chart = element("div", "positions", ...bars);
  chart.setAttribute("role", "img");
  const values = positions.map((value, index) => `${index + 1}: ${percent(value)}`).join(", ");
  chart.setAttribute("aria-label", `Acceptance by position: ${values}`);
  return element("figure", "", chart, element("figcaption", "quiet", `by position in the draft, 1 to ${positions.length}`));
}

function positionBar(value, position) {
  const fill = element("span");
  fill.style.blockSize = `${100 * clamp(value)}%`;
  const column = element("div", "", fill);
  column.title = `position ${position}: ${percent(value)}`;
  return column;
}

const clamp = (value) => (isNumber(value) ? Math.min(1, Math.max(0, value)) : 0);

function slotRow(slot) {
  const state = slot.busy ? "busy" : "free";
  const head = element("div", "head", `${slot.id} · ${state}`, element("span", "quiet", `${count(slot.n_tokens)} / ${count(slot.n_ctx)}`));
  const row = element("li", state, head, bar(share(slot.n_tokens, slot.n_ctx)));
  return row;
}
