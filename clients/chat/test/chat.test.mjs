// The example page in a real browser, against the real server: a cut line, a reload in the middle of an answer, an approval,
// and a server that is killed. The AI SDK is unmodified. Pictures go to target/page.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { withPage } from "../../harness/browser.mjs";
import { servePages } from "../../harness/pages.mjs";
import { peer, peerFile } from "../../harness/peers.mjs";
import { startProxy } from "../../harness/proxy.mjs";
import { startServer, TOKEN } from "../../harness/server.mjs";
import { picture, until } from "../../page/stage.mjs";
import { bundle } from "../bundle.mjs";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "budao-chat-"));
const long = (words) => Array.from({ length: words }, (_, n) => `word${n}`).join(" ");
const answering = `order = "history"\n[[step]]\nthink = "I think."\ntext = "${long(120)}"\npace_ms = 25\nrepeat = "forever"\n`;
const asking = 'order = "history"\n[[step]]\ntext = "I write it."\n[[step.call]]\ntool = "fs_write"\narguments = { path = "done.txt", content = "done" }\n[[step]]\ntext = "Written."\nrepeat = "forever"\n';
let pages;

before(async () => {
  const packages = path.dirname(path.dirname(peerFile("react/package.json", "front-ends")));
  await bundle(peer("esbuild", "front-ends"), folder, [packages]);
  pages = await servePages(folder, { "/": fs.readFileSync(path.join(folder, "index.html"), "utf8") });
});

after(() => {
  pages.stop();
  fs.rmSync(folder, { recursive: true, force: true });
});

/** Opens the page on a server behind a line that can be cut. `replace()` kills the server and starts it again. */
async function onChat(script, use) {
  let server = await startServer({ script, origins: [pages.origin] });
  const proxy = await startProxy(() => server.port);
  const origin = `http://127.0.0.1:${proxy.port}`;
  const url = `${pages.origin}/#server=${origin}&token=${TOKEN}`;
  const replace = async () => {
    await server.crash();
    server = await startServer({ script, home: server.home, origins: [pages.origin] });
  };
  try {
    await withPage(url, async (page) => {
      page.setDefaultTimeout(20_000);
      await ready(page);
      assert.equal(await page.locator("[role=alert]").count(), 0, "a new chat has no error");
      await use(page, { proxy, origin, replace, home: server.home });
    });
  } finally {
    proxy.stop();
    await server.stop();
  }
}

async function send(page, text) {
  await page.fill("input", text);
  await page.press("input", "Enter");
}

const answers = (page) => page.locator("li.assistant");
const textOf = (page) => page.locator("li.assistant .text").allTextContents().then((texts) => texts.join(""));
const status = (page) => page.locator("main").getAttribute("data-status");
const longer = (page, than) => until(async () => (await textOf(page)).length > than);
const ready = (page) => until(async () => (await status(page)) === "ready");

test("an answer goes on after its line was cut, with nothing lost or repeated", async () => {
  await onChat(answering, async (page, { proxy }) => {
    await send(page, "go");
    for (const length of [60, 200, 400]) {
      await longer(page, length);
      proxy.cutAll();
    }
    await picture(page, "chat-cut");
    await ready(page);
    assert.equal(await textOf(page), long(120));
    assert.equal(await answers(page).count(), 1);
    assert.equal(await page.locator("[role=alert]").count(), 0);
    assert.ok(proxy.accepted() > 3, `${proxy.accepted()} connections`);
  });
});

test("a page that is reloaded in the middle of an answer shows the whole answer", async () => {
  await onChat(answering, async (page) => {
    await send(page, "go");
    await longer(page, 100);
    await page.reload();
    // The stored messages are shown first; then the stream begins anew.
    await until(async () => (await status(page)) === "streaming");
    await picture(page, "chat-reloaded");
    await ready(page);
    assert.equal(await textOf(page), long(120));
    assert.equal(await page.locator("li").count(), 2);
    assert.equal(await page.locator("[role=alert]").count(), 0);
  });
});

test("an answer that ended while the page was closed is shown when it opens again", async () => {
  await onChat(answering, async (page, { origin }) => {
    await send(page, "go");
    await longer(page, 60);
    const url = page.url();
    const { id } = await page.evaluate(() => JSON.parse(localStorage.getItem("chat")));
    await page.goto("about:blank");
    // The stream of the running answer ends with it.
    const stream = await fetch(`${origin}/api/chat/${id}/stream`, { headers: { authorization: `Bearer ${TOKEN}` } });
    assert.match(await stream.text(), /\[DONE\]/);
    await page.goto(url);
    await until(async () => (await textOf(page)) === long(120));
    await ready(page);
    await send(page, "again");
    await until(async () => (await answers(page).count()) === 2);
    await ready(page);
    assert.equal(await textOf(page), long(120).repeat(2));
  });
});

test("a server that is killed in the middle of an answer answers in the same message", async () => {
  await onChat(answering, async (page, { replace }) => {
    await send(page, "go");
    await longer(page, 100);
    await replace();
    await ready(page);
    assert.equal(await textOf(page), long(120));
    assert.equal(await answers(page).count(), 1);
    await picture(page, "chat-killed");
  });
});

test("a call waits for a click, over a reload, and is done when it is approved and not when it is denied", async () => {
  await onChat(asking, async (page, { home }) => {
    const file = path.join(home, "done.txt");
    for (const [button, state] of [["Deny", "output-denied"], ["Approve", "output-available"]]) {
      await page.evaluate(() => localStorage.clear());
      await page.reload();
      await send(page, "go");
      await page.getByRole("button", { name: button }).waitFor();
      await page.reload();
      await page.getByRole("button", { name: button }).waitFor();
      await picture(page, `chat-${button.toLowerCase()}-asked`);
      assert.ok(!fs.existsSync(file));
      await page.getByRole("button", { name: button }).click();
      await until(async () => (await textOf(page)) === "I write it.Written.");
      await ready(page);
      assert.equal(await page.locator(".tool").getAttribute("data-state"), state);
      assert.equal(await answers(page).count(), 1);
      assert.equal(fs.existsSync(file), button === "Approve");
      await picture(page, `chat-${button.toLowerCase()}`);
    }
  });
});

test("a failure is shown with its code, and another try answers", async () => {
  await onChat('[[step]]\nfault = "model_authentication"\n[[step]]\ntext = "Back."\nrepeat = "forever"\n', async (page) => {
    await send(page, "go");
    await page.locator("[role=alert]").waitFor();
    assert.match(await page.locator("[role=alert]").textContent(), /ERR_AUTH_001/);
    await picture(page, "chat-failed");
    await page.getByRole("button", { name: "Try again" }).click();
    await until(async () => (await textOf(page)) === "Back.");
    await ready(page);
    assert.equal(await page.locator("[role=alert]").count(), 0);
  });
});

test("a tool of the page runs in the page, and the same message goes on with its result", async () => {
  const script = 'order = "history"\n[[step]]\ntext = "I ask. "\n[[step.call]]\ntool = "time_zone"\narguments = {}\n[[step]]\ntext = "I know."\nrepeat = "forever"\n';
  await onChat(script, async (page) => {
    await send(page, "go");
    await until(async () => (await textOf(page)) === "I ask. I know.");
    await ready(page);
    assert.equal(await page.locator(".tool").getAttribute("data-state"), "output-available");
    assert.equal(await answers(page).count(), 1);
    assert.equal(await page.locator("[role=alert]").count(), 0);
    await page.reload();
    await until(async () => (await textOf(page)) === "I ask. I know.");
    await picture(page, "chat-tool");
  });
});
