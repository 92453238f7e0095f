// What a user keeps the page open for: drafts, sessions beside the conversation, asking again, pictures, keys, waits.

import assert from "node:assert/strict";
import { test } from "node:test";
import { startModel } from "../../harness/model.mjs";
import { startServer } from "../../harness/server.mjs";
import { api, onPage, overflow, picture, runSession, say, until } from "../stage.mjs";

const SAY = (text, more = "") => `[[step]]\ntext = ${JSON.stringify(text)}\n${more}`;
const FOREVER = SAY("Fine.", 'repeat = "forever"\n');

test("a draft is kept for each session, and goes when it is sent", async () => {
  await onPage({ script: FOREVER }, async (page, { origin }) => {
    await page.locator("html[data-ready]").waitFor();
    await page.fill("#words", "a new thought");
    await page.reload();
    await until(async () => (await page.inputValue("#words")) === "a new thought");
    await page.locator("html[data-ready]").waitFor();
    await page.press("#words", "Enter");
    await page.locator(".entry.end").waitFor();
    await page.fill("#words", "half a sen");
    await until(() => page.evaluate(() => Object.values(localStorage).includes("half a sen")));
    const here = page.url();
    await page.goto(`${origin}/`);
    await page.locator("html[data-ready]").waitFor();
    assert.equal(await page.inputValue("#words"), "");
    await page.goto(here);
    await until(async () => (await page.inputValue("#words")) === "half a sen");
  });
});

test("a message is asked again or edited in a fork, and the old session stays", async () => {
  const script = SAY("One.") + SAY("Two.") + SAY("Two, again.") + SAY("Two, changed.");
  await onPage({ script }, async (page, { api: ask, seen }) => {
    await say(page, "first question");
    await until(async () => (await page.locator(".entry.end").count()) === 1);
    await say(page, "second question");
    await until(async () => (await page.locator(".entry.end").count()) === 2);
    const sessionOf = () => new URL(page.url()).searchParams.get("session");
    const old = sessionOf();
    const before = await ask(`/v1/sessions/${old}`);
    await page.locator(".entry.user").nth(1).hover();
    await page.locator(".entry.user .actions button", { hasText: "Ask again" }).nth(1).click();
    await until(async () => sessionOf() !== old);
    await page.getByText("Two, again.").waitFor();
    assert.deepEqual(await page.locator(".entry.user .text").allTextContents(), ["first question", "second question"]);
    assert.deepEqual(await page.locator(".entry.answer .text").allTextContents(), ["One.", "Two, again."]);
    await picture(page, "asked-again");
    // The link leads to the old session, which is as it was.
    await page.click("#forked-link");
    await page.getByText("Two.", { exact: true }).waitFor();
    assert.equal(sessionOf(), old);
    assert.deepEqual(await ask(`/v1/sessions/${old}`), before);
    // The arrow key brings the last message back into an empty field; Enter sends the change.
    await page.focus("#words");
    await page.keyboard.press("ArrowUp");
    assert.equal(await page.inputValue("#words"), "second question");
    await page.locator("#edit-note:not([hidden])").waitFor();
    await page.keyboard.type(", changed");
    await picture(page, "edit");
    await page.keyboard.press("Enter");
    await until(async () => sessionOf() !== old);
    await page.getByText("Two, changed.").waitFor();
    assert.deepEqual(await page.locator(".entry.user .text").allTextContents(), ["first question", "second question, changed"]);
    assert.deepEqual(seen.errors, []);
  });
});

