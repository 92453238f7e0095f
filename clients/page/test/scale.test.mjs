// Large numbers: 50 000 events in one session, 10 000 sessions, 300 events a second, two tabs, an hour of sleep.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { startServer, TOKEN } from "../../harness/server.mjs";
import { onPage, picture, runSession, say, until } from "../stage.mjs";

const program = process.env.BUDAO_BIN || fileURLToPath(new URL("../../../target/debug/budao", import.meta.url));
const SCRIPT = '[[step]]\ntext = "one two three four"\npace_ms = 5\n[[step]]\ntext = "Fine."\nrepeat = "forever"\n';

/** The records of one real session: what is imported is made of them. */
async function pattern(home) {
  const server = await startServer({ script: SCRIPT, home });
  const origin = `http://127.0.0.1:${server.port}`;
  const id = await runSession(origin, ["hello"], { session_name: "The pattern" });
  const text = await (await fetch(`${origin}/v1/sessions/${id}/export`, { headers: { authorization: `Bearer ${TOKEN}` } })).text();
  await server.crash();
  const [, head, ...rest] = text.trim().split("\n").map((line) => JSON.parse(line));
  return { id, head, records: rest.slice(0, -2) };
}

/** A session of the pattern with other events, as lines of an export. */
function* session(number, { head, records }, { turns, deltas, title }) {
  const id = `01a00000-0000-7000-8000-${String(number).padStart(12, "0")}`;
  const [opened, accepted, started, step] = records;
  const find = (name) => records.find(({ event }) => event[name] !== undefined);
  let [seq, at] = [0, opened.at];
  const line = (record, turn, event = record.event) => {
    [seq, at] = [seq + 1, at + 3000];
    return JSON.stringify({ ...record, seq, at, turn, event });
  };
  yield JSON.stringify({ ...head, session: id });
  yield line(opened, 0, { session_opened: { ...opened.event.session_opened, settings: { ...opened.event.session_opened.settings, title } } });
  for (let turn = 1; turn <= turns; turn += 1) {
    const command = `own-${number}-${turn}`;
    yield line(accepted, turn - 1, { message_accepted: { ...accepted.event.message_accepted, command } });
    yield line(started, turn, { turn_started: { ...started.event.turn_started, message: command } });
    yield line(step, turn);
    for (let delta = 0; delta < deltas; delta += 1) yield line(find("text_delta"), turn, { text_delta: { step: 1, text: `word${delta} ` } });
    yield line(find("model_answered"), turn);
    yield line(find("turn_ended"), turn);
  }
  yield JSON.stringify({ end: id, records: seq });
}

/** A folder with a journal of these sessions. */
async function journalOf(sessions) {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-scale-"));
  const like = await pattern(home);
  const file = path.join(home, "many.ndjson");
  const out = fs.openSync(file, "w");
  fs.writeSync(out, '{"journal":1}\n');
  sessions.forEach((wanted, number) => {
    const lines = [...session(number + 1, like, wanted)];
    fs.writeSync(out, `${lines.join("\n")}\n`);
  });
  fs.writeSync(out, `{"done":${sessions.length}}\n`);
  fs.closeSync(out);
  const done = spawnSync(program, ["journal", "import", "journal.db", "many.ndjson"], { cwd: home, env: { PATH: process.env.PATH, HOME: home }, encoding: "utf8" });
  assert.equal(done.status, 0, done.stdout + done.stderr);
  return home;
}

/** Scrolls an element through its length and gives the time between pictures, sorted. */
const scrolled = (selector) => `(async () => {
  const box = document.querySelector(${JSON.stringify(selector)});
  const gaps = [];
  let last = performance.now();
  for (let step = 0; step <= 120; step += 1) {
    box.scrollTop = (box.scrollHeight * step) / 120;
    await new Promise(requestAnimationFrame);
    gaps.push(performance.now() - last);
    last = performance.now();
  }
  return { gaps: gaps.sort((a, b) => a - b), rows: document.querySelectorAll(".row").length };
})()`;

const isQuiet = () => os.loadavg()[0] < os.availableParallelism();

