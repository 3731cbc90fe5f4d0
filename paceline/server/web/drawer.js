// The list of kept conversations: open, rename, delete, take out, bring in.
import { shorten, titleOf } from "./conversation.js";
import { button, byId, element } from "./dom.js";
import { MAX_CHARACTERS, MAX_KEPT } from "./shelf.js";
import { asJson, asMarkdown, download, fileName, readConversations } from "./transfer.js";

export class Drawer {
  #shelf;
  #chat;
  #onOpen;

  /** `onOpen` is called with the conversation to show; none means a new one. */
  constructor(shelf, chat, onOpen) {
    this.#shelf = shelf;
    this.#chat = chat;
    this.#onOpen = onOpen;
    byId("bounds").textContent = `The latest ${MAX_KEPT}, up to ${MAX_CHARACTERS / 1e6} MB, in this browser only.`;
    byId("open-drawer").addEventListener("click", () => this.#show());
    byId("drawer").addEventListener("click", ({ target }) => target === byId("drawer") && byId("drawer").close());
    byId("export-markdown").addEventListener("click", () => this.#exportMarkdown());
    byId("export-json").addEventListener("click", () => this.#exportJson([chat.conversation]));
    byId("export-all").addEventListener("click", () => this.#exportJson(this.#all()));
    byId("delete-all").addEventListener("click", () => this.#deleteAll());
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", () => this.#import());
    addEventListener("storage", () => byId("drawer").open && this.#list());
  }

  #show() {
    byId("transfer-result").textContent = "";
    const empty = !this.#chat.conversation.messages.length;
    byId("export-markdown").disabled = byId("export-json").disabled = empty;
    this.#list();
    byId("drawer").showModal();
  }

  /** Shows what is kept, and gives the focus to one of it, or to what is left. */
  #listAndFocus(id) {
    this.#list();
    const rows = [...byId("conversations").children];
    (rows.find((row) => row.dataset.id === id)?.querySelector("button") ?? byId("close-drawer")).focus();
  }

  #list() {
    const kept = this.#shelf.list();
    byId("export-all").disabled = byId("delete-all").disabled = !kept.length;
    byId("no-conversations").hidden = kept.length > 0;
    byId("conversations").replaceChildren(...kept.map((entry) => this.#row(entry)));
  }

  #row(entry) {
    const row = element("li");
    row.dataset.id = entry.id;
    const open = button(entry.title, () => this.#open(entry.id));
    open.className = "title";
    if (entry.id === this.#chat.conversation.id) open.setAttribute("aria-current", "true");
    const date = element("time", "quiet", new Date(entry.updated).toLocaleString());
    date.dateTime = new Date(entry.updated).toISOString();
    const rename = button("Rename", () => this.#rename(row, entry), `Rename ${entry.title}`);
    const remove = button("Delete", () => this.#delete(entry), `Delete ${entry.title}`);
    row.append(open, date, element("div", "actions", rename, remove));
    return row;
  }

  #open(id) {
    byId("drawer").close();
    if (id !== this.#chat.conversation.id) this.#onOpen(this.#shelf.load(id) ?? undefined);
  }

  #rename(row, entry) {
    const field = element("input");
    field.value = entry.title;
    field.setAttribute("aria-label", "Title");
    const form = element("form", "row", field, element("button", "primary", "Save"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#keepTitle(entry.id, shorten(field.value));
    });
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault(); // it would close the drawer
      this.#listAndFocus(entry.id);
    });
    row.replaceChildren(form);
    field.select();
  }

  #keepTitle(id, title) {
    const current = this.#chat.conversation;
    const renamed = id === current.id ? current : this.#shelf.load(id);
    if (renamed) this.#shelf.keep(Object.assign(renamed, { title }));
    this.#listAndFocus(id);
  }

  #delete(entry) {
    if (!confirm(`Delete “${entry.title}”?`)) return;
    this.#shelf.throwAway(entry.id);
    if (entry.id === this.#chat.conversation.id) this.#onOpen();
    this.#listAndFocus("");
  }

  #deleteAll() {
    if (!confirm("Delete all conversations that are kept in this browser?")) return;
    for (const { id } of this.#shelf.list()) this.#shelf.throwAway(id);
    this.#onOpen();
    this.#listAndFocus("");
  }

  #all() {
    return this.#shelf.list().map(({ id }) => this.#shelf.load(id)).filter(Boolean);
  }

  #exportMarkdown() {
    const { conversation } = this.#chat;
    download(fileName(conversation, "md"), asMarkdown(conversation), "text/markdown");
  }

  #exportJson(conversations) {
    const name = conversations.length === 1 ? fileName(conversations[0], "json") : "conversations.json";
    download(name, asJson(conversations), "application/json");
  }

  async #import() {
    const [file] = byId("import-file").files;
    byId("import-file").value = "";
    if (file) byId("transfer-result").textContent = await this.#take(file).catch((error) => error.message);
    this.#list();
  }

  async #take(file) {
    const found = await readConversations(file);
    const kept = found.filter((conversation) => this.#shelf.add(conversation));
    if (kept.length < found.length) return `There is room for ${kept.length} of ${found.length} conversations; delete some first.`;
    return found.length === 1 ? `Imported “${titleOf(found[0])}”.` : `Imported ${found.length} conversations.`;
  }
}
