// The list of sessions, and one session as a timeline.

import assert from "node:assert/strict";
import fs from "node:fs";
import { test } from "node:test";
import { onPage, overflow, picture, runSession, until } from "../stage.mjs";

const STEPS = `
[[step]]
text = "I look in two places."
[[step.call]]
tool = "bash_run"
arguments = { cmd = "sleep 0.3" }
[[step.call]]
tool = "fs_glob"
arguments = { pattern = "*" }
[[step]]
fault = "model_rate_limited"
retry_after_ms = 1000
[[step]]
[[step.call]]
tool = "fs_read"
arguments = { file = "x" }
[[step]]
text = "That was all."
repeat = "forever"
`;

/** One session that met a fault and recovered, one that did not fall. */
async function stage(options, use) {
  await onPage({ script: STEPS, where: "/faults/ERR_RATE_001", args: ["--permission", "auto"], ...options }, async (page, context) => {
    const rough = await runSession(context.origin, ["go"], { session_name: "A rough way" });
    const smooth = await runSession(context.origin, ["go"], { session_name: "A smooth way" });
    await use(page, { ...context, rough, smooth });
  });
}

test("sessions are listed and found by id, trace, code and tool", async () => {
  await stage({}, async (page, { origin, rough, api }) => {
    await page.goto(`${origin}/sessions`);
    await page.locator("#rows tr").nth(1).waitFor();
    assert.deepEqual(await page.locator("#rows .name a").allTextContents(), ["A smooth way", "A rough way"]);
    assert.deepEqual(await page.locator("#rows .fault").allTextContents(), ["", "2, 1 recovered"]);
    await picture(page, "sessions");
    const only = async (text) => {
      await page.fill("#q", text);
      await page.press("#q", "Enter");
      await until(async () => (await page.locator("#rows tr").count()) === 1);
      assert.equal(await page.locator("#rows .name a").textContent(), "A rough way", text);
    };
    await only("ERR_RATE_001");
    await only("fs_glob");
    const lines = await fetch(`${origin}/v1/sessions/${rough}/export`, { headers: { authorization: "Bearer a-token-for-tests" } });
    const traces = (await lines.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line).trace);
    await only(traces.find((trace) => trace !== undefined && !/^0*$/.test(trace)));
    await page.fill("#q", "nothing_has_this_name");
    await page.press("#q", "Enter");
    await page.locator("#nothing:not([hidden])").waitFor();
    await page.fill("#q", rough);
    await page.press("#q", "Enter");
    await page.waitForURL(`**/sessions/${rough}`);
    assert.equal((await api(`/v1/sessions/${rough}`)).turns, 1);
  });
});

test("a session is a timeline to go through, with lanes, faults and recoveries", async () => {
  await stage({}, async (page, { origin, rough, seen }) => {
    await page.goto(`${origin}/sessions/${rough}`);
    await page.locator(".row").first().waitFor();
    assert.equal(await page.locator("#title").textContent(), "A rough way");
    await until(async () => (await page.locator(".lanes .rose").count()) === 1);
    assert.equal(await page.locator(".lanes .fell").count(), 2);
    // A recovery and the fault a moment later are both seen.
    const marks = await page.locator(".lanes .fell, .lanes .rose").evaluateAll((all) => all.map((mark) => mark.getBoundingClientRect()).map(({ x, y, width }) => ({ x: x + width / 2, y: y + width / 2, width })));
    for (const [index, one] of marks.entries()) for (const other of marks.slice(index + 1)) assert.ok(Math.hypot(one.x - other.x, one.y - other.y) >= one.width, JSON.stringify(marks));
    const bars = page.locator(".lanes rect.call");
    const rows = await bars.evaluateAll((all) => all.map((bar) => bar.getAttribute("y")));
    assert.equal(new Set(rows).size, 2, "calls that run side by side have lanes of their own");
    const playhead = () => page.locator("#playhead").getAttribute("transform").then((move) => Number(/translate\((\S+)/.exec(move)[1]));
    await page.locator("#at").focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowRight");
    const early = await playhead();
    assert.match(await page.locator("#where").textContent(), /^Event 2 of/);
    await page.keyboard.press("End");
    assert.ok((await playhead()) > early);
    assert.match(await page.locator("#summary").textContent(), /Faults: 2 · recovered: 1/);
    await page.locator(".row", { hasText: "error.rate_limited" }).click();
    await page.locator(".rendering").nth(2).waitFor();
    await picture(page, "timeline");
    await page.locator("#list").focus();
    await page.keyboard.press("ArrowDown");
    assert.match(await page.locator("#detail h2").textContent(), /error\.retry_attempt/);
    assert.deepEqual(seen.errors, []);
  });
});

test("events are filtered by channel, and exported", async () => {
  await stage({}, async (page, { origin, rough }) => {
    await page.goto(`${origin}/sessions/${rough}`);
    await page.locator(".row").first().waitFor();
    await page.locator("#channels label", { hasText: "Monitor" }).click();
    await until(async () => (await page.locator(".row .event", { hasText: "agent.tool_call" }).count()) === 0);
    assert.ok((await page.locator(".row .event.fell").count()) >= 1);
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export")]);
    const lines = fs.readFileSync(await download.path(), "utf8").trim().split("\n");
    assert.deepEqual(JSON.parse(lines[0]), { journal: 1 });
    assert.deepEqual(JSON.parse(lines.at(-1)), { done: 1 });
  });
});

test("list and timeline fit a narrow screen", async () => {
  await stage({}, async (page, { origin, rough }) => {
    await page.setViewportSize({ width: 360, height: 740 });
    for (const where of ["/sessions", `/sessions/${rough}`, "/faults/ERR_RATE_001", "/machines", "/faults"]) {
      await page.goto(`${origin}${where}`);
      await page.locator("h1").first().waitFor();
      await page.waitForLoadState("networkidle");
      assert.equal(await overflow(page), 0, where);
      await picture(page, `narrow${where.replaceAll("/", "-").replace(rough, "one")}`);
    }
  });
});

test("times are in the reader's zone, in the list, on the timeline and on now", async () => {
  await stage({}, async (page, { origin, rough, api }) => {
    const cdp = await page.context().newCDPSession(page);
    const { sessions } = await api("/v1/sessions");
    const { updated_at: updated } = sessions.find(({ session_id: id }) => id === rough);
    for (const zone of ["Asia/Kathmandu", "America/St_Johns"]) {
      await cdp.send("Emulation.setTimezoneOverride", { timezoneId: zone });
      const at = (time) => new Date(time).toLocaleTimeString("en-GB", { timeZone: zone, hour12: false });
      await page.goto(`${origin}/sessions`);
      const when = page.locator("#rows tr", { hasText: "A rough way" }).locator(".when");
      await when.waitFor();
      assert.ok((await when.getAttribute("title")).endsWith(at(updated)), zone);
      await page.goto(`${origin}/sessions/${rough}`);
      const last = page.locator("#list .row .time").last();
      await last.waitFor();
      const rows = await page.locator("#list .row .time").allTextContents();
      assert.ok(rows.some((time) => time.startsWith(at(updated))), `${zone}: ${rows}`);
      await page.goto(`${origin}/now`);
      const since = (await api("/api/stats?window=1h")).kinds[0].first_at;
      await page.locator("#failing li", { hasText: `since ${at(since)}` }).first().waitFor();
    }
  });
});
