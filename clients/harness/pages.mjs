// Serves files to a browser under test, from memory or from a folder.

import fs from "node:fs";
import http from "node:http";
import path from "node:path";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** `pages` maps paths to HTML; everything else comes from `folder`. */
export async function servePages(folder, pages) {
  const server = http.createServer((request, response) => {
    const name = new URL(request.url, "http://localhost").pathname;
    if (name === "/favicon.ico") return void response.writeHead(204).end();
    const file = path.join(folder, path.normalize(name));
    const body = pages[name] ?? (fs.existsSync(file) && fs.statSync(file).isFile() ? fs.readFileSync(file) : undefined);
    const type = pages[name] === undefined ? TYPES[path.extname(file)] : "text/html";
    response.writeHead(body === undefined ? 404 : 200, { "content-type": type ?? "text/plain" });
    response.end(body ?? "not here");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { origin: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
}
