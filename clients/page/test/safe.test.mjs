// Whatever a model, a tool, a name or an address says is text. Each payload goes every way there is into the page, and
// nothing of it runs, loads or becomes an element.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { onPage, say, runSession, until } from "../stage.mjs";

const corpus = fs.readFileSync(fileURLToPath(new URL("../payloads.txt", import.meta.url)), "utf8");
const payloads = corpus.split("\n").filter((line) => line !== "" && !line.startsWith("# "));
const toml = (text) => JSON.stringify(text);

/** What an attack would leave behind. */
async function watch(page, origin) {
  const outside = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(origin) && !request.url().startsWith("blob:")) outside.push(request.url());
  });
  page.on("dialog", (dialog) => {
    outside.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  return async (where) => {
    const left = await page.evaluate(() => ({
      ran: globalThis.pwned,
      elements: document.querySelectorAll("main script, main iframe, main img, main object, main embed, main style, main base, main form:not(.composer):not(.search):not(.bulk):not([method=dialog]), main [onerror], main [onload], main [onclick], main [style*=expression], main a[href^='javascript:' i], main a[href^='data:' i]").length,
    }));
    assert.deepEqual({ ...left, outside }, { ran: undefined, elements: 0, outside: [] }, where);
  };
}

test("there are at least 200 payloads, and all are different", () => {
  assert.ok(payloads.length >= 200, `${payloads.length}`);
  assert.equal(new Set(payloads).size, payloads.length);
});

test("what a model says, calls and gives as arguments, and what tools answer, stays text", async () => {
  const text = payloads.join("\n");
  // A turn ends after eight steps in which every call failed, so the names are tried in turns of seven.
  const calls = payloads.map((payload) => `[[step.call]]\ntool = ${toml(payload.slice(0, 60))}\narguments = { path = ${toml(payload)} }\n`);
  const turns = [];
  for (let at = 0; at < calls.length; at += 56) {
    const steps = [];
    for (let from = at; from < Math.min(at + 56, calls.length); from += 8) steps.push(`[[step]]\ntext = ${toml(payloads[from])}\nthink = ${toml(payloads[from + 1] ?? "x")}\n${calls.slice(from, Math.min(from + 8, at + 56)).join("")}`);
    turns.push(`${steps.join("")}[[step]]\ntext = "end of it"\n`);
  }
  const script = `[[step]]\ntext = ${toml(text)}\n[[step.call]]\ntool = "bash_run"\narguments = { cmd = "cat hostile.txt; cat hostile.txt >&2; exit 3" }\n[[step.call]]\ntool = "fs_read"\narguments = { path = "hostile.txt" }\n${turns.join("")}`;
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-hostile-"));
  fs.writeFileSync(path.join(home, "hostile.txt"), text);
  await onPage({ script, home, args: ["--permission", "auto"] }, async (page, { origin }) => {
    const check = await watch(page, origin);
    await say(page, text.slice(0, 30_000));
    await page.locator(".entry.end").waitFor({ timeout: 60_000 });
    for (let turn = 1; turn < turns.length; turn += 1) {
      await say(page, "and on");
      await until(async () => (await page.locator(".entry.end").count()) > turn, 60_000);
    }
    await page.evaluate(() => document.querySelectorAll("details").forEach((box) => (box.open = true)));
    await until(async () => (await page.locator(".renderings .rendering").count()) >= 3 * (await page.locator(".renderings").count()));
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.locator(".entry.answer > .actions .copy").first().click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text, "every payload is copied as it is");
    await check("the conversation");
    const id = new URL(page.url()).searchParams.get("session");
    await page.goto(`${origin}/sessions/${id}`);
    await page.locator(".row").first().waitFor();
    for (let index = 0; index < 40; index += 1) await page.click("#after");
    await check("the timeline");
    await page.goto(`${origin}/faults`);
    await page.locator("#charts:not([hidden])").waitFor();
    await check("the charts");
  });
});

/** Every way a name comes into an address. */
const ways = [
  (quoted) => `/faults/${quoted}`,
  (quoted) => `/sessions?q=${quoted}`,
  (quoted) => `/sessions/${quoted}`,
  (quoted) => `/?session=${quoted}`,
];

test("names of sessions, codes, ids, labels and searches stay text", async () => {
  await onPage({ script: '[[step]]\ntext = "ok"\nrepeat = "forever"\n', where: "/faults/ERR_RATE_001" }, async (page, { origin, api }) => {
    const check = await watch(page, origin);
    for (const payload of payloads) await api("/v1/sessions", { session_name: payload.slice(0, 200), client_id: payload.slice(0, 200), metadata: { source: payload.slice(0, 200) } });
    await page.goto(`${origin}/sessions`);
    await until(async () => (await page.locator("#rows tr").count()) >= 50);
    while (await page.locator("#more").isVisible()) {
      const before = await page.locator("#rows tr").count();
      await page.click("#more");
      await until(async () => (await page.locator("#rows tr").count()) > before);
    }
    assert.equal(await page.locator("#rows tr").count(), payloads.length);
    await check("the list");
    const id = await runSession(origin, [{ text: "x" }], { session_name: payloads[0] });
    // Every other payload is opened one way, in turn; what the server makes of each is then read for all ways.
    for (let index = 0; index < payloads.length; index += 2) {
      const where = ways[(index / 2) % ways.length](encodeURIComponent(payloads[index]));
      const response = await page.goto(`${origin}${where}`);
      assert.ok(response.headers()["content-security-policy"]?.includes("script-src 'self'") || response.status() === 404 || response.status() === 400, where);
      await check(where);
    }
    const addresses = payloads.flatMap((payload) => ways.map((way) => way(encodeURIComponent(payload))));
    assert.ok(addresses.length >= 4 * 200);
    const made = [];
    for (const address of addresses) {
      const answer = await fetch(`${origin}${address}`);
      if (answer.headers.get("content-type")?.startsWith("text/html")) made.push([address, await answer.text()]);
    }
    // Read in an empty page: ours would not even parse a text.
    const blank = await page.context().newPage();
    const hostile = await blank.evaluate((made) => {
      const ours = (element) => element.localName === "script" && element.textContent.trim() === "" && element.getAttribute("src").startsWith("/assets/");
      const odd = "script, iframe, object, embed, base, img, [onerror], [onload], [onclick], [onfocus], [onmouseover], [ontoggle]";
      const found = made.filter(([, text]) => ![...new DOMParser().parseFromString(text, "text/html").querySelectorAll(odd)].every(ours));
      return found.map(([address]) => address);
    }, made);
    await blank.close();
    assert.deepEqual(hostile, []);
    await page.goto(`${origin}/sessions/${id}`);
    await page.locator(".row").first().waitFor();
    await check("the title");
  });
});

test("every page and file keeps to itself", async () => {
  await onPage({ script: '[[step]]\ntext = "ok"\n', where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    for (const where of ["/", "/sessions", "/faults", "/machines", "/faults/ERR_RATE_001", "/assets/kit.js"]) {
      const { headers } = await fetch(`${origin}${where}`);
      const policy = headers.get("content-security-policy");
      assert.match(policy, /default-src 'none'.*require-trusted-types-for 'script'/);
      assert.ok(!policy.includes("unsafe"), where);
      assert.equal(headers.get("x-content-type-options"), "nosniff");
      assert.equal(headers.get("referrer-policy"), "no-referrer");
    }
    const blocked = await page.evaluate(() => {
      try {
        document.body.innerHTML = "<img src=x>";
        return "it was made";
      } catch (error) {
        return error.name;
      }
    });
    assert.equal(blocked, "TypeError");
  });
});
