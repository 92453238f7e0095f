// The conversation, in a real browser on the real server.

import assert from "node:assert/strict";
import { test } from "node:test";
import { onPage, overflow, picture, say, until } from "../stage.mjs";

const CALL = (tool, args) => `[[step]]\n[[step.call]]\ntool = "${tool}"\narguments = ${args}\n`;
const SAY = (text, more = "") => `[[step]]\ntext = "${text}"\n${more}`;

const PLAN = `
[[step]]
text = '''{"summary": "One task a fruit.", "tasks": [{"id": "1", "title": "Apples", "prompt": "Count apples."}, {"id": "2", "title": "Pears", "prompt": "Count pears."}]}'''
[[step]]
text = "Seven."
[[step]]
text = "Seven."
[[step]]
text = "All counted."
repeat = "forever"
`;

test("the printed address signs in, and the token leaves it", async () => {
  await onPage({ script: SAY("Hello.") }, async (page, { origin, seen }) => {
    await say(page, "hi");
    await page.getByText("Hello.").waitFor();
    const address = await page.evaluate(() => location.href);
    assert.ok(address.startsWith(`${origin}/?session=`) && !address.includes("token"), address);
    await page.reload();
    await page.getByText("Hello.").waitFor();
    assert.deepEqual(seen.errors, []);
  });
});

test("without a token the page asks for one and tells a wrong one", async () => {
  await onPage({ script: SAY("Hello.") }, async (page, { origin }) => {
    await page.evaluate(() => sessionStorage.clear());
    await page.goto(`${origin}/sessions`);
    await page.locator("#sign-in[open]").waitFor();
    await page.fill("#token", "wrong-token");
    await page.press("#token", "Enter");
    await page.locator("#sign-in-refused:not([hidden])").waitFor();
    await page.fill("#token", "a-token-for-tests");
    await page.press("#token", "Enter");
    await page.locator("#empty:not([hidden])").waitFor();
  });
});

test("a failed call shows what the model, the user and the operator were told", async () => {
  const script = CALL("fs_read", '{ file = "README.md" }') + CALL("fs_glob", '{ pattern = "*.toml" }') + SAY("It is there.");
  await onPage({ script }, async (page) => {
    await say(page, "look");
    await page.getByText("It is there.").waitFor();
    const failed = page.locator('.entry.call[data-status="failed"]');
    assert.equal(await failed.locator(".code").textContent(), "ERR_VAL_002");
    const rendered = failed.locator(".rendering");
    await until(async () => (await rendered.count()) === 3);
    const [model, user, operator] = await rendered.allTextContents();
    assert.match(model, /Invalid parameters: path: required/);
    assert.match(model, /errorType: validation/);
    assert.match(user, /agent\.tool_result/);
    assert.match(operator, /ERR_VAL_002 .*tool_call/);
    const worked = page.locator('.entry.call[data-status="success"]');
    assert.match(await worked.textContent(), /fs_glob.*\*\.toml/s);
    await picture(page, "fault-renderings");
  });
});

test("a retry counts down, and what recovered is said to have recovered", async () => {
  const script = '[[step]]\nfault = "model_rate_limited"\nretry_after_ms = 1500\n' + SAY("Back again.");
  await onPage({ script }, async (page) => {
    await say(page, "go");
    const standing = page.locator(".entry.fault .standing");
    const counted = new Set();
    await until(async () => {
      const text = (await standing.count()) === 0 ? "" : await standing.textContent();
      if (/Retrying in/.test(text)) counted.add(text);
      return /Recovered after/.test(text);
    });
    assert.ok(counted.size >= 3, `${[...counted]}`);
    await page.getByText("Back again.").waitFor();
    await page.locator(".entry.fault summary").click();
    await page.getByText("The model is not told").waitFor();
    await picture(page, "recovered");
  });
});

