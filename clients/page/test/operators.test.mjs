// What an operator keeps the page open for: what fails now, the sessions behind every number, and acting on many at once.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { startModel } from "../../harness/model.mjs";
import { freePort, startServer } from "../../harness/server.mjs";
import { api, onPage, overflow, picture, runSession, say, until } from "../stage.mjs";

/** Requests fail with a refused key until six sessions failed; then they are answered. */
const FAILS = '[[step]]\nfault = "model_authentication"\nrepeat = 6\n[[step]]\ntext = "Well again."\nrepeat = "forever"\n';
const stage = { script: `order = "requests"\n${FAILS}`, where: "/faults/ERR_RATE_001" };

async function failing(origin, count) {
  const ids = [];
  for (let index = 0; index < count; index += 1) ids.push(await runSession(origin, ["go"], { session_name: `Order ${index}` }));
  return ids;
}

test("now shows what fails, for how many, since when, which way it goes and whose move it is", async () => {
  await onPage(stage, async (page, { origin, seen }) => {
    await page.goto(`${origin}/now`);
    await page.locator("#verdict", { hasText: "Nothing fails." }).waitFor();
    await picture(page, "now-calm");
    await failing(origin, 4);
    const row = page.locator('[data-kind="model_authentication"]');
    await row.waitFor({ timeout: 30_000 });
    const text = await row.textContent();
    for (const part of [/ERR_AUTH_001/, /Sessions: 4/, /Users: 1/, /Tenants: 1/, /since \d\d:\d\d/, /Not recovered: 4/, /new/, /Next move: /]) assert.match(text, part);
    assert.match(await page.locator("#verdict").textContent(), /Kinds of fault that stop turns: 1\. Sessions: 4\./);
    assert.equal(await page.locator('[data-figure="failed-now"]').textContent(), "4");
    assert.ok(await row.locator(".spark rect").count());
    await picture(page, "now");
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await overflow(page), 0);
    await picture(page, "narrow-now");
    await page.setViewportSize({ width: 1280, height: 720 });
    // Every number leads to the sessions behind it.
    await row.locator("a", { hasText: "Sessions: 4" }).click();
    await until(async () => (await page.locator("#rows tr").count()) === 4);
    assert.match(page.url(), /q=ERR_AUTH_001&since=/);
    await page.goBack();
    await row.locator("a", { hasText: "Not recovered: 4" }).click();
    await until(async () => (await page.locator("#rows tr").count()) === 4);
    assert.match(page.url(), /hit=code%3AERR_AUTH_001&outcome=not_recovered&since=/);
    await page.locator("#hit", { hasText: "hit by faults: code ERR_AUTH_001 · not recovered" }).waitFor();
    await page.goBack();
    for (const name of ["Users: 1", "Tenants: 1"]) assert.equal(await row.locator("a", { hasText: name }).getAttribute("href"), await row.locator("a", { hasText: "Sessions: 4" }).getAttribute("href"));
    await page.locator('[data-figure="failed-now"] a').click();
    await until(async () => (await page.locator("#rows tr").count()) === 4);
    assert.match(page.url(), /state=failed/);
    assert.deepEqual(seen.errors, []);
  });
});