test("a permission is given for the session, shown with its scope, and revoked", async () => {
  const write = (name) => `[[step]]\n[[step.call]]\ntool = "fs_write"\narguments = { path = "${name}.txt", content = "hi" }\n`;
  const script = write("a") + SAY("A.") + write("b") + SAY("B.") + write("c") + SAY("C.");
  await onPage({ script }, async (page, { seen }) => {
    await say(page, "write a");
    const open = page.locator('.question[data-state="open"]');
    assert.match(await open.locator(".scope").textContent(), /every call of fs_write in this session/);
    await picture(page, "always-allow");
    await open.locator(".always").click();
    await page.getByText("A.", { exact: true }).waitFor();
    const allowed = page.locator("#permission-list li");
    await until(async () => (await allowed.count()) === 1);
    assert.match(await allowed.textContent(), /fs_write/);
    await say(page, "write b");
    await page.getByText("B.", { exact: true }).waitFor();
    assert.equal(await page.locator(".question").count(), 1, "the second call is not asked about");
    // It is a fact of the session, not of the tab.
    await page.reload();
    await until(async () => (await allowed.count()) === 1);
    await page.locator('#line[data-state="open"]').waitFor();
    await picture(page, "permissions");
    await allowed.locator("button").click();
    await until(async () => (await allowed.count()) === 0);
    await say(page, "write c");
    await open.locator(".deny").click();
    await page.getByText("C.", { exact: true }).waitFor();
    assert.deepEqual(seen.errors, []);
  });
});

test("sessions stand beside the conversation and are found by title, with the keyboard alone", async () => {
  await onPage({ script: FOREVER, where: "/faults/ERR_RATE_001" }, async (page, { origin, seen }) => {
    for (let index = 0; index < 120; index += 1) await api(origin, "/v1/sessions", { session_name: `Session ${index}` });
    const id = await runSession(origin, ["hello"], { session_name: "报告 תקציר the quarterly report" });
    await api(origin, "/v1/sessions", { session_name: "one more" });
    await page.goto(`${origin}/`);
    await page.locator("#side-list li").nth(49).waitFor();
    await picture(page, "sidebar");
    await page.locator("html[data-ready]").waitFor();
    await page.locator("body").click({ position: { x: 600, y: 5 } });
    await page.keyboard.press("/");
    await page.keyboard.type("Session 3");
    await until(async () => (await page.locator("#side-list li").count()) === 11);
    await page.fill("#side-search", "quarterly");
    await until(async () => (await page.locator("#side-list li").count()) === 1);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.waitForURL(`**/?session=${id}`);
    await page.getByText("Fine.").waitFor();
    await page.locator('#side-list a[aria-current="page"]').waitFor();
    // Entries are walked through, and the keys are listed.
    await page.locator("html[data-ready]").waitFor();
    await page.locator("body").click({ position: { x: 600, y: 5 } });
    await page.keyboard.press("k");
    assert.ok(await page.evaluate(() => document.activeElement.matches(".entry")));
    await page.keyboard.press("?");
    await page.locator("#keys[open]").waitFor();
    await picture(page, "keys");
    await page.keyboard.press("Escape");
    await page.keyboard.press("i");
    assert.equal(await page.evaluate(() => document.activeElement.id), "words");
    // On a narrow screen the list is a drawer.
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await page.locator("#side").isVisible(), false);
    await page.click("#side-toggle");
    await page.locator("#side-list li").first().waitFor();
    assert.equal(await overflow(page), 0);
    await picture(page, "narrow-sidebar");
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#side").isVisible(), false);
    assert.deepEqual(seen.errors, []);
  });
});

test("pictures are pasted, shown before they are sent, and go with the message", async () => {
  await onPage({ script: FOREVER }, async (page) => {
    await page.locator("html[data-ready]").waitFor();
    const paste = (type, size) =>
      page.evaluate(
        ([type, size]) => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(size)], `shot.${type.split("/")[1]}`, { type }));
          document.querySelector("#words").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
        },
        [type, size],
      );
    await paste("image/png", 2048);
    await page.locator(".attachments li", { hasText: "shot.png · 2.0 KB" }).waitFor();
    await paste("application/pdf", 10);
    await page.locator(".complaint", { hasText: "only PNG" }).waitFor();
    await paste("image/png", 800 * 1024);
    await page.locator(".complaint", { hasText: "at most 4 pictures" }).waitFor();
    await picture(page, "attachment");
    await say(page, "what is this?");
    await page.locator(".entry.user", { hasText: "Pictures: 1" }).waitFor();
    assert.equal(await page.locator(".attachments li").count(), 0);
  });
});

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

