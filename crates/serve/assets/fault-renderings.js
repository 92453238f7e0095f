// One fault as rendered for the model, the user and the operator, side by side. The server writes the texts.

import { api } from "./api.js";
import { clock, h, pretty, refill, t } from "./kit.js";
import { traceView } from "./trace.js";

/** A fold-out with the three renderings of a fault. They are fetched when it opens. `session` may be a function. */
export function faultRenderings(session, fault, { open = false } = {}) {
  const body = h("div", { class: "three" });
  const box = h("details", { class: "renderings" }, h("summary", {}, t("renderings")), body);
  let isLoaded = false;
  const show = async () => {
    if (!box.open || isLoaded) return;
    isLoaded = true;
    refill(body, h("p", { class: "faint" }, t("loading")));
    try {
      const id = typeof session === "function" ? session() : session;
      const rendered = await api(`/v1/sessions/${encodeURIComponent(id)}/faults/${encodeURIComponent(fault.seq)}`);
      refill(body, toModel(rendered), toUser(rendered), toOperator(rendered));
    } catch (problem) {
      isLoaded = false;
      refill(body, h("p", { class: "refused" }, problem.message));
    }
  };
  box.addEventListener("toggle", show);
  if (open) box.open = true;
  return box;
}

function column(name, ...children) {
  return h("section", { class: "rendering" }, h("h4", {}, t(name)), children);
}

function list(lines) {
  return lines?.length > 0 ? h("ol", {}, lines.map((line) => h("li", {}, line))) : undefined;
}

function toModel({ model }) {
  if (model === null || model === undefined) return column("to-model", h("p", { class: "faint" }, t("model-not-told")));
  const { error, errorType, next, retryable, recommendations, mismatches, example } = model;
  return column(
    "to-model",
    h("p", { class: "said" }, error),
    list(recommendations),
    h("p", { class: "marks" }, ["errorType", "next", "retryable"].map((name) => h("code", {}, `${name}: ${{ errorType, next, retryable }[name]}`))),
    mismatches === undefined ? undefined : h("pre", {}, mismatches.map((place) => `${place.pointer || "/"} ${place.rule}`).join("\n")),
    example === undefined ? undefined : h("pre", {}, pretty(example, 2000)),
  );
}

function toUser({ user }) {
  if (user === null || user === undefined) return column("to-user", h("p", { class: "faint" }, "–"));
  const { event, metadata = {} } = user;
  const said = user.show_content ?? user.content;
  return column(
    "to-user",
    h("p", { class: "said" }, typeof said === "string" ? said : pretty(said, 2000)),
    list(metadata.recommendations),
    h("p", { class: "marks" }, h("code", {}, event), h("code", {}, `recoverable: ${metadata.recoverable}`), h("code", {}, String(metadata.recovery_strategy))),
  );
}

function toOperator({ operator }) {
  if (operator === null || operator === undefined) return column("to-operator", h("p", { class: "faint" }, t("operator-only")));
  return column(
    "to-operator",
    h("pre", { class: "said" }, operator.line),
    h("p", {}, operator.check),
    traceView(operator.trace_id),
    h("p", { class: "marks" }, h("code", {}, clock(operator.at))),
  );
}
