// Makes the pictures of docs/page.md: `node clients/page/pictures.mjs`, with the program built.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { startModel } from "../harness/model.mjs";
import { startServer } from "../harness/server.mjs";
import { api, onPage, runSession, say, until } from "./stage.mjs";

const folder = fileURLToPath(new URL("../../docs/images/", import.meta.url));
const shot = (page, name) => page.screenshot({ path: path.join(folder, `${name}.png`) });
const size = { width: 1400, height: 880 };

const ANSWER = `The endpoint is slow because **every request opens a new connection**. Two changes help:

| change | before | after |
| --- | ---: | ---: |
| keep connections open | 412 ms | 96 ms |
| ask for less at a time | 96 ms | 41 ms |

\`\`\`rust
// One client for all requests keeps its connections.
let client = Client::builder().pool_idle_timeout(MINUTE).build()?;
\`\`\`

- [x] measured with the recorded traffic
- [ ] deployed`;

const TALK = `
[[step]]
text = "I look at the code first."
[[step.call]]
tool = "fs_read"
arguments = { file = "fetch.rs" }
[[step]]
[[step.call]]
tool = "fs_glob"
arguments = { pattern = "*.rs" }
[[step]]
text = ${JSON.stringify(ANSWER)}
repeat = "forever"
`;

/** A conversation: Markdown, a call that was corrected, sessions beside it. */
async function conversation(theme, name) {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-pictures-"));
  fs.writeFileSync(path.join(home, "fetch.rs"), "fn main() {}\n");
  await onPage({ script: TALK, home, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await page.setViewportSize(size);
    await page.context().addCookies([{ name: "theme", value: theme, url: origin }]);
    for (const title of ["Translate the release notes", "周报摘要", "Why do the nightly builds fail?"]) await api(origin, "/v1/sessions", { session_name: title });
    await page.goto(`${origin}/`);
    await say(page, "Why is /orders slow?");
    await page.locator(".entry.end").waitFor();
    await page.locator(".entry.answer").last().hover();
    await shot(page, name);
    if (theme !== "light") return;
    await until(async () => (await page.locator(".rendering").count()) === 3);
    await page.locator(".entry.call").first().evaluate((call) => scrollTo({ top: call.getBoundingClientRect().top + scrollY - 130 }));
    await page.mouse.move(5, 5);
    await shot(page, "page");
  });
}

/** A storm: a busy service, refused keys, calls that were corrected. */
async function storm() {
  const model = await startModel({ usage: { prompt_tokens: 1840, completion_tokens: 212, total_tokens: 2052 } });
  try {
    await onPage({ model: model.name, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
      await page.setViewportSize(size);
      await runSession(origin, ["hello"], { session_name: "Invoices" });
      model.refuse(20);
      for (const title of ["Orders", "Stock", "Refunds"]) {
        const { session_id: id } = await api(origin, "/v1/sessions", { session_name: title });
        await api(origin, `/v1/sessions/${id}/messages`, { content: "go" });
      }
      await until(async () => ((await api(origin, "/api/stats?window=5m")).gates ?? []).some(({ state, waiting }) => state === "held" && waiting > 1));
      await page.goto(`${origin}/now?window=5m`);
      await page.locator('#gates [data-state="held"]').waitFor();
      await shot(page, "now");
    });
  } finally {
    model.stop();
  }
}

/** A session that waited, was killed and taken over. */
async function story() {
  const script = `
[[step]]
fault = "model_rate_limited"
retry_after_ms = 2000
[[step]]
[[step.call]]
tool = "bash_run"
arguments = { cmd = "sleep 2" }
[[step.call]]
tool = "fs_read"
arguments = { file = "x" }
[[step]]
text = "${Array.from({ length: 60 }, (_, index) => `word${index}`).join(" ")}"
pace_ms = 60
[[step]]
text = "Done."
repeat = "forever"
`;
  await onPage({ script, where: "/", args: ["--permission", "auto"] }, async (page, { server, origin }) => {
    await page.setViewportSize(size);
    await say(page, "Check the nightly builds");
    await page.getByText("word20 ").waitFor();
    await server.crash();
    const again = await startServer({ home: server.home, model: "script:script.toml", port: server.port, args: ["--permission", "auto"] });
    try {
      await page.locator(".entry.end").waitFor({ timeout: 60_000 });
      await page.goto(`${origin}/sessions/${new URL(page.url()).searchParams.get("session")}`);
      await page.locator(".lanes .down").waitFor();
      await page.locator(".row", { hasText: "error.rate_limited" }).first().click();
      await page.locator(".rendering").nth(2).waitFor();
      await shot(page, "timeline");
    } finally {
      await again.crash();
    }
  });
}

/** A plan of the demo model with a task that failed, and charts of what went wrong in several sessions. */
async function plan() {
  await onPage({ model: "demo" }, async (page) => {
    await page.setViewportSize(size);
    await page.locator("html[data-ready]").waitFor();
    await page.locator("#tries button[data-plan]").click();
    await page.locator('.question[data-state="open"] .allow').click();
    await page.locator('#board li[data-status="failed"]').waitFor();
    await page.locator('#board li[data-status="completed"]').first().waitFor();
    await until(async () => (await page.locator("#board .by").count()) === 4);
    await page.evaluate(() => scrollTo(0, 0));
    await shot(page, "plan");
  });
}

async function faults() {
  const script = `
order = "requests"
${Array.from({ length: 6 }, () => `
[[step]]
fault = "model_rate_limited"
retry_after_ms = 700
[[step]]
[[step.call]]
tool = "fs_read"
arguments = { file = "x" }
[[step]]
fault = "model_overloaded"
retry_after_ms = 1200
[[step]]
text = "Done."`).join("")}
[[step]]
fault = "model_authentication"
repeat = "forever"
`;
  await onPage({ script, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await page.setViewportSize(size);
    for (const title of ["Invoices", "Orders", "Stock", "Refunds", "Mail", "Backups", "Prices", "Labels"]) await runSession(origin, ["go"], { session_name: title });
    await page.goto(`${origin}/faults?window=5m`);
    await page.locator("#over-time svg").waitFor();
    await shot(page, "faults");
  });
}

await conversation("light", "conversation");
await conversation("dark", "conversation-dark");
await storm();
await story();
await plan();
await faults();
