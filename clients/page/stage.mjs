// A stage for the page's tests: the real server with a script, a real browser, and pictures of what was seen.

import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { withPage } from "../harness/browser.mjs";
import { startServer, TOKEN } from "../harness/server.mjs";

const pictures = fileURLToPath(new URL("../../target/page/", import.meta.url));

/** Opens `where` on a fresh server, signed in, and hands the page over. */
export async function onPage(options, use) {
  const { where = "/", mayHide = false, ...rest } = options;
  const server = await startServer(rest);
  const origin = `http://127.0.0.1:${server.port}`;
  try {
    await withPage(`${origin}${where}#token=${TOKEN}`, async (page, seen) => {
      page.setDefaultTimeout(60_000);
      await use(page, { server, origin, seen, api: (route, body) => api(origin, route, body) });
    }, { mayHide });
  } finally {
    await server.stop();
  }
}

/** Asks the server as any client would. */
export async function api(origin, route, body) {
  const response = await fetch(`${origin}${route}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return response.json();
}

/** A session that has answered its messages, one after the other. */
export async function runSession(origin, messages, more = {}) {
  const { session_id: id } = await api(origin, "/v1/sessions", more);
  for (const content of messages) {
    const { turns } = await api(origin, `/v1/sessions/${id}`);
    await api(origin, `/v1/sessions/${id}/messages`, { content });
    await until(async () => {
      const view = await api(origin, `/v1/sessions/${id}`);
      return view.turns > turns && view.status !== "running" && view.queued === 0;
    });
  }
  return id;
}

/** Waits for a condition, not for a time. */
export async function until(holds, patience = 60_000) {
  const end = Date.now() + patience;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`it did not come true: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** Says something on the page. */
export async function say(page, text) {
  await page.locator("html[data-ready]").waitFor();
  await page.fill("#words", text);
  await page.press("#words", "Enter");
}

/** Keeps a picture of the page. */
export async function picture(page, name) {
  fs.mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: path.join(pictures, `${name}.png`) });
}

/** Does the page scroll sideways? It never should. */
export function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}
