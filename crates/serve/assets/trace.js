// A trace's id with everything it leads to: its sessions, the trace viewer, and the lines of the server's log file.

import { api } from "./api.js";
import { copyButton } from "./copy.js";
import { h, number, refill, t } from "./kit.js";

/** An element for a trace; undefined for an event without one. What only operators get comes when it has been fetched. */
export function traceView(trace) {
  if (/^0*$/.test(trace ?? "")) return undefined;
  const sessions = h("a", { href: `/sessions?q=${encodeURIComponent(trace)}` }, h("code", {}, trace));
  const more = h("span", {});
  const log = h("div", { class: "log-lines" });
  fetchMore(trace, more, log);
  return h("div", { class: "trace" }, h("p", { class: "marks" }, h("span", {}, t("trace")), sessions, copyButton(() => trace), more), log);
}

async function fetchMore(trace, more, log) {
  let found;
  try {
    found = await api(`/api/traces/${encodeURIComponent(trace)}`);
  } catch (problem) {
    // Only operators get these.
    if (problem.status !== 403) refill(log, h("p", { class: "refused" }, problem.message));
    return;
  }
  if (found.viewer !== undefined) refill(more, h("a", { class: "viewer", href: found.viewer, target: "_blank", rel: "noreferrer noopener" }, t("trace-viewer")));
  if (found.lines === undefined) return;
  if (found.lines.length === 0) return refill(log, h("p", { class: "faint" }, t("log-none")));
  const title = t(found.cut ? "log-lines-cut" : "log-lines", { n: number(found.lines.length) });
  const text = found.lines.join("\n");
  refill(log, h("details", {}, h("summary", {}, title), copyButton(() => text), h("pre", { tabindex: "0", "aria-label": title }, text)));
}
