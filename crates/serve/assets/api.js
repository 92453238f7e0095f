// Who we are and how we ask. The token comes in the address's fragment, which browsers send nowhere; it leaves the
// address at once and is kept for as long as the tab lives. Other tabs of ours may ask for it.

import { at, language, say, setAhead, t } from "./kit.js";
import { keep as store, kept } from "./store.js";

const KEPT = "budao.token";
const tabs = new BroadcastChannel("budao");

let token = fromAddress() ?? kept(KEPT, "sessionStorage");
if (token !== undefined) keep(token);

/** The token of now; another one after a new sign-in. */
export const tokenNow = () => token;

tabs.onmessage = ({ data }) => {
  if (data === "who?" && token !== undefined) tabs.postMessage({ token });
};

function fromAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found === null || found === "") return undefined;
  history.replaceState(history.state, "", location.pathname + location.search);
  return found;
}

function keep(value) {
  token = value;
  store(KEPT, value, "sessionStorage");
}

/** What another tab of ours knows, if one answers soon. */
function fromOtherTabs() {
  return new Promise((resolve) => {
    const ear = new BroadcastChannel("budao");
    const done = (value) => {
      ear.close();
      resolve(value);
    };
    const timer = setTimeout(() => done(undefined), 150);
    ear.onmessage = ({ data }) => {
      if (typeof data?.token !== "string") return;
      clearTimeout(timer);
      done(data.token);
    };
    tabs.postMessage("who?");
  });
}

/** By how much this machine's clock is ahead of the server's, in milliseconds. */
let ahead = 0;
const AHEAD_MAX = 120_000;

/** A clock that is wrong by minutes makes every "ago" and every countdown wrong: the page says so, and counts by the server's. */
function compareClocks(date) {
  const server = Date.parse(date ?? "");
  if (Number.isNaN(server)) return;
  ahead = Date.now() - server;
  const isWrong = Math.abs(ahead) > AHEAD_MAX;
  const note = at("clock-note");
  if (note === null) return;
  note.hidden = !isWrong;
  if (isWrong) say(note, t(ahead > 0 ? "clock-ahead" : "clock-behind", { n: Math.round(Math.abs(ahead) / 60_000) }));
  setAhead(isWrong ? ahead : 0);
}

/** A refusal, as `application/problem+json` has it. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? `HTTP ${status}`);
    this.status = status;
    this.body = body ?? {};
  }
}

/** Asks the server once, whatever it answers. */
export async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = { "accept-language": language };
  if (token !== undefined) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  compareClocks(response.headers.get("date"));
  return response;
}

/** Asks the server, after a sign-in if one is needed; the answer is not read yet. */
export async function request(path, options) {
  let response = await ask(path, options);
  if (response.status === 401) {
    await signIn();
    response = await ask(path, options);
  }
  if (response.ok) return response;
  throw new Problem(response.status, await response.json().catch(() => undefined));
}

/** Asks the server; the answer is JSON. */
export async function api(path, options) {
  return (await request(path, options)).json();
}

let signingIn;

/** Makes sure that the server knows us. */
export async function signedIn() {
  await api("/v1/sessions?limit=1");
  return token;
}

/** Another tab's token, or the one somebody types. */
function signIn() {
  signingIn ??= (async () => {
    const other = await fromOtherTabs();
    if (other !== undefined && other !== token) {
      keep(other);
      if ((await ask("/v1/sessions?limit=1")).status !== 401) return;
    }
    await typed();
  })().finally(() => {
    signingIn = undefined;
  });
  return signingIn;
}

function typed() {
  const dialog = at("sign-in");
  const input = at("token");
  at("sign-in-expired").hidden = token === undefined;
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    at("sign-in-form").onsubmit = async (event) => {
      event.preventDefault();
      keep(input.value.trim());
      const { status } = await ask("/v1/sessions?limit=1");
      at("sign-in-refused").hidden = status !== 401;
      if (status === 401) return;
      input.value = "";
      dialog.close();
      resolve();
    };
  });
}

/** Was the session deleted? Asked with the last position we have, so that nothing is sent again. */
export async function isGone(session, seq = 0) {
  const response = await request(`/v1/sessions/${encodeURIComponent(session)}/frames?last_seq=${seq}`).catch((problem) => problem);
  await response.body?.cancel?.();
  return response.status === 404;
}

/** Where the event stream is. */
export const socketAddress = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