test("an update of now keeps the focus and the selected text where they are", async () => {
  await onPage({ ...stage, where: "/faults/ERR_RATE_001" }, async (page, { origin, seen }) => {
    await failing(origin, 2);
    await page.goto(`${origin}/now`);
    const row = page.locator('[data-kind="model_authentication"]');
    await row.locator("a", { hasText: "Sessions: 2" }).focus();
    await page.evaluate(() => getSelection().selectAllChildren(document.querySelector(".failing-name .code")));
    await failing(origin, 2);
    await row.locator("a", { hasText: "Sessions: 4" }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Sessions: 4");
    assert.equal(await page.evaluate(() => String(getSelection())), "ERR_AUTH_001");
    // A line that comes to stand above it takes nothing from it either, and the numbers are those of now.
    assert.equal(await page.evaluate(async () => {
      const { h, update } = await import("/assets/kit.js");
      const list = document.querySelector("#failing");
      const line = (key, text) => h("li", { "data-key": key }, h("a", { href: "/" }, text));
      update(list, line("a", "1"), line("b", "2"), line("c", "3"));
      list.children[1].firstChild.focus();
      update(list, line("new", "0"), line("c", "3"), line("b", "22"));
      return `${document.activeElement.textContent} ${[...list.children].map(({ textContent }) => textContent)}`;
    }), "22 0,3,22");
    assert.deepEqual(seen.errors, []);
  });
});

test("now has an address for each window, and is printed on one sheet, dark on white", async () => {
  await onPage({ ...stage, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await failing(origin, 3);
    await page.context().addCookies([{ name: "theme", value: "dark", url: origin }]);
    await page.goto(`${origin}/now?window=7d`);
    await page.locator("#failing li").first().waitFor();
    assert.equal(await page.locator("input[name=window]:checked").inputValue(), "7d");
    assert.match(await page.locator('[data-figure="figure-faults"] a').getAttribute("href"), /window=7d/);
    await page.locator('label:has(input[value="5m"])').click();
    await page.waitForURL("**/now?window=5m");
    await page.reload();
    await page.locator("#failing li").first().waitFor();
    assert.equal(await page.locator("input[name=window]:checked").inputValue(), "5m");
    await page.emulateMedia({ media: "print" });
    assert.equal(await page.locator(".top").isVisible(), false);
    assert.equal(await page.locator("#windows").isVisible(), false);
    // A printer leaves out backgrounds: what is written must be readable on white.
    const light = await page.evaluate(() => [...document.querySelectorAll("main *")].filter((element) => element.checkVisibility() && element.textContent.trim() !== "").map((element) => getComputedStyle(element).color.match(/[\d.]+/g).slice(0, 3).map(Number)).filter(([r, g, b]) => 0.3 * r + 0.6 * g + 0.1 * b > 140));
    assert.deepEqual(light, []);
    await picture(page, "now-printed");
    const sheets = (await page.pdf({ format: "A4" })).toString("latin1").match(/\/Type\s*\/Page\b/g);
    assert.equal(sheets.length, 1);
  });
});

test("now lists the servers of a journal, and says which one is gone", async () => {
  await onPage({ ...stage, where: "/now" }, async (page, { server, seen }) => {
    await page.locator("#figures dd").first().waitFor();
    assert.equal(await page.locator("#servers").isVisible(), false, "a server alone is not listed");
    const other = await startServer({ home: server.home });
    await until(async () => (await page.locator('[data-node="alive"]').count()) === 2);
    assert.match(await page.locator("#nodes").textContent(), new RegExp(`127.0.0.1:${other.port}`));
    await other.crash();
    await page.locator('[data-node="gone"]').waitFor({ timeout: 60_000 });
    assert.match(await page.locator('[data-node="gone"]').textContent(), /no sign of life for/);
    await picture(page, "now-servers");
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await overflow(page), 0);
    assert.deepEqual(seen.errors, []);
  });
});

test("faults are counted by server and by version, and each bar leads to its sessions", async () => {
  const [one, two] = [await freePort(), await freePort()];
  await onPage({ ...stage, port: one }, async (page, { server, origin, seen }) => {
    const other = await startServer({ home: server.home, model: "script:script.toml", port: two });
    try {
      await failing(origin, 2);
      await runSession(`http://127.0.0.1:${two}`, ["go"], { session_name: "On the other" });
      await page.goto(`${origin}/faults?window=1h`);
      await page.locator("#by-node .share").nth(1).waitFor();
      const bars = (of) => page.locator(`#by-${of} .share`).evaluateAll((rows) => rows.map((row) => [row.querySelector(".share-name").textContent, Number(row.querySelector(".share-count").textContent)]));
      const stats = await api(origin, "/api/stats?window=1h");
      assert.deepEqual(await bars("node"), [[`${os.hostname()}:${one}`, 2], [`${os.hostname()}:${two}`, 1]]);
      assert.deepEqual(await bars("node"), stats.by_node.map(({ node, count }) => [node, count]));
      assert.deepEqual(await bars("version"), stats.by_version.map(({ version, count }) => [version, count]));
      await page.locator("#by-version").scrollIntoViewIfNeeded();
      await picture(page, "faults-servers");
      await page.locator("#by-node a").nth(1).click();
      await page.locator("#rows tr", { hasText: "On the other" }).waitFor();
      assert.equal(await page.locator("#rows tr").count(), 1);
      await page.goBack();
      await page.locator("#by-version a").click();
      await until(async () => (await page.locator("#rows tr").count()) === 3);
      assert.deepEqual(seen.errors, []);
    } finally {
      await other.crash();
    }
  });
});

