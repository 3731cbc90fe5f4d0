// The settings dialog. An empty field is the server's own default, and is not sent. A field's data-field is the name that
// requests know it by.
import { byId, element, load, save } from "./dom.js";
import { chip } from "./tints.js";

const fields = () => [...byId("settings").querySelectorAll("[data-field]")];
const drafterBoxes = () => [...byId("drafter-boxes").querySelectorAll("input")];

let off = new Set(); // drafters that were switched off; those of other servers too

export function setUpSettings() {
  const kept = load("localStorage", "settings", {});
  for (const field of [byId("system"), ...fields()]) field.value = kept[field.id] ?? "";
  byId("draft").checked = kept.draft !== false;
  off = new Set(Array.isArray(kept.off) ? kept.off : []);
  byId("open-settings").addEventListener("click", () => byId("settings").showModal());
  byId("settings").addEventListener("change", keep);
  byId("draft").addEventListener("change", keep);
  byId("reset-settings").addEventListener("click", reset);
  showDrafting();
}

function keep() {
  for (const box of drafterBoxes()) if (box.checked) off.delete(box.value); else off.add(box.value);
  const values = Object.fromEntries([byId("system"), ...fields()].map(({ id, value }) => [id, value]));
  save("localStorage", "settings", { ...values, draft: byId("draft").checked, off: [...off] });
  showDrafting();
}

function reset() {
  for (const field of [byId("system"), ...fields()]) field.value = "";
  for (const box of drafterBoxes()) box.checked = true;
  byId("draft").checked = true;
  off.clear();
  keep();
}

/** Lengths mean nothing while nobody drafts. */
function showDrafting() {
  const drafts = byId("draft").checked;
  byId("speculation").disabled = !drafts;
  byId("drafting-off").hidden = drafts;
}

/** Offer the drafters this server has. */
export function offerDrafters(names) {
  if (drafterBoxes().map((box) => box.value).join() === names.join()) return;
  byId("drafter-boxes").replaceChildren(...names.map(drafterBox));
}

function drafterBox(name) {
  const box = element("input");
  box.type = "checkbox";
  box.value = name;
  box.checked = !off.has(name);
  return element("label", "", box, chip(name));
}

/** Show the server's defaults where a field is empty. */
export function offerDefaults(props) {
  const defaults = props?.default_generation_settings?.params ?? {};
  for (const field of fields()) {
    const value = defaults[field.dataset.field];
    if (typeof value === "number" && value >= 0) field.placeholder = String(Number(value.toPrecision(6)));
  }
}

/** What the settings add to a request. */
export function requestOptions() {
  const given = fields().filter((field) => field.value !== "" && field.validity.valid && !field.matches(":disabled"));
  const options = Object.fromEntries(given.map((field) => [field.dataset.field, field.valueAsNumber]));
  return { ...options, ...drafting() };
}

function drafting() {
  if (!byId("draft").checked) return { "speculative.types": "none" };
  const boxes = drafterBoxes();
  const wanted = boxes.filter((box) => box.checked).map((box) => box.value);
  if (wanted.length === boxes.length) return {};
  return { "speculative.types": wanted.join(",") || "none" };
}

export function systemMessages() {
  const content = byId("system").value.trim();
  return content ? [{ role: "system", content }] : [];
}
