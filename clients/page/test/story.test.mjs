// A session's story: waits, kills and hangs at their true length, each event in every view, and a report without texts.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { startModel } from "../../harness/model.mjs";
import { startServer } from "../../harness/server.mjs";
import { onPage, overflow, picture, runSession, say, until } from "../stage.mjs";

const WAITS = `
[[step]]
fault = "model_rate_limited"
retry_after_ms = 2500
[[step]]
[[step.call]]
tool = "bash_run"
arguments = { cmd = "sleep 1.5" }
[[step.call]]
tool = "fs_read"
arguments = { file = "secret-plans.txt" }
[[step]]
text = "A sentence that nobody else should read."
repeat = "forever"
`;

test("waits, calls and silence are drawn at their true length", async () => {
  await onPage({ script: WAITS, where: "/faults/ERR_RATE_001", args: ["--permission", "auto"] }, async (page, { origin, seen }) => {
    const id = await runSession(origin, ["go"], { session_name: "Waits" });
    await page.goto(`${origin}/sessions/${id}`);
    await page.locator(".lanes .call").first().waitFor();
    const { waits, call, whole, width } = await page.evaluate(() => {
      const box = (element) => element.getBoundingClientRect().width;
      const rows = [...document.querySelectorAll(".row .time")].map(({ textContent }) => textContent);
      return {
        waits: [...document.querySelectorAll(".lanes .wait")].map((wait) => [wait.getAttribute("class"), Number(wait.dataset.ms), box(wait.querySelector("rect"))]),
        call: box(document.querySelector(".lanes rect.call")),
        whole: rows,
        width: box(document.querySelector(".lanes .turn rect")),
      };
    });
    const wait = waits.find(([, ms]) => ms >= 2000);
    assert.ok(wait !== undefined, JSON.stringify(waits));
    // What took longer is longer, in proportion.
    assert.ok(Math.abs(wait[2] / wait[1] - call / 1500) < 0.25 * (call / 1500), JSON.stringify({ wait, call, whole, width }));
    assert.ok(wait[2] > 0.3 * width, "a wait of seconds is no tick");
    await page.locator("#legend li").first().waitFor();
    await picture(page, "story");
    // Dragging enlarges a part, and a key shows all again.
    const lanes = await page.locator("#lanes").boundingBox();
    await page.mouse.move(lanes.x + lanes.width * 0.5, lanes.y + 40);
    await page.mouse.down();
    await page.mouse.move(lanes.x + lanes.width * 0.8, lanes.y + 40, { steps: 4 });
    await page.mouse.up();
    await page.locator("#zoom-out").waitFor();
    await picture(page, "story-zoom");
    await page.locator("body").click({ position: { x: 2, y: 2 } });
    await page.keyboard.press("0");
    await page.locator("#zoom-out").waitFor({ state: "detached" });
    assert.deepEqual(seen.errors, []);
  });
});

test("an event has an address, and is shown as told, as sent and as kept", async () => {
  await onPage({ script: WAITS, where: "/faults/ERR_RATE_001", args: ["--permission", "auto"] }, async (page, { origin }) => {
    const id = await runSession(origin, ["go"], { session_name: "Views" });
    await page.goto(`${origin}/sessions/${id}`);
    await page.locator(".row", { hasText: "error.rate_limited" }).click();
    await page.locator(".rendering").nth(2).waitFor();
    const address = page.url();
    assert.match(address, /\?at=\d+$/);
    await page.locator('[data-view="told"]').focus();
    await page.keyboard.press("ArrowRight");
    await page.locator("#view .json", { hasText: "error.rate_limited" }).waitFor();
    await page.keyboard.press("ArrowRight");
    await page.locator("#view .json-name", { hasText: "trace" }).waitFor();
    assert.match(await page.locator("#view a").first().getAttribute("href"), /^\/sessions\?q=[0-9a-f]{32}$/);
    await picture(page, "record");
    await page.goto("about:blank");
    await page.goto(address);
    await page.locator("#detail h2", { hasText: "error.rate_limited" }).waitFor();
    await page.setViewportSize({ width: 360, height: 740 });
    await until(async () => (await overflow(page)) === 0);
    await picture(page, "narrow-story");
  });
});