test("50 000 events open, scroll smoothly and stay few elements", async () => {
  const home = await journalOf([{ turns: 12_600, deltas: 1, title: "A very long one" }]);
  await onPage({ script: SCRIPT, home, where: "/faults/ERR_RATE_001" }, async (page, { origin, seen }) => {
    const id = "01a00000-0000-7000-8000-000000000001";
    await page.goto(`${origin}/sessions/${id}`);
    await until(() => page.evaluate(() => Number(document.querySelector("#count").textContent.match(/of ([\d,]+)/)?.[1].replaceAll(",", "")) >= 50_000), 60_000);
    const { gaps, rows } = await page.evaluate(scrolled("#list"));
    const p95 = gaps[Math.floor(gaps.length * 0.95)];
    console.log(`50 000 events: 95 % of pictures within ${Math.round(p95)} ms while scrolling, ${rows} rows in the document`);
    assert.ok(rows < 100, `${rows} rows`);
    if (isQuiet()) assert.ok(p95 < 50, `${p95} ms`);
    await page.locator("#list").focus();
    await page.keyboard.press("End");
    await page.locator("#detail h2", { hasText: "agent.final_answer" }).waitFor();
    await picture(page, "scale-timeline");
    await page.goto(`${origin}/?session=${id}`);
    await until(() => page.evaluate(() => Number(document.querySelector("#fact-events").textContent.replaceAll(",", "")) >= 50_000), 60_000);
    const elements = await page.evaluate(() => document.querySelectorAll("main *").length);
    assert.ok(elements < 5000, `${elements} elements`);
    await page.locator(".earlier").click();
    await say(page, "still there?");
    await until(async () => (await page.locator(".entry.end").last().textContent()) !== "");
    assert.deepEqual(seen.errors, []);
  });
});

test("10 000 sessions are listed in parts, found by title beside the conversation, and counted for a bulk command", async () => {
  const all = Array.from({ length: 10_000 }, (_, index) => ({
    session_id: `${index.toString(16).padStart(8, "0")}-0000-7000-8000-000000000000`,
    state: "idle",
    title: `Session number ${index}`,
    owner: "local/ann",
    opened_at: new Date(Date.now() - index * 60_000).toISOString(),
    updated_at: new Date(Date.now() - index * 60_000).toISOString(),
    turns: 1,
    last_code: null,
    head: 8,
    faults: 0,
    recovered: 0,
    not_recovered: 0,
  }));
  await onPage({ script: SCRIPT, where: "/faults/ERR_RATE_001" }, async (page, { origin, seen }) => {
    // The server's list, in its own pages: opening so many for real takes minutes.
    await page.route("**/v1/sessions?**", (route) => {
      const query = new URL(route.request().url()).searchParams;
      const from = Number(query.get("after") ?? 0);
      const to = from + Number(query.get("limit") ?? 100);
      return route.fulfill({ json: { sessions: all.slice(from, to), next: to < all.length ? String(to) : null } });
    });
    await page.goto(`${origin}/sessions`);
    await page.locator("#rows tr").nth(49).waitFor();
    assert.equal(await page.locator("#rows tr").count(), 50);
    await page.selectOption("#action", "close");
    await page.locator("#bulk button").click();
    await page.locator("#bulk-sentence", { hasText: "10,000" }).waitFor({ timeout: 60_000 });
    await picture(page, "scale-bulk");
    await page.keyboard.press("Escape");
    await page.goto(`${origin}/`);
    await page.locator("#side-list li").nth(49).waitFor();
    await page.locator("html[data-ready]").waitFor();
    await page.fill("#side-search", "number 77");
    await until(async () => (await page.locator("#side-status").textContent()) === "11 of 1,000 sessions");
    assert.ok((await page.locator("main *").count()) < 4000);
    assert.deepEqual(seen.errors, []);
  });
});

test("two tabs show the same, and each keeps what it is doing", async () => {
  await onPage({ script: '[[step]]\ntext = "Fine."\nrepeat = "forever"\n' }, async (page) => {
    await say(page, "from the first");
    await page.locator(".entry.end").waitFor();
    const other = await page.context().newPage();
    await other.goto(page.url());
    await other.locator(".entry.end").waitFor();
    await say(other, "from the second");
    await until(async () => (await page.locator(".entry.end").count()) === 2);
    await until(async () => (await other.locator(".entry.end").count()) === 2);
    const texts = (tab) => tab.locator(".entry .text").allTextContents();
    assert.deepEqual(await texts(page), await texts(other));
  });
});

test("a page that was frozen for an hour comes back with everything, once", async () => {
  const words = Array.from({ length: 60 }, (_, index) => `w${index}`).join(" ");
  await onPage({ script: `[[step]]\ntext = "${words}"\npace_ms = 50\n` }, async (page, { api }) => {
    await say(page, "count");
    await page.getByText("w5 ").waitFor();
    const id = new URL(page.url()).searchParams.get("session");
    const cdp = await page.context().newCDPSession(page);
    await cdp.send("Emulation.setVirtualTimePolicy", { policy: "pause" });
    await until(async () => (await api(`/v1/sessions/${id}`)).status === "idle");
    // An hour passes for the page's timers, then its clock runs on as usual.
    await cdp.send("Emulation.setVirtualTimePolicy", { policy: "advance", budget: 3_600_000 });
    await until(async () => (await page.locator(".entry.end").count()) === 1, 60_000);
    assert.equal((await page.locator(".entry.answer .text").textContent()).trim(), words);
  });
});
