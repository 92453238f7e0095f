// Try it: a session in the browser, on the same stream as any other client.

import { api, isGone, signedIn, socketAddress } from "./api.js";
import { drawBoard } from "./board.js";
import { Client } from "./client/index.js";
import { attachments } from "./attachments.js";
import { Away } from "./away.js";
import { copy } from "./copy.js";
import { Socket } from "./event-socket.js";
import { Conversation } from "./fold.js";
import { listen, showKeys, walk } from "./keys.js";
import { at, beforePaint, h, language, money, number, refill, say, t } from "./kit.js";
import { past } from "./past.js";
import { picturesIn, recordsOf } from "./record.js";
import { tip } from "./shell.js";
import { drawer, refresh } from "./sidebar.js";
import { keep, kept } from "./store.js";
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
  settle,
  retry,
  edit,
  repeat,
});

/** Marks what came while nobody looked. The server knows how much that is. */
const away = new Away(conversation, transcript, {
  head: async () => (sessionId === undefined ? undefined : (await api(`/v1/sessions/${encodeURIComponent(sessionId)}`)).head),
  redraw: () => redraw(),
});

const draw = beforePaint(() => {
  const { facts } = conversation;
  at("welcome").hidden = conversation.entries.length > 0 || sessionId !== undefined;
  say(at("fact-id"), sessionId === undefined ? "–" : sessionId.slice(0, 13) + "…");
  at("fact-id").title = sessionId ?? "";
  say(at("fact-state"), sessionId === undefined ? "–" : t(`state-${facts.state}`));
  say(at("fact-events"), number(facts.events));
  say(at("fact-faults"), facts.faults === 0 ? "0" : t("faults-and-rises", { n: number(facts.faults), of: number(facts.recovered) }));
  at("doubts-row").hidden = facts.doubts === 0;
  say(at("fact-doubts"), number(facts.doubts));
  say(at("fact-model"), facts.model ?? "–");
  say(at("fact-tokens"), number(facts.tokens));
  drawPermissions(facts.remembered);
  at("forked-row").hidden = facts.forkedFrom === undefined;
  if (facts.forkedFrom !== undefined) at("forked-link").href = `/?session=${encodeURIComponent(facts.forkedFrom)}`;
  at("cost-row").hidden = facts.currency === undefined;
  say(at("fact-cost"), money(facts.cost, facts.currency));
  at("cancel").hidden = !["running", "waiting_for_decision"].includes(facts.state);
  for (const id of ["timeline-link", "new-link"]) at(id).hidden = sessionId === undefined;
  if (sessionId !== undefined) at("timeline-link").href = `/sessions/${encodeURIComponent(sessionId)}`;
  drawModelChoice();
  if (conversation.planChanged) redrawBoard();
  away.mark();
});

function redrawBoard() {
  conversation.planChanged = false;
  drawBoard(at("board"), conversation.plan, (event, task) => ask(event, { content: { task_id: task } }), redrawBoard);
}

// ── the model ──

const models = at("model");
/** The model that the next message asks for; undefined for that of the session. */
let wantedModel;

/** The choice shows the session's model until another one is chosen. */
function drawModelChoice() {
  if (models === null) return;
  const { chosen } = conversation.facts;
  if (wantedModel === chosen) wantedModel = undefined;
  const shown = wantedModel ?? chosen;
  if ([...models.options].some(({ value }) => value === shown)) models.value = shown;
  at("model-note").hidden = sessionId === undefined || wantedModel === undefined;
  say(at("model-note"), t("model-next", { name: wantedModel ?? "" }));
}

models?.addEventListener("change", () => {
  wantedModel = models.value;
  drawModelChoice();
});

/** A message as the server takes it: text, a plan, pictures, another model. */
function contentOf(text, isPlan, images) {
  const plan = isPlan ? { mode: "plan", confirm: true } : {};
  const pictures = images.length > 0 ? { images } : {};
  const model = wantedModel === undefined || sessionId === undefined ? {} : { config: { model: wantedModel } };
  const more = { ...plan, ...pictures, ...model };
  return Object.keys(more).length === 0 ? text : { text, ...more };
}

