// What goes wrong around the page: it says what is the matter and goes on with what works.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { startServer, TOKEN } from "../../harness/server.mjs";
import { onPage, picture, runSession, say, until } from "../stage.mjs";

const SAY = (text, more = "") => `[[step]]\ntext = ${JSON.stringify(text)}\n${more}`;
const FOREVER = SAY("Fine.", 'repeat = "forever"\n');
const WORDS = Array.from({ length: 40 }, (_, index) => `w${index}`).join(" ");

test("without WebSocket the page goes on over server-sent events", async () => {
  await onPage({ script: SAY(WORDS, "pace_ms = 30\n") + SAY("Second.") + FOREVER, where: "/faults/ERR_RATE_001" }, async (page, { origin, seen }) => {
    await page.addInitScript(() => delete globalThis.WebSocket);
    await page.goto(`${origin}/`);
    await say(page, "count");
    await page.getByText("w5 ").waitFor();
    await page.locator(".entry.end").waitFor();
    assert.equal((await page.locator(".entry.answer .text").textContent()).trim(), WORDS);
    await say(page, "more");
    await page.getByText("Second.").waitFor();
    await page.reload();
    await page.getByText("Second.").waitFor();
    await say(page, "and on");
    await until(async () => (await page.locator(".entry.end").count()) === 3);
    assert.deepEqual(seen.errors, []);
  });
});

test("where something blocks WebSockets the page takes the other way by itself", async () => {
  await onPage({ script: FOREVER, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await page.addInitScript(() => {
      globalThis.WebSocket = class extends EventTarget {
        constructor() {
          super();
          setTimeout(() => {
            this.onclose?.({ code: 1006 });
            this.dispatchEvent(new Event("close"));
          }, 5);
        }
        send() {}
        close() {}
      };
    });
    await page.goto(`${origin}/`);
    await say(page, "hello");
    await page.getByText("Fine.").waitFor();
  });
});

test("without a connection a message is not sent, the page says why, and the text stays", async () => {
  await onPage({ script: FOREVER }, async (page, { seen }) => {
    await say(page, "hello");
    await page.getByText("Fine.").waitFor();
    await page.click("#cut");
    await page.locator('#line[data-state="cut"]').waitFor();
    // Whatever the page tries from here on does not reach the server.
    await page.context().setOffline(true);
    await page.evaluate(() => {
      globalThis.WebSocket = class {
        constructor() {
          throw new Error("no way to the server");
        }
      };
    });
    await say(page, "are you there?");
    const complaint = page.locator(".complaint.passing");
    await complaint.waitFor();
    assert.equal(await complaint.textContent(), "The connection is lost, so nothing was sent. What you typed stays.");
    await until(async () => (await page.inputValue("#words")) === "are you there?");
    assert.equal(await page.locator("#send").isDisabled(), false);
    assert.deepEqual(seen.errors.filter((error) => /TypeError/.test(error)), []);
  });
});

test("a message that waits for the connection stays in the field, and is sent once when the server is back", async () => {
  await onPage({ script: FOREVER }, async (page, { api }) => {
    await say(page, "hello");
    await page.getByText("Fine.").waitFor();
    const id = new URL(page.url()).searchParams.get("session");
    await page.click("#cut");
    await page.locator('#line[data-state="cut"]').waitFor();
    await page.context().setOffline(true);
    await say(page, "are you there?");
    await page.locator('#line[data-state="connecting"]').waitFor();
    await page.press("#words", "Enter");
    assert.equal(await page.inputValue("#words"), "are you there?");
    await page.context().setOffline(false);
    await until(async () => (await api(`/v1/sessions/${id}`)).turns === 2);
    await until(async () => (await page.inputValue("#words")) === "");
    await until(async () => (await page.locator(".entry.end").count()) === 2);
    assert.equal(await page.locator(".entry.user", { hasText: "are you there?" }).count(), 1);
  });
});

test("a token that is no longer accepted is asked for again, and nothing on the page is lost", async () => {
  await onPage({ script: FOREVER }, async (page, { server, origin }) => {
    await say(page, "hello");
    await page.getByText("Fine.").waitFor();
    await page.fill("#words", "not sent yet");
    await server.crash();
    const again = await startServer({ home: server.home, model: "script:script.toml", port: server.port, token: "another-token" });
    try {
      await page.locator("#sign-in[open]").waitFor();
      await page.locator("#sign-in-expired:not([hidden])").waitFor();
      await picture(page, "expired");
      await page.fill("#token", "another-token");
      await page.press("#token", "Enter");
      await page.locator('#line[data-state="open"]').waitFor();
      assert.equal(await page.inputValue("#words"), "not sent yet");
      await page.press("#words", "Enter");
      await until(async () => (await page.locator(".entry.end").count()) === 2);
      assert.ok(page.url().startsWith(`${origin}/?session=`));
    } finally {
      await again.crash();
    }
  });
});