test("a trend compares the latest quarter of the window with the one before", async () => {
  await onPage({ ...stage, where: "/now" }, async (page) => {
    const trends = await page.evaluate(async () => {
      const { trendOf } = await import("/assets/trend.js");
      const of = (counts) => trendOf(counts.map((n) => ({ by_kind: n === 0 ? {} : { a: n } })), "a").name;
      return [[0, 0, 0, 5], [0, 0, 2, 5], [9, 9, 9, 2], [3, 3, 3, 3], [4, 4, 4, 0]].map(of);
    });
    assert.deepEqual(trends, ["trend-new", "trend-worse", "trend-better", "trend-steady", "trend-over"]);
  });
});

test("failed turns are retried for a filter, after a dry run with a count", async () => {
  await onPage(stage, async (page, { origin }) => {
    await failing(origin, 6);
    await runSession(origin, ["go"], { session_name: "A good one" });
    await page.goto(`${origin}/sessions?q=ERR_AUTH_001`);
    await until(async () => (await page.locator("#rows tr").count()) === 6);
    await page.selectOption("#action", "retry");
    await page.locator("#bulk button").click();
    await page.locator("#bulk-sentence", { hasText: "Retry the failed turn, sessions: 6" }).waitFor();
    await picture(page, "bulk");
    // A dry run does nothing.
    assert.equal((await api(origin, "/v1/sessions?state=failed")).sessions.length, 6);
    await page.keyboard.press("Escape");
    assert.equal((await api(origin, "/v1/sessions?state=failed")).sessions.length, 6);
    await page.locator("#bulk button").click();
    await page.locator("#bulk-run").click();
    await page.locator("#bulk-status", { hasText: "Done: 6 accepted, 0 refused." }).waitFor();
    await until(async () => (await api(origin, "/v1/sessions?state=failed")).sessions.length === 0);
    await page.locator("#bulk-dialog button", { hasText: "Close" }).click();
    // Nothing is left to retry; all can be closed.
    await page.goto(`${origin}/sessions`);
    await until(async () => (await page.locator("#rows tr").count()) === 7);
    await page.locator("#bulk button").click();
    await page.getByText("Matching sessions: 7. None is").waitFor();
    await page.keyboard.press("Escape");
    await page.selectOption("#action", "close");
    await page.locator("#bulk button").click();
    await page.locator("#bulk-run").click();
    await page.locator("#bulk-status", { hasText: "Done: 7 accepted" }).waitFor();
    assert.equal((await api(origin, "/v1/sessions?state=closed")).sessions.length, 7);
  });
});

test("running turns and open questions are stopped for a filter, and other sessions stay as they are", async () => {
  const script = '[[step]]\nrepeat = 3\n[[step.call]]\ntool = "fs_write"\narguments = { path = "a.txt", content = "hi" }\n[[step]]\ntext = "Fine."\nrepeat = "forever"\n';
  await onPage({ script, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    for (const title of ["One", "Two", "Three"]) {
      const { session_id: id } = await api(origin, "/v1/sessions", { session_name: title });
      await api(origin, `/v1/sessions/${id}/messages`, { content: "go" });
    }
    await api(origin, "/v1/sessions", { session_name: "Idle" });
    const waiting = async () => (await api(origin, "/v1/sessions?state=waiting_for_decision")).sessions;
    await until(async () => (await waiting()).length === 3);
    await page.goto(`${origin}/sessions`);
    await until(async () => (await page.locator("#rows tr").count()) === 4);
    await page.selectOption("#action", "cancel");
    await page.locator("#bulk button").click();
    await page.locator("#bulk-sentence", { hasText: "Stop the running turn, sessions: 3" }).waitFor();
    await page.getByText("Matching sessions: 4.").waitFor();
    assert.equal((await waiting()).length, 3, "a dry run stops nothing");
    await page.locator("#bulk-run").click();
    await page.locator("#bulk-status", { hasText: "Done: 3 accepted, 0 refused." }).waitFor();
    await until(async () => (await api(origin, "/v1/sessions?state=idle")).sessions.length === 4);
    for (const { session_id: id } of (await api(origin, "/v1/sessions")).sessions) {
      const { title, turns } = await api(origin, `/v1/sessions/${id}`);
      assert.equal(turns, title === "Idle" ? 0 : 1);
    }
  });
});

