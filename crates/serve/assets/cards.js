// An entry of the conversation as an element. Made once, then brought up to date in place, so that what is being read
// or typed stays where it is.

import { clock, h, number, pretty, refill, say, span, t } from "./kit.js";
import { faultRenderings } from "./fault-renderings.js";

/** Makes the element of an entry, and says how to bring it up to date. */
export function card(entry, context) {
  const made = MAKERS[entry.is](entry, context);
  made.element.dataset.is = entry.is;
  return made;
}

const MAKERS = { user, answer, thought, call, fault, question, notice, end };

function user(entry) {
  const tag = h("span", { class: "tag" });
  const element = h("article", { class: "entry user" }, h("p", { class: "text" }, entry.text), tag);
  const update = () => {
    tag.hidden = !(entry.queued || entry.plan);
    say(tag, entry.queued ? t("queued") : t("plan"));
  };
  return { element, update };
}

function answer(entry) {
  const text = h("p", { class: "text" });
  const element = h("article", { class: "entry answer" }, text);
  const update = () => {
    say(text, entry.text);
    element.hidden = entry.text === "";
  };
  return { element, update };
}

function thought(entry) {
  const text = h("p", { class: "text" });
  const element = h("details", { class: "entry thought" }, h("summary", {}, t("thought")), text);
  const update = () => {
    say(text, entry.text);
    element.hidden = entry.text === "";
  };
  return { element, update };
}

/** What a call was given, said and gave, folded when it is long. */
function part(name, text) {
  if (text === "" || text === undefined) return undefined;
  const lines = text.split("\n").length;
  const isShort = lines <= 6 && text.length <= 360;
  return h("details", { class: "part", open: isShort }, h("summary", {}, t(name)), h("pre", {}, text));
}

const STATES = { running: "call-running", success: "call-done", failed: "call-failed", cancelled: "call-cancelled" };

function call(entry, { session, isLive }) {
  const state = h("span", { class: "state" });
  const head = h("header", {}, h("span", { class: "tool" }, entry.tool), state);
  const given = h("div", { class: "parts" });
  const output = h("pre", { class: "output", hidden: true });
  const outcome = h("div", { class: "parts" });
  const element = h("article", { class: "entry call" }, head, given, output, outcome);
  let shown;
  const update = () => {
    element.dataset.status = entry.status;
    const attempt = entry.attempt > 1 ? ` · ${t("attempt", { n: entry.attempt })}` : "";
    const name = entry.neverRan ? "call-refused" : (STATES[entry.status] ?? "call-running");
    say(state, t(name, { time: span(entry.took ?? 0) }) + attempt);
    if (given.childElementCount === 0 && entry.args !== undefined) {
      const repairs = entry.repairs?.length > 0 ? pretty(entry.repairs, 2000) : undefined;
      refill(given, part("arguments", pretty(entry.args)), part("repaired", repairs));
    }
    output.hidden = entry.output === "" || entry.status !== "running";
    if (!output.hidden) say(output, entry.output.slice(-4000));
    const now = `${entry.status}${entry.mended ?? ""}`;
    if (entry.status === "running" || shown === now) return;
    shown = now;
    if (entry.fault !== undefined) {
      outcome.querySelector(".renderings") ?? refill(outcome, sentence(entry.fault), h("p", { class: "rose" }), faultRenderings(session, entry.fault, { open: isLive() }));
      const rose = outcome.querySelector(".rose");
      rose.hidden = !entry.mended;
      say(rose, t("corrected"));
    } else {
      refill(outcome, part("result", pretty(entry.content ?? "")));
    }
  };
  return { element, update };
}

/** A code, which links to its explanation, and the user's sentence. */
function sentence(fault) {
  return h("p", { class: "sentence" }, h("a", { class: "code", href: `/faults/${encodeURIComponent(fault.code)}` }, fault.code), " ", fault.text);
}

function fault(entry, { session, isLive }) {
  const said = h("div", {});
  const standing = h("p", { class: "standing" });
  const renderings = h("div", {});
  const element = h("article", { class: "entry fault" }, said, standing, renderings);
  let shown;
  const tick = () => {
    if (entry.state === "waiting") {
      const left = Date.parse(entry.due) - Date.now();
      const args = { n: entry.next, of: entry.max, time: span(Math.max(0, left)) };
      say(standing, left > 0 ? t("retry-in", args) : t("retrying", args));
      return left > -60_000;
    }
    if (entry.state === "recovered") say(standing, t("recovered", { n: entry.attempts, time: span(entry.took) }));
    else if (entry.state === "given_up") say(standing, t("given-up"));
    else say(standing, "");
    return false;
  };
  const update = () => {
    element.dataset.state = entry.state;
    if (shown !== entry.fault) {
      shown = entry.fault;
      refill(said, sentence(entry.fault));
      const last = entry.tries.at(-1) ?? entry.fault;
      refill(renderings, faultRenderings(session, last, { open: isLive() && entry.state === "given_up" }));
    }
    tick();
  };
  return { element, update, tick };
}

function question(entry, { decide }) {
  const note = h("input", { type: "text", placeholder: t("note"), "aria-label": t("note"), maxlength: 2000 });
  const press = (confirmed) => async () => {
    for (const button of buttons.children) button.disabled = true;
    const ok = await decide(entry, confirmed, note.value.trim());
    for (const button of buttons.children) button.disabled = ok;
  };
  const buttons = h("div", { class: "buttons" }, h("button", { type: "button", class: "primary allow", on: { click: press(true) } }, t("allow")), h("button", { type: "button", class: "deny", on: { click: press(false) } }, t("deny")));
  const answer = h("div", { class: "answer-form" }, note, buttons);
  const verdict = h("p", { class: "verdict", hidden: true });
  const isPlan = entry.scope === "plan";
  const about = isPlan
    ? h("ol", { class: "tasks" }, (entry.tasks ?? []).map((task) => h("li", {}, h("b", {}, task.title), " ", h("span", { class: "faint" }, task.prompt ?? ""))))
    : h("pre", {}, pretty(entry.args, 4000));
  const why = h("p", { class: "faint why" }, entry.reason ?? "");
  const element = h(
    "article",
    { class: "entry question" },
    h("header", {}, h("span", { class: "ask" }, t(isPlan ? "plan-question" : "question")), isPlan ? undefined : h("span", { class: "tool" }, entry.tool)),
    about,
    why,
    answer,
    verdict,
  );
  const update = () => {
    element.dataset.state = entry.state;
    why.hidden = entry.state !== "open" || !entry.reason;
    answer.hidden = entry.state !== "open";
    verdict.hidden = entry.state === "open";
    if (entry.state !== "open") say(verdict, t(entry.state));
  };
  return { element, update };
}

function notice(entry) {
  const element = h("p", { class: "entry notice" }, entry.text);
  return { element, update: () => {} };
}

function end(entry, { retry }) {
  const text = entry.how === "done" ? t("turn-done", { time: span(entry.took), n: number(entry.tokens) }) : t(`turn-${entry.how}`);
  const press = async () => {
    again.disabled = true;
    again.disabled = await retry(entry);
  };
  const again = h("button", { type: "button", class: "quiet retry", hidden: true, title: t("retry-about"), on: { click: press } }, t("retry"));
  const element = h("p", { class: `entry end ${entry.how}` }, h("span", { title: clock(entry.at) }, text), " ", again);
  const update = () => {
    again.hidden = !entry.canRetry;
  };
  return { element, update };
}
