// An entry of the conversation as an element. Made once, then brought up to date in place, so that what is being read
// or typed stays where it is.

import { copyButton } from "./copy.js";
import { clock, h, money, now, number, pretty, refill, say, span, t } from "./kit.js";
import { faultRenderings } from "./fault-renderings.js";
import { Markdown } from "./markdown.js";
import { resultView } from "./results.js";

/** Makes the element of an entry, and says how to bring it up to date. */
export function card(entry, context) {
  const made = MAKERS[entry.is](entry, context);
  made.element.dataset.is = entry.is;
  return made;
}

const MAKERS = { user, answer, thought, call, fault, wait, question, notice, end };

function user(entry, { edit, repeat }) {
  const tag = h("span", { class: "tag" });
  const again = h("button", { type: "button", class: "plain small", title: t("ask-again-about"), on: { click: () => repeat(entry) } }, t("ask-again"));
  const change = h("button", { type: "button", class: "plain small edit", title: t("edit-about"), on: { click: () => edit(entry) } }, t("edit"));
  const pictures = entry.images > 0 ? h("p", { class: "tag" }, t("pictures-sent", { n: number(entry.images) })) : undefined;
  const element = h("article", { class: "entry user" }, h("div", { class: "bubble" }, h("p", { class: "text", dir: "auto" }, entry.text), pictures, tag), h("div", { class: "actions" }, copyButton(() => entry.text), change, again));
  const update = () => {
    tag.hidden = !(entry.queued || entry.plan);
    say(tag, entry.queued ? t("queued") : t("plan"));
  };
  return { element, update };
}

function answer(entry) {
  const text = h("div", { class: "text markdown" });
  const fold = h("details", { class: "abandoned", hidden: true }, h("summary", {}, t("abandoned")));
  const element = h("article", { class: "entry answer" }, fold, text, h("div", { class: "actions" }, copyButton(() => entry.text)));
  const markdown = new Markdown(text);
  const update = () => {
    element.hidden = entry.text === "";
    if (entry.isAbandoned && fold.hidden) {
      fold.hidden = false;
      fold.append(h("p", { class: "faint" }, t("abandoned-about")), text);
      element.classList.add("void");
    }
    markdown.show(entry.text, entry.isOpen && !entry.isAbandoned);
  };
  return { element, update };
}

function thought(entry) {
  const text = h("p", { class: "text", dir: "auto" });
  const name = h("summary", {}, t("thought"));
  const element = h("details", { class: "entry thought" }, name, text);
  const update = () => {
    say(text, entry.text);
    if (entry.isAbandoned) say(name, t("abandoned-thought"));
    element.hidden = entry.text === "";
  };
  return { element, update };
}

const REASONS = { rate_limit: "wait-rate", capacity: "wait-capacity", outage: "wait-outage" };

/** A wait for a busy service: why, since when, until when, and how many come first. */
function wait(entry) {
  const why = h("p", { class: "wait-why" });
  const facts = h("dl", { class: "wait-facts" });
  const fact = (name) => {
    const value = h("dd", {});
    facts.append(h("div", {}, h("dt", {}, t(name)), value));
    return value;
  };
  const [since, until, before] = ["wait-since", "wait-until", "wait-position"].map(fact);
  const element = h("article", { class: "entry wait", role: "status" }, why, facts);
  const tick = () => {
    const began = Date.parse(entry.at);
    if (entry.state === "over") {
      say(why, t("wait-over", { time: span(Date.parse(entry.ended) - began) }));
      facts.hidden = true;
      return false;
    }
    say(why, t(REASONS[entry.reason] ?? "wait-capacity"));
    say(since, `${clock(entry.at)} · ${span(Math.max(1000, Math.floor((now() - began) / 1000) * 1000))}`);
    const left = Date.parse(entry.due) - now();
    say(until, Number.isNaN(left) ? t("wait-unknown") : left > 0 ? `${clock(entry.due)} · ${t("wait-left", { time: span(Math.ceil(left / 1000) * 1000) })}` : t("wait-any-moment"));
    say(before, entry.before > 0 ? t("wait-before", { n: number(entry.before) }) : t("wait-first"));
    return true;
  };
  const update = () => {
    element.dataset.state = entry.state;
    tick();
  };
  return { element, update, tick };
}

/** What a call was given, said and gave, folded when it is long. */
function part(name, text, mayOpen = true) {
  if (text === "" || text === undefined) return undefined;
  const lines = text.split("\n").length;
  const isShort = mayOpen && lines <= 6 && text.length <= 360;
  return h("details", { class: "part", open: isShort }, h("summary", {}, t(name)), h("pre", {}, text));
}

