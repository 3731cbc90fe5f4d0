// Conversations as files, out and in.
import { conversationOf, shorten, titleOf } from "./conversation.js";

const MAX_BYTES = 16 * 1024 * 1024;
const MAX_IMPORTED = 100;

export function asJson(conversations) {
  const plain = conversations.map(({ id, ...rest }) => rest);
  return JSON.stringify({ format: "paceline-conversations", version: 1, conversations: plain }, null, 2);
}

export function asMarkdown(conversation) {
  const turns = conversation.messages.map(({ role, content }) => `## ${role === "user" ? "You" : "Model"}\n\n${content.trim()}\n`);
  return [`# ${titleOf(conversation)}\n`, ...turns].join("\n");
}

/** Conversations of a file: those of `asJson`, or one with `messages` as OpenAI's API takes them, or such a list. */
export async function readConversations(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than ${MAX_BYTES / 1024 / 1024} MiB.`);
  const value = parsed(await file.text());
  const listed = Array.isArray(value?.conversations) ? value.conversations : [Array.isArray(value) ? { messages: value } : value];
  const found = listed.slice(0, MAX_IMPORTED).map(conversationOf).filter(Boolean);
  if (!found.length) throw new Error(`${file.name} holds no conversation: expected JSON with "messages", as the export writes it.`);
  return found;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export function download(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export function fileName(conversation, ending) {
  const name = shorten(titleOf(conversation)).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
  return `${name || "chat"}.${ending}`;
}
