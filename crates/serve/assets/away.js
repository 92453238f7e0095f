// A tab that slept: what came meanwhile is marked once it is here, however long the browser had frozen the page.

import { clock, t } from "./kit.js";

/** Entries of before that show something new when they change; a message or an end of a turn only changes its buttons. */
const GROWS = ["answer", "thought", "call", "question"];

export class Away {
  /** Since when nobody looks, how many entries there were, and up to which position the rest was missed; undefined once that is marked. */
  #gone;

  /** `head()` asks the server for the last position of the session; `redraw()` brings the page up to date, which calls `mark()`. */
  constructor(conversation, transcript, { head, redraw }) {
    Object.assign(this, { conversation, transcript, head, redraw });
    const leave = () => this.#leave();
    const comeBack = () => this.#comeBack();
    document.addEventListener("visibilitychange", () => (document.hidden ? leave() : comeBack()));
    // A browser may freeze a page for hours, and then it hears of it here.
    document.addEventListener("freeze", leave);
    document.addEventListener("resume", comeBack);
  }

  #leave() {
    if (this.#gone?.until === 0) return;
    this.#gone = { since: new Date(), count: this.conversation.entries.length, until: 0 };
    this.conversation.moved = new Map();
  }

  /** What came meanwhile may be here, on its way, or still at the server. */
  async #comeBack() {
    if (document.hidden || this.#gone?.until !== 0) return;
    const head = await this.head().catch(() => undefined);
    if (head !== undefined) this.missedUpTo(head);
  }

  /** Events up to here happened while nobody looked. */
  missedUpTo(seq) {
    if (this.#gone === undefined || document.hidden) return;
    this.#gone.until = Math.max(this.#gone.until, seq);
    this.redraw();
  }

  /** Marks what was missed, if it is here. */
  mark() {
    if (this.#gone === undefined || this.#gone.until === 0) return;
    const { conversation, transcript } = this;
    const { count, since, until } = this.#gone;
    const isNew = (entry, index) => conversation.moved.get(entry) <= until && (index >= count || GROWS.includes(entry.is));
    const text = (index) => t(index < count ? "more-since" : "new-since", { time: clock(since) });
    if (transcript.markNew(isNew, text) || conversation.facts.head > until) conversation.moved = this.#gone = undefined;
  }
}
