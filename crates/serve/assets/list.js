// A long list of which only the part in sight is in the document.

import { h } from "./kit.js";

const ROW = 30;
const SPARE = 12;

export class List {
  items = [];
  picked = -1;

  /** `make(item)` gives the children of a row, `pick(index)` is told what somebody chose. */
  constructor(root, make, pick) {
    this.root = root;
    this.make = make;
    this.pick = pick;
    this.space = h("div", { class: "space", role: "presentation" });
    root.replaceChildren(this.space);
    root.addEventListener("scroll", () => this.draw(), { passive: true });
    root.addEventListener("click", (event) => {
      const row = event.target.closest("[data-index]");
      if (row !== null) pick(Number(row.dataset.index));
    });
    root.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(root);
  }

  #key(event) {
    const page = Math.floor(this.root.clientHeight / ROW) - 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || this.items.length === 0) return;
    event.preventDefault();
    this.pick(Math.max(0, Math.min(this.items.length - 1, this.picked + step)));
  }

  show(items) {
    this.items = items;
    this.draw();
  }

  /** Marks a row and brings it into sight. */
  mark(index) {
    this.picked = index;
    if (index >= 0) {
      const top = index * ROW;
      const { scrollTop, clientHeight } = this.root;
      if (top < scrollTop || top + ROW > scrollTop + clientHeight) this.root.scrollTop = top - clientHeight / 2;
    }
    this.draw();
  }

  draw() {
    this.space.style.height = `${this.items.length * ROW}px`;
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - SPARE);
    const last = Math.min(this.items.length, first + Math.ceil(this.root.clientHeight / ROW) + SPARE * 2);
    const rows = [];
    for (let index = first; index < last; index += 1) {
      const isPicked = index === this.picked;
      const row = h("div", { class: "row", role: "option", id: `row-${index}`, "aria-selected": String(isPicked), "data-index": index }, this.make(this.items[index]));
      row.style.top = `${index * ROW}px`;
      rows.push(row);
    }
    this.space.replaceChildren(...rows);
    if (this.picked >= first && this.picked < last) this.root.setAttribute("aria-activedescendant", `row-${this.picked}`);
    else this.root.removeAttribute("aria-activedescendant");
  }
}
