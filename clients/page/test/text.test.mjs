// Markdown and results of tools, in a real browser: what is shown, what is copied, and that nothing of it runs.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { onPage, overflow, picture, say, until } from "../stage.mjs";

const toml = (text) => JSON.stringify(text);
const SAY = (text, more = "") => `[[step]]\ntext = ${toml(text)}\n${more}`;

const SAMPLE = `# Findings

The **service** is *slow*, see [the docs](https://example.com/docs?a=1) and \`retry_after\`.

1. First
2. Second
   - nested ~~gone~~

- [x] done
- [ ] open

| name | time |
| --- | ---: |
| plan | 12 ms |
| a\\|b | 7 ms |

> Quoted
> twice

\`\`\`rust
// A comment
fn main() { let answer = 42; println!("hi"); }
\`\`\`

\`\`\`diff
--- a/x
+++ b/x
@@ -1 +1 @@
-old
+new
\`\`\`

Maths stays: $a_1 + b_2 = c_{12}$ and

$$
\\sum_{i=1}^n i = n(n+1)/2
$$

An address https://example.org/path_(x). A lone * star, snake_case_name, 2 * 3 * 4.

---

![a chart](https://example.com/chart.png)
`;

test("Markdown is shown as what it means, and copied as it was written", async () => {
  await onPage({ script: SAY(SAMPLE) }, async (page, { seen }) => {
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await say(page, "report");
    await page.locator(".entry.end").waitFor();
    const text = page.locator(".entry.answer .text");
    const count = (selector) => text.locator(selector).count();
    assert.deepEqual(
      { h: await count("h3"), strong: await count("strong"), em: await count("em"), ol: await count("ol > li"), nested: await count("ol ul del"), table: await count("tbody tr"), right: await count("td.to-right"), quote: await count("blockquote p"), hr: await count("hr"), boxes: await count("input[type=checkbox]"), img: await count("img") },
      { h: 1, strong: 1, em: 1, ol: 2, nested: 1, table: 2, right: 2, quote: 1, hr: 1, boxes: 2, img: 0 },
    );
    assert.equal(await text.locator("td").nth(2).textContent(), "a|b");
    assert.equal(await text.locator(".hl-comment").textContent(), "// A comment");
    assert.equal(await text.locator(".hl-number").textContent(), "42");
    assert.equal(await text.locator(".diff-came").last().textContent(), "+new");
    const links = await text.locator("a").evaluateAll((all) => all.map((link) => [link.href, link.rel, link.target]));
    assert.deepEqual(links.map(([href]) => href), ["https://example.com/docs?a=1", "https://example.org/path_(x)", "https://example.com/chart.png"]);
    assert.ok(links.every(([, rel, target]) => rel === "noopener noreferrer nofollow" && target === "_blank"));
    const shown = await text.textContent();
    assert.match(shown, /\$a_1 \+ b_2 = c_\{12\}\$/);
    assert.match(shown, /\\sum_\{i=1\}\^n/);
    assert.match(shown, /A lone \* star, snake_case_name, 2 \* 3 \* 4\./);
    await picture(page, "markdown");
    await text.locator(".code-block .copy").first().click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), '// A comment\nfn main() { let answer = 42; println!("hi"); }');
    await page.locator(".entry.answer").hover();
    await page.locator(".entry.answer > .actions .copy").click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), SAMPLE);
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await overflow(page), 0);
    await picture(page, "narrow-markdown");
    assert.deepEqual(seen.errors, []);
  });
});