test("a time range is chosen with the mouse or the keys, is in the address, and leads to its sessions", async () => {
  await onPage(stage, async (page, { origin, seen }) => {
    await failing(origin, 3);
    await page.goto(`${origin}/faults?window=5m`);
    const chart = page.locator("#over-time svg");
    await chart.waitFor();
    await chart.focus();
    await page.keyboard.press("End");
    for (let step = 0; step < 3; step += 1) await page.keyboard.press("Shift+ArrowLeft");
    await page.locator("#chosen", { hasText: "Faults: 3." }).waitFor();
    assert.match(page.url(), /window=5m&since=.*&until=/);
    await picture(page, "brush");
    // The range before, or one that is kept, stands beside it by kind.
    const cells = () => page.locator("#comparison tbody tr").first().locator("td").allTextContents();
    assert.deepEqual(await cells(), ["0", "3", "+3"]);
    await page.click("#compare");
    assert.match(page.url(), /other_since=.*&other_until=/);
    await chart.focus();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Home");
    await page.keyboard.press("Shift+ArrowRight");
    await until(async () => (await cells()).join() === "3,0,−3");
    await picture(page, "compared");
    await page.click("#compare");
    await chart.focus();
    await page.keyboard.press("Escape");
    await page.keyboard.press("End");
    for (let step = 0; step < 3; step += 1) await page.keyboard.press("Shift+ArrowLeft");
    await page.locator("#chosen", { hasText: "Faults: 3." }).waitFor();
    const address = page.url();
    await page.goto("about:blank");
    await page.goto(address);
    await page.locator("#chosen", { hasText: "Faults: 3." }).waitFor();
    await runSession(origin, [], { session_name: "No fault" });
    await page.locator("#chosen a").click();
    await until(async () => (await page.locator("#rows tr").count()) === 3);
    assert.match(page.url(), /sessions\?hit=any&since=.*&until=/);
    await page.locator("#range button").click();
    await page.locator("#range").waitFor({ state: "hidden" });
    await page.goto(`${origin}/faults?window=5m`);
    await chart.waitFor();
    const box = await chart.boundingBox();
    await page.mouse.move(box.x + 60, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + 160, box.y + 60, { steps: 4 });
    await page.mouse.up();
    await page.locator("#chosen", { hasText: "Faults: 0." }).waitFor();
    // The same in numbers, without a mouse.
    await page.locator(".values summary").click();
    const sum = await page.locator("#values tbody td").evaluateAll((cells) => cells.reduce((all, cell) => all + Number(cell.textContent), 0));
    assert.equal(sum, 3);
    await chart.focus();
    await page.keyboard.press("Escape");
    await page.locator("#chosen").waitFor({ state: "hidden" });
    // Each time, and each number of it, leads to the sessions hit then in one step.
    const first = page.locator("#values tbody tr").first();
    const count = Number(await first.locator("td").first().textContent());
    for (const [link, hit] of [["th a", "any"], ["td a", "code%3AERR_AUTH_001"]]) {
      await page.goto(`${origin}/faults?window=5m`);
      await chart.waitFor();
      await page.locator(".values summary").click();
      await first.locator(link).first().click();
      await until(async () => (await page.locator("#rows tr").count()) === count);
      assert.match(page.url(), new RegExp(`sessions\\?hit=${hit}&since=.*&until=`));
    }
    assert.deepEqual(seen.errors, []);
  });
});

