// A session over time: turns, model requests, calls in lanes of their own, faults, recoveries, and every wait at its true
// length. `lanesOf` and `placesOf` are pure; what is drawn follows from them. Only time between turns is drawn shorter.

import { h, span, svg, t } from "./kit.js";

/** Time between turns beyond this is folded. */
const IDLE_MS = 5000;
/** How much of the picture one folded gap takes. */
const IDLE_SHARE = 0.03;
/** Silence inside a turn that is drawn as such, unless a call runs: its bar shows that. */
const HANG_MS = 2000;
/** Events that a process writes together when it takes a session over. */
const SAME_MS = 50;
const ROW = 16;
const MARGIN = { left: 64, right: 8, top: 22, bottom: 20 };
/** More bars than this are joined where they touch: nobody sees the difference, the browser does. */
const BARS_MAX = 1500;
const ENDS = ["agent.final_answer", "agent.interrupted", "agent.error"];
const ANSWERS = ["agent.partial_answer", "agent.llm_message", "agent.final_answer", "error.recovery_success"];

/** The spans and marks of frames, each with its position. */
export function lanesOf(frames) {
  const made = { turns: [], steps: [], calls: [], faults: [], recoveries: [], waits: [], lanes: 0 };
  const open = new Map();
  const busy = [];
  const asked = new Map();
  let [turn, step, hold, resumed] = [];
  const wait = (is, from, to) => {
    const entry = { is, from, to };
    made.waits.push(entry);
    return entry;
  };
  frames.forEach((frame, index) => {
    const meta = frame.metadata ?? {};
    if (turn === undefined && ["agent.thinking", "plan.start", "solver.start"].includes(frame.event)) {
      turn = { from: index, to: index, number: made.turns.length + 1 };
      made.turns.push(turn);
    }
    // Silence: a process that was gone, a model or a tool that said nothing, a wait before a retry.
    const before = frames[index - 1];
    const silence = before === undefined ? 0 : Date.parse(frame.timestamp) - Date.parse(before.timestamp);
    if (meta.action === "session_resumed") [step, resumed] = [down(made, frames, index), index];
    else if (before?.event === "error.retry_attempt") wait("retry", index - 1, index);
    else if (turn !== undefined && index > turn.from && silence >= HANG_MS && hold === undefined && asked.size === 0 && open.size === 0) wait("hang", index - 1, index);
    if (meta.hold_reason !== undefined) hold ??= wait("hold", index, index);
    if (hold !== undefined) hold.to = index;
    if (ANSWERS.includes(frame.event) || ENDS.includes(frame.event) || (frame.event === "agent.thinking" && meta.streaming)) hold = undefined;
    if (frame.event === "agent.user_confirm") asked.set(frame.step_id, wait("question", index, index));
    for (const entry of asked.values()) entry.to = index;
    if (meta.action === "confirmation_answered" || frame.event === "agent.timeout") asked.delete(meta.question_id);
    if (turn !== undefined) turn.to = index;
    if (frame.event === "agent.thinking" && meta.streaming === false) {
      step = { from: index, to: index, attempt: meta.attempt };
      made.steps.push(step);
      resumed = undefined;
    } else if (["agent.partial_answer", "agent.thinking", "agent.llm_message", "agent.final_answer"].includes(frame.event)) {
      // The request that a resumed turn makes again is not announced.
      if (step === undefined && resumed !== undefined && turn !== undefined) {
        step = { from: resumed, to: index };
        made.steps.push(step);
      }
      resumed = undefined;
      if (step !== undefined) step.to = index;
    }
    if (frame.event === "agent.tool_call" && !open.has(frame.step_id)) {
      const lane = busy.includes(false) ? busy.indexOf(false) : busy.length;
      busy[lane] = true;
      const call = { from: index, to: index, tool: meta.tool_name, lane, status: "running" };
      open.set(frame.step_id, call);
      made.calls.push(call);
      made.lanes = Math.max(made.lanes, lane + 1);
    }
    if (frame.event === "agent.tool_result") {
      const call = open.get(frame.step_id);
      if (call !== undefined) {
        Object.assign(call, { to: index, status: meta.status, took: meta.execution_time_ms });
        busy[call.lane] = false;
        open.delete(frame.step_id);
      }
      if (meta.status === "failed") made.faults.push({ at: index, code: meta.error_code });
    }
    if (frame.event === "error.recovery_success") made.recoveries.push({ at: index, code: meta.error_code });
    else if (frame.event.startsWith("error.") && !["error.retry_attempt", "error.recovery_started"].includes(frame.event)) {
      made.faults.push({ at: index, code: meta.error_code, isEnd: frame.event === "error.recovery_failed" });
    }
    if (ENDS.includes(frame.event)) {
      for (const call of open.values()) {
        call.to = index;
        busy[call.lane] = false;
      }
      open.clear();
      asked.clear();
      turn = step = hold = resumed = undefined;
    }
  });
  return made;
}