test("pictures are dropped or chosen, and go again with a message that is asked again or edited", async () => {
  await onPage({ script: FOREVER }, async (page, { origin, seen }) => {
    const sessionOf = () => new URL(page.url()).searchParams.get("session");
    /** The pictures in the messages of a session, as its records have them. */
    const sent = async (id) => {
      const response = await fetch(`${origin}/v1/sessions/${id}/export`, { headers: { authorization: "Bearer a-token-for-tests" } });
      return [...(await response.text()).matchAll(/"media_type":"image\/png","data":"([^"]*)"/g)].map(([, data]) => data);
    };
    const drop = (name, data) =>
      page.evaluate(
        ([name, data]) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([Uint8Array.from(atob(data), (char) => char.charCodeAt(0))], name, { type: "image/png" }));
          const fire = (kind) => document.querySelector("#composer").dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
          fire("dragover");
          const isMarked = document.querySelector("#composer").classList.contains("dropping");
          fire("drop");
          return isMarked;
        },
        [name, data],
      );
    await page.locator("html[data-ready]").waitFor();
    assert.equal(await drop("dropped.png", PIXEL), true, "the field shows where to drop");
    await page.locator(".attachments li", { hasText: "dropped.png" }).waitFor();
    await page.setInputFiles("#attach", { name: "chosen.png", mimeType: "image/png", buffer: Buffer.from(PIXEL, "base64") });
    await page.locator(".attachments li", { hasText: "chosen.png" }).waitFor();
    await picture(page, "attachments");
    // A plan takes text only: it says so, and nothing is lost.
    await page.check("#plan");
    await say(page, "what are these?");
    await page.locator(".complaint", { hasText: "A plan uses the text only" }).waitFor();
    assert.equal(await page.inputValue("#words"), "what are these?");
    assert.equal(await page.locator(".attachments li").count(), 2);
    await page.uncheck("#plan");
    await page.press("#words", "Enter");
    await page.locator(".entry.user", { hasText: "Pictures: 2" }).waitFor();
    await page.locator(".entry.end").waitFor();
    const first = sessionOf();
    assert.deepEqual(await sent(first), [PIXEL, PIXEL]);
    await page.locator(".entry.user .actions button", { hasText: "Ask again" }).click();
    await until(async () => sessionOf() !== first);
    await page.locator(".entry.end").waitFor();
    const second = sessionOf();
    assert.deepEqual(await sent(second), [PIXEL, PIXEL]);
    await page.locator(".entry.user .actions button", { hasText: "Edit" }).click();
    await until(async () => (await page.locator(".attachments li").count()) === 2);
    await picture(page, "edit-pictures");
    await page.locator(".attachments button").first().click();
    await page.fill("#words", "what is this?");
    await page.press("#words", "Enter");
    await until(async () => sessionOf() !== second);
    await page.locator(".entry.user", { hasText: "Pictures: 1" }).waitFor();
    assert.deepEqual(await sent(sessionOf()), [PIXEL]);
    assert.deepEqual(seen.errors, []);
  });
});

test("another model is chosen for the open session, and is asked from the next message on", async () => {
  const [one, two] = [await startModel({ text: "I am one." }), await startModel({ text: "I am two." })];
  try {
    await onPage({ model: one.name, args: ["--allow-model", two.name] }, async (page, { api, seen }) => {
      assert.deepEqual(await page.locator("#model option").allTextContents(), [one.name, two.name]);
      await say(page, "who are you?");
      await page.getByText("I am one.").waitFor();
      await page.locator(".entry.end").waitFor();
      await page.selectOption("#model", two.name);
      await page.locator("#model-note", { hasText: "From the next message on" }).waitFor();
      await picture(page, "model-choice");
      await say(page, "and now?");
      await page.getByText("I am two.").waitFor();
      await page.locator("#model-note").waitFor({ state: "hidden" });
      // It is a setting of the session, not of the tab.
      const id = new URL(page.url()).searchParams.get("session");
      assert.equal((await api(`/v1/sessions/${id}`)).model, two.name);
      await page.reload();
      await until(async () => (await page.inputValue("#model")) === two.name);
      await page.locator('#line[data-state="open"]').waitFor();
      await say(page, "still?");
      await until(async () => (await page.getByText("I am two.").count()) === 2);
      // The choice of the first message opens the session with it.
      await page.goto(new URL("/", page.url()).href);
      await page.locator("html[data-ready]").waitFor();
      await page.selectOption("#model", two.name);
      await say(page, "who are you?");
      await page.getByText("I am two.").waitFor();
      await page.setViewportSize({ width: 360, height: 740 });
      assert.equal(await overflow(page), 0);
      await picture(page, "narrow-model-choice");
      assert.deepEqual(seen.errors, []);
    });
  } finally {
    one.stop();
    two.stop();
  }
});

