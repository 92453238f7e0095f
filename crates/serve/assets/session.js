// One session as a timeline to go through: what happened when, and how things stood.

import { api, isGone, request, signedIn, socketAddress } from "./api.js";
import { Client } from "./client/index.js";
import { channelOf, faultOf } from "./fold.js";
import { bundleOf } from "./bundle.js";
import { Socket } from "./event-socket.js";
import { jsonView } from "./json-view.js";
import { listen } from "./keys.js";
import { at, beforePaint, clock, h, language, money, number, refill, say, t } from "./kit.js";
import { drawLanes } from "./lanes.js";
import { List } from "./list.js";
import { past } from "./past.js";
import { faultRenderings } from "./fault-renderings.js";
import { recordsOf } from "./record.js";
import "./shell.js";
import { traceView } from "./trace.js";

const id = decodeURIComponent(location.pathname.split("/")[2] ?? "");
const frames = [];
/** For each frame, the fault counts up to it as the server counts them, and its turn. */
const counts = [];
let shown = [];
let channel = "";
let picked = -1;
let movePlayhead = () => {};
/** The part of the timeline that is drawn, between 0 and 1. */
let zoom = [0, 1];
/** The view of events that the reader chose last. */
let view;
const recordAt = recordsOf(id);
const wide = matchMedia("(min-width: 901px)");

const list = new List(at("list"), row, (index) => pick(frames.indexOf(shown[index])));

/** Is the whole history here? Until then there is nothing to draw. */
let caughtUp = false;

function take(frame) {
  if (frame.event === "system.notice" && frame.seq === undefined && frame.metadata?.action === "replay") {
    caughtUp = true;
    draw();
  }
  if (frame.seq === undefined || frame.fault !== undefined) return;
  const meta = frame.metadata ?? {};
  const before = counts.at(-1) ?? { faults: 0, recovered: 0, turn: 0, isOver: true };
  const begins = before.isOver && ["agent.thinking", "plan.start", "solver.start"].includes(frame.event);
  counts.push({
    faults: meta.fault_counts?.faults ?? before.faults,
    recovered: meta.fault_counts?.recovered ?? before.recovered,
    turn: before.turn + (begins ? 1 : 0),
    cost: meta.currency === undefined ? before.cost : money(meta.session_cost, meta.currency),
    isOver: begins ? false : before.isOver || ["agent.final_answer", "agent.interrupted", "agent.error"].includes(frame.event),
  });
  frames.push(frame);
  frame.channel = channelOf(frame);
  if (channel === "" || frame.channel === channel) shown.push(frame);
  if (frame.event === "agent.session_created") {
    at("title").textContent = meta.session_name ?? t("untitled");
    document.title = `${meta.session_name ?? id} · budao`;
  }
  if (caughtUp) draw();
}

let nextPicture = 0;
let later;
/** While events stream in the picture is drawn now and then, and takes a twentieth of the time at most. */
function drawPicture() {
  const now = performance.now();
  if (now < nextPicture) {
    later ??= setTimeout(drawPicture, nextPicture - now);
    return;
  }
  clearTimeout(later);
  later = undefined;
  const drawn = drawLanes(at("lanes"), frames, pick, { zoom, setZoom });
  movePlayhead = drawn.move;
  movePlayhead(picked);
  drawLegend(drawn);
  const took = performance.now() - now;
  nextPicture = performance.now() + Math.max(300, took * 20);
}

function setZoom(range) {
  zoom = range;
  nextPicture = 0;
  drawPicture();
}

/** Half or twice as much, around the chosen event or the middle. */
function zoomBy(factor) {
  const [from, to] = zoom;
  const middle = (from + to) / 2;
  const half = Math.min(0.5, ((to - from) / 2) * factor);
  const centre = Math.max(half, Math.min(1 - half, middle));
  setZoom([centre - half, centre + half]);
}

/** What the marks mean, for those that are there. */
function drawLegend({ kinds, hasFaults, hasRecoveries }) {
  const names = [...["hold", "retry", "question", "hang", "down"].filter((name) => kinds.has(name)), ...(hasFaults ? ["fell"] : []), ...(hasRecoveries ? ["rose"] : [])];
  const whole = h("button", { type: "button", class: "plain small", id: "zoom-out", on: { click: () => setZoom([0, 1]) } }, t("zoom-out"));
  refill(at("legend"), names.map((name) => h("li", {}, h("i", { class: `mark ${name}`, "aria-hidden": "true" }), t(`legend-${name}`))), zoom[1] - zoom[0] < 1 ? h("li", {}, whole) : h("li", { class: "faint" }, t("zoom-hint")));
}