test("a bug report has the events, times and codes, and none of the texts", async () => {
  await onPage({ script: WAITS, where: "/faults/ERR_RATE_001", args: ["--permission", "auto"] }, async (page, { origin }) => {
    const id = await runSession(origin, ["a question of mine"], { session_name: "A private title" });
    await page.goto(`${origin}/sessions/${id}`);
    await page.locator(".row").first().waitFor();
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#bundle")]);
    const text = fs.readFileSync(await download.path(), "utf8");
    const lines = text.trim().split("\n").map((line) => JSON.parse(line));
    assert.equal(lines[0].bundle, 1);
    assert.equal(lines.at(-1).end, lines.length - 3);
    assert.match(text, /ERR_RATE_001/);
    assert.match(text, /"timestamp":"20/);
    for (const secret of ["nobody else", "question of mine", "private title", "secret-plans", "sleep 1.5"]) assert.ok(!text.includes(secret), secret);
    // What a reader of the report needs is there: which call of which tool, how long, and what it ended with.
    const [call, result] = ["agent.tool_call", "agent.tool_result"].map((event) => lines.find((line) => line.event === event).metadata);
    assert.equal(call.tool_name, "bash_run");
    assert.match(call.call_id, /^#\d+$/);
    assert.equal(typeof lines.find((line) => line.event === "agent.tool_result" && line.metadata.call_id === call.call_id).metadata.execution_time_ms, "number");
    assert.ok(["success", "failed"].includes(result.status));
    assert.equal(lines.find((line) => line.event === "agent.session_created").session_id, id);
    assert.equal(lines[1].session.session_id, id);
  });
});

test("a bug report has no text of anybody's, under whichever name and in whichever event it stands", async () => {
  const file = fileURLToPath(new URL("../../../docs/protocol.schema.json", import.meta.url));
  const schema = JSON.parse(fs.readFileSync(file, "utf8")).$defs;
  const events = [...new Set(Object.values(schema).map(({ properties }) => properties?.event?.const).filter((name) => name !== undefined))];
  const names = new Set(["name", "detail", "title", "last_code", "state", "by", "topic", "__proto__"]);
  JSON.stringify(schema, (_, value) => {
    for (const name of Object.keys(value?.properties ?? {})) names.add(name);
    return value;
  });
  assert.ok(events.length > 40 && names.size > 150, `${events.length} events, ${names.size} names`);
  await onPage({ script: WAITS, where: "/faults/ERR_RATE_001" }, async (page) => {
    const found = await page.evaluate(async ([events, names]) => {
      const { bundleOf } = await import("/assets/bundle.js");
      // Names of models are the operator's, and stay if they look like one.
      const isModel = (name) => ["model", "from_model", "to_model"].includes(name);
      const secret = (name) => (isModel(name) ? "sword fish" : "swordfish");
      const shapes = [secret, (name) => `${secret(name)} and more`, (name) => [secret(name)], (name) => ({ [`key_${secret(name)}`]: 1, model: "sword fish", code: secret(name), [name]: secret(name) })];
      const made = [];
      for (const shape of shapes) {
        const all = JSON.parse(JSON.stringify(Object.fromEntries(names.map((name) => [name, shape(name)]))));
        const nested = { ...all, swordfish: 1 };
        for (const event of events) made.push({ ...all, event, metadata: nested, swordfish: "x" }, { event, metadata: { ...nested, context: all, data: nested } });
        made.push({ ...all, event: "swordfish" });
      }
      const lines = made.map((frame) => bundleOf({ session: { ...frame, ...frame.metadata }, frames: [frame], server: {} }).split("\n"));
      return lines.flat().filter((line) => /sword ?fish/.test(line)).slice(0, 5);
    }, [events, [...names]]);
    assert.deepEqual(found, []);
  });
});

test("after the server was killed the abandoned text is folded away, and the kill is on the timeline", async () => {
  const words = Array.from({ length: 80 }, (_, index) => `w${index}`).join(" ");
  const script = `[[step]]\ntext = "${words}"\npace_ms = 60\n[[step]]\ntext = "Once more, and whole."\nrepeat = "forever"\n`;
  await onPage({ script, where: "/" }, async (page, { server, origin }) => {
    await say(page, "count");
    await page.getByText("w9 ").waitFor();
    await server.crash();
    await page.locator('#line[data-state="lost"]').waitFor();
    const heard = await page.locator(".entry.answer .text").first().textContent();
    const again = await startServer({ home: server.home, model: "script:script.toml", port: server.port });
    try {
      await page.locator('#line[data-state="open"]').waitFor({ timeout: 60_000 });
      await page.locator(".entry.end").waitFor({ timeout: 60_000 });
      const folded = page.locator(".entry.answer.void");
      assert.equal(await folded.count(), 1);
      assert.equal(await folded.locator("details").getAttribute("open"), null);
      await folded.locator("summary").click();
      assert.ok((await folded.locator(".text").textContent()).startsWith(heard.trim().slice(0, 20)));
      assert.match(await folded.textContent(), /started over/);
      await picture(page, "abandoned");
      const id = new URL(page.url()).searchParams.get("session");
      await page.goto(`${origin}/sessions/${id}`);
      await page.locator(".lanes .down").waitFor();
      assert.ok(Number(await page.locator(".lanes .down").getAttribute("data-ms")) > 0);
      assert.match(await page.locator(".lanes .kill text").textContent(), /^Process gone for .*, then resumed$/);
      const [kill, playhead] = await page.locator(".lanes .kill line, #playhead line").evaluateAll((lines) => lines.map((line) => getComputedStyle(line)).map(({ stroke, strokeDasharray }) => [stroke, strokeDasharray]));
      assert.ok(kill[0] !== playhead[0] && kill[1] !== playhead[1], `the kill is no playhead: ${kill} ${playhead}`);
      assert.equal(await page.locator(".lanes .step").count(), 2, "the request that the new process made again is drawn too");
      await picture(page, "kill");
    } finally {
      await again.crash();
    }
  });
});

test("a trace leads to the trace viewer and to its lines in the log file", async () => {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-traces-"));
  fs.writeFileSync(path.join(home, "budao.toml"), '[traces]\nviewer = "https://tempo.example/trace/{trace}?x=1"\n[log]\nfile = "budao.log"\n');
  const script = '[[step]]\nfault = "model_authentication"\nrepeat = "forever"\n';
  await onPage({ script, home, args: ["--config", "budao.toml"], where: "/faults/ERR_AUTH_001" }, async (page, { origin, seen }) => {
    const id = await runSession(origin, ["go"]);
    await page.goto(`${origin}/sessions/${id}`);
    await page.locator("#list .row .event.fell").first().click();
    await page.locator('[data-view="record"]').click();
    const viewer = page.locator("#detail a.viewer");
    await viewer.waitFor();
    const trace = await page.locator("#detail .trace code").textContent();
    assert.match(trace, /^[0-9a-f]{32}$/);
    assert.equal(await viewer.getAttribute("href"), `https://tempo.example/trace/${trace}?x=1`);
    await page.locator("#detail .log-lines summary").click();
    const lines = await page.locator("#detail .log-lines pre").textContent();
    assert.match(lines, /ERR_AUTH_001/);
    assert.ok(lines.split("\n").every((line) => line.includes(trace)), lines);
    await page.locator("#detail .log-lines pre").scrollIntoViewIfNeeded();
    await picture(page, "log-lines");
    // The same stands where the fault is told to operators.
    await page.locator('[data-view="told"]').click();
    await page.locator("#detail .rendering .log-lines summary").waitFor();
    assert.deepEqual(seen.errors, []);
  });
});

test("silence, a decision and a service that holds back are marked on the timeline for as long as they lasted", async () => {
  const script = `
[[step]]
text = "One two three."
pace_ms = 2600
[[step.call]]
tool = "fs_write"
arguments = { path = "a.txt", content = "hi" }
[[step]]
text = "Written."
repeat = "forever"
`;
  await onPage({ script }, async (page, { origin, seen }) => {
    await say(page, "write");
    const open = page.locator('.question[data-state="open"]');
    await open.waitFor({ timeout: 30_000 });
    const asked = Date.now();
    await until(() => Date.now() - asked > 1500);
    await open.locator(".allow").click();
    await page.getByText("Written.").waitFor();
    await page.locator(".entry.end").waitFor();
    await page.goto(`${origin}/sessions/${new URL(page.url()).searchParams.get("session")}`);
    await page.locator(".lanes .question").waitFor();
    const marks = (name) => page.locator(`.lanes .wait.${name}`).evaluateAll((list) => list.map((mark) => Number(mark.dataset.ms)));
    const hangs = await marks("hang");
    assert.ok(hangs.length >= 1 && hangs.every((ms) => ms > 2000 && ms < 60_000), `${hangs}`);
    const [question, ...others] = await marks("question");
    assert.ok(question >= 1400 && question < 60_000 && others.length === 0, `${question} ${others}`);
    const legend = await page.locator("#legend").textContent();
    for (const words of ["waiting for a decision", "no event"]) assert.ok(legend.includes(words), legend);
    await picture(page, "story-marks");
    assert.deepEqual(seen.errors, []);
  });
  const model = await startModel();
  try {
    await onPage({ model: model.name, where: "/faults/ERR_RATE_001" }, async (page, { origin, api }) => {
      model.refuse(4);
      const { session_id: first } = await api("/v1/sessions", {});
      await api(`/v1/sessions/${first}/messages`, { content: "first" });
      await until(async () => ((await api("/api/stats?window=5m")).gates ?? []).some(({ state }) => state === "held"));
      const id = await runSession(origin, ["go"], { session_name: "Held" });
      await page.goto(`${origin}/sessions/${id}`);
      await page.locator(".lanes .wait.hold").first().waitFor();
      const held = await page.locator(".lanes .wait.hold").evaluateAll((list) => list.map((mark) => Number(mark.dataset.ms)));
      assert.ok(held.some((ms) => ms > 1500 && ms < 60_000), `${held}`);
      assert.match(await page.locator("#legend").textContent(), /held by the service/);
      await picture(page, "story-held");
    });
  } finally {
    model.stop();
  }
});

test("a call whose outcome is unknown is settled on the page, in whichever window comes first", async () => {
  const script = `
[[step]]
[[step.call]]
tool = "bash_run"
arguments = { cmd = "sleep 30" }
[[step]]
text = "I do not know."
repeat = "forever"
`;
  const args = ["--permission", "auto"];
  await onPage({ script, args }, async (page, { server, origin }) => {
    await say(page, "pay the invoice");
    await page.locator('.entry.call[data-status="running"]').waitFor();
    await server.crash();
    const again = await startServer({ home: server.home, model: "script:script.toml", port: server.port, args });
    try {
      const doubt = page.locator('.doubt[data-state="open"]');
      await doubt.waitFor({ timeout: 60_000 });
      await until(async () => (await page.locator("#fact-doubts").textContent()) === "1");
      await picture(page, "doubt");
      // It is on the operators' screen, which leads here.
      const other = await page.context().newPage();
      await other.goto(`${origin}/now`);
      assert.equal(await other.locator('[data-figure="doubts-now"]').textContent(), "1");
      await picture(other, "now-doubt");
      await other.locator("#doubts a").click();
      await other.locator('.doubt[data-state="open"] input').fill("paid, number 7");
      await other.locator('.doubt [data-outcome="happened"]').click();
      for (const window of [other, page]) await window.locator('.doubt[data-state="happened"] .verdict', { hasText: /Settled at .*: It happened/ }).waitFor();
      await page.locator("#doubts-row").waitFor({ state: "hidden" });
      await picture(page, "doubt-settled");
      // What the person said is what the model reads next.
      const id = new URL(page.url()).searchParams.get("session");
      const response = await fetch(`${origin}/v1/sessions/${id}/export`, { headers: { authorization: "Bearer a-token-for-tests" } });
      assert.match(await response.text(), /"doubt_settled":\{.*"settlement":\{"happened":\{"result":"paid, number 7"\}\},"by":"local\/local"/);
    } finally {
      await again.crash();
    }
  });
});
