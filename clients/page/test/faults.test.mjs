// The numbers, drawn from known data; and what a code means.

import assert from "node:assert/strict";
import { test } from "node:test";
import { onPage, picture, runSession, until } from "../stage.mjs";

/** Two rate limits that recover, one call that is corrected, one turn that is not recovered. */
const KNOWN = `
order = "requests"
[[step]]
fault = "model_rate_limited"
retry_after_ms = 1000
repeat = 2
[[step]]
[[step.call]]
tool = "fs_read"
arguments = { file = "x" }
[[step]]
[[step.call]]
tool = "fs_glob"
arguments = { pattern = "*" }
[[step]]
text = "Done."
[[step]]
fault = "model_authentication"
repeat = "forever"
`;

test("charts show exactly what happened", async () => {
  await onPage({ script: KNOWN, where: "/faults/ERR_RATE_001" }, async (page, { origin, api, seen }) => {
    const done = await runSession(origin, ["go"]);
    const failed = await runSession(origin, ["go"]);
    await page.goto(`${origin}/faults?window=1h`);
    await page.locator("#charts:not([hidden])").waitFor();
    const stats = await api("/api/stats?window=1h");
    const figure = (name) => page.locator(`[data-figure="${name}"]`).textContent();
    assert.equal(await figure("figure-faults"), String(stats.kinds.reduce((sum, kind) => sum + kind.count, 0)));
    const sums = await page.locator("#over-time .bar").evaluateAll((bars) => bars.map((bar) => Number(bar.dataset.sum)));
    assert.equal(sums.length, stats.buckets.length);
    assert.equal(sums.reduce((all, n) => all + n, 0), 4);
    const rows = await page.locator("#kinds tbody tr").allTextContents();
    assert.ok(rows.some((row) => row.includes("ERR_RATE_001")) && rows.some((row) => row.includes("ERR_AUTH_001")), `${rows}`);
    assert.ok((await page.locator("#paths path.link").count()) >= 2);
    assert.match(await page.locator("#unrecoverable").textContent(), new RegExp(failed));
    assert.match(await page.locator("#by-tool").textContent(), /fs_read/);
    await page.setViewportSize({ width: 1600, height: 1000 });
    await until(async () => (await page.locator("#over-time svg").getAttribute("width")) !== null);
    // A name in the flow stands in as many lines as it needs, within its column and clear of the others.
    await page.setViewportSize({ width: 1280, height: 1000 });
    await until(async () => (await page.locator("#paths svg").getAttribute("width")) < 600);
    const labels = await page.locator("#paths text").evaluateAll((all) => all.map((label) => [label.textContent, label.getBoundingClientRect()]).map(([text, { left, right, top, bottom }]) => ({ text, left, right, top, bottom })));
    for (const label of labels) assert.ok(!label.text.includes("…"), label.text);
    for (const [index, one] of labels.entries()) for (const other of labels.slice(index + 1)) assert.ok(one.right <= other.left || other.right <= one.left || one.bottom <= other.top + 1 || other.bottom <= one.top + 1, `${one.text} ${other.text}`);
    await picture(page, "faults");
    // Every number leads to the sessions behind it.
    const behind = async (link) => {
      await link.click();
      await page.locator("#rows tr").first().waitFor();
      const names = await page.locator("#rows .name code").allTextContents();
      await page.goBack();
      await page.locator("#kinds tbody tr").first().waitFor();
      return names.sort();
    };
    assert.deepEqual(await behind(page.locator('[data-figure="figure-faults"] a')), [done, failed].sort());
    assert.deepEqual(await behind(page.locator('[data-figure="figure-recovered"] a')), [done]);
    assert.deepEqual(await behind(page.locator('[data-figure="figure-given-up"] a')), [failed]);
    const rate = page.locator("#kinds tbody tr", { hasText: "ERR_RATE_001" });
    assert.deepEqual(await rate.locator(".number").allTextContents().then((texts) => texts.slice(0, 3)), ["2", "2", "0"]);
    assert.deepEqual(await behind(rate.locator(".number a").nth(0)), [done]);
    assert.deepEqual(await behind(rate.locator(".number a").nth(1)), [done]);
    assert.equal(await rate.locator(".number").nth(2).locator("a").count(), 0, "nothing leads nowhere");
    await page.locator("#kinds a", { hasText: /./ }).first().click();
    await page.locator(".explain h1").waitFor();
    await picture(page, "explain");
    await page.locator(".explain .button").click();
    await page.locator("#rows tr").first().waitFor();
    assert.deepEqual(seen.errors, []);
  });
});

test("in Chinese on a narrow screen every word of the charts is Chinese, and no word is broken", async () => {
  await onPage({ script: KNOWN, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await runSession(origin, ["go"]);
    await runSession(origin, ["go"]);
    await page.context().addCookies([{ name: "lang", value: "zh", url: origin }]);
    await page.setViewportSize({ width: 360, height: 740 });
    await page.goto(`${origin}/faults?window=1h`);
    await page.locator("#kinds tbody tr").first().waitFor();
    const categories = await page.locator("#kinds td:nth-child(2)").allTextContents();
    assert.ok(categories.length >= 3 && categories.every((text) => !/[a-z]/.test(text)), `${categories}`);
    const ends = await page.locator("#paths text").allTextContents();
    assert.ok(ends.some((text) => text.startsWith("失败")) && ends.every((text) => !/[a-z]/.test(text)), `${ends}`);
    const narrowest = await page.locator("#kinds td:first-child").evaluateAll((cells) => Math.min(...cells.map((cell) => cell.clientWidth)));
    assert.ok(narrowest >= 150, `${narrowest} px`);
    await picture(page, "faults-narrow");
  });
});

test("where nothing happened the page says so", async () => {
  await onPage({ script: KNOWN, where: "/faults" }, async (page) => {
    await page.getByText("No faults").waitFor();
    await picture(page, "faults-empty");
  });
});

test("a server without a hub says so", async () => {
  await onPage({ script: KNOWN, where: "/machines" }, async (page) => {
    await page.getByText("This server runs no hub").waitFor();
    await picture(page, "machines-empty");
  });
});
