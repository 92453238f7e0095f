// Bundles the page and serves it on loopback: `node serve.mjs [PORT]`, 5173 unless another one is named.

import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import * as esbuild from "esbuild";
import { bundle } from "./bundle.mjs";

const port = Number(process.argv[2] ?? 5173);
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "budao-chat-"));
await bundle(esbuild, folder);
const FILES = { "/": ["index.html", "text/html"], "/chat.js": ["chat.js", "text/javascript"], "/chat.css": ["chat.css", "text/css"] };

const server = http.createServer((request, response) => {
  const [name, type] = FILES[new URL(request.url, "http://localhost").pathname] ?? [];
  if (name === undefined) return void response.writeHead(404).end("not here");
  response.writeHead(200, { "content-type": `${type}; charset=utf-8` }).end(fs.readFileSync(path.join(folder, name)));
});
server.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/#server=http://127.0.0.1:7333&token=TOKEN`));