let drawnPermissions = "";

/** What is allowed for the rest of the session, each with a button that takes it back. */
function drawPermissions(tools) {
  if (drawnPermissions === tools.join("\n")) return;
  drawnPermissions = tools.join("\n");
  at("permissions").hidden = tools.length === 0;
  const revoke = (tool) => async (event) => {
    event.target.disabled = true;
    event.target.disabled = await ask("user.revoke_permission", { content: { tool_name: tool } });
  };
  const row = (tool) => h("li", {}, h("code", {}, tool), h("button", { type: "button", class: "plain small", "aria-label": t("revoke-about", { name: tool }), on: { click: revoke(tool) } }, t("revoke")));
  refill(at("permission-list"), tools.map(row));
}

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
    if (event.fault.kind === "connection_lost") {
      line("lost", t("line-lost"));
      lookAfter();
    }
    return;
  }
  if (event.event === "system.connected") return compareVersions(meta.server_version);
  if (event.event === "system.heartbeat") return void isGone(sessionId, cursor?.seq).then((is) => is && gone());
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

let version;

/** A server that was replaced while the page was open may know more than this page does. */
function compareVersions(now) {
  version ??= now;
  at("version-note").hidden = version === now;
  if (version === now) return;
  const reload = h("button", { type: "button", class: "plain small", on: { click: () => location.reload() } }, t("reload"));
  refill(at("version-note"), t("server-changed", { from: version, to: now }), " ", reload);
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
  away.missedUpTo(meta.last_seq);
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
      // What was still queued when the line was closed comes again with the next one, from the cursor on.
      if (session !== opened) return;
      take(event);
      cursor = opened.cursor;
      if (event.event in ENDS) refresh(sessionId);
    }
  } catch (error) {
    if (session !== opened) return;
    session = undefined;
    line("lost", error.message);
    lookAfter();
  }
}

const ENDS = { "agent.final_answer": 1, "agent.interrupted": 1, "agent.error": 1, "agent.session_created": 1 };

/** Why was the connection lost? A deleted session and an expired token are said; everything else is a matter of waiting. */
async function lookAfter() {
  if (await isGone(sessionId, cursor?.seq).catch(() => false)) return gone();
  return session === undefined ? attach() : undefined;
}

/** The session was deleted: what is on the page stays to be read and copied. */
function gone() {
  session?.close();
  session = undefined;
  line("lost", t("session-gone"));
  at("cut").disabled = true;
  at("gone").hidden = false;
  document.querySelector(".complaint.passing")?.remove();
  for (const id of ["words", "send"]) at(id).disabled = true;
  conversation.facts.state = "closed";
  draw();
}

function connect(token) {
  return new Client(socketAddress, { token, language, WebSocket: Socket });
}

let attaching;

/** Opens the line again. Several may ask for that at the same time, after a sign-in for example; it is opened once. */
function attach() {
  attaching ??= open().finally(() => (attaching = undefined));
  return attaching;
}

async function open() {
  if (session !== undefined) return;
  line("connecting", t("line-connecting"));
  client ??= connect(await signedIn());
  try {
    if (cursor === undefined) {
      // A history with a part that is no longer kept comes over the socket, which says so.
      let problem;
      cursor = await past(sessionId, (frame) => conversation.take(frame)).catch((error) => void (problem = error));
      if (problem?.status === 404) return gone();
      transcript.drawNow();
      caughtUp = cursor !== undefined;
      isFirst = true;
      draw();
    }
    const opened = await client.attach(sessionId, cursor);
    return void follow(opened);
  } catch (error) {
    if (error.kind === "not_authenticated" && (await hasNewToken())) return open();
    return line("lost", error.message);
  }
}

/** After the token was refused: asks for another one, and connects with it from then on. */
async function hasNewToken() {
  line("lost", t("line-lost"));
  const refused = client.settings.token;
  const token = await signedIn();
  client = connect(token);
  return token !== refused;
}