test("a failed turn is retried with the keyboard, and its call is not made again", async () => {
  const script = CALL("fs_glob", '{ pattern = "*.toml" }') + "[[step]]\nstatus = 401\n" + SAY("Done after all.");
  await onPage({ script }, async (page, { seen }) => {
    await say(page, "go");
    const retry = page.locator(".entry.end button.retry:visible");
    await retry.waitFor();
    await page.reload();
    await retry.waitFor();
    await picture(page, "retry");
    await page.focus("#words");
    await until(async () => {
      await page.keyboard.press("Shift+Tab");
      return page.evaluate(() => document.activeElement?.matches("button.retry") ?? false);
    });
    await page.keyboard.press("Enter");
    await page.getByText("Done after all.").waitFor();
    await until(async () => (await page.locator(".entry.end.done").count()) === 1);
    assert.equal(await page.locator(".entry.call").count(), 1);
    assert.equal(await retry.count(), 0, "what was retried is not offered again");
    assert.equal(await page.locator("#fact-state").textContent(), "Idle");
    assert.deepEqual(seen.errors, []);
  });
});

test("a permission is asked for, and the answer with its note reaches the model", async () => {
  const write = CALL("fs_write", '{ path = "note.txt", content = "hi" }');
  await onPage({ script: write + SAY("Written.") + write + SAY("Not written.") }, async (page, { api }) => {
    await say(page, "write");
    await page.locator(".question .allow").click();
    await page.getByText("Written.", { exact: true }).waitFor();
    assert.equal(await page.locator(".question .verdict").first().textContent(), "Allowed");
    await say(page, "again");
    const open = page.locator('.question[data-state="open"]');
    await open.locator("input").fill("not on a Sunday");
    assert.equal(await open.locator(".why").textContent(), "the tool writes or executes, and the mode is `approval`");
    await picture(page, "question");
    await open.locator(".deny").click();
    await page.getByText("Not written.").waitFor();
    const id = new URL(page.url()).searchParams.get("session");
    const failed = page.locator('.entry.call[data-status="failed"]');
    await until(async () => /not on a Sunday/.test(await failed.textContent()));
    assert.equal((await api(`/v1/sessions/${id}`)).questions.length, 0);
  });
});

test("the connection is cut, the run continues, and reconnecting loses nothing", async () => {
  const words = Array.from({ length: 60 }, (_, index) => `w${index}`).join(" ");
  await onPage({ script: SAY(words, "pace_ms = 60\n") }, async (page, { api }) => {
    await say(page, "count");
    await page.getByText("w5 ").waitFor();
    await page.click("#cut");
    await page.locator('#line[data-state="cut"]').waitFor();
    const heard = await page.locator(".entry.answer .text").textContent();
    const id = new URL(page.url()).searchParams.get("session");
    await until(async () => (await api(`/v1/sessions/${id}`)).status === "idle");
    const more = page.locator("#line-more");
    await until(async () => /The server is at/.test(await more.textContent()));
    assert.equal(await page.locator(".entry.answer .text").textContent(), heard);
    await picture(page, "cut");
    await page.click("#cut");
    await page.locator('#line[data-state="open"]').waitFor();
    await page.locator(".entry.end").waitFor();
    assert.equal(await page.locator(".entry.answer .text").textContent(), words);
    await until(async () => (await more.textContent()) !== "");
    assert.match(await more.textContent(), /missed events .* have arrived, in order/);
    const { head } = await api(`/v1/sessions/${id}`);
    const shown = await page.locator("#fact-events").textContent();
    assert.ok(Number(shown.replace(/\D/g, "")) <= head);
    await picture(page, "back");
  });
});

test("whoever reads further up is left there, until they say something", async () => {
  const long = Array.from({ length: 120 }, (_, line) => `Line ${line}.`).join("\\n\\n");
  await onPage({ script: SAY(long) + SAY("A word more.") + SAY("The last word.") }, async (page) => {
    await say(page, "much");
    await page.getByText("Line 119.").waitFor();
    const left = () => page.evaluate(() => document.documentElement.scrollHeight - scrollY - innerHeight);
    await until(async () => (await left()) < 100);
    await page.mouse.wheel(0, -3000);
    await until(async () => (await left()) > 500);
    await say(page, "more");
    await page.getByText("A word more.").waitFor();
    await until(async () => (await left()) < 100);
  });
});

