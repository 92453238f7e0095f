// The conversation on the page. Only its end is in the document: older entries come when they are asked for, so a long
// history opens as fast as a short one.

import { beforePaint, h, say, t } from "./kit.js";
import { card } from "./cards.js";

/** Entries that are shown at first, and that each press of the button adds. */
const WINDOW = 200;

export class Transcript {
  #cards = new Map();
  #ticking = new Set();
  #first = 0;
  /** Does the reader follow the end? Somebody who reads further up is left there. */
  #follows = true;
  #top = 0;

  constructor(root, conversation, context) {
    this.root = root;
    this.conversation = conversation;
    this.context = context;
    this.earlier = h("button", { type: "button", class: "quiet earlier", hidden: true, on: { click: () => this.#showEarlier() } });
    this.list = h("div", { class: "entries" });
    this.busy = h("p", { class: "entry busy", hidden: true }, t("thinking"));
    root.replaceChildren(this.earlier, this.list, this.busy);
    this.draw = beforePaint(() => this.drawNow());
    this.timer = setInterval(() => this.#tick(), 200);
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
    new ResizeObserver(() => this.#stick()).observe(root);
  }

  /** Brings the page up to date. */
  drawNow() {
    const { conversation } = this;
    const from = Math.max(this.#first, conversation.entries.length - WINDOW * 2);
    if (this.#cards.size === 0) this.#first = Math.max(0, conversation.entries.length - WINDOW);
    else if (from > this.#first && this.#follows) this.#forget(from);
    const fresh = document.createDocumentFragment();
    for (let index = this.#first + this.list.childElementCount; index < conversation.entries.length; index += 1) {
      fresh.append(this.#make(conversation.entries[index]));
    }
    this.list.append(fresh);
    for (const entry of conversation.changed) this.#update(entry);
    conversation.changed.clear();
    this.busy.hidden = conversation.busy === undefined;
    this.earlier.hidden = this.#first === 0;
    say(this.earlier, t("earlier", { n: Math.min(this.#first, WINDOW) }));
    this.#stick();
  }

  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = document.documentElement;
    if (scrollTop < this.#top - 2) this.#follows = false;
    if (scrollTop + clientHeight >= scrollHeight - 80) this.#follows = true;
    this.#top = scrollTop;
  }

  /** Marks the first of these entries that is in the document; says whether there was one. `text(index)` is the mark. */
  markNew(isNew, text) {
    const isShown = (entry, index) => isNew(entry, index) && this.#cards.get(entry)?.element.hidden === false;
    const index = this.conversation.entries.findIndex(isShown);
    if (index < 0) return false;
    this.list.querySelector("[data-since]")?.removeAttribute("data-since");
    this.#cards.get(this.conversation.entries[index]).element.dataset.since = text(index);
    return true;
  }

  /** Back to the end: whoever says something wants to see what comes of it. */
  follow() {
    this.#follows = true;
    this.#stick();
  }

  #stick() {
    if (this.#follows) scrollTo({ top: document.documentElement.scrollHeight });
  }

  #make(entry) {
    const made = card(entry, this.context);
    this.#cards.set(entry, made);
    made.update();
    if (made.tick !== undefined) this.#ticking.add(made);
    return made.element;
  }

  #update(entry) {
    const made = this.#cards.get(entry);
    if (made === undefined) return;
    made.update();
    if (made.tick !== undefined) this.#ticking.add(made);
  }

  #tick() {
    for (const made of this.#ticking) {
      if (!made.tick()) this.#ticking.delete(made);
    }
  }

  /** Lets go of the oldest entries; they are one press away. */
  #forget(from) {
    for (let index = this.#first; index < from; index += 1) {
      this.#cards.delete(this.conversation.entries[index]);
      this.list.firstElementChild?.remove();
    }
    this.#first = from;
  }

  #showEarlier() {
    const from = Math.max(0, this.#first - WINDOW);
    const older = document.createDocumentFragment();
    for (let index = from; index < this.#first; index += 1) older.append(this.#make(this.conversation.entries[index]));
    const height = document.documentElement.scrollHeight;
    this.list.prepend(older);
    this.#first = from;
    scrollBy({ top: document.documentElement.scrollHeight - height });
    this.earlier.hidden = from === 0;
    say(this.earlier, t("earlier", { n: Math.min(from, WINDOW) }));
  }
}
