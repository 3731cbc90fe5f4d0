// Copying. Browsers have a clipboard for pages of this machine and of TLS only; elsewhere the old way is left.
import { announce } from "./announcer.js";

const SHOWN_MS = 1500;

export async function copy(text, button) {
  const copied = await write(text);
  const label = button.textContent;
  button.textContent = copied ? "Copied" : "Not allowed";
  announce(button.textContent);
  setTimeout(() => (button.textContent = label), SHOWN_MS);
}

async function write(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return writeBySelection(text);
  }
}

function writeBySelection(text) {
  const before = document.activeElement;
  const field = document.createElement("textarea");
  field.className = "unseen";
  field.value = text;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  before?.focus();
  return copied;
}