/** Really closes the socket. The run goes on without us, which the server is asked about meanwhile. All that came is shown. */
function cut() {
  session?.close();
  session = undefined;
  caughtUp = true;
  transcript.drawNow();
  draw();
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
  if (session === undefined) {
    complain(t("not-sent"), "");
    return false;
  }
  try {
    await session.ask(event, fields);
    return true;
  } catch (error) {
    complain(error.message);
    if (await isGone(sessionId, cursor?.seq).catch(() => false)) gone();
    return false;
  }
}

function complain(text, title = `${t("problem")}: `) {
  const box = h("p", { class: "complaint passing", role: "alert" }, title + text);
  document.querySelector(".complaint.passing")?.remove();
  at("composer").before(box);
  setTimeout(() => box.remove(), 8000);
}

function decide(entry, confirmed, note, values, remember) {
  const content = { confirmed, digest: entry.digest };
  if (remember !== undefined) content.remember = remember;
  if (confirmed && values !== undefined) content.arguments = values;
  if (note !== "") content.note = note;
  return ask("user.response", { step_id: entry.id, content });
}

/** Says what became of a call in doubt. Of two windows the first one wins; the other one is told so. */
function settle(entry, outcome, result) {
  const content = { call_id: entry.id, outcome };
  if (outcome === "happened" && result !== "") content.result = jsonOrText(result);
  return ask("user.settle_doubt", { content });
}

function jsonOrText(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
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

async function send(text, isPlan = at("plan").checked) {
  if (text.trim() === "") return;
  at("welcome").hidden = true;
  transcript.follow();
  if (sessionId === undefined) await begin(text);
  else if (session === undefined) {
    clearInterval(watching);
    await attach();
  }
  // Until there is a connection the text stays where it can be changed and copied.
  if (field.value === text) write("");
  const images = isPlan ? [] : attached.take();
  const ok = await ask("user.message", { content: contentOf(text, isPlan, images) });
  if (ok) return keep(draftName(), field.value);
  attached.put(images);
  giveBack(text);
}

/** A text that was not sent, unless another one was begun meanwhile. */
function giveBack(text) {
  if (field.value === "") write(text);
}

async function begin(text) {
  client ??= connect(await signedIn());
  line("connecting", t("line-connecting"));
  const model = models?.value;
  wantedModel = undefined;
  const opened = await client.create({ language, session_name: text.slice(0, 60), ...(model ? { config: { model } } : {}) });
  keep(draftName(), "");
  sessionId = opened.id;
  caughtUp = true;
  history.replaceState(null, "", `/?session=${encodeURIComponent(sessionId)}`);
  refresh(sessionId);
  follow(opened);
  line("open", t("line-open"));
}

const field = at("words");
const attached = attachments(at("composer"), field, (text) => complain(text, ""));

// ── drafts ──

const draftName = () => `budao.draft.${sessionId ?? "new"}`;

/** Puts a text into the field, as if it had been typed. */
function write(text) {
  field.value = text;
  grow();
  keep(draftName(), text);
}

let drafting;
field.addEventListener("input", () => {
  grow();
  clearTimeout(drafting);
  drafting = setTimeout(saveDraft, 300);
});
addEventListener("pagehide", saveDraft);

function saveDraft() {
  if (keep(draftName(), field.value) || field.value === "") return;
  at("storage-note").hidden = false;
}

/** The message that is being changed: it is sent in a fork, which ends before it. */
let edited;
/** Settled when the pictures of the message that is being changed are with the others. */
let fetched = Promise.resolve();

/** The pictures of a message as they were sent, read from its record. */
async function picturesOf(entry) {
  if (!(entry.images > 0)) return [];
  const record = await recordsOf(sessionId)(entry.seq).catch(() => undefined);
  const images = picturesIn(record?.event);
  if (images.length !== entry.images) throw new Error(t("pictures-gone"));
  return images;
}

/** An earlier message, to be changed and sent again in a fork of the session. The old one stays as it is. */
function edit(entry) {
  edited = entry.queued ? undefined : entry;
  at("edit-note").hidden = edited === undefined;
  write(entry.text);
  at("plan").checked = entry.plan === true;
  field.focus();
  field.setSelectionRange(entry.text.length, entry.text.length);
  if (!(entry.images > 0)) return;
  fetched = picturesOf(entry).then((images) => attached.put(images));
  fetched.catch((error) => complain(error.message, ""));
}

function stopEditing() {
  edited = undefined;
  at("edit-note").hidden = true;
}

at("edit-stop").addEventListener("click", () => {
  stopEditing();
  attached.take();
  write("");
  field.focus();
});

/** Asks once more, from the same place: a fork that ends before the message. */
async function repeat(entry) {
  try {
    await fork(entry, entry.text, entry.plan === true, await picturesOf(entry));
  } catch (error) {
    complain(error.message, "");
  }
}

/** Opens a session with what came before the message, sends the text there, and goes to it. */
async function fork(entry, text, isPlan, images) {
  const { session_id: forked } = await api(`/v1/sessions/${encodeURIComponent(sessionId)}/fork`, { method: "POST", body: { before: entry.seq, command_id: crypto.randomUUID() } });
  await api(`/v1/sessions/${encodeURIComponent(forked)}/messages`, { method: "POST", body: { content: contentOf(text, isPlan, images), command_id: crypto.randomUUID() } });
  keep(draftName(), "");
  location.href = `/?session=${encodeURIComponent(forked)}`;
}

/** Waits for the pictures of an edited message. Says why if a message cannot go with the pictures that belong to it. */
async function hasPictures(isPlan) {
  const waiting = fetched;
  fetched = Promise.resolve();
  const isThere = await waiting.then(
    () => true,
    () => false,
  );
  if (!isThere) complain(t("pictures-gone"), "");
  else if (isPlan && attached.count() > 0) complain(t("plan-no-pictures"), "");
  return isThere && !(isPlan && attached.count() > 0);
}

/** The text that is being sent: Enter a second time does not send it twice. */
let onItsWay;
at("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = field.value;
  const from = edited;
  if (text.trim() === "" || text === onItsWay) return;
  const isPlan = at("plan").checked;
  if (!(await hasPictures(isPlan))) return;
  stopEditing();
  at("send").disabled = true;
  onItsWay = text;
  if (from !== undefined) write("");
  const images = from === undefined ? [] : attached.take();
  const sent = from === undefined ? send(text, isPlan) : fork(from, text, isPlan, images);
  await sent.catch((error) => {
    complain(error.message);
    attached.put(images);
    giveBack(text);
  });
  onItsWay = undefined;
  at("send").disabled = !at("gone").hidden;
  field.focus();
});