/** What a call gave, unfolded when it is short. */
function result({ content, total }) {
  if (content === undefined || content === null || content === "") return undefined;
  const length = typeof content === "string" ? content.length : Infinity;
  const view = h("details", { class: "part" }, h("summary", {}, t("result")));
  const fill = () => {
    if (view.open && view.childElementCount === 1) view.append(resultView(content, total));
  };
  view.addEventListener("toggle", fill);
  view.open = length <= 2000;
  fill();
  return view;
}

const STATES = { running: "call-running", success: "call-done", failed: "call-failed", cancelled: "call-cancelled" };

/** What a person may say of a call whose outcome is unknown. */
const SETTLEMENTS = { happened: "doubt-happened", did_not_happen: "doubt-did-not-happen", left_to_model: "doubt-left" };

/** The form for a call in doubt; afterwards what was said of it. */
function doubtForm(entry, settle) {
  const result = h("input", { type: "text", placeholder: t("doubt-result"), "aria-label": t("doubt-result"), maxlength: 8000 });
  const press = (outcome) => async () => {
    for (const button of buttons.children) button.disabled = true;
    const ok = await settle(entry, outcome, result.value.trim());
    for (const button of buttons.children) button.disabled = ok;
  };
  const buttons = h("div", { class: "buttons" }, Object.entries(SETTLEMENTS).map(([outcome, name]) => h("button", { type: "button", "data-outcome": outcome, title: t(`${name}-about`), on: { click: press(outcome) } }, t(name))));
  const form = h("div", { class: "answer-form" }, result, buttons);
  const verdict = h("p", { class: "verdict", hidden: true });
  const ask = h("p", { class: "ask" }, t("doubt-question"));
  const element = h("div", { class: "doubt", hidden: true }, ask, form, verdict);
  const update = () => {
    const isOpen = entry.doubt === "open";
    element.hidden = entry.doubt === undefined;
    element.dataset.state = entry.doubt ?? "";
    ask.hidden = form.hidden = !isOpen;
    verdict.hidden = isOpen;
    if (!isOpen && entry.doubt !== undefined) say(verdict, t("doubt-settled", { name: t(SETTLEMENTS[entry.doubt] ?? "doubt-left"), time: clock(entry.settledAt) }));
  };
  return { element, update };
}

