// Plan, solve, aggregate: three columns, left to right.

import { h, refill, t } from "./kit.js";

/** Draws the board. `order(event, task)` asks something about a task. */
export function drawBoard(root, plan, order) {
  root.hidden = plan === undefined;
  if (plan === undefined) return;
  const stages = ["planning", "solving", "aggregation", "ended"];
  const now = stages.indexOf(plan.stage);
  const column = (index, name, ...children) => {
    const state = now > index ? "past" : now === index ? "now" : "ahead";
    return h("section", { class: "stage", "data-state": state }, h("h3", {}, t(name)), children);
  };
  const waiting = h("p", { class: "faint" }, t("waiting"));
  refill(
    root,
    column(0, "plan", h("p", { class: "question" }, plan.question), h("p", { class: "faint" }, now === 0 ? t("planning") : plan.summary)),
    column(1, "solve", plan.tasks.size === 0 ? waiting : h("ul", {}, [...plan.tasks].map(([id, task]) => card(id, task, plan, order)))),
    column(2, "aggregate", result(plan, now)),
  );
}

function card(id, task, plan, order) {
  const button = (name, event) => h("button", { type: "button", class: "plain small", on: { click: () => order(event, id) } }, t(name));
  const isOver = ["completed", "failed", "cancelled"].includes(task.status);
  return h(
    "li",
    { "data-status": task.status },
    h("div", { class: "task-head" }, h("b", {}, task.title), h("span", { class: "state" }, t(`task-${task.status}`), task.attempt > 1 ? ` · ${t("attempt", { n: task.attempt })}` : "")),
    task.output === undefined ? undefined : h("p", {}, task.output),
    task.fault === undefined ? undefined : h("p", { class: "sentence" }, h("a", { class: "code", href: `/faults/${encodeURIComponent(task.fault.code)}` }, task.fault.code), " ", task.fault.text),
    plan.stage === "solving" ? h("div", { class: "task-foot" }, isOver ? button("task-again", "user.restart_task") : button("task-stop", "user.cancel_task")) : undefined,
  );
}

function result(plan, now) {
  if (plan.result !== undefined) return h("p", { class: "result" }, plan.result);
  return h("p", { class: "faint" }, now === 2 ? t("aggregating") : plan.failed ? t("task-failed") : t("waiting"));
}