test("a text that streams in keeps its finished parts and never shows half a mark", async () => {
  const words = `First **bold words here** and [a link](https://example.com/long).\n\n\`\`\`js\nconst a = 1;\nconst b = 2;\n\`\`\`\n\n${"More text follows here. ".repeat(20)}`;
  await onPage({ script: SAY(words, "pace_ms = 25\n") }, async (page) => {
    await page.evaluate(() => {
      globalThis.seenTexts = [];
      globalThis.firsts = new Set();
      new MutationObserver(() => {
        const text = document.querySelector(".entry.answer .text");
        if (text === null) return;
        globalThis.seenTexts.push(text.textContent);
        if (text.children.length >= 2) globalThis.firsts.add(text.children[0]);
      }).observe(document.querySelector("#transcript"), { childList: true, subtree: true, characterData: true });
    });
    await say(page, "go");
    await page.locator(".entry.end").waitFor({ timeout: 60_000 });
    const { halves, firsts, count } = await page.evaluate(() => ({ halves: globalThis.seenTexts.filter((text) => /\*\*|\]\(|```/.test(text)), firsts: globalThis.firsts.size, count: globalThis.seenTexts.length }));
    assert.ok(count > 20, `${count} pictures`);
    assert.deepEqual(halves, []);
    assert.equal(firsts, 1, "a finished paragraph keeps its element");
  });
});

const JSON_RESULT = { path: "report.json", bytes: 2048, rows: Array.from({ length: 60 }, (_, index) => ({ id: index, name: `row ${index}`, note: index === 41 ? "the needle" : "hay" })) };
const DIFF = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,2 @@\n same\n-old line\n+new line\n";
/** A picture of one pixel. */
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** The module of results on a blank page of the server, with a value of ours: scripted tools give text only. */
async function shown(page, text) {
  return page.evaluate(async (text) => {
    const { resultView } = await import("/assets/results.js");
    const box = document.createElement("div");
    box.id = "shown";
    document.querySelector("#shown")?.remove();
    box.append(resultView(text));
    document.querySelector("main").prepend(box);
  }, text);
}

test("results of tools are shown as what they are: values, differences, pictures, files", async () => {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-results-"));
  fs.writeFileSync(path.join(home, "change.diff"), DIFF);
  const script = `[[step]]\n[[step.call]]\ntool = "bash_run"\narguments = { cmd = "cat change.diff" }\n${SAY("Done.")}`;
  await onPage({ script, home, args: ["--permission", "auto"] }, async (page, { seen }) => {
    await say(page, "go");
    await page.locator(".entry.end").waitFor();
    await page.locator(".entry.call .json, .entry.call .code-block").first().waitFor();
    await shown(page, JSON.stringify(JSON_RESULT));
    const box = page.locator("#shown");
    assert.match(await box.locator(".file").textContent(), /report\.json 2\.0 KB/);
    const before = await box.locator(".json *").count();
    assert.ok(before < 60, `${before} elements while folded`);
    await box.locator("input[type=search]").fill("needle");
    assert.match(await box.locator(".json-row").textContent(), /rows\[41\]\.note: the needle/);
    await picture(page, "json-search");
    await box.locator("input[type=search]").fill("");
    await box.locator("summary", { hasText: /^rows/ }).click();
    await until(async () => (await box.locator(".json-node .json-node").count()) >= 60);
    await shown(page, DIFF);
    assert.deepEqual([await box.locator(".diff-came").count(), await box.locator(".diff-went").count(), await box.locator(".diff-place").count()], [1, 1, 1]);
    await shown(page, JSON.stringify({ content: [{ type: "image", mimeType: "image/png", data: PIXEL }] }));
    await until(() => box.locator("img.picture").evaluate((image) => image.complete && image.naturalWidth === 1));
    await shown(page, JSON.stringify({ content: [{ type: "image", mimeType: "image/svg+xml", data: btoa("<svg xmlns='http://www.w3.org/2000/svg' onload='pwned=1'/>") }] }));
    assert.equal(await box.locator("img").count(), 0);
    // Files of tool servers: only addresses of the web are links, and none of them tells the other side who asks.
    const link = (uri, more = {}) => ({ type: "resource_link", uri, name: "report.pdf", ...more });
    const content = [link("https://files.example/r?id=1", { size: 4096 }), link("file:///etc/passwd", { size: 10 }), link("javascript:pwned=1"), { type: "resource", resource: { uri: "memo://1", text: "héllo" } }];
    await shown(page, JSON.stringify({ content }));
    assert.deepEqual(await box.locator(".file").allTextContents(), ["report.pdf https://files.example/r?id=1 4.0 KB", "report.pdf file:///etc/passwd 10 B", "report.pdf javascript:pwned=1", "memo://1 6 B"]);
    assert.deepEqual(await box.locator("a").evaluateAll((links) => links.map(({ href, rel, target }) => [href, rel, target])), [["https://files.example/r?id=1", "noopener noreferrer nofollow", "_blank"]]);
    await picture(page, "files");
    assert.deepEqual(seen.errors, []);
  });
});

const corpus = fs.readFileSync(fileURLToPath(new URL("../payloads.txt", import.meta.url)), "utf8");
const payloads = corpus.split("\n").filter((line) => line !== "" && !line.startsWith("# "));

/** Every way a text can stand in Markdown or in a result. */
const WAYS = {
  text: (payload) => payload,
  link: (payload) => `[${payload}](${payload})`,
  destination: (payload) => `[press](${payload})`,
  "angle link": (payload) => `<${payload}>`,
  image: (payload) => `![${payload}](${payload})`,
  "code span": (payload) => `\`${payload}\``,
  "code block": (payload) => `\`\`\`${payload}\n${payload}\n\`\`\``,
  table: (payload) => `| ${payload} | b |\n| --- | --- |\n| ${payload} | c |`,
  heading: (payload) => `# ${payload}`,
  quote: (payload) => `> ${payload}`,
  list: (payload) => `- ${payload}\n  1. ${payload}`,
  emphasis: (payload) => `**${payload}** *${payload}* ~~${payload}~~`,
};
const RESULTS = {
  "text result": (payload) => payload,
  "json result": (payload) => JSON.stringify({ [payload]: payload, list: [payload], path: payload, bytes: 3 }),
  "diff result": (payload) => `--- a/${payload}\n+++ b/${payload}\n@@ -1 +1 @@\n-${payload}\n+${payload}\n`,
  "link result": (payload) => JSON.stringify({ content: [{ type: "resource_link", uri: payload, name: payload, size: 3 }, { type: "resource", resource: { uri: payload, text: payload } }] }),
  "picture result": (payload) => JSON.stringify({ mimeType: "image/png", data: payload, source: { media_type: payload, data: payload } }),
};

test("in Chinese no line of an answer begins with a closing mark, at any width", async () => {
  const text = "他说：“这是第一句话，很短！”（然后又说了一句……）《书名》在这里。".repeat(12);
  await onPage({ script: SAY(text), where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await page.context().addCookies([{ name: "lang", value: "zh", url: origin }]);
    await page.goto(`${origin}/`);
    await say(page, "说");
    await page.locator(".entry.end").waitFor();
    assert.equal(await page.locator(".entry.answer .markdown").evaluate((answer) => getComputedStyle(answer).lineBreak), "strict");
    for (const width of [360, 400, 500, 900]) {
      await page.setViewportSize({ width, height: 800 });
      const starts = await page.locator(".entry.answer .markdown p").evaluate((paragraph) => {
        const node = paragraph.firstChild;
        const range = document.createRange();
        const firsts = [];
        let bottom = -1;
        for (let index = 0; index < node.length; index += 1) {
          range.setStart(node, index);
          range.setEnd(node, index + 1);
          const box = range.getBoundingClientRect();
          if (box.top >= bottom) firsts.push(node.data[index]);
          bottom = Math.max(bottom, box.bottom - 1);
        }
        return firsts;
      });
      assert.ok(starts.length > 5 && starts.every((char) => !"！，。”）》：".includes(char)), `${width}: ${starts}`);
    }
  });
});

test("no payload runs, loads or becomes an element, whatever Markdown or result it stands in", async () => {
  await onPage({ script: SAY("ok"), where: "/missing-page" }, async (page, { origin }) => {
    const outside = [];
    page.on("request", (request) => {
      if (!request.url().startsWith(origin) && !request.url().startsWith("blob:")) outside.push(request.url());
    });
    page.on("dialog", (dialog) => {
      outside.push(dialog.message());
      dialog.dismiss();
    });
    const cases = Object.entries(WAYS).flatMap(([way, make]) => payloads.map((payload) => [way, make(payload), "markdown"])).concat(Object.entries(RESULTS).flatMap(([way, make]) => payloads.map((payload) => [way, make(payload), "result"])));
    assert.ok(cases.length >= 16 * 200);
    const bad = await page.evaluate(async (cases) => {
      const [{ Markdown }, { resultView }] = await Promise.all([import("/assets/markdown.js"), import("/assets/results.js")]);
      const allowed = new Set(["P", "A", "SPAN", "CODE", "PRE", "FIGURE", "FIGCAPTION", "BUTTON", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD", "DIV", "H3", "H4", "H5", "H6", "BLOCKQUOTE", "UL", "OL", "LI", "STRONG", "EM", "DEL", "HR", "BR", "INPUT", "DETAILS", "SUMMARY", "IMG", "B"]);
      const odd = [];
      const main = document.querySelector("main");
      for (const [way, text, kind] of cases) {
        const box = document.createElement("div");
        main.append(box);
        if (kind === "result") box.append(resultView(text));
        else {
          const markdown = new Markdown(box);
          // As it streams in, and whole.
          for (const part of [text.slice(0, text.length / 2), text]) markdown.show(part, true);
          markdown.show(text, false);
        }
        for (const element of box.querySelectorAll("*")) {
          const handlers = [...element.attributes].filter(({ name }) => name.startsWith("on") || name === "style" || name === "srcdoc");
          const isLink = element.localName !== "a" || ["http:", "https:", "mailto:"].includes(element.protocol);
          const isPicture = element.localName !== "img" || element.src.startsWith("blob:");
          if (!allowed.has(element.tagName) || handlers.length > 0 || !isLink || !isPicture) odd.push([way, text, element.outerHTML.slice(0, 200)]);
        }
        box.remove();
      }
      return { odd, ran: globalThis.pwned };
    }, cases);
    assert.deepEqual({ ...bad, outside }, { odd: [], ran: undefined, outside: [] });
  });
});

test("hostile Markdown takes time in proportion to its length", async () => {
  await onPage({ script: SAY("ok"), where: "/missing-page" }, async (page) => {
    const worst = await page.evaluate(async () => {
      const { Markdown } = await import("/assets/markdown.js");
      const texts = ["[", "![", "*", "**a ", "_a_", "`", "``a", "> ", "- ", "  - ", "|", "| a ", "$", "$a", "\\(", "<", "<http://", "https://", "((", "](", "~~a", "#", "1. ", "\\", "***a**b*"].map((piece) => piece.repeat(Math.floor(19_000 / piece.length)));
      texts.push("- a\n".repeat(5000), "> > > > > > > > > > > > deep\n".repeat(500), "|a|b|\n|-|-|\n" + "|x|y|\n".repeat(4000));
      const times = [];
      for (const text of texts) {
        const box = document.createElement("div");
        const start = performance.now();
        new Markdown(box).show(text, true);
        times.push([performance.now() - start, text.slice(0, 12)]);
      }
      return times.sort((a, b) => b[0] - a[0])[0];
    });
    console.log(`slowest: ${Math.round(worst[0])} ms for ${JSON.stringify(worst[1])}…`);
    assert.ok(worst[0] < 4000, `${worst}`);
  });
});