function call(entry, { session, isLive, settle }) {
  const state = h("span", { class: "state" });
  const head = h("header", {}, h("span", { class: "tool" }, entry.tool), state);
  const given = h("div", { class: "parts" });
  const output = h("pre", { class: "output", hidden: true });
  const outcome = h("div", { class: "parts" });
  const element = h("article", { class: "entry call" }, head, given, output, outcome);
  // Few calls are ever in doubt, so the form is made when it is needed.
  let form;
  const doubt = {
    update: () => {
      if (form === undefined && entry.doubt === undefined) return;
      if (form === undefined) element.append((form = doubtForm(entry, settle)).element);
      form.update();
    },
  };
  let shown;
  const update = () => {
    element.dataset.status = entry.status;
    doubt.update();
    const attempt = entry.attempt > 1 ? ` · ${t("attempt", { n: entry.attempt })}` : "";
    const name = entry.neverRan ? "call-refused" : (STATES[entry.status] ?? "call-running");
    say(state, t(name, { time: span(entry.took ?? 0) }) + attempt);
    if (given.childElementCount === 0 && entry.args !== undefined) {
      const repairs = entry.repairs?.length > 0 ? pretty(entry.repairs, 2000) : undefined;
      refill(given, part("arguments", pretty(entry.args)), part("repaired", repairs, false));
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
      refill(outcome, result(entry));
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
      const left = Date.parse(entry.due) - now();
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

/** A form for values that a tool server asks for, or the address that it wants to be opened. */
function elicitation(entry, { decide }) {
  const inputs = (entry.fields ?? []).map((field) => [field, formField(field)]);
  const press = (confirmed) => async (event) => {
    event.preventDefault();
    const form = event.target.closest("form");
    if (confirmed && !form.reportValidity()) return;
    const values = {};
    for (const [field, input] of inputs) {
      const value = input.value();
      if (value !== undefined) values[field.name] = value;
    }
    for (const button of buttons.children) button.disabled = true;
    const ok = await decide(entry, confirmed, "", entry.url === undefined ? values : undefined);
    for (const button of buttons.children) button.disabled = ok;
  };
  const accept = t(entry.url === undefined ? "send-answer" : "address-opened");
  const buttons = h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary allow" }, accept), h("button", { type: "button", class: "deny", on: { click: press(false) } }, t("decline")));
  const answer = h("form", { class: "answer-form elicitation", on: { submit: press(true) } }, inputs.map(([, input]) => input.element), buttons);
  const verdict = h("p", { class: "verdict", hidden: true });
  const leads =
    entry.url === undefined
      ? undefined
      : h("p", { class: "leads" }, t("leads-to"), " ", h("b", {}, entry.host), " ", h("a", { href: entry.url, target: "_blank", rel: "noopener noreferrer" }, entry.url));
  const element = h(
    "article",
    { class: "entry question" },
    h("header", {}, h("span", { class: "ask" }, t("server-asks", { name: entry.server })), h("span", { class: "tool" }, entry.tool)),
    h("blockquote", {}, entry.message),
    leads,
    answer,
    verdict,
  );
  const update = () => {
    element.dataset.state = entry.state;
    answer.hidden = entry.state !== "open";
    verdict.hidden = entry.state === "open";
    if (entry.state !== "open") say(verdict, t({ allowed: "answered", denied: "declined" }[entry.state] ?? entry.state));
  };
  return { element, update };
}

/** One field of a form: its element, and a function for its value, which is undefined if there is none. */
function formField(field) {
  const label = (input, value) => ({
    element: h("label", {}, h("span", {}, field.title + (field.required ? " *" : "")), input, field.description ? h("small", { class: "faint" }, field.description) : undefined),
    value,
  });
  const choices = () => (field.options ?? []).map((option) => h("option", { value: option.value, selected: [field.default].flat().includes(option.value) }, option.title));
  switch (field.type) {
    case "boolean": {
      const input = h("input", { type: "checkbox", checked: field.default === true });
      return label(input, () => input.checked);
    }
    case "choice": {
      const input = h("select", { required: field.required === true }, field.required && field.default !== undefined ? undefined : h("option", { value: "" }, "–"), choices());
      return label(input, () => (input.value === "" ? undefined : input.value));
    }
    case "choices": {
      const input = h("select", { multiple: true, size: Math.min(field.options.length, 6) }, choices());
      return label(input, () => [...input.selectedOptions].map((option) => option.value));
    }
    case "number": {
      const input = h("input", { type: "number", step: field.integer ? "1" : "any", min: field.minimum, max: field.maximum, required: field.required === true, value: field.default });
      return label(input, () => (input.value === "" ? undefined : Number(input.value)));
    }
    default: {
      const type = { email: "email", uri: "url", date: "date" }[field.format] ?? "text";
      const input = h("input", { type, minlength: field.min_length, maxlength: field.max_length ?? 10000, required: field.required === true, value: field.default });
      return label(input, () => (input.value === "" && !field.required ? undefined : input.value));
    }
  }
}

function question(entry, { decide }) {
  if (entry.scope === "elicitation") return elicitation(entry, { decide });
  const note = h("input", { type: "text", placeholder: t("note"), "aria-label": t("note"), maxlength: 2000 });
  const press = (confirmed, remember) => async () => {
    for (const button of buttons.children) button.disabled = true;
    const ok = await decide(entry, confirmed, note.value.trim(), undefined, remember);
    for (const button of buttons.children) button.disabled = ok;
  };
  // Only what the mode alone asks about can be allowed for good; the button says for what and how long.
  const always = entry.remember === undefined ? undefined : h("button", { type: "button", class: "always", on: { click: press(true, entry.remember) } }, t("allow-always", { name: entry.tool }));
  const buttons = h("div", { class: "buttons" }, h("button", { type: "button", class: "primary allow", on: { click: press(true) } }, t("allow")), always, h("button", { type: "button", class: "deny", on: { click: press(false) } }, t("deny")));
  const scope = always === undefined ? undefined : h("p", { class: "faint scope" }, t("allow-always-scope", { name: entry.tool }));
  const answer = h("div", { class: "answer-form" }, note, buttons, scope);
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
  const text = entry.how === "done" ? t(entry.isEstimate ? "turn-done-estimated" : "turn-done", { time: span(entry.took), n: number(entry.tokens) }) : t(`turn-${entry.how}`);
  const cost = entry.currency === undefined ? undefined : h("span", { class: "cost" }, ` · ${money(entry.cost, entry.currency)}`);
  const press = async () => {
    again.disabled = true;
    again.disabled = await retry(entry);
  };
  const again = h("button", { type: "button", class: "quiet retry", hidden: true, title: t("retry-about"), on: { click: press } }, t("retry"));
  const element = h("p", { class: `entry end ${entry.how}` }, h("span", { title: clock(entry.at) }, text, cost), " ", again);
  const update = () => {
    again.hidden = !entry.canRetry;
  };
  return { element, update };
}
