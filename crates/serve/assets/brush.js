// Choosing a time range on a chart: by dragging over its bars, or with the arrow keys and Shift.

/** Watches a chart of `count` bars. `place(event)` gives the bar under a pointer; `chosen(from, to)` gets both ends, or nothing. */
export function brush(picture, count, { place, mark, chosen }) {
  let start;
  let at = count - 1;
  let anchor = at;
  const show = (from, to) => mark(Math.min(from, to), Math.max(from, to));
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = place(event);
    picture.setPointerCapture(event.pointerId);
    show(start, start);
  });
  picture.addEventListener("pointermove", (event) => {
    if (start !== undefined) show(start, place(event));
  });
  picture.addEventListener("pointerup", (event) => {
    if (start === undefined) return;
    const end = place(event);
    [anchor, at] = [start, end];
    start = undefined;
    chosen(Math.min(anchor, at), Math.max(anchor, at));
  });
  picture.addEventListener("pointercancel", () => {
    start = undefined;
  });
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") return chosen(undefined, undefined);
    if (step === undefined) return undefined;
    event.preventDefault();
    at = Math.max(0, Math.min(count - 1, at + step));
    if (!event.shiftKey) anchor = at;
    return chosen(Math.min(anchor, at), Math.max(anchor, at));
  });
}