test("a session that is deleted while it is open stays readable, and says so", async () => {
  await onPage({ script: FOREVER, env: { BUDAO__SERVE__LIMITS__HEARTBEAT: "2000" } }, async (page, { origin }) => {
    await say(page, "hello");
    await page.getByText("Fine.").waitFor();
    const id = new URL(page.url()).searchParams.get("session");
    const timeline = await page.context().newPage();
    await timeline.goto(`${origin}/sessions/${id}`);
    await timeline.locator(".row").first().waitFor();
    const { status } = await fetch(`${origin}/v1/sessions/${id}`, { method: "DELETE", headers: { authorization: `Bearer ${TOKEN}` } });
    assert.equal(status, 204);
    // At once when something is sent, and within a heartbeat otherwise.
    await say(page, "are you there?");
    await page.locator("#gone:not([hidden])").waitFor();
    assert.ok(await page.getByText("Fine.").isVisible());
    assert.ok(await page.locator("#words").isDisabled());
    await picture(page, "deleted");
    await timeline.locator("#missing:not([hidden])").waitFor({ timeout: 40_000 });
    assert.ok((await timeline.locator(".row").count()) > 0, "the history stays");
    await page.goto(`${origin}/?session=${id}`);
    await page.locator("#gone:not([hidden])").waitFor();
  });
});