const two = (value, digits = 2) => String(value).padStart(digits, "0");
/** A time of day in the reader's zone, to the millisecond. */
function exact(time) {
  const date = new Date(time);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
}

const draw = beforePaint(() => {
  // As high as its rows need, within the screen.
  at("events").style.height = wide.matches ? `${Math.round(Math.min(innerHeight * 0.7, Math.max(380, frames.length * 30 + 2)))}px` : "";
  list.show(shown);
  at("at").max = String(Math.max(0, frames.length - 1));
  const last = counts.at(-1);
  at("summary").textContent = last === undefined ? "" : summary(last);
  at("count").textContent = t("events-shown", { n: number(shown.length), of: number(frames.length) });
  drawPicture();
});

/** Faults and costs up to an event. */
function summary({ faults, recovered, cost }) {
  const words = t("so-far", { n: number(faults), of: number(recovered) });
  return cost === undefined ? words : `${words} · ${t("so-far-cost", { n: cost })}`;
}

function row(frame) {
  const text = typeof frame.show_content === "string" ? frame.show_content : typeof frame.content === "string" ? frame.content : "";
  const line = (frame.event === "agent.partial_answer" ? frame.content : text).slice(0, 200).replace(/\s+/g, " ");
  const fell = (frame.event.startsWith("error.") && !CALM.includes(frame.event)) || frame.metadata?.status === "failed";
  return [
    h("span", { class: "seq" }, frame.seq),
    h("span", { class: "time" }, exact(frame.timestamp)),
    h("span", { class: fell ? "event fell" : "event" }, frame.event),
    h("span", { class: "text" }, line),
  ];
}

/** Goes to a frame: the line in the picture, the row, everything about it. */
function pick(index) {
  if (index < 0 || index >= frames.length) return;
  picked = index;
  const frame = frames[index];
  // A range takes no value above its end, and that is otherwise set with the next picture.
  at("at").max = String(frames.length - 1);
  at("at").value = String(index);
  movePlayhead(index);
  list.mark(shown.indexOf(frame));
  const { turn } = counts[index];
  at("where").textContent = t("at", { n: number(index + 1), of: number(frames.length), time: clock(frame.timestamp), more: turn });
  at("summary").textContent = summary(counts[index]);
  history.replaceState(null, "", `?at=${frame.seq}`);
  detail(frame);
}

const CALM = ["error.retry_attempt", "error.recovery_success", "error.recovery_started"];

/** One event: as a program gets it, as people and the model were told, and as it is kept. */
function detail(frame) {
  const hasFault = frame.metadata?.error_code !== undefined && !CALM.includes(frame.event);
  const names = hasFault ? ["told", "event", "record"] : ["event", "record"];
  const body = h("div", { class: "view", role: "tabpanel", id: "view", "aria-labelledby": "view-tab", tabindex: "0" });
  const buttons = names.map((name) => h("button", { type: "button", class: "plain small", role: "tab", "aria-controls": "view", "data-view": name }, t(`view-${name}`)));
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": frame.event }, buttons);
  const select = (name) => {
    for (const button of buttons) {
      const isChosen = button.dataset.view === name;
      button.setAttribute("aria-selected", String(isChosen));
      button.tabIndex = isChosen ? 0 : -1;
      button.id = isChosen ? "view-tab" : "";
    }
    fill(body, name, frame);
  };
  const choose = (name) => {
    view = name;
    select(name);
    tabs.querySelector('[aria-selected="true"]').focus();
  };
  tabs.addEventListener("click", (event) => event.target.dataset.view !== undefined && choose(event.target.dataset.view));
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const from = buttons.findIndex((button) => button.tabIndex === 0);
    choose(names[(from + step + names.length) % names.length]);
  });
  const shownText = typeof frame.show_content === "string" ? h("p", { class: "shown", dir: "auto" }, frame.show_content) : undefined;
  refill(at("detail"), h("h2", {}, frame.event), shownText, tabs, body);
  select(names.includes(view) ? view : names[0]);
}

