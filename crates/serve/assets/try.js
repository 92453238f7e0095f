// Try it: a session in the browser, on the same stream as any other client.

import { api, signedIn, socketAddress } from "./api.js";
import { drawBoard } from "./board.js";
import { Client } from "./client/index.js";
import { Conversation } from "./fold.js";
import { at, beforePaint, h, language, number, say, t } from "./kit.js";
import { past } from "./past.js";
import { tip } from "./shell.js";
import { Transcript } from "./transcript.js";

const conversation = new Conversation();
/** What the last frame of the history was when the page had caught up with it: later ones are live. */
let caughtUp = false;
let client;
let session;
let sessionId = new URLSearchParams(location.search).get("session") ?? undefined;
let cursor;
let watching;

const transcript = new Transcript(at("transcript"), conversation, {
  session: () => sessionId,
  isLive: () => caughtUp,
  decide,
  retry,
});

const draw = beforePaint(() => {
  const { facts } = conversation;
  at("welcome").hidden = conversation.entries.length > 0 || sessionId !== undefined;
  say(at("fact-id"), sessionId === undefined ? "–" : sessionId.slice(0, 13) + "…");
  at("fact-id").title = sessionId ?? "";
  say(at("fact-state"), sessionId === undefined ? "–" : t(`state-${facts.state}`));
  say(at("fact-events"), number(facts.events));
  say(at("fact-faults"), facts.faults === 0 ? "0" : t("faults-and-rises", { n: number(facts.faults), of: number(facts.recovered) }));
  say(at("fact-model"), facts.model ?? "–");
  say(at("fact-tokens"), number(facts.tokens));
  at("cancel").hidden = !["running", "waiting_for_decision"].includes(facts.state);
  for (const id of ["timeline-link", "new-link"]) at(id).hidden = sessionId === undefined;
  if (sessionId !== undefined) at("timeline-link").href = `/sessions/${encodeURIComponent(sessionId)}`;
  if (conversation.planChanged) {
    conversation.planChanged = false;
    drawBoard(at("board"), conversation.plan, (event, task) => ask(event, { content: { task_id: task } }));
  }
});

// ── the line ──

function line(state, text, more = "") {
  at("line").dataset.state = state;
  say(at("line-state"), text);
  say(at("line-more"), more);
  at("cut").disabled = sessionId === undefined;
  say(at("cut"), state === "cut" ? t("come-back") : t("cut"));
}

function take(event) {
  const meta = event.metadata ?? {};
  if (event.fault !== undefined) {
    if (event.fault.kind === "connection_lost") line("lost", t("line-lost"));
    return;
  }
  if (event.event === "system.notice" && event.seq === undefined) {
    if (meta.action === "resume") resumed(meta);
    if (meta.action === "replay") replayed(meta);
    return;
  }
  if (caughtUp && event.event.startsWith("error.") && event.seq !== undefined && meta.recovery_action === undefined) tip();
  if (caughtUp && event.event === "agent.tool_result" && meta.status === "failed") tip();
  conversation.take(event);
  // A history is drawn once, when all of it is there.
  if (caughtUp) redraw();
}

function redraw() {
  transcript.draw();
  draw();
}

/** Nobody was away who has just come. */
let isFirst = false;
/** What is missing since the last frame we have: its place, and how many frames we had. */
let missing;

/** The server's answer to coming back says what it can give. */
function resumed(meta) {
  const from = cursor?.seq ?? 0;
  missing = from === 0 || isFirst ? undefined : { from: from + 1, had: conversation.facts.events, isGap: meta.status !== "complete" };
  isFirst = false;
  line("open", t("line-open"));
}

/** What was missed has been sent: does its number agree with what came? */
function replayed(meta) {
  // What is drawn now is history; what comes after is live.
  if (!caughtUp) transcript.drawNow();
  caughtUp = true;
  redraw();
  if (missing === undefined) return;
  const came = conversation.facts.events - missing.had;
  const words = missing.isGap || came !== meta.replayed ? "line-gap" : came === 0 ? "line-back-none" : "line-back";
  line("open", t("line-open"), t(words, { n: number(came), from: missing.from, to: meta.last_seq }));
  missing = undefined;
}

