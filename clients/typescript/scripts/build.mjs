// Builds dist: ES modules with their types, and the same as CommonJS in dist/cjs. The compiler is that of the peer `web`.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const home = fileURLToPath(new URL("..", import.meta.url));
const peers = process.env.BUDAO_PEERS || path.join(os.homedir(), ".cache/budao/peers");
const tsc = path.join(peers, "web/node_modules/typescript/bin/tsc");
const run = (...args) => execFileSync(process.execPath, [tsc, "-p", home, ...args], { stdio: "inherit" });

fs.rmSync(path.join(home, "dist"), { recursive: true, force: true });
run();
run("--module", "commonjs", "--verbatimModuleSyntax", "false", "--outDir", path.join(home, "dist/cjs"));
fs.writeFileSync(path.join(home, "dist/cjs/package.json"), '{ "type": "commonjs" }\n');