test("with a real model the first screen offers it and does not speak of the demo", async () => {
  const model = await startModel();
  try {
    await onPage({ model: model.name }, async (page) => {
      await page.locator("#welcome h2", { hasText: "Send a message." }).waitFor();
      const words = await page.locator("main").textContent();
      assert.ok(!/demo|mistakes on purpose/i.test(words), words);
      assert.deepEqual(await page.locator("#model option").allTextContents(), [model.name]);
      assert.match(words, /budao serve --model/);
      await picture(page, "welcome-real");
      // The choice and every button stand in one row, also while a turn runs; on a narrow screen in two.
      await page.evaluate(() => (document.querySelector("#cancel").hidden = false));
      for (const [width, rows] of [[1400, 1], [1280, 1], [800, 1], [360, 2]]) {
        await page.setViewportSize({ width, height: 800 });
        const middles = await page.locator(".composer-foot > :not(.hint)").evaluateAll((all) => all.map((one) => one.getBoundingClientRect()).map(({ top, bottom }) => Math.round((top + bottom) / 20)));
        assert.equal(new Set(middles).size, rows, `${width}: ${middles}`);
      }
      await page.evaluate(() => (document.querySelector("#cancel").hidden = true));
      await say(page, "hello");
      await page.getByText("An answer.").waitFor();
    });
  } finally {
    model.stop();
  }
});

test("a long wait says why, since when, until when and at which position, and ends with the answer", async () => {
  const model = await startModel();
  try {
    await onPage({ model: model.name }, async (page, { origin, api }) => {
      model.refuse(6);
      const { session_id: other } = await api("/v1/sessions", {});
      await api(`/v1/sessions/${other}/messages`, { content: "first" });
      await until(async () => ((await api("/api/stats?window=5m")).gates ?? []).some(({ state }) => state === "held"));
      await say(page, "second");
      const wait = page.locator('.entry.wait[data-state="waiting"]');
      await wait.waitFor();
      const facts = await wait.locator("dd").allTextContents();
      assert.match(await wait.locator(".wait-why").textContent(), /limiting requests/);
      assert.match(facts[0], /^\d\d:\d\d:\d\d · /);
      assert.match(facts[1], /left|any moment/);
      assert.match(facts[2], /next|behind/);
      await picture(page, "wait");
      // The same is on the operators' screen.
      const operators = await page.context().newPage();
      await operators.goto(`${origin}/now`);
      await operators.locator('#gates [data-state="held"]').waitFor();
      await picture(operators, "now-held");
      await operators.close();
      await page.getByText("An answer.").waitFor({ timeout: 30_000 });
      await page.locator('.entry.wait[data-state="over"]', { hasText: /Waited \d/ }).waitFor();
    });
  } finally {
    model.stop();
  }
});