field.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("composer").requestSubmit();
  } else if (event.key === "ArrowUp" && field.value === "") {
    const last = conversation.entries.findLast(({ is }) => is === "user");
    if (last === undefined) return;
    event.preventDefault();
    edit(last);
  }
});

function grow() {
  field.rows = Math.min(8, Math.max(2, field.value.split("\n").length));
}

// ── keys ──

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !at("cancel").hidden && session !== undefined && document.querySelector("dialog[open]") === null) ask("user.cancel", {});
});
at("cancel").addEventListener("click", () => ask("user.cancel", {}));
at("show-keys").addEventListener("click", showKeys);

const entries = () => at("transcript").querySelectorAll(".entry");
listen({
  "?": showKeys,
  "/": () => {
    drawer(true);
    at("side-search").focus();
  },
  n: () => (location.href = "/"),
  i: () => field.focus(),
  j: () => walk(entries(), 1),
  k: () => walk(entries(), -1),
  c: () => {
    const text = document.activeElement?.closest(".entry")?.querySelector(".text")?.textContent;
    if (text !== undefined) copy(text);
  },
  r: () => at("transcript").querySelector("button.retry:not([hidden])")?.click(),
  t: () => sessionId !== undefined && (location.href = at("timeline-link").href),
});

at("tries")?.addEventListener("click", (event) => {
  const chosen = event.target.closest("button");
  if (chosen === null) return;
  send(chosen.dataset.say, "plan" in chosen.dataset).catch((error) => complain(error.message));
});

const draft = kept(draftName());
if (draft !== undefined && field.value === "") write(draft);
draw();
if (sessionId !== undefined) attach();
else signedIn().catch((error) => line("lost", error.message));
refresh(sessionId);
document.documentElement.dataset.ready = "";
