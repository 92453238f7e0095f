// One session as a timeline to go through: what happened when, and how things stood.

import { api, request, signedIn, socketAddress } from "./api.js";
import { Client } from "./client/index.js";
import { channelOf, faultOf } from "./fold.js";
import { at, beforePaint, clock, h, language, number, pretty, refill, t } from "./kit.js";
import { drawLanes } from "./lanes.js";
import { List } from "./list.js";
import { past } from "./past.js";
import { faultRenderings } from "./fault-renderings.js";
import "./shell.js";

const id = decodeURIComponent(location.pathname.split("/")[2] ?? "");
const frames = [];
/** For each frame, the fault counts up to it as the server counts them, and its turn. */
const counts = [];
let shown = [];
let channel = "";
let picked = -1;
let movePlayhead = () => {};
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
  movePlayhead = drawLanes(at("lanes"), frames, pick);
  movePlayhead(picked);
  const took = performance.now() - now;
  nextPicture = performance.now() + Math.max(300, took * 20);
}

const draw = beforePaint(() => {
  // As high as its rows need, within the screen.
  at("events").style.height = wide.matches ? `${Math.round(Math.min(innerHeight * 0.7, Math.max(380, frames.length * 30 + 2)))}px` : "";
  list.show(shown);
  at("at").max = String(Math.max(0, frames.length - 1));
  const last = counts.at(-1);
  at("summary").textContent = last === undefined ? "" : t("so-far", { n: number(last.faults), of: number(last.recovered) });
  at("count").textContent = t("events-shown", { n: number(shown.length), of: number(frames.length) });
  drawPicture();
});

function row(frame) {
  const text = typeof frame.show_content === "string" ? frame.show_content : typeof frame.content === "string" ? frame.content : "";
  const line = (frame.event === "agent.partial_answer" ? frame.content : text).slice(0, 200).replace(/\s+/g, " ");
  const fell = frame.event.startsWith("error.") || frame.metadata?.status === "failed";
  return [
    h("span", { class: "seq" }, frame.seq),
    h("span", { class: "time" }, frame.timestamp.slice(11, 23)),
    h("span", { class: fell ? "event fell" : "event" }, frame.event),
    h("span", { class: "text" }, line),
  ];
}

/** Goes to a frame: the line in the picture, the row, everything about it. */
function pick(index) {
  if (index < 0 || index >= frames.length) return;
  picked = index;
  const frame = frames[index];
  at("at").value = String(index);
  movePlayhead(index);
  list.mark(shown.indexOf(frame));
  const { faults, recovered, turn } = counts[index];
  at("where").textContent = t("at", { n: number(index + 1), of: number(frames.length), time: clock(frame.timestamp), more: turn });
  at("summary").textContent = t("so-far", { n: number(faults), of: number(recovered) });
  const hasFault = frame.metadata?.error_code !== undefined && !["error.retry_attempt", "error.recovery_success", "error.recovery_started"].includes(frame.event);
  refill(
    at("detail"),
    h("h2", {}, frame.event),
    typeof frame.show_content === "string" ? h("p", { class: "shown" }, frame.show_content) : undefined,
    hasFault ? faultRenderings(id, faultOf(frame, frame.metadata), { open: true }) : undefined,
    h("pre", {}, pretty(Object.fromEntries(Object.entries(frame).filter(([name]) => name !== "channel")))),
  );
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

at("export").addEventListener("click", async () => {
  const response = await request(`/v1/sessions/${encodeURIComponent(id)}/export`);
  const address = URL.createObjectURL(await response.blob());
  h("a", { href: address, download: `${id}.ndjson` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
});

async function open() {
  at("id").textContent = id;
  at("open").href = `/?session=${encodeURIComponent(id)}`;
  const token = await signedIn();
  try {
    await api(`/v1/sessions/${encodeURIComponent(id)}`);
  } catch {
    at("missing").hidden = false;
    for (const part of document.querySelectorAll(".lanes, .scrub, .tools, .events, .session-actions")) part.hidden = true;
    return;
  }
  // A history with a part that is no longer kept comes over the socket, which says so.
  const cursor = await past(id, take).catch(() => undefined);
  if (cursor !== undefined) caughtUp = true;
  draw();
  const session = await new Client(socketAddress, { token, language }).attach(id, cursor);
  for await (const event of session.events()) take(event);
}

open().catch((error) => {
  at("summary").textContent = error.message;
});
