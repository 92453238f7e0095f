// The client in a real browser, against the real server, over a line that breaks.

import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { withPage } from "../../../harness/browser.mjs";
import { servePages } from "../../../harness/pages.mjs";
import { startProxy } from "../../../harness/proxy.mjs";
import { startServer, TOKEN } from "../../../harness/server.mjs";

const dist = path.dirname(fileURLToPath(new URL("../../dist/index.js", import.meta.url)));
const html = `<!doctype html><meta charset="utf-8"><title>client</title><script type="module">
import { Client } from "/index.js";
globalThis.Client = Client;
</script>`;

const step = '[[step]]\ndelay_ms = 5\n[[step.call]]\ntool = "fs_glob"\narguments = { pattern = "*.toml" }\n';
const script = `order = "history"\n${step.repeat(20)}[[step]]\ntext = "All done."\nrepeat = "forever"\n`;

/** A page with the client, a server that lets it in, and a line of ours between the two. */
async function withClient(use) {
  const pages = await servePages(dist, { "/": html });
  const server = await startServer({ script, origins: [pages.origin] });
  const proxy = await startProxy(server.port);
  try {
    await withPage(pages.origin, async (page, seen) => {
      await page.waitForFunction(() => globalThis.Client !== undefined);
      await page.exposeFunction("cutTheLine", () => proxy.cutAll());
      await use(page, { server, proxy, seen, url: `ws://127.0.0.1:${proxy.port}/ws` });
    });
  } finally {
    proxy.stop();
    await server.stop();
    pages.stop();
  }
}

/** In the page: a session to its final answer, cut after every seventh event if asked for. */
async function run({ url, token, cuts }) {
  const client = new globalThis.Client(url, { token, retry: { base: 5, max: 50 } });
  const session = await client.create({ language: "zh" });
  await session.send("go");
  const seqs = [];
  let lost = 0;
  for await (const event of session.events()) {
    if (event.fault !== undefined) lost += 1;
    if (event.seq !== undefined) {
      seqs.push(event.seq);
      if (cuts && seqs.length % 7 === 0) await globalThis.cutTheLine();
    }
    if (event.event === "agent.final_answer") {
      const again = await client.attach(session.id);
      const all = [];
      for await (const old of again.events()) {
        if (old.seq !== undefined) all.push(old.seq);
        if (old.event === "agent.final_answer") break;
      }
      again.close();
      session.close();
      return { answer: event.content, seqs, all, lost };
    }
  }
  throw new Error("the events ended before the answer");
}

test("a page talks to the server with its token and hears the answer", async () => {
  await withClient(async (page, { url, seen }) => {
    const { answer, seqs, all, lost } = await page.evaluate(run, { url, token: TOKEN, cuts: false });
    assert.deepEqual({ answer, lost }, { answer: "All done.", lost: 0 });
    assert.deepEqual(seqs, all);
    assert.deepEqual(seen.errors, []);
  });
});

test("a page on a line that breaks loses nothing and repeats nothing", async () => {
  await withClient(async (page, { url, proxy }) => {
    const { answer, seqs, all, lost } = await page.evaluate(run, { url, token: TOKEN, cuts: true });
    assert.equal(answer, "All done.");
    assert.ok(lost >= 3, `${lost} losses were told`);
    assert.ok(proxy.accepted() > 3);
    assert.deepEqual(seqs, all);
  });
});

test("a page of an origin that was not named is not let in", async () => {
  const stranger = await startServer({ script });
  try {
    await withClient(async (page) => {
      const end = await page.evaluate(async ({ url, token }) => {
        const socket = new WebSocket(url, ["budao.v1", `bearer.${token}`]);
        return new Promise((resolve) => {
          socket.onopen = () => resolve("open");
          socket.onclose = (event) => resolve(event.code);
        });
      }, { url: stranger.url, token: TOKEN });
      assert.equal(end, 1006);
    });
  } finally {
    await stranger.stop();
  }
});
