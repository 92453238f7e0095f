// "Plan first" with the demo model, as on a fresh server: the board, a task that fails and is restarted, the aggregate.

import assert from "node:assert/strict";
import { test } from "node:test";
import { onPage, overflow, picture, runSession, say, until } from "../stage.mjs";

test("with the demo model a plan is a board, and a task that failed is restarted on it", async () => {
  await onPage({ model: "demo" }, async (page, { seen }) => {
    await page.locator("html[data-ready]").waitFor();
    await page.locator("#tries button[data-plan]").click();
    const open = page.locator('.question[data-state="open"]');
    await until(async () => (await open.locator(".tasks li").count()) === 3);
    await picture(page, "demo-plan-question");
    await open.locator(".allow").click();
    const task = (title) => page.locator("#board li", { hasText: title });
    await page.locator('#board li[data-status="failed"]', { hasText: "fail once" }).waitFor();
    assert.match(await task("fail once").textContent(), /ERR_MODEL_\d+.*declined/);
    assert.equal(await task("count slowly").getAttribute("data-status"), "running", "the others go on");
    // Each stage says who works on it: the model, and the session, which is one press away.
    await until(async () => (await page.locator("#board .by", { hasText: "demo" }).count()) === 4);
    assert.match(await task("list the files").locator(".by").textContent(), /^Solved by demo · its session$/);
    const failed = await task("fail once").locator(".by").getAttribute("data-child");
    await picture(page, "demo-plan-failed");
    await task("fail once").locator("button", { hasText: "Restart" }).click();
    await page.locator('#board li[data-status="completed"]', { hasText: "It worked this time." }).waitFor();
    assert.match(await task("fail once").locator(".state").textContent(), /done · try 2/);
    const again = await task("fail once").locator(".by").getAttribute("data-child");
    assert.notEqual(again, failed, "each attempt has a session of its own");
    await page.locator(".entry.end").waitFor({ timeout: 60_000 });
    assert.equal(await page.locator('#board li[data-status="completed"]').count(), 3);
    assert.match(await page.locator("#board .result").textContent(), /3 of 3 tasks gave a result/);
    assert.match(await page.locator(".entry.answer").last().textContent(), /3 of 3 tasks gave a result/);
    await page.evaluate(() => scrollTo(0, 0));
    await picture(page, "demo-plan");
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await overflow(page), 0);
    await page.evaluate(() => scrollTo(0, 0));
    await picture(page, "narrow-demo-plan");
    await page.locator("#board li", { hasText: "fail once" }).locator(".by a").click();
    await page.waitForURL(`**/?session=${again}`);
    await page.getByText("It worked this time.").waitFor();
    assert.deepEqual(seen.errors, []);
  });
});

test("a change on the board or of the sessions beside it leaves the focus where it is", async () => {
  await onPage({ model: "demo", where: "/faults/ERR_RATE_001" }, async (page, { origin, seen }) => {
    for (const title of ["One", "Two"]) await runSession(origin, [], { session_name: title });
    await page.goto(`${origin}/`);
    await page.locator("html[data-ready]").waitFor();
    await page.locator("#tries button[data-plan]").click();
    await page.locator('.question[data-state="open"] .allow').click();
    const task = (title) => page.locator("#board li", { hasText: title });
    await task("count slowly").locator("button", { hasText: "Stop" }).focus();
    await page.locator('#board li[data-status="failed"]', { hasText: "fail once" }).waitFor();
    await until(async () => (await page.locator("#board .by", { hasText: "demo" }).count()) === 4);
    const focused = () => page.evaluate(() => `${document.activeElement.textContent} ${document.activeElement.closest("li")?.querySelector("b, .side-title")?.textContent}`);
    assert.match(await focused(), /^Stop .*count slowly/);
    // The button is one of this task, also after the board was drawn anew.
    await page.keyboard.press("Enter");
    await page.locator('#board li[data-status="cancelled"]', { hasText: "count slowly" }).waitFor();
    await page.locator("#side-list a", { hasText: "One" }).focus();
    await page.locator(".entry.end").waitFor();
    await page.locator("#side-list li.part", { hasText: "Aggregate" }).waitFor();
    assert.match(await focused(), /^One.* One$/);
    assert.deepEqual(seen.errors, []);
  });
});

test("in Chinese the demo model plans in Chinese, and the text made of the results names the task that failed", async () => {
  await onPage({ model: "demo:fast", where: "/faults/ERR_RATE_001" }, async (page, { origin, seen }) => {
    await page.context().addCookies([{ name: "lang", value: "zh", url: origin }]);
    await page.goto(`${origin}/`);
    await page.locator("html[data-ready]").waitFor();
    await page.check("#plan");
    await say(page, "数到 3；失败一次；说 你好");
    await page.locator('.question[data-state="open"] .allow').click();
    await page.locator(".entry.end").waitFor();
    assert.deepEqual(await page.locator("#board li").evaluateAll((tasks) => tasks.map(({ dataset }) => dataset.status)), ["completed", "failed", "completed"]);
    await until(async () => (await page.locator("#board .by", { hasText: "demo" }).count()) === 5);
    const result = await page.locator("#board .result").textContent();
    assert.match(result, /3 个任务中有 2 个给出了结果.*失败一次.*失败：.*你好/s);
    assert.match(await page.locator("#board .by").first().textContent(), /由 demo.* 制定 · 它的会话/);
    await page.locator("#side-list li.part", { hasText: "计划" }).waitFor();
    await page.locator("#side-list li.part", { hasText: "汇总" }).waitFor();
    await page.evaluate(() => scrollTo(0, 0));
    await picture(page, "demo-plan-zh");
    assert.deepEqual(seen.errors, []);
  });
});