test("a link with a range opens the window that still has it, and says so; another window keeps what is still in it", async () => {
  await onPage(stage, async (page, { origin, seen }) => {
    await failing(origin, 2);
    const ago = (minutes) => new Date(Date.now() - minutes * 60_000).toISOString();
    const link = (from, to) => `${origin}/faults?window=5m&since=${ago(from)}&until=${ago(to)}`;
    const checked = () => page.locator("input[name=window]:checked").inputValue();
    await page.goto(link(10, -5));
    await page.locator("#chosen", { hasText: "Faults: 2." }).waitFor();
    assert.equal(await checked(), "1h");
    await page.locator("#range-note", { hasText: "a longer one is shown" }).waitFor();
    assert.match(page.url(), /window=1h&since=.*&until=/);
    await picture(page, "range-widened");
    await page.locator('label:has(input[value="24h"])').click();
    await page.locator("#range-note").waitFor({ state: "detached" });
    await until(() => /window=24h&since=/.test(page.url()));
    await page.locator("#chosen", { hasText: "Faults: 2." }).waitFor();
    await page.locator('label:has(input[value="5m"])').click();
    await page.locator("#chosen").waitFor({ state: "hidden" });
    assert.doesNotMatch(page.url(), /since/);
    // A range that is no longer kept is said to be so, and no other one is shown in its place.
    await page.goto(link(20 * 24 * 60, 19 * 24 * 60));
    await page.locator("#range-note", { hasText: "no longer kept" }).waitFor();
    await page.locator("#over-time svg").waitFor();
    assert.equal(await page.locator("#chosen").isVisible(), false);
    assert.equal(await checked(), "5m");
    assert.deepEqual(seen.errors, []);
  });
});

test("each number of a comparison leads to the sessions that its kind hit in its range", async () => {
  await onPage(stage, async (page, { origin }) => {
    await failing(origin, 3);
    await page.goto(`${origin}/faults?window=5m`);
    const chart = page.locator("#over-time svg");
    await chart.waitFor();
    await chart.focus();
    await page.keyboard.press("End");
    for (let step = 0; step < 3; step += 1) await page.keyboard.press("Shift+ArrowLeft");
    const row = page.locator("#comparison tbody tr").first();
    await row.waitFor();
    assert.equal(await row.locator("td").first().locator("a").count(), 0, "nothing stands behind a zero");
    await row.locator("td a").click();
    await until(async () => (await page.locator("#rows tr").count()) === 3);
    assert.match(page.url(), /hit=code%3AERR_AUTH_001&since=.*&until=/);
  });
});

test("with prices a turn, its session and now say what was spent, by model and by tenant", async () => {
  const model = await startModel({ usage: { prompt_tokens: 1200, completion_tokens: 300, total_tokens: 1500 } });
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-prices-"));
  fs.writeFileSync(path.join(home, "budao.toml"), `[models.spending]\ncurrency = "USD"\n[models.spending.prices."${model.name}"]\ninput = 10.0\noutput = 40.0\n`);
  try {
    await onPage({ model: model.name, home, args: ["--config", "budao.toml"] }, async (page, { origin, seen }) => {
      await say(page, "hello");
      await page.locator(".entry.end", { hasText: "0.024 USD" }).waitFor();
      assert.equal(await page.locator("#fact-cost").textContent(), "0.024 USD");
      await say(page, "once more");
      await until(async () => (await page.locator("#fact-cost").textContent()) === "0.048 USD");
      await picture(page, "cost");
      await page.goto(`${origin}/now`);
      const row = page.locator("#costs-by-model tr", { hasText: model.name });
      await row.waitFor();
      assert.deepEqual(await row.locator(".amount").allTextContents(), ["2,400", "600", "0 %", "0.048 USD"]);
      assert.match(await page.locator("#costs-by-tenant").textContent(), /local0\.048 USD/);
      assert.match(await page.locator("#costs-total").textContent(), /0\.048 USD in this window/);
      await page.locator("#costs-part").scrollIntoViewIfNeeded();
      await picture(page, "now-costs");
      assert.deepEqual(seen.errors, []);
    });
  } finally {
    model.stop();
  }
});
