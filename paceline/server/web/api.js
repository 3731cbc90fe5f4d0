// Talks to the server. Paths are relative, so the page also works behind a prefix.
import { load, save } from "./dom.js";

const POLL_TIMEOUT_MS = 10_000;

export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status; // 0: no answer at all
  }
}

let apiKey = load("sessionStorage", "key", "");

export const hasKey = () => apiKey !== "";

export function useKey(key) {
  apiKey = key;
  save("sessionStorage", "key", key);
}

/** Chunks of a streamed reply; throws a ServerError with words for the user. */
export async function* chat(body, signal) {
  const response = await request("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await failure(response);
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(messageOf(chunk) ?? "The server failed without saying why.");
    yield chunk;
  }
  throw new ServerError("The connection broke off before the reply was complete.");
}

/** {ready, progress}: progress is null where the server does not tell. */
export async function health() {
  const response = await request("health", { signal: AbortSignal.timeout(POLL_TIMEOUT_MS) });
  if (response.ok) return { ready: true, progress: 1 };
  if (response.status !== 503) throw await failure(response);
  const body = await response.json().catch(() => ({}));
  return { ready: false, progress: body.progress ?? null };
}

export const stats = () => get("paceline/stats");
export const props = () => get("props");

async function get(path) {
  const response = await request(path, { signal: AbortSignal.timeout(POLL_TIMEOUT_MS) });
  if (!response.ok) throw await failure(response);
  return response.json();
}

async function request(path, options) {
  const headers = { ...options.headers };
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
  try {
    return await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached. Is paceline serve still running?");
  }
}

async function failure(response) {
  const body = await response.json().catch(() => null);
  const said = messageOf(body) ?? `The server answered ${response.status} ${response.statusText}`.trim();
  return new ServerError(`${endSentence(said)}${waitingTime(response)}`, response.status);
}

function messageOf(body) {
  const said = body?.error?.message ?? body?.error ?? body?.detail;
  return typeof said === "string" && said ? said : null;
}

const endSentence = (text) => (/[.!?…]$/.test(text) ? text : `${text}.`);

function waitingTime(response) {
  const seconds = Number(response.headers.get("Retry-After"));
  return seconds > 0 ? ` Try again in ${seconds} s.` : "";
}

/** The data of server-sent events, one line each. */
async function* eventData(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await read(reader);
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    reader.cancel().catch(() => {}); // the stream may have failed already
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The connection broke off before the reply was complete.");
  }
}
