// The same for many sessions: first what would happen and to how many, then, if somebody says so, doing it.

import { api, ask } from "./api.js";
import { at, h, number, refill, say, t } from "./kit.js";

/** The most sessions of one run. */
const SESSIONS_MAX = 10_000;
/** Commands under way at a time; the server takes 50 in a second from one connection. */
const ABREAST = 4;
const SHOWN = 8;

/** For each action: the command, and the states in which it has an effect. */
const ACTIONS = {
  retry: { event: "user.retry", states: ["failed"] },
  cancel: { event: "user.cancel", states: ["running", "waiting_for_decision"] },
  close: { event: "user.close_session", states: ["idle", "running", "waiting_for_decision", "failed"] },
};

/** Opens the dialog: counts, shows, and waits for a decision. `page(after)` gives one page of the sessions meant. */
export async function bulk(action, page, done) {
  const { states } = ACTIONS[action];
  const dialog = at("bulk-dialog");
  const body = at("bulk-body");
  let isStopped = false;
  const close = h("button", { type: "button", on: { click: () => dialog.close() } }, t("close"));
  dialog.onclose = () => {
    isStopped = true;
    done();
  };
  const status = h("p", { role: "status" }, t("bulk-counting", { n: 0 }));
  refill(body, status, h("p", { class: "buttons" }, close));
  if (!dialog.open) dialog.showModal();
  const found = [];
  let after;
  try {
    do {
      const { sessions, next } = await page(after);
      found.push(...sessions);
      after = next ?? undefined;
      say(status, t("bulk-counting", { n: number(found.length) }));
    } while (after !== undefined && found.length < SESSIONS_MAX && !isStopped);
  } catch (problem) {
    return void say(status, problem.message);
  }
  if (isStopped) return;
  const meant = found.filter(({ state }) => states.includes(state));
  if (meant.length === 0) return void say(status, t("bulk-none", { of: number(found.length) }));
  const begin = h("button", { type: "button", class: "primary", id: "bulk-run", on: { click: () => run(action, meant, body, close, () => isStopped) } }, t("bulk-run"));
  refill(
    body,
    h("p", { id: "bulk-sentence" }, h("b", {}, t(`bulk-${action}`, { n: number(meant.length) }))),
    h("p", { class: "faint" }, t("bulk-found", { n: number(meant.length), of: number(found.length) }), after === undefined ? "" : ` ${t("bulk-most", { n: number(found.length) })}`),
    h("ul", { class: "bulk-list" }, meant.slice(0, SHOWN).map(({ title, session_id: id }) => h("li", {}, title ?? t("untitled"), " ", h("code", {}, id.slice(0, 13)))), meant.length > SHOWN ? h("li", { class: "faint" }, t("bulk-more", { n: number(meant.length - SHOWN) })) : undefined),
    h("p", { class: "buttons" }, begin, close),
  );
  begin.focus();
}

async function run(action, meant, body, close, isStopped) {
  const { event } = ACTIONS[action];
  const status = h("p", { role: "status", id: "bulk-status" });
  const bar = h("progress", { max: meant.length, value: 0, "aria-label": t(`bulk-${action}`, { n: meant.length }) });
  const refusals = h("ul", { class: "bulk-list" });
  refill(body, status, bar, refusals, h("p", { class: "buttons" }, close));
  const left = [...meant];
  let [accepted, refused] = [0, 0];
  const one = async () => {
    for (let item = left.shift(); item !== undefined && !isStopped(); item = left.shift()) {
      const problem = await send(event, item.session_id);
      if (problem === undefined) accepted += 1;
      else {
        refused += 1;
        if (refused <= SHOWN) refusals.append(h("li", {}, h("a", { href: `/sessions/${encodeURIComponent(item.session_id)}` }, item.title ?? item.session_id), `: ${problem}`));
      }
      bar.value = accepted + refused;
      say(status, t("bulk-progress", { n: number(accepted + refused), of: number(meant.length) }));
    }
  };
  await Promise.all(Array.from({ length: ABREAST }, one));
  say(status, t("bulk-done", { n: number(accepted), of: number(refused) }));
  close.focus();
}

/** Sends one command; returns why it was refused. A server that is busy is asked again. */
async function send(event, session) {
  const body = { event, command_id: crypto.randomUUID(), content: {} };
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const response = await ask(`/v1/sessions/${encodeURIComponent(session)}/commands`, { method: "POST", body }).catch(() => undefined);
    if (response?.ok) return undefined;
    if (response !== undefined && response.status !== 429 && response.status !== 503) return (await response.json().catch(() => ({}))).detail ?? `HTTP ${response.status}`;
    await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
  }
  return t("problem");
}

/** The sessions of a filter, one page after the other. */
export const pagesOf = (query) => (after) => api(`/v1/sessions?${new URLSearchParams({ ...query, limit: "100", ...(after === undefined ? {} : { after }) })}`);
