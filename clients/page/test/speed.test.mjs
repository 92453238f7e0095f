// A long history opens at once, and a fast one does not make the page stutter. What was measured is printed.

import assert from "node:assert/strict";
import { test } from "node:test";
import { onPage, say, told, until } from "../stage.mjs";

const EVENTS = 10_000;

/** Each turn makes some 1 100 frames: 60 steps of eight calls that only read. */
const calls = '[[step.call]]\ntool = "fs_glob"\narguments = { pattern = "none" }\n'.repeat(8);
const turn = `${`[[step]]\n${calls}`.repeat(60)}[[step]]\ntext = "One turn more."\n`;

/** How long until `ready` holds, from the start of the navigation, in the page's own time. */
async function opened(page, address, ready) {
  await page.goto(address, { waitUntil: "commit" });
  return page.evaluate(`new Promise((resolve) => {
    const look = () => requestAnimationFrame(() => (${ready} ? resolve(performance.now()) : look()));
    look();
  })`);
}

test("a session with 10 000 events opens in under a second", async () => {
  await onPage({ script: `order = "requests"\n${turn.repeat(11)}`, where: "/faults/ERR_RATE_001" }, async (page, { origin, api }) => {
    const id = await told(origin, Array.from({ length: 11 }, () => "go"));
    const { head } = await api(`/v1/sessions/${id}`);
    assert.ok(head >= EVENTS, `${head} events`);
    await page.goto(`${origin}/sessions`);
    const last = `document.querySelector("#count")?.textContent.match(/of ([\\d,]+)/)?.[1].replaceAll(",", "") >= ${EVENTS} && document.querySelectorAll(".row").length > 5`;
    const timeline = await best(() => opened(page, `${origin}/sessions/${id}`, last));
    const shown = `document.querySelectorAll(".entry").length > 100 && Number(document.querySelector("#fact-events").textContent.replaceAll(",", "")) >= ${EVENTS}`;
    const talk = await best(() => opened(page, `${origin}/?session=${id}`, shown));
    console.log(`${head} events: the timeline is there after ${Math.round(timeline)} ms, the conversation after ${Math.round(talk)} ms`);
    const elements = await page.evaluate(() => document.querySelectorAll("main *").length);
    assert.ok(elements < 6000, `${elements} elements`);
    assert.ok(timeline < 1000, `timeline: ${timeline} ms`);
    assert.ok(talk < 1000, `conversation: ${talk} ms`);
  });
});

/** The best of three: what the page takes, and not what else this machine is doing. */
async function best(measure) {
  const times = [];
  for (let round = 0; round < 3; round += 1) times.push(await measure());
  return Math.min(...times);
}

test("the page stays smooth while 200 events a second arrive", async () => {
  const slow = "for i in $(seq 400); do echo line $i; sleep 0.02; done";
  const eight = `[[step.call]]\ntool = "bash_run"\narguments = { cmd = ${JSON.stringify(slow)} }\n`.repeat(8);
  await onPage({ script: `[[step]]\n${eight}[[step]]\ntext = "Enough."\n`, args: ["--permission", "auto"] }, async (page) => {
    await say(page, "go");
    await until(async () => (await page.locator('.entry.call[data-status="running"]').count()) === 8);
    const seen = await page.evaluate(async () => {
      const events = () => Number(document.querySelector("#fact-events").textContent.replaceAll(",", ""));
      const gaps = [];
      const [before, start] = [events(), performance.now()];
      let last = start;
      while (performance.now() - start < 5000) {
        await new Promise(requestAnimationFrame);
        gaps.push(performance.now() - last);
        last = performance.now();
      }
      gaps.sort((a, b) => a - b);
      const seconds = (last - start) / 1000;
      return { rate: (events() - before) / seconds, frames: gaps.length / seconds, p95: gaps[Math.floor(gaps.length * 0.95)], worst: gaps.at(-1) };
    });
    console.log(`${Math.round(seen.rate)} events a second: ${Math.round(seen.frames)} pictures a second, 95 % within ${Math.round(seen.p95)} ms, the worst ${Math.round(seen.worst)} ms`);
    assert.ok(seen.rate >= 200, `${seen.rate} events a second`);
    assert.ok(seen.p95 < 100, `${seen.p95} ms between pictures`);
  });
});