async function fill(body, name, frame) {
  if (name === "told") return void refill(body, faultRenderings(id, faultOf(frame, frame.metadata), { open: true }));
  if (name === "event") {
    const { channel: _, ...plain } = frame;
    return void refill(body, jsonView(plain));
  }
  refill(body, h("p", { class: "faint" }, t("loading")));
  try {
    const record = await recordAt(frame.seq);
    if (frames[picked] !== frame) return;
    if (record === undefined) return void refill(body, h("p", { class: "faint" }, t("record-none")));
    refill(body, traceView(record.trace), jsonView(record));
  } catch (problem) {
    refill(body, h("p", { class: "refused" }, problem.message));
  }
}

at("at").addEventListener("input", () => pick(Number(at("at").value)));
at("before").addEventListener("click", () => pick(picked < 0 ? frames.length - 1 : picked - 1));
at("after").addEventListener("click", () => pick(picked + 1));
at("channels").addEventListener("change", (event) => {
  channel = event.target.value;
  shown = channel === "" ? [...frames] : frames.filter((frame) => frame.channel === channel);
  list.mark(picked < 0 ? -1 : shown.indexOf(frames[picked]));
  draw();
});
let width = 0;
new ResizeObserver(([{ contentRect }]) => {
  if (contentRect.width !== width && caughtUp) drawPicture();
  width = contentRect.width;
}).observe(at("lanes"));

function download(blob, name) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

at("export").addEventListener("click", async () => {
  const response = await request(`/v1/sessions/${encodeURIComponent(id)}/export`);
  download(await response.blob(), `${id}.ndjson`);
});

let server = {};
at("bundle").addEventListener("click", async () => {
  const label = at("bundle").textContent;
  say(at("bundle"), t("bundle-making"));
  const session = await api(`/v1/sessions/${encodeURIComponent(id)}`).catch(({ body }) => body ?? {});
  download(new Blob([bundleOf({ session, frames, server })], { type: "application/x-ndjson" }), `${id}.report.ndjson`);
  say(at("bundle"), label);
});

listen({
  "+": () => zoomBy(0.5),
  "-": () => zoomBy(2),
  0: () => setZoom([0, 1]),
  j: () => pick(picked + 1),
  k: () => pick(picked < 0 ? frames.length - 1 : picked - 1),
  t: () => at("open").click(),
});

/** Says that the session is not there, or no longer. What is on the page stays. */
function missing() {
  at("missing").hidden = false;
  if (frames.length > 0) return;
  for (const part of document.querySelectorAll(".lanes, .legend, .scrub, .tools, .events, .session-actions")) part.hidden = true;
}

async function open() {
  at("id").textContent = id;
  at("open").href = `/?session=${encodeURIComponent(id)}`;
  const token = await signedIn();
  try {
    await api(`/v1/sessions/${encodeURIComponent(id)}`);
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    return missing();
  }
  // A history with a part that is no longer kept comes over the socket, which says so.
  const cursor = await past(id, take).catch(() => undefined);
  if (cursor !== undefined) caughtUp = true;
  draw();
  const wanted = Number(new URLSearchParams(location.search).get("at"));
  if (wanted > 0) pick(frames.findIndex(({ seq }) => seq >= wanted));
  await follow(token, cursor);
}

/** Takes what happens from here on. A token that is no longer accepted is asked for again. */
async function follow(token, cursor) {
  try {
    await takeLive(await new Client(socketAddress, { token, language, WebSocket: Socket }).attach(id, cursor));
  } catch (error) {
    const another = error.kind === "not_authenticated" ? await signedIn() : token;
    if (another === token) throw error;
    const { epoch, seq } = frames.at(-1) ?? {};
    await follow(another, seq === undefined ? undefined : { epoch, seq });
  }
}

async function takeLive(session) {
  for await (const event of session.events()) {
    if (event.event === "system.connected") server = { version: event.metadata?.server_version, protocol: event.metadata?.protocol_version };
    if (event.fault !== undefined || event.event === "system.heartbeat") isGone(id, frames.at(-1)?.seq).then((is) => is && missing());
    take(event);
  }
}

open().catch(async (error) => {
  at("summary").textContent = error.message;
  if (await isGone(id, frames.at(-1)?.seq)) missing();
});