test("what came while the tab slept is marked, and a reader further up is not moved", async () => {
  const long = Array.from({ length: 80 }, (_, line) => `Line ${line}.`).join("\n\n");
  await onPage({ script: SAY(long) + FOREVER }, async (page, { api }) => {
    await say(page, "much");
    await page.locator(".entry.end").waitFor();
    const id = new URL(page.url()).searchParams.get("session");
    const hide = (hidden) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    await page.mouse.move(640, 300);
    await page.mouse.wheel(0, -2000);
    await until(() => page.evaluate(() => document.documentElement.scrollHeight - scrollY - innerHeight > 500));
    const before = await page.evaluate(() => scrollY);
    await hide(true);
    await page.click("#cut");
    await api(`/v1/sessions/${id}/messages`, { content: "while you were away" });
    await until(async () => (await api(`/v1/sessions/${id}`)).turns === 2 && (await api(`/v1/sessions/${id}`)).status === "idle");
    await page.click("#cut");
    await page.getByText("while you were away").waitFor({ state: "attached" });
    await hide(false);
    await page.locator("[data-since]").waitFor({ state: "attached" });
    assert.match(await page.locator("[data-since]").getAttribute("data-since"), /^New since \d\d:\d\d/);
    assert.match(await page.locator("[data-since] .text").textContent(), /while you were away/);
    assert.equal(await page.evaluate(() => scrollY), before);
  });
});

/** Freezes the page as a browser freezes one that is out of sight: none of its timers and messages come through until it is thawed. */
async function frozen(page, whileFrozen) {
  const cdp = await page.context().newCDPSession(page);
  const front = await page.context().newPage();
  await front.bringToFront();
  await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
  await whileFrozen();
  await cdp.send("Page.setWebLifecycleState", { state: "active" });
  await page.bringToFront();
  await front.close();
  assert.equal(await page.evaluate(() => document.hidden), false);
}

test("what came while the page was frozen is marked once it is there, however long the line takes to open again", async () => {
  await onPage({ mayHide: true, script: SAY("An answer.") + FOREVER }, async (page, { server, api }) => {
    await say(page, "first");
    await page.locator(".entry.end").waitFor();
    const id = new URL(page.url()).searchParams.get("session");
    await frozen(page, async () => {
      await api(`/v1/sessions/${id}/messages`, { content: "while you were frozen" });
      await until(async () => (await api(`/v1/sessions/${id}`)).turns === 2 && (await api(`/v1/sessions/${id}`)).status === "idle");
      await server.crash();
    });
    // Nothing is there to be marked for a while.
    await page.locator('#line[data-state="lost"]').waitFor();
    const back = Date.now();
    await until(() => Date.now() - back > 1000);
    const again = await startServer({ home: server.home, model: "script:script.toml", port: server.port });
    try {
      await page.locator("[data-since]").waitFor({ state: "attached", timeout: 60_000 });
      assert.match(await page.locator("[data-since]").getAttribute("data-since"), /^New since \d\d:\d\d/);
      assert.match(await page.locator("[data-since] .text").textContent(), /while you were frozen/);
      // What comes while the reader looks on is not marked, nor what comes after a sleep in which nothing came.
      await frozen(page, async () => {});
      await page.locator('#line[data-state="open"]').waitFor({ timeout: 60_000 });
      await say(page, "and now");
      await until(async () => (await page.locator(".entry.end").count()) === 3);
      assert.equal(await page.locator("[data-since]").count(), 1);
      assert.match(await page.locator("[data-since] .text").textContent(), /while you were frozen/);
    } finally {
      await again.crash();
    }
  });
});

test("an answer that only grew while the page was frozen is marked as continued", async () => {
  const words = Array.from({ length: 120 }, (_, index) => `w${index}`).join(" ");
  await onPage({ mayHide: true, script: `[[step]]\ntext = "${words}"\npace_ms = 40\n` }, async (page, { api }) => {
    await say(page, "count");
    await page.getByText("w5 ").waitFor();
    const id = new URL(page.url()).searchParams.get("session");
    const head = async () => (await api(`/v1/sessions/${id}`)).head;
    await frozen(page, async () => {
      const before = await head();
      await until(async () => (await head()) > before + 10);
    });
    await page.locator('.entry.answer[data-since^="Continued since"]').waitFor();
    await picture(page, "continued");
    await page.locator(".entry.end").waitFor();
    assert.equal((await page.locator(".entry.answer .text").textContent()).trim(), words);
    assert.equal(await page.locator("[data-since]").count(), 1);
  });
});