/** A process was gone from its last event before the silence up to here; what the new one wrote first stands between. */
function down(made, frames, index) {
  const at = (place) => Date.parse(frames[place].timestamp);
  let from = index;
  while (from > 0 && at(index) - at(from) < SAME_MS) from -= 1;
  made.waits = made.waits.filter((wait) => wait.is !== "hang" || wait.to <= from);
  made.waits.push({ is: "down", from, to: index });
  // What ran ended with its process.
  const last = made.steps.at(-1);
  if (last !== undefined && last.to > from) last.to = from;
}

/** Where each frame stands between 0 and 1, in true time within turns; and the folded gaps between turns. */
export function placesOf(frames, turns) {
  const times = Float64Array.from(frames, ({ timestamp }) => Date.parse(timestamp));
  for (let index = 1; index < times.length; index += 1) times[index] = Math.max(times[index], times[index - 1] || 0);
  const gaps = [];
  let next = 0;
  for (let index = 1; index < times.length; index += 1) {
    while (next < turns.length && turns[next].to < index) next += 1;
    const isInside = next < turns.length && turns[next].from < index;
    if (!isInside && times[index] - times[index - 1] > IDLE_MS) gaps.push({ at: index, ms: times[index] - times[index - 1] });
  }
  const whole = (times.at(-1) ?? 0) - (times[0] ?? 0);
  const active = Math.max(1, whole - gaps.reduce((sum, { ms }) => sum + ms, 0));
  // Many gaps share what one would take ten times over.
  const share = Math.min(IDLE_SHARE, 0.3 / Math.max(1, gaps.length));
  const folded = (active * share) / (1 - share * gaps.length);
  const places = new Float64Array(frames.length);
  let at = 0;
  let gap = 0;
  for (let index = 1; index < times.length; index += 1) {
    const isGap = gaps[gap]?.at === index;
    at += isGap ? folded : times[index] - times[index - 1];
    if (isGap) gap += 1;
    places[index] = at;
  }
  const last = at || 1;
  return { places: places.map((place) => place / last), gaps, times };
}

