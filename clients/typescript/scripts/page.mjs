// Makes the copy of the client that the web page loads: plain JavaScript, checked in, so that building the server needs
// no Node. With --check, says whether the copy is that of these sources.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const home = fileURLToPath(new URL("..", import.meta.url));
const assets = path.join(home, "../../crates/serve/assets/client");
const peers = process.env.BUDAO_PEERS || path.join(os.homedir(), ".cache/budao/peers");
const tsc = path.join(peers, "web/node_modules/typescript/bin/tsc");
const head = "// Made from clients/typescript/src by scripts/page.mjs. Do not edit.\n";
/** Types only, the parts for programs that offer tools, and the part for other people's front ends. */
const LEFT_OUT = new Set(["front_end.js", "protocol.js", "main.js", "program.js", "server.js", "tool.js", "worker.js"]);

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "budao-page-"));
try {
  execFileSync(process.execPath, [tsc, "-p", home, "--outDir", folder, "--declaration", "false"], { stdio: "inherit" });
  const made = new Map(
    fs.readdirSync(folder).filter((name) => !LEFT_OUT.has(name)).map((name) => [name, head + fs.readFileSync(path.join(folder, name), "utf8")]),
  );
  if (process.argv.includes("--check")) {
    const differ = [...made].filter(([name, text]) => read(name) !== text).map(([name]) => name);
    if (differ.length > 0) {
      console.error(`crates/serve/assets/client is not that of these sources (${differ.join(", ")}): run node scripts/page.mjs`);
      process.exitCode = 1;
    }
  } else {
    fs.mkdirSync(assets, { recursive: true });
    for (const [name, text] of made) fs.writeFileSync(path.join(assets, name), text);
  }
} finally {
  fs.rmSync(folder, { recursive: true, force: true });
}

function read(name) {
  const file = path.join(assets, name);
  return fs.existsSync(file) ? fs.readFileSync(file, "utf8") : undefined;
}
