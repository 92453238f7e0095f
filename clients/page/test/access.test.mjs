// Every view in both languages and both themes, looked at by axe-core; every width; and without motion.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { startModel } from "../../harness/model.mjs";
import { peerFile } from "../../harness/peers.mjs";
import { startServer } from "../../harness/server.mjs";
import { onPage, overflow, picture, runSession, say, until } from "../stage.mjs";
import { SCRIPT, views } from "../views.mjs";

/** A way to run axe-core: the tests' tool is no part of the page, so it may be run where its policy forbids others' scripts. */
async function debuggerOf(page) {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Page.setBypassCSP", { enabled: true });
  return cdp;
}

/** What axe-core finds on the page as it is, except for what is minor. */
async function barriers(cdp) {
  const axe = fs.readFileSync(peerFile("axe-core/axe.min.js", "axe"), "utf8");
  const { result } = await cdp.send("Runtime.evaluate", { expression: `${axe}; axe.run({ resultTypes: ["violations"], rules: { region: { enabled: true } } }).then((all) => JSON.stringify(all.violations.map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.slice(0, 3).map(({ html, failureSummary }) => [html.slice(0, 160), failureSummary]) }))))`, awaitPromise: true });
  return JSON.parse(result.value).filter(({ impact }) => impact !== "minor");
}

test("axe-core finds no barrier on any view, in both languages and themes, wide and narrow", async () => {
  await onPage({ script: SCRIPT, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    const done = await runSession(origin, ["go"], { session_name: "A good one" });
    const failed = await runSession(origin, ["go"], { session_name: "A bad one" });
    const found = [];
    const cdp = await debuggerOf(page);
    for (const lang of ["en", "zh"]) {
      for (const theme of ["light", "dark"]) {
        await page.context().addCookies(["lang", "theme"].map((name) => ({ name, value: name === "lang" ? lang : theme, url: origin })));
        for (const [name, address, ready] of views(done, failed)) {
          await page.setViewportSize({ width: 1280, height: 800 });
          await page.goto(`${origin}${address}`);
          await page.locator(ready).first().waitFor();
          assert.equal(await page.evaluate(() => document.documentElement.lang), lang);
          await picture(page, `view-${name}-${lang}-${theme}`);
          const look = async (width) => {
            await page.setViewportSize({ width, height: 800 });
            found.push(...(await barriers(cdp)).map((one) => ({ view: `${name} ${lang} ${theme} ${width}`, ...one })));
          };
          await look(1280);
          if (lang === "en") await look(360);
        }
      }
    }
    assert.deepEqual(found, []);
  });
});

test("every view fits every width from 360 to 1 600 pixels", async () => {
  await onPage({ script: SCRIPT, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    const done = await runSession(origin, ["go"], { session_name: "A_title_without_any_space_that_is_quite_long_for_a_narrow_screen" });
    const failed = await runSession(origin, ["go"], { session_name: "A bad one" });
    for (const [name, address, ready] of views(done, failed)) {
      await page.goto(`${origin}${address}`);
      await page.locator(ready).first().waitFor();
      for (const width of [360, 480, 768, 1024, 1240, 1440, 1600]) {
        await page.setViewportSize({ width, height: 800 });
        await until(async () => (await overflow(page)) === 0, 3000).catch(() => assert.fail(`${name} at ${width}`));
      }
      await page.setViewportSize({ width: 360, height: 740 });
      const nav = await page.locator("nav").first().evaluate((bar) => bar.scrollWidth - bar.clientWidth);
      assert.ok(nav <= 0, `${name}: ${nav} px of the navigation are cut off`);
      await picture(page, `view-${name}-360`);
    }
  });
});

test("who wants no motion gets none", async () => {
  await onPage({ script: SCRIPT, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await page.emulateMedia({ reducedMotion: "reduce" });
    await page.goto(`${origin}/`);
    await page.locator("#welcome").waitFor();
    const moving = await page.evaluate(() => {
      document.querySelector("#doll").classList.add("tipped");
      return [...document.querySelectorAll("*")].filter((element) => getComputedStyle(element).animationName !== "none" || Number.parseFloat(getComputedStyle(element).transitionDuration) > 0).length;
    });
    assert.equal(moving, 0);
  });
});