/** Draws it into `root`. `pick(index)` is called where somebody clicks; `zoom` is `[from, to]` between 0 and 1. */
export function drawLanes(root, frames, pick, { zoom = [0, 1], setZoom = () => {} } = {}) {
  const made = lanesOf(frames);
  const { places, gaps, times } = placesOf(frames, made.turns);
  const width = Math.max(320, root.clientWidth);
  const inner = width - MARGIN.left - MARGIN.right;
  const lanes = Math.min(made.lanes, 12);
  const rows = { faults: 0, recoveries: 1, waits: 2, model: 3, calls: 4 };
  const height = MARGIN.top + (rows.calls + Math.max(1, lanes)) * (ROW + 4) + MARGIN.bottom;
  const scale = (place) => MARGIN.left + ((place - zoom[0]) / (zoom[1] - zoom[0])) * inner;
  const x = (index) => Math.max(MARGIN.left - 4, Math.min(width - MARGIN.right + 4, scale(places[index])));
  const y = (row) => MARGIN.top + row * (ROW + 4);
  const isSeen = (from, to) => places[to] >= zoom[0] && places[from] <= zoom[1];
  const seen = (list) => list.filter((entry) => isSeen(entry.from ?? entry.at, entry.to ?? entry.at));
  const bar = (from, to, row, props, title) =>
    svg("rect", { x: x(from).toFixed(1), y: y(row), width: Math.max(2, x(to) - x(from)).toFixed(1), height: ROW - 4, rx: 2, ...props }, title === undefined ? undefined : svg("title", {}, title));
  const label = (row, text) => svg("text", { class: "lane-name", x: 0, y: y(row) + ROW - 6 }, text);
  const length = (from, to) => span(times[to] - times[from]);
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${root.getAttribute("aria-label")}: ${summary(made, length)}` },
    hatch(),
    label(rows.faults, t("lane-faults")),
    label(rows.recoveries, t("figure-recovered")),
    label(rows.waits, t("lane-waits")),
    label(rows.model, t("lane-model")),
    label(rows.calls, t("lane-calls")),
    seen(made.turns).slice(-BARS_MAX).map((turn) =>
      svg(
        "g",
        { class: "turn" },
        svg("rect", { x: x(turn.from).toFixed(1), y: MARGIN.top - 6, width: Math.max(2, x(turn.to) - x(turn.from)).toFixed(1), height: height - MARGIN.top - MARGIN.bottom + 10, rx: 3 }),
        x(turn.to) - x(turn.from) > 52 ? svg("text", { x: x(turn.from) + 9, y: 11 }, t("turn", { n: turn.number })) : undefined,
      ),
    ),
    seen(gaps).slice(-60).map(({ at, ms }) => {
      const [from, to] = [x(at - 1), x(at)];
      const text = span(ms);
      return svg("g", { class: "idle" }, svg("rect", { x: from.toFixed(1), width: Math.max(1, to - from).toFixed(1), y: MARGIN.top - 6, height: height - MARGIN.top - MARGIN.bottom + 10 }), to - from > text.length * 6 ? svg("text", { x: ((from + to) / 2).toFixed(1), y: 11, "text-anchor": "middle" }, text) : undefined, svg("title", {}, t("idle-of", { time: text })));
    }),
    seen(made.waits).slice(-BARS_MAX).map(({ is, from, to }) => {
      const text = length(from, to);
      const room = x(to) - x(from);
      return svg("g", { class: `wait ${is}`, "data-ms": times[to] - times[from] }, bar(from, to, rows.waits, {}, t(`${is}-of`, { time: text })), room > text.length * 7 + 8 ? svg("text", { x: (x(from) + 4).toFixed(1), y: y(rows.waits) + ROW - 7 }, text) : undefined);
    }),
    joined(seen(made.steps), x).map((step) => bar(step.from, step.to, rows.model, { class: "step" }, `${t("lane-model")} · ${length(step.from, step.to)}`)),
    joined(seen(made.calls).filter((call) => call.lane < lanes), x).map((call) => bar(call.from, call.to, rows.calls + call.lane, { class: `call ${call.status}` }, `${call.tool} · ${span(call.took ?? times[call.to] - times[call.from])}`)),
    seen(made.faults).slice(-BARS_MAX).map((fault) => svg("circle", { class: fault.isEnd ? "fell end" : "fell", cx: x(fault.at).toFixed(1), cy: y(rows.faults) + 6, r: 4 }, svg("title", {}, fault.code))),
    seen(made.recoveries).slice(-BARS_MAX).map((rose) => svg("circle", { class: "rose", cx: x(rose.at).toFixed(1), cy: y(rows.recoveries) + 6, r: 4 }, svg("title", {}, rose.code))),
    kills(seen(made.waits).filter(({ is }) => is === "down"), { x, width, height, length }),
    svg("g", { class: "head", id: "playhead" }, svg("path", { d: `M-4 ${MARGIN.top - 14}h8l-4 6z` }), svg("line", { x1: 0, x2: 0, y1: MARGIN.top - 9, y2: height - MARGIN.bottom + 6 })),
    svg("rect", { class: "zoom-band", id: "zoom-band", x: 0, width: 0, y: MARGIN.top - 10, height: height - MARGIN.top - MARGIN.bottom + 16 }),
    frames.length === 0 ? undefined : [svg("text", { class: "axis", x: MARGIN.left, y: height - 4 }, time(frames[nearest(places, zoom[0])])), svg("text", { class: "axis end", x: width - MARGIN.right, y: height - 4 }, time(frames[nearest(places, zoom[1])]))],
  );
  point(root, { width, inner, zoom, setZoom, chosen: (place) => pick(nearest(places, place)) });
  root.replaceChildren(picture, frames.length === 0 ? h("p", { class: "faint" }, "–") : "");
  const head = picture.querySelector("#playhead");
  const move = (index) => {
    const place = index >= 0 && index < frames.length ? scale(places[index]) : MARGIN.left;
    const isInside = place >= MARGIN.left - 1 && place <= width - MARGIN.right + 1;
    head.setAttribute("transform", `translate(${place} 0)`);
    head.setAttribute("visibility", isInside ? "visible" : "hidden");
  };
  return { move, kinds: new Set(made.waits.map(({ is }) => is)), hasFaults: made.faults.length > 0, hasRecoveries: made.recoveries.length > 0 };
}

/** Room for a time of day at either end of the axis, and for a letter of what stands between them, in pixels. */
const TIME = 70;
const LETTER = 6.5;

/** A line through all lanes where a process ended, with what happened in words where there is room for it. */
function kills(downs, { x, width, height, length }) {
  let free = MARGIN.left + TIME;
  return downs.slice(-BARS_MAX).map(({ from, to }) => {
    const text = t("down-of", { time: length(from, to) });
    const half = ([...text].reduce((sum, char) => sum + (char > "\u2e7f" ? 2 : 1), 0) * LETTER) / 2;
    const middle = Math.max(free + half, Math.min(width - MARGIN.right - TIME - half, x(from)));
    const hasRoom = middle + half <= width - MARGIN.right - TIME && Math.abs(middle - x(from)) <= half;
    if (hasRoom) free = middle + half + LETTER;
    const words = hasRoom ? svg("text", { x: middle.toFixed(1), y: height - 4, "text-anchor": "middle" }, text) : undefined;
    return svg("g", { class: "kill" }, svg("line", { x1: x(from), x2: x(from), y1: MARGIN.top - 8, y2: height - MARGIN.bottom + 4 }), words, svg("title", {}, text));
  });
}

/** Where a drag began. A picture that is drawn anew meanwhile does not end it. */
let start;

/** A click goes to an event; dragging over a part shows that part larger. */
function point(root, { width, inner, zoom, setZoom, chosen }) {
  const place = (event) => {
    const box = root.firstElementChild.getBoundingClientRect();
    const within = (((event.clientX - box.left) / box.width) * width - MARGIN.left) / inner;
    return zoom[0] + Math.max(0, Math.min(1, within)) * (zoom[1] - zoom[0]);
  };
  root.onpointerdown = (event) => {
    if (event.button === 0) start = { x: event.clientX, place: place(event) };
  };
  root.onpointermove = (event) => {
    if (start === undefined || Math.abs(event.clientX - start.x) < 6) return;
    if (!root.hasPointerCapture(event.pointerId)) root.setPointerCapture(event.pointerId);
    const band = root.querySelector("#zoom-band");
    const [from, to] = [start.place, place(event)].sort((a, b) => a - b).map((at) => MARGIN.left + ((at - zoom[0]) / (zoom[1] - zoom[0])) * inner);
    band.setAttribute("x", from);
    band.setAttribute("width", to - from);
  };
  root.onpointerup = (event) => {
    if (start === undefined) return;
    const { x, place: from } = start;
    start = undefined;
    const range = [from, place(event)].sort((a, b) => a - b);
    if (Math.abs(event.clientX - x) < 6) chosen(range[1]);
    else if (range[1] - range[0] > 1e-6) setZoom(range);
  };
  root.onpointercancel = () => {
    start = undefined;
  };
}

/** The picture in words, for those who do not see it. */
function summary(made, length) {
  const waits = made.waits.slice(0, 20).map(({ is, from, to }) => t(`${is}-of`, { time: length(from, to) }));
  return [`${t("lane-faults")} ${made.faults.length}`, `${t("lane-calls")} ${made.calls.length}`, ...waits].join(", ");
}

/** Stripes for time in which nothing ran. */
function hatch() {
  return svg("defs", {}, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 })));
}

/** Bars of one row that would be drawn over each other become one. */
function joined(bars, x) {
  if (bars.length <= BARS_MAX) return bars;
  const last = new Map();
  const left = [];
  for (const bar of bars) {
    const before = last.get(bar.lane);
    if (before !== undefined && x(bar.from) - x(before.to) < 1 && bar.status !== "failed") before.to = bar.to;
    else {
      const copy = { ...bar };
      left.push(copy);
      last.set(bar.lane, copy);
    }
  }
  return left.slice(-BARS_MAX * 2);
}

function nearest(places, wanted) {
  let [low, high] = [0, places.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  if (low > 0 && wanted - places[low - 1] < places[low] - wanted) return low - 1;
  return low;
}

function time(frame) {
  return new Date(frame.timestamp).toLocaleTimeString(document.documentElement.lang, { hour12: false });
}
