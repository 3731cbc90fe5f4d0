// One conversation with the model: asking, stopping, asking again, and keeping what was said.
import * as api from "./api.js";
import { hush } from "./announcer.js";
import { newConversation, timingsOf } from "./conversation.js";
import { append, marksOf, PieceFinder, piecesOf } from "./pieces.js";
import { requestOptions, systemMessages } from "./settings.js";

const NOTES = { length: "stopped at the limit of tokens" };

export class Chat {
  #conversation = newConversation();
  #running = null; // the AbortController of the reply being streamed
  #keepSoFar = () => {}; // of that reply
  #transcript;
  #listener;

  /** The listener hears of busyChanged(), figures(timings, streams), cut(), failed(error), changed(conversation). */
  constructor(transcript, listener) {
    this.#transcript = transcript;
    this.#listener = listener;
    addEventListener("pagehide", () => this.busy && this.#keepSoFar());
  }

  get busy() {
    return this.#running !== null;
  }

  get conversation() {
    return this.#conversation;
  }

  /** Show a conversation, or begin one. Says what was asked last and never answered. */
  open(conversation = newConversation()) {
    this.stop();
    this.#running = null;
    this.#conversation = conversation;
    this.#transcript.clear();
    this.#listener.figures(null, false);
    const unanswered = this.#dropUnanswered();
    for (const message of conversation.messages) this.#restore(message);
    hush();
    this.#listener.busyChanged();
    return unanswered;
  }

  async send(text) {
    this.#dropUnanswered();
    this.#transcript.settle();
    const message = { role: "user", content: text };
    this.#conversation.messages.push(message);
    this.#addUser(message);
    this.#keep(this.#conversation);
    await this.#reply();
  }

  stop() {
    this.#running?.abort();
  }

  #dropUnanswered() {
    const { messages } = this.#conversation;
    return messages.at(-1)?.role === "user" ? messages.pop().content : "";
  }

  #addUser(message) {
    this.#transcript.addUser(message.content, (text, view) => {
      this.#cutAt(message, view);
      this.send(text);
    });
  }

  #addReply(message) {
    return this.#transcript.addReply((view) => {
      this.#cutAt(message, view);
      this.#reply();
    });
  }

  /** Forget a message and what followed it. One that failed was never kept. */
  #cutAt(message, view) {
    this.stop();
    this.#running = null;
    view.removeOnwards();
    const { messages } = this.#conversation;
    const at = messages.indexOf(message);
    if (at >= 0) messages.length = at;
    this.#listener.cut();
  }

  async #reply() {
    const controller = (this.#running = new AbortController());
    const conversation = this.#conversation;
    const message = { role: "assistant", content: "" };
    const view = this.#addReply(message);
    const reply = new Reply(view, (timings) => controller === this.#running && this.#listener.figures(timings, true));
    this.#listener.busyChanged();
    this.#listener.figures(null, true);
    const keep = (this.#keepSoFar = () => this.#keepReply(conversation, Object.assign(message, reply.message())));
    const problem = await this.#stream(reply, controller.signal);
    const current = controller === this.#running;
    const elsewhere = conversation !== this.#conversation;
    if (current || elsewhere) keep();
    view.finish(message.content, reply.timings, reply.note);
    if (!current) return; // another conversation is shown, or this reply is not wanted any more
    this.#running = null;
    if (problem) this.#fail(problem, view);
    this.#listener.figures(reply.timings, false);
    this.#listener.busyChanged();
  }

  async #stream(reply, signal) {
    try {
      for await (const chunk of api.chat(this.#request(), signal)) reply.take(chunk);
      return null;
    } catch (error) {
      if (!signal.aborted) return error;
      reply.note = "stopped";
      return null;
    }
  }

  #request() {
    const history = this.#conversation.messages.map(({ role, content }) => ({ role, content }));
    return { messages: [...systemMessages(), ...history], stream: true, timings_per_token: true, ...requestOptions() };
  }

  #fail(error, view) {
    view.fail(error.message);
    this.#listener.failed(error);
  }

  #restore(message) {
    if (message.role === "user") return this.#addUser(message);
    const view = this.#addReply(message);
    view.pushReasoning(piecesOf(message.reasoning_content, message.reasoning_drafted));
    view.pushContent(piecesOf(message.content, message.drafted));
    view.finish(message.content, message.timings);
    this.#listener.figures(message.timings, false);
  }

  #keepReply(conversation, message) {
    if (!message.content) return;
    if (!conversation.messages.includes(message)) conversation.messages.push(message);
    this.#keep(conversation);
  }

  #keep(conversation) {
    conversation.updated = Date.now();
    this.#listener.changed(conversation);
  }
}

/** A reply on its way: what came of it so far. */
class Reply {
  note = "";
  timings = null;
  #view;
  #onTimings;
  #finder = new PieceFinder();
  #thoughts = [];
  #said = [];

  constructor(view, onTimings) {
    this.#view = view;
    this.#onTimings = onTimings;
  }

  take(chunk) {
    const choice = chunk.choices?.[0];
    const thought = this.#finder.take(choice?.delta?.reasoning_content, chunk.paceline?.pieces);
    const said = this.#finder.take(choice?.delta?.content);
    this.#view.pushReasoning(thought);
    this.#view.pushContent(said);
    append(this.#thoughts, thought);
    append(this.#said, said);
    this.note = NOTES[choice?.finish_reason] ?? this.note;
    if (!chunk.timings) return;
    this.timings = chunk.timings;
    this.#onTimings(chunk.timings);
  }

  message() {
    return {
      content: textOf(this.#said),
      reasoning_content: textOf(this.#thoughts),
      drafted: marksOf(this.#said),
      reasoning_drafted: marksOf(this.#thoughts),
      timings: timingsOf(this.timings),
    };
  }
}

const textOf = (pieces) => pieces.map((piece) => piece.text).join("");