test("scripts have at most 150 KB compressed, and nothing comes from elsewhere or stands inline", async () => {
  const { gzipSync } = await import("node:zlib");
  await onPage({ script: SCRIPT, where: "/" }, async (page, { origin }) => {
    await page.locator("html[data-ready]").waitFor();
    let sum = 0;
    const seen = new Set();
    for (const where of ["/", "/now", "/sessions", "/sessions/x", "/faults", "/machines"]) {
      const html = await (await fetch(`${origin}${where}`)).text();
      assert.ok(!/<script(?![^>]*\bsrc=)|<style|\son\w+=|style="/.test(html), where);
      const queue = [...html.matchAll(/(?:src|href)="(\/assets\/[^"]+\.js)"/g)].map(([, file]) => file);
      while (queue.length > 0) {
        const file = queue.pop();
        if (seen.has(file)) continue;
        seen.add(file);
        const text = await (await fetch(`${origin}${file}`)).text();
        sum += gzipSync(text).length;
        queue.push(...[...text.matchAll(/(?:from|import) "(\.[^"]+)"/g)].map(([, other]) => new URL(other, `${origin}${file}`).pathname));
      }
    }
    console.log(`${seen.size} scripts, ${Math.round(sum / 1024)} KB compressed`);
    assert.ok(sum < 150 * 1024, `${sum} bytes`);
  });
});

test("axe-core finds no barrier on a plan's board, the choice of a model, and MCP servers, in both themes", async () => {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-access-"));
  fs.writeFileSync(path.join(home, "budao.toml"), '[[mcp]]\nname = "broken"\ntransport = { type = "stdio", command = "/nowhere/no-server" }\n');
  await onPage({ model: "demo:fast", home, args: ["--config", "budao.toml", "--allow-model", "demo"] }, async (page, { origin }) => {
    await page.locator("html[data-ready]").waitFor();
    await page.locator("#tries button[data-plan]").click();
    await page.locator('.question[data-state="open"] .allow').click();
    await page.locator(".entry.end").waitFor();
    await until(async () => (await page.locator("#board .by").count()) === 5);
    await page.selectOption("#model", "demo");
    const board = page.url();
    const [found, cdp] = [[], await debuggerOf(page)];
    for (const theme of ["light", "dark"]) {
      await page.context().addCookies([{ name: "theme", value: theme, url: origin }]);
      for (const [address, ready] of [[board, "#board .result"], [`${origin}/machines`, '[data-server="broken"][data-state="down"]']]) {
        await page.goto(address);
        await page.locator(ready).waitFor();
        found.push(...(await barriers(cdp)));
      }
    }
    assert.deepEqual(found, []);
  });
});

/** What axe-core finds on the page as it stands, narrow and wide, in both languages and themes. `ready` is there again after each load. */
async function barriersEverywhere(page, cdp, origin, ready, open = async () => {}) {
  const found = [];
  for (const [lang, theme] of [["en", "light"], ["zh", "dark"], ["zh", "light"], ["en", "dark"]]) {
    await page.context().addCookies([["lang", lang], ["theme", theme]].map(([name, value]) => ({ name, value, url: origin })));
    await page.reload();
    await page.locator(ready).first().waitFor();
    await open();
    for (const width of [360, 1280]) {
      await page.setViewportSize({ width, height: 800 });
      assert.equal(await overflow(page), 0, `${ready} ${lang} ${width}`);
      found.push(...(await barriers(cdp)).map((one) => ({ ready, lang, theme, width, ...one })));
    }
    await picture(page, `open ${ready.replace(/\W+/g, "-")} ${lang} ${theme}`);
  }
  return found;
}

test("axe-core finds no barrier on a question, a wait, a call in doubt and the dialogs while they are open", async () => {
  const found = [];
  const asks = '[[step]]\n[[step.call]]\ntool = "fs_write"\narguments = { path = "a.txt", content = "hi" }\n[[step]]\ntext = "Fine."\nrepeat = "forever"\n';
  await onPage({ script: asks }, async (page, { origin }) => {
    const cdp = await debuggerOf(page);
    await say(page, "write");
    await page.locator('.question[data-state="open"]').waitFor();
    found.push(...(await barriersEverywhere(page, cdp, origin, '.question[data-state="open"]')));
    found.push(...(await barriersEverywhere(page, cdp, origin, '.question[data-state="open"] .allow', async () => {
      await page.locator("body").click({ position: { x: 2, y: 2 } });
      await page.keyboard.press("?");
      await page.locator("dialog[open]").waitFor();
    })));
    await page.goto(`${origin}/sessions`);
    found.push(...(await barriersEverywhere(page, cdp, origin, "#rows tr", async () => {
      await page.selectOption("#action", "cancel");
      await page.locator("#bulk button").click();
      await page.locator("#bulk-run").waitFor();
    })));
    await page.evaluate(() => sessionStorage.clear());
    found.push(...(await barriersEverywhere(page, cdp, origin, "#sign-in[open]", () => page.evaluate(() => sessionStorage.clear()))));
  });
  const model = await startModel();
  try {
    await onPage({ model: model.name }, async (page, { origin, api }) => {
      model.refuse(60);
      const { session_id: first } = await api("/v1/sessions", {});
      await api(`/v1/sessions/${first}/messages`, { content: "first" });
      await until(async () => ((await api("/api/stats?window=5m")).gates ?? []).some(({ state }) => state === "held"));
      await say(page, "second");
      await page.locator(".entry.wait").waitFor();
      found.push(...(await barriersEverywhere(page, await debuggerOf(page), origin, '.entry.wait[data-state="waiting"]')));
    });
  } finally {
    model.stop();
  }
  const doubtful = '[[step]]\n[[step.call]]\ntool = "bash_run"\narguments = { cmd = "sleep 30" }\n[[step]]\ntext = "I do not know."\nrepeat = "forever"\n';
  const args = ["--permission", "auto"];
  await onPage({ script: doubtful, args }, async (page, { server, origin }) => {
    await say(page, "pay");
    await page.locator('.entry.call[data-status="running"]').waitFor();
    await server.crash();
    const again = await startServer({ home: server.home, model: "script:script.toml", port: server.port, args });
    try {
      await page.locator('.doubt[data-state="open"]').waitFor({ timeout: 60_000 });
      found.push(...(await barriersEverywhere(page, await debuggerOf(page), origin, '.doubt[data-state="open"]')));
    } finally {
      await again.crash();
    }
  });
  assert.deepEqual(found, []);
});
