// Makes the pictures of docs/page.md: `node clients/page/pictures.mjs [NAME…]`, with the program built.

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { startModel } from "../harness/model.mjs";
import { startServer, TOKEN } from "../harness/server.mjs";
import { api, onPage, runSession, say, until } from "./stage.mjs";

const folder = fileURLToPath(new URL("../../docs/images/", import.meta.url));
const program = process.env.BUDAO_BIN || fileURLToPath(new URL("../../target/debug/budao", import.meta.url));
const size = { width: 1400, height: 880 };

/** A picture of what is in the window, once nothing on it moves. */
async function shot(page, name) {
  await page.evaluate(() => Promise.all(document.getAnimations().map((animation) => animation.finished)));
  await page.screenshot({ path: path.join(folder, `${name}.png`) });
}

/** As high as the page, so that nothing is cut. */
async function wholePage(page, height = 2000) {
  await page.setViewportSize({ ...size, height: 600 });
  const needed = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.setViewportSize({ ...size, height: Math.min(height, needed) });
  await page.evaluate(() => scrollTo(0, 0));
}

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

const READ = (argument) => `
[[step]]
text = "I look at the code first."
[[step.call]]
tool = "fs_read"
arguments = { ${argument} = "fetch.rs" }
`;
const FOUND = `
[[step]]
[[step.call]]
tool = "fs_glob"
arguments = { pattern = "*.rs" }
`;
const SAID = `
[[step]]
text = ${JSON.stringify(ANSWER)}
repeat = "forever"
`;

/** A conversation on a fresh page: Markdown, results of calls, sessions beside it. */
async function conversation(script, theme, name, ready = async () => {}) {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-pictures-"));
  fs.writeFileSync(path.join(home, "fetch.rs"), "fn main() {}\n");
  await onPage({ script, home, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await page.context().addCookies([{ name: "theme", value: theme, url: origin }]);
    for (const title of ["Translate the release notes", "周报摘要", "Why do the nightly builds fail?"]) await api(origin, "/v1/sessions", { session_name: title });
    await page.setViewportSize(size);
    await page.goto(`${origin}/`);
    await say(page, "Why is /orders slow?");
    await page.locator(".entry.end").waitFor();
    await ready(page);
    await wholePage(page);
    await page.locator(".entry.answer").last().hover();
    await page.evaluate(() => scrollTo(0, 0));
    await shot(page, name);
  });
}

/** A folder with a journal of sessions that ran the script, each moved back by its minutes. */
async function history(script, minutes) {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "budao-pictures-"));
  const server = await startServer({ script, home });
  const origin = `http://127.0.0.1:${server.port}`;
  const lines = ['{"journal":1}'];
  for (const [index, back] of minutes.entries()) {
    const id = await runSession(origin, ["go"], { session_name: ["Invoices", "Orders", "Stock", "Refunds", "Mail", "Backups", "Prices", "Labels"][index % 8] });
    const response = await fetch(`${origin}/v1/sessions/${id}/export`, { headers: { authorization: `Bearer ${TOKEN}` } });
    const records = (await response.text()).trim().split("\n").slice(1, -1).map((line) => JSON.parse(line));
    lines.push(...records.map((record) => JSON.stringify(record.at === undefined ? record : { ...record, at: record.at - back * 60_000_000 })));
  }
  await server.crash();
  fs.rmSync(path.join(home, "journal.db"));
  for (const name of fs.readdirSync(home)) if (name.startsWith("journal.db")) fs.rmSync(path.join(home, name), { recursive: true });
  fs.writeFileSync(path.join(home, "many.ndjson"), `${[...lines, `{"done":${minutes.length}}`].join("\n")}\n`);
  const done = spawnSync(program, ["journal", "import", "journal.db", "many.ndjson"], { cwd: home, env: { PATH: process.env.PATH, HOME: home }, encoding: "utf8" });
  if (done.status !== 0) throw new Error(done.stdout + done.stderr);
  return home;
}

const CALL = `
[[step]]
[[step.call]]
tool = "fs_read"
arguments = { file = "x" }
`;
const FAULT = (kind, wait) => `
[[step]]
fault = "${kind}"
${wait === undefined ? "" : `retry_after_ms = ${wait}`}
`;
const DONE = '\n[[step]]\ntext = "Done."\n';
const TURNS = [
  FAULT("model_rate_limited", 150) + CALL + DONE,
  FAULT("model_overloaded", 2800) + DONE,
  CALL + FAULT("model_rate_limited", 900) + DONE,
  FAULT("model_authentication"),
  FAULT("model_rate_limited", 250) + CALL + FAULT("model_overloaded", 300) + DONE,
  CALL + DONE,
];
/** How many minutes ago each session ran: now and then, and many in one bad quarter of an hour. */
const AGO = [58, 55, 51, 46, 42, 37, 33, 30, 27, 26, 24, 23, 22, 21, 21, 20, 19, 18, 17, 16, 13, 10, 7, 5, 3, 2];
const PAST = `order = "requests"\n${AGO.map((_, index) => TURNS[index % TURNS.length]).join("")}`;

/** A storm: a busy service that holds requests back, after an hour in which other things failed too. */
async function storm() {
  const model = await startModel({ usage: { prompt_tokens: 1840, completion_tokens: 212, total_tokens: 2052 } });
  const home = await history(PAST, AGO);
  try {
    await onPage({ model: model.name, home, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
      await page.setViewportSize(size);
      await runSession(origin, ["hello"], { session_name: "Invoices" });
      model.refuse(40);
      for (const title of ["Orders", "Stock", "Refunds"]) {
        const { session_id: id } = await api(origin, "/v1/sessions", { session_name: title });
        await api(origin, `/v1/sessions/${id}/messages`, { content: "go" });
      }
      await until(async () => ((await api(origin, "/api/stats?window=5m")).gates ?? []).some(({ state, waiting }) => state === "held" && waiting > 1));
      await page.goto(`${origin}/now?window=1h`);
      await page.locator('#gates [data-state="held"]').waitFor();
      await wholePage(page);
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
  const home = await history(PAST, AGO);
  await onPage({ script: DONE, home, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    await page.setViewportSize({ ...size, height: 1240 });
    await page.goto(`${origin}/faults?window=1h`);
    await page.locator("#over-time svg").waitFor();
    await shot(page, "faults");
  });
}

const PICTURES = {
  conversation: () => conversation(FOUND + SAID, "light", "conversation"),
  "conversation-dark": () => conversation(FOUND + SAID, "dark", "conversation-dark"),
  page: () => conversation(READ("file") + READ("path").replace(/text = .*/, "") + SAID.replace(JSON.stringify(ANSWER), '"The client is opened once for each request."'), "light", "page", async (page) => {
    await until(async () => (await page.locator(".rendering").count()) === 3);
    await page.locator(".entry.call").nth(1).locator("summary", { hasText: "Result" }).click();
  }),
  now: storm,
  timeline: story,
  plan,
  faults,
};
const wanted = process.argv.slice(2);
for (const [name, make] of Object.entries(PICTURES)) if (wanted.length === 0 || wanted.includes(name)) await make();
