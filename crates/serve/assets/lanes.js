// A session over time: turns, model requests, calls in lanes of their own, faults and recoveries. `lanesOf` is pure; what
// is drawn follows from it. Long waits are drawn short, and marked.

import { h, span, svg, t } from "./kit.js";

/** No wait is drawn longer than this. */
const GAP_MS = 4000;
const ROW = 16;
const MARGIN = { left: 64, right: 8, top: 22, bottom: 20 };
/** More bars than this are joined where they touch: nobody sees the difference, the browser does. */
const BARS_MAX = 1500;

/** The spans and marks of frames, each with its position. */
export function lanesOf(frames) {
  const made = { turns: [], steps: [], calls: [], faults: [], recoveries: [], lanes: 0 };
  const open = new Map();
  const busy = [];
  let turn;
  let step;
  frames.forEach((frame, index) => {
    const meta = frame.metadata ?? {};
    if (turn === undefined && ["agent.thinking", "plan.start", "solver.start"].includes(frame.event)) {
      turn = { from: index, to: index, number: made.turns.length + 1 };
      made.turns.push(turn);
    }
    if (turn !== undefined) turn.to = index;
    if (frame.event === "agent.thinking" && meta.streaming === false) {
      step = { from: index, to: index, attempt: meta.attempt };
      made.steps.push(step);
    } else if (["agent.partial_answer", "agent.thinking", "agent.llm_message", "agent.final_answer"].includes(frame.event) && step !== undefined) {
      step.to = index;
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
    if (["agent.final_answer", "agent.interrupted", "agent.error"].includes(frame.event)) {
      for (const call of open.values()) {
        call.to = index;
        busy[call.lane] = false;
      }
      open.clear();
      turn = undefined;
      step = undefined;
    }
  });
  return made;
}

/** Where each frame stands between 0 and 1, with long waits shortened; and where waits were. */
export function placesOf(frames) {
  const places = new Float64Array(frames.length);
  const waits = [];
  let at = 0;
  let before;
  frames.forEach((frame, index) => {
    const time = Date.parse(frame.timestamp);
    const passed = before === undefined ? 0 : Math.max(0, time - before);
    if (passed > GAP_MS) waits.push({ at: index, ms: passed });
    at += Math.min(passed, GAP_MS) + 4;
    places[index] = at;
    before = time;
  });
  const last = at || 1;
  return { places: places.map((place) => place / last), waits };
}

/** Draws it into `root`. `pick(index)` is called where somebody clicks. */
export function drawLanes(root, frames, pick) {
  const made = lanesOf(frames);
  const { places, waits } = placesOf(frames);
  const width = Math.max(320, root.clientWidth);
  const lanes = Math.min(made.lanes, 12);
  const rows = { faults: 0, model: 1, calls: 2 };
  const height = MARGIN.top + (rows.calls + Math.max(1, lanes)) * (ROW + 4) + MARGIN.bottom;
  const x = (index) => MARGIN.left + places[index] * (width - MARGIN.left - MARGIN.right);
  const y = (row) => MARGIN.top + row * (ROW + 4);
  const bar = (from, to, row, props, title) =>
    svg("rect", { x: x(from).toFixed(1), y: y(row), width: Math.max(2, x(to) - x(from)).toFixed(1), height: ROW - 4, rx: 2, ...props }, title === undefined ? undefined : svg("title", {}, title));
  const label = (row, text) => svg("text", { class: "lane-name", x: 0, y: y(row) + ROW - 6 }, text);
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": root.getAttribute("aria-label") },
    label(rows.faults, t("lane-faults")),
    label(rows.model, t("lane-model")),
    label(rows.calls, t("lane-calls")),
    made.turns.slice(-BARS_MAX).map((turn) =>
      svg(
        "g",
        { class: "turn" },
        svg("rect", { x: x(turn.from).toFixed(1), y: MARGIN.top - 6, width: Math.max(2, x(turn.to) - x(turn.from)).toFixed(1), height: height - MARGIN.top - MARGIN.bottom + 10, rx: 3 }),
        x(turn.to) - x(turn.from) > 46 ? svg("text", { x: x(turn.from) + 4, y: 11 }, t("turn", { n: turn.number })) : undefined,
      ),
    ),
    waits.slice(-60).map(({ at, ms }) => svg("g", { class: "wait" }, svg("line", { x1: x(at) - 3, x2: x(at) - 3, y1: MARGIN.top - 6, y2: height - MARGIN.bottom + 4 }), svg("title", {}, span(ms)))),
    joined(made.steps, x).map((step) => bar(step.from, step.to, rows.model, { class: "step" })),
    joined(made.calls.filter((call) => call.lane < lanes), x).map((call) => bar(call.from, call.to, rows.calls + call.lane, { class: `call ${call.status}` }, `${call.tool} · ${span(call.took ?? 0)}`)),
    made.faults.slice(-BARS_MAX).map((fault) => svg("circle", { class: fault.isEnd ? "fell end" : "fell", cx: x(fault.at).toFixed(1), cy: y(rows.faults) + 6, r: 4 }, svg("title", {}, fault.code))),
    made.recoveries.slice(-BARS_MAX).map((rose) => svg("circle", { class: "rose", cx: x(rose.at).toFixed(1), cy: y(rows.faults) + 6, r: 4 }, svg("title", {}, rose.code))),
    svg("line", { class: "head", id: "playhead", x1: 0, x2: 0, y1: MARGIN.top - 10, y2: height - MARGIN.bottom + 6 }),
    frames.length === 0 ? undefined : [svg("text", { class: "axis", x: MARGIN.left, y: height - 4 }, time(frames[0])), svg("text", { class: "axis end", x: width - MARGIN.right, y: height - 4 }, time(frames.at(-1)))],
  );
  picture.addEventListener("click", (event) => {
    const place = (event.clientX - picture.getBoundingClientRect().left) * (width / picture.clientWidth);
    pick(nearest(places, (place - MARGIN.left) / (width - MARGIN.left - MARGIN.right)));
  });
  root.replaceChildren(picture, frames.length === 0 ? h("p", { class: "faint" }, "–") : "");
  const head = picture.querySelector("#playhead");
  return (index) => {
    const place = index >= 0 && index < frames.length ? x(index) : MARGIN.left;
    head.setAttribute("x1", place);
    head.setAttribute("x2", place);
  };
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
  return low;
}

function time(frame) {
  return new Date(frame.timestamp).toLocaleTimeString(document.documentElement.lang, { hour12: false });
}