async function follow(opened) {
  session = opened;
  try {
    for await (const event of opened.events()) {
      take(event);
      cursor = opened.cursor;
    }
  } catch (error) {
    if (session === opened) line("lost", error.message);
  }
}

async function attach() {
  line("connecting", t("line-connecting"));
  client ??= new Client(socketAddress, { token: await signedIn(), language });
  try {
    if (cursor === undefined) {
      // A history with a part that is no longer kept comes over the socket, which says so.
      cursor = await past(sessionId, (frame) => conversation.take(frame)).catch(() => undefined);
      transcript.drawNow();
      caughtUp = cursor !== undefined;
      isFirst = true;
      draw();
    }
    const opened = await client.attach(sessionId, cursor);
    follow(opened);
  } catch (error) {
    line("lost", error.message);
  }
}

/** Really closes the socket. The run goes on without us, which the server is asked about meanwhile. */
function cut() {
  session?.close();
  session = undefined;
  caughtUp = true;
  line("cut", t("line-cut"));
  watching = setInterval(async () => {
    const { head } = await api(`/v1/sessions/${encodeURIComponent(sessionId)}`).catch(() => ({}));
    if (session === undefined && head !== undefined) {
      say(at("line-more"), t("line-ahead", { n: cursor?.seq ?? 0, to: head }));
    }
  }, 400);
}

at("cut").addEventListener("click", () => {
  clearInterval(watching);
  if (session === undefined) attach();
  else cut();
});

// ── what one can ask ──

async function ask(event, fields) {
  try {
    await session.ask(event, fields);
    return true;
  } catch (error) {
    complain(error.message);
    return false;
  }
}

function complain(text) {
  const box = h("p", { class: "complaint", role: "alert" }, `${t("problem")}: ${text}`);
  document.querySelector(".complaint")?.remove();
  at("composer").before(box);
  setTimeout(() => box.remove(), 8000);
}

function decide(entry, confirmed, note) {
  const content = { confirmed, digest: entry.digest };
  if (note !== "") content.note = note;
  return ask("user.response", { step_id: entry.id, content });
}

/** Continues a turn that failed. A line that was cut is opened again first. */
async function retry(entry) {
  if (session === undefined) {
    clearInterval(watching);
    await attach();
  }
  transcript.follow();
  return ask("user.retry", { content: { turn: entry.turn } });
}

async function send(text) {
  if (text.trim() === "") return;
  at("welcome").hidden = true;
  transcript.follow();
  if (sessionId === undefined) await begin(text);
  else if (session === undefined) {
    clearInterval(watching);
    await attach();
  }
  const content = at("plan").checked ? { text, mode: "plan", confirm: true } : text;
  const ok = await ask("user.message", { content });
  if (!ok) at("words").value = text;
}

async function begin(text) {
  client ??= new Client(socketAddress, { token: await signedIn(), language });
  line("connecting", t("line-connecting"));
  const opened = await client.create({ language, session_name: text.slice(0, 60) });
  sessionId = opened.id;
  caughtUp = true;
  history.replaceState(null, "", `/?session=${encodeURIComponent(sessionId)}`);
  follow(opened);
  line("open", t("line-open"));
}

const field = at("words");

at("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = field.value;
  field.value = "";
  grow();
  at("send").disabled = true;
  await send(text).catch((error) => complain(error.message));
  at("send").disabled = false;
  field.focus();
});

field.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("composer").requestSubmit();
  }
});

function grow() {
  field.rows = Math.min(8, Math.max(2, field.value.split("\n").length));
}
field.addEventListener("input", grow);

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !at("cancel").hidden && session !== undefined && !at("sign-in").open) ask("user.cancel", {});
});
at("cancel").addEventListener("click", () => ask("user.cancel", {}));

at("tries").addEventListener("click", (event) => {
  const chosen = event.target.closest("button");
  if (chosen === null) return;
  send(chosen.dataset.say).catch((error) => complain(error.message));
});

draw();
if (sessionId !== undefined) attach();
else signedIn().catch(() => {});
