// Plan, solve, aggregate: three columns, left to right. Each task says which session works on it, and with which model.

import { api } from "./api.js";
import { h, t, update } from "./kit.js";
import { Markdown } from "./markdown.js";

/** The models of child sessions that were asked for; an empty name while the answer is on its way. */
const models = new Map();

/** Who does this: the model, and a link to the session. The model is read once, and is then in every drawing. */
function worker(name, child, redraw) {
  if (child === undefined) return undefined;
  if (!models.has(child)) {
    models.set(child, "");
    api(`/v1/sessions/${encodeURIComponent(child)}`).then(
      ({ model }) => {
        models.set(child, model === "" ? t("default-model") : model);
        redraw();
      },
      () => {},
    );
  }
  const model = models.get(child);
  const link = h("a", { href: `/?session=${encodeURIComponent(child)}` }, t("stage-session"));
  return h("p", { class: "by", "data-child": child }, model === "" ? link : [t(name, { name: model }), " · ", link]);
}

/** Draws the board. `order(event, task)` asks something about a task, `redraw()` draws it again. */
export function drawBoard(root, plan, order, redraw) {
  root.hidden = plan === undefined;
  if (plan === undefined) return;
  const stages = ["planning", "solving", "aggregation", "ended"];
  const now = stages.indexOf(plan.stage);
  const column = (index, name, ...children) => {
    const state = now > index ? "past" : now === index ? "now" : "ahead";
    return h("section", { class: "stage", "data-state": state }, h("h3", {}, t(name)), children);
  };
  const waiting = h("p", { class: "faint" }, t("waiting"));
  // Elements stay while the plan goes on, so what a button asks for is read where it is pressed.
  root.onclick = ({ target }) => {
    if (target.dataset.order !== undefined) order(target.dataset.order, target.closest("[data-task]").dataset.task);
  };
  update(
    root,
    column(0, "plan", h("p", { class: "question" }, plan.question), h("p", { class: "faint" }, now === 0 ? t("planning") : plan.summary), worker("plan-by", plan.workers.planning, redraw)),
    column(1, "solve", plan.tasks.size === 0 ? waiting : h("ul", {}, [...plan.tasks].map(([id, task]) => card(id, task, plan, redraw)))),
    column(2, "aggregate", result(plan, now), worker("aggregate-by", plan.workers.aggregation, redraw)),
  );
}

function card(id, task, plan, redraw) {
  const button = (name, event) => h("button", { type: "button", class: "plain small", "data-order": event }, t(name));
  const isOver = ["completed", "failed", "cancelled"].includes(task.status);
  return h(
    "li",
    { "data-key": id, "data-task": id, "data-status": task.status },
    h("div", { class: "task-head" }, h("b", {}, task.title), h("span", { class: "state" }, t(`task-${task.status}`), task.attempt > 1 ? ` · ${t("attempt", { n: task.attempt })}` : "")),
    task.output === undefined ? undefined : h("p", {}, task.output),
    task.fault === undefined ? undefined : h("p", { class: "sentence" }, h("a", { class: "code", href: `/faults/${encodeURIComponent(task.fault.code)}` }, task.fault.code), " ", task.fault.text),
    worker("task-by", task.child, redraw),
    plan.stage === "solving" ? h("div", { class: "task-foot" }, isOver ? button("task-again", "user.restart_task") : button("task-stop", "user.cancel_task")) : undefined,
  );
}

function result(plan, now) {
  if (plan.result !== undefined) {
    const text = h("div", { class: "result markdown" });
    new Markdown(text).show(plan.result, false);
    return text;
  }
  return h("p", { class: "faint" }, now === 2 ? t("aggregating") : plan.failed ? t("task-failed") : t("waiting"));
}
