// The settings dialog; an empty field means the server's own default.
import { byId, load, save } from "./dom.js";

const FIELDS = ["system", "temperature", "max-tokens"];

export function setUpSettings() {
  const kept = load("localStorage", "settings", {});
  for (const id of FIELDS) byId(id).value = kept[id] ?? "";
  byId("open-settings").addEventListener("click", () => byId("settings").showModal());
  byId("settings").addEventListener("change", keep);
}

function keep() {
  save("localStorage", "settings", Object.fromEntries(FIELDS.map((id) => [id, byId(id).value])));
}

/** What the settings add to a request. */
export function requestOptions() {
  const options = {};
  const temperature = numberIn("temperature");
  const maxTokens = numberIn("max-tokens");
  if (temperature !== null) options.temperature = temperature;
  if (maxTokens !== null) options.max_tokens = maxTokens;
  return options;
}

export function systemMessages() {
  const content = byId("system").value.trim();
  return content ? [{ role: "system", content }] : [];
}

function numberIn(id) {
  const field = byId(id);
  return field.value !== "" && field.validity.valid ? field.valueAsNumber : null;
}
