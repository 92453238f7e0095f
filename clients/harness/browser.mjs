// A real browser for tests: Chromium without a window, driven through the peer `web`.
//
// `withPage(url, async (page, seen) => …)` opens a page with nothing stored and closes it afterwards. The tests of a file
// share one browser, which ends with them.
// `seen.errors` collects what the page threw or logged as an error.

import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after } from "node:test";
import { peer } from "./peers.mjs";

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Where Chromium is; undefined if it is not here. */
export function chromium() {
  const wanted = [process.env.BUDAO_CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser"];
  return wanted.find((file) => file !== undefined && file !== "" && fs.existsSync(file));
}

/** Opens `url` and hands the page over, with what it complained about. Only a page that `mayHide` is ever out of sight or frozen. */
export async function withPage(url, use, { mayHide = false } = {}) {
  const { chromium: driver } = peer("playwright-core");
  const { context, close } = mayHide ? await connected(driver) : await launched(driver);
  try {
    await fromFolder(context, process.env.BUDAO_PAGE_ASSETS);
    const page = context.pages()[0] ?? (await context.newPage());
    const seen = { errors: [] };
    page.on("pageerror", (error) => seen.errors.push(String(error)));
    page.on("console", (line) => {
      if (line.type() === "error") seen.errors.push(line.text());
    });
    await page.goto(url);
    return await use(page, seen);
  } finally {
    await close();
  }
}

let shared;

/** A fresh context of the browser that the tests of this file share. Outside of tests, each has its own. */
async function launched(driver) {
  const launch = () => driver.launch({ executablePath: chromium(), headless: true, args: FLAGS });
  if (process.env.NODE_TEST_CONTEXT === undefined) {
    const browser = await launch();
    return { context: await browser.newContext(), close: () => browser.close() };
  }
  shared ??= launch();
  const context = await (await shared).newContext();
  return { context, close: () => context.close() };
}

if (process.env.NODE_TEST_CONTEXT !== undefined) after(async () => (await shared)?.close());

/** The driver keeps pages that it launched in sight, whatever is in front of them; one that it only connects to may hide. */
async function connected(driver) {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), "budao-browser-"));
  const args = [...FLAGS, "--headless", "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"];
  const child = spawn(chromium(), args, { stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const address = await new Promise((resolve, reject) => {
    let said = "";
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`the browser ended with ${code}: ${said}`)));
    child.stderr.on("data", (bytes) => {
      said = (said + bytes).slice(-10_000);
      const found = /DevTools listening on (ws:\S+)/.exec(said);
      if (found !== null) resolve(found[1]);
    });
  });
  try {
    const browser = await driver.connectOverCDP(address, { noDefaults: true });
    const close = async () => {
      const session = await browser.newBrowserCDPSession();
      await session.send("Browser.close");
      await ended;
      fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    };
    return { context: browser.contexts()[0], close };
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
}

/** Takes the page's files from a folder instead of the server's, so that they can be changed without compiling. */
async function fromFolder(context, folder) {
  if (folder === undefined || folder === "") return;
  await context.route("**/assets/**", (route) => {
    const file = path.join(folder, new URL(route.request().url()).pathname.slice("/assets/".length));
    return fs.existsSync(file) ? route.fulfill({ path: file }) : route.continue();
  });
}