test("a server of another version is said to be one, and the conversation goes on", async () => {
  await onPage({ script: FOREVER, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    let connections = 0;
    await page.routeWebSocket("**/ws", (socket) => {
      const server = socket.connectToServer();
      const number = (connections += 1);
      socket.onMessage((message) => server.send(message));
      server.onMessage((message) => socket.send(number === 1 ? message : String(message).replace(/"server_version":"[^"]*"/, '"server_version":"9.9.9"')));
    });
    await page.goto(`${origin}/`);
    await say(page, "hello");
    await page.getByText("Fine.").waitFor();
    assert.ok(await page.locator("#version-note").isHidden());
    await page.click("#cut");
    await page.click("#cut");
    await page.locator("#version-note", { hasText: "version 9.9.9" }).waitFor();
    await say(page, "still there?");
    await until(async () => (await page.locator(".entry.end").count()) === 2);
    await picture(page, "version");
  });
});

test("storage that is full or forbidden costs drafts and nothing else", async () => {
  await onPage({ script: FOREVER, where: "/faults/ERR_RATE_001" }, async (page, { origin, seen }) => {
    await page.addInitScript(() => {
      Storage.prototype.setItem = () => {
        throw new DOMException("full", "QuotaExceededError");
      };
    });
    await page.goto(`${origin}/#token=${TOKEN}`);
    await page.locator("html[data-ready]").waitFor();
    await page.fill("#words", "hello");
    await page.locator("#storage-note:not([hidden])").waitFor();
    await page.press("#words", "Enter");
    await page.getByText("Fine.").waitFor();
    assert.deepEqual(seen.errors, []);
  });
});

test("a browser that refuses to hand out its storage at all costs drafts and the token, and nothing else", async () => {
  await onPage({ script: FOREVER, where: "/faults/ERR_RATE_001" }, async (page, { origin, seen }) => {
    await page.addInitScript(() => {
      for (const name of ["localStorage", "sessionStorage"]) {
        const get = () => {
          throw new DOMException("denied", "SecurityError");
        };
        Object.defineProperty(globalThis, name, { get, configurable: true });
      }
    });
    await page.goto(`${origin}/#token=${TOKEN}`);
    await page.locator("html[data-ready]").waitFor();
    await page.fill("#words", "hello");
    await page.locator("#storage-note:not([hidden])").waitFor();
    await picture(page, "no-storage");
    await page.press("#words", "Enter");
    await page.getByText("Fine.").waitFor();
    // The token is gone with the document; another page asks for it, and works.
    await page.goto(`${origin}/sessions`);
    await page.locator("#sign-in[open]").waitFor();
    await page.fill("#token", TOKEN);
    await page.press("#token", "Enter");
    await page.locator("#rows tr").first().waitFor();
    assert.deepEqual(seen.errors.filter((error) => !/401/.test(error)), []);
  });
});

/** A token of our own making, which expires after some seconds. */
function tokenFor(secret, seconds) {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const body = `${encode({ alg: "HS256", typ: "JWT" })}.${encode({ sub: "ann", aud: "budao", operator: true, exp: Math.floor(Date.now() / 1000) + seconds })}`;
  return `${body}.${createHmac("sha256", secret).update(body).digest("base64url")}`;
}

test("a token that expires while the line is open is asked for again when it is needed, and nothing is lost", async () => {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-jwt-"));
  const secret = "a secret of more than thirty-two letters";
  fs.writeFileSync(path.join(home, "secret"), secret);
  await onPage({ script: FOREVER, home, args: ["--jwt-secret", "secret"], where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await page.goto(`${origin}/#token=${tokenFor(secret, 5)}`);
    await say(page, "hello");
    await page.getByText("Fine.").waitFor();
    await page.locator(".entry.end").waitFor();
    await page.fill("#words", "not sent yet");
    // What needs the token next is the connection that is opened again.
    await until(async () => (await fetch(`${origin}/v1/sessions`, { headers: { authorization: `Bearer ${await page.evaluate(() => sessionStorage.getItem("budao.token"))}` } })).status === 401);
    assert.equal(await page.locator("#line").getAttribute("data-state"), "open");
    assert.ok(await page.getByText("Fine.").isVisible());
    await page.click("#cut");
    await page.click("#cut");
    await page.locator("#sign-in[open]").waitFor();
    await page.locator("#sign-in-expired:not([hidden])").waitFor();
    await picture(page, "jwt-expired");
    await page.fill("#token", tokenFor(secret, 600));
    await page.press("#token", "Enter");
    await page.locator('#line[data-state="open"]').waitFor();
    assert.equal(await page.inputValue("#words"), "not sent yet");
    await page.press("#words", "Enter");
    await until(async () => (await page.locator(".entry.end").count()) === 2);
  });
});

for (const [days, words] of [[1, /1440 minutes ahead/], [-1, /1440 minutes behind/]]) {
  test(`a clock that is ${days > 0 ? "a day ahead" : "a day behind"} is said to be, and times follow the server`, async () => {
    await onPage({ script: FOREVER, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
      await runSession(origin, ["hello"], { session_name: "Just now" });
      await page.addInitScript((ms) => {
        const real = Date.now;
        Date.now = () => real() + ms;
      }, days * 86_400_000);
      await page.goto(`${origin}/sessions`);
      await page.locator("#clock-note:not([hidden])").waitFor();
      assert.match(await page.locator("#clock-note").textContent(), words);
      assert.match(await page.locator("#rows .when").textContent(), /just now|s ago/);
      await picture(page, days > 0 ? "clock" : "clock-behind");
    });
  });
}

test("an unknown address is a page for people and a problem for programs", async () => {
  await onPage({ script: FOREVER, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    const response = await page.goto(`${origin}/no/such/<page>`);
    assert.equal(response.status(), 404);
    assert.match(response.headers()["content-type"], /^text\/html/);
    assert.match(response.headers()["content-security-policy"], /default-src 'none'/);
    await page.locator("h1", { hasText: "No such page" }).waitFor();
    await picture(page, "missing");
    const problem = await fetch(`${origin}/v1/nothing`, { headers: { accept: "text/html", authorization: `Bearer ${TOKEN}` } });
    assert.deepEqual([problem.status, problem.headers.get("content-type")], [404, "application/problem+json"]);
    const plain = await fetch(`${origin}/nothing`, { headers: { authorization: `Bearer ${TOKEN}` } });
    assert.deepEqual([plain.status, plain.headers.get("content-type")], [404, "application/problem+json"]);
  });
});

test("titles and answers in any script and direction keep to their places", async () => {
  const text = "مرحبا بالعالم، هذا نص طويل.\n\n這是一段很長的中文文字，需要在適當的位置換行。\n\nשלום עולם 👩‍👩‍👧‍👦 ไทยไม่มีช่องว่าง";
  await onPage({ script: SAY(text, 'repeat = "forever"\n') }, async (page) => {
    await page.setViewportSize({ width: 360, height: 740 });
    await say(page, "ما هذا؟ 什么 \u202e reversed");
    await page.locator(".entry.end").waitFor();
    assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector(".entry.user .text")).direction), "rtl");
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
    await picture(page, "scripts");
  });
});
