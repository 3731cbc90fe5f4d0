// Conversations kept in this browser: one entry of its storage each, so that two tabs do not overwrite each other. When
// there are too many, the one that was used longest ago goes.
import { conversationOf, titleOf } from "./conversation.js";

export const MAX_KEPT = 100;
export const MAX_CHARACTERS = 4_000_000; // browsers give five million
const PREFIX = "paceline.chat.";

export class Shelf {
  #thrownAway = new Set();

  /** {id, title, updated} of each, the latest first. */
  list() {
    const found = ids().map((id) => this.load(id));
    return found
      .filter(Boolean)
      .map((kept) => ({ id: kept.id, title: titleOf(kept), updated: kept.updated }))
      .sort((a, b) => b.updated - a.updated);
  }

  load(id) {
    try {
      const kept = conversationOf(JSON.parse(localStorage.getItem(PREFIX + id)));
      return kept && { ...kept, id };
    } catch {
      return null; // blocked storage, or somebody else's value
    }
  }

  /** Whether there was room for it. What was thrown away does not come back with a late reply. */
  keep(conversation) {
    if (this.#thrownAway.has(conversation.id)) return true;
    const text = JSON.stringify(conversation);
    if (text.length > MAX_CHARACTERS / 2) return false;
    const others = this.#oldestFirst(conversation.id);
    while (!hasRoom(conversation.id, text)) if (!removeNext(others)) break;
    return write(conversation.id, text); // where others of this address fill the storage, ours need not go in vain
  }

  /** Like keep, but others do not have to go for it. */
  add(conversation) {
    const text = JSON.stringify(conversation);
    return hasRoom(conversation.id, text) && write(conversation.id, text);
  }

  throwAway(id) {
    this.#thrownAway.add(id);
    remove(id);
  }

  /** Reads them all, so only when the first is asked for. */
  *#oldestFirst(besides) {
    yield* this.list().reverse().filter(({ id }) => id !== besides);
  }
}

function removeNext(others) {
  const { value, done } = others.next();
  if (!done) remove(value.id);
  return !done;
}

function hasRoom(id, text) {
  const others = ids().filter((each) => each !== id);
  const size = others.reduce((sum, each) => sum + localStorage.getItem(PREFIX + each).length, 0);
  return others.length < MAX_KEPT && size + text.length <= MAX_CHARACTERS;
}

function ids() {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length));
  } catch {
    return [];
  }
}

function write(id, text) {
  try {
    localStorage.setItem(PREFIX + id, text);
    return true;
  } catch {
    return false; // blocked or full
  }
}

function remove(id) {
  try {
    localStorage.removeItem(PREFIX + id);
  } catch {
    // blocked: there is nothing to remove
  }
}
