// A conversation: its shape, and how something that claims to be one is brought into it. Messages carry OpenAI's names;
// `drafted` says where a text was guessed.
import { isNumber } from "./dom.js";

const MAX_MESSAGES = 2000;
const MAX_MARKS = 100_000;
const LONGEST_TITLE = 80;
const DRAFTER = /^[a-z0-9][a-z0-9-]{0,39}$/;
const TIMINGS = ["predicted_n", "predicted_per_second", "draft_n", "draft_n_accepted"];

export function newConversation() {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, messages: [] };
}

/** In a page that came without TLS there is no randomUUID. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function titleOf({ title, messages }) {
  return title || shorten(messages.find(({ role }) => role === "user")?.content ?? "") || "New chat";
}

export const shorten = (text) => text.trim().split("\n")[0].slice(0, LONGEST_TITLE);

/** What of it is a conversation, or null. Nothing is believed: it may come from a file, or from another program. */
export function conversationOf(value) {
  if (!Array.isArray(value?.messages)) return null;
  const messages = value.messages.slice(0, MAX_MESSAGES).map(messageOf).filter(Boolean);
  if (!messages.length) return null;
  const fresh = newConversation();
  return {
    id: fresh.id,
    title: isText(value.title) ? shorten(value.title) : "",
    created: dateOf(value.created, fresh.created),
    updated: dateOf(value.updated, fresh.updated),
    messages,
  };
}

function messageOf(value) {
  if (!isText(value?.content)) return null;
  if (value.role === "user") return { role: "user", content: value.content };
  if (value.role !== "assistant") return null;
  return {
    role: "assistant",
    content: value.content,
    reasoning_content: isText(value.reasoning_content) ? value.reasoning_content : "",
    drafted: marksIn(value.drafted),
    reasoning_drafted: marksIn(value.reasoning_drafted),
    timings: timingsOf(value.timings),
  };
}

/** The few figures that are shown. */
export function timingsOf(value) {
  if (!isNumber(value?.predicted_n)) return null;
  return Object.fromEntries(TIMINGS.filter((name) => isNumber(value[name])).map((name) => [name, value[name]]));
}

function marksIn(value) {
  if (!Array.isArray(value)) return [];
  return value.slice(0, MAX_MARKS).filter(isMark);
}

function isMark(value) {
  if (!Array.isArray(value)) return false;
  const [from, length, source] = value;
  return Number.isInteger(from) && Number.isInteger(length) && from >= 0 && length > 0 && DRAFTER.test(source);
}

const isText = (value) => typeof value === "string";
const dateOf = (value, fallback) => (isNumber(value) && value > 0 && value <= fallback ? value : fallback);