test("a run is stopped with Escape", async () => {
  const words = Array.from({ length: 400 }, (_, index) => `w${index}`).join(" ");
  await onPage({ script: SAY(words, "pace_ms = 40\n") }, async (page) => {
    await say(page, "count");
    await page.getByText("w3 ").waitFor();
    await page.keyboard.press("Escape");
    await page.locator(".entry.end.stopped").waitFor();
  });
});

test("a plan is confirmed, solved and put together on the board", async () => {
  await onPage({ script: PLAN }, async (page) => {
    await page.check("#plan");
    await say(page, "Count the fruit.");
    await page.locator('.question[data-state="open"] .tasks li').nth(1).waitFor();
    await page.locator(".question .allow").click();
    await page.getByText("All counted.").first().waitFor();
    const tasks = page.locator("#board li");
    await until(async () => (await page.locator('#board li[data-status="completed"]').count()) === 2);
    assert.match(await tasks.first().textContent(), /Apples/);
    // Beside the conversation, the sessions of its stages stand below their own.
    await until(async () => (await page.locator("#side-list li.part").count()) >= 3);
    assert.equal(await page.locator("#side-list li:not(.part)").count(), 1);
    await picture(page, "board");
  });
});

test("one task of a plan is stopped and started again on the board", async () => {
  const endless = Array.from({ length: 800 }, (_, index) => `w${index}`).join(" ");
  const slow = SAY(endless, "pace_ms = 40\n");
  const script = PLAN.slice(0, PLAN.indexOf('[[step]]\ntext = "Seven."')) + slow + slow + SAY("Seven.", 'repeat = "forever"\n');
  await onPage({ script }, async (page, { seen }) => {
    await page.check("#plan");
    await say(page, "Count the fruit.");
    await page.locator(".question .allow").click();
    const task = (title) => page.locator("#board li", { hasText: title });
    await until(async () => (await page.locator('#board li[data-status="running"]').count()) === 2);
    await task("Apples").locator("button", { hasText: "Stop" }).click();
    await page.locator('#board li[data-status="cancelled"]', { hasText: "Apples" }).waitFor();
    assert.equal(await task("Pears").getAttribute("data-status"), "running", "the other task goes on");
    await picture(page, "board-stopped");
    await task("Apples").locator("button", { hasText: "Restart" }).click();
    await page.locator('#board li[data-status="completed"]', { hasText: "Apples" }).waitFor();
    assert.match(await task("Apples").textContent(), /Seven/);
    assert.deepEqual(seen.errors, []);
  });
});

test("language and theme are switched, and stay", async () => {
  await onPage({ script: SAY("Hello.") }, async (page) => {
    assert.equal(await page.locator("nav a").first().textContent(), "Chat");
    await page.click("#language");
    await page.locator("nav a", { hasText: "对话" }).waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.lang), "zh");
    await say(page, "你好");
    await page.getByText("Hello.").waitFor();
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.click("#theme");
    const light = await paper();
    await page.click("#theme");
    const dark = await paper();
    assert.notEqual(light, dark);
    await page.reload();
    assert.equal(await paper(), dark);
    await picture(page, "zh-dark");
  });
});

test("a narrow screen shows everything without scrolling sideways", async () => {
  const script = CALL("fs_read", '{ file = "README.md" }') + SAY("It is there.");
  await onPage({ script }, async (page) => {
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await overflow(page), 0);
    await picture(page, "narrow-welcome");
    await say(page, "look");
    await page.getByText("It is there.").waitFor();
    await until(async () => (await page.locator(".rendering").count()) === 3);
    assert.equal(await overflow(page), 0);
    for (const id of ["#send", "#cut", "#language"]) assert.ok(await page.locator(id).isVisible(), id);
    await picture(page, "narrow-fault-renderings");
  });
});
