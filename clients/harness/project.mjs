// A project in which the package `budao` is installed, as npm does it, with the libraries that programs use beside it.

import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { peerFile } from "./peers.mjs";

const home = fileURLToPath(new URL("../typescript", import.meta.url));

/** Makes a project. `run(file, env, args)` runs a program in it and gives `{ code, out }`; `start` gives the process. */
export function makeProject() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "budao-project-"));
  const installed = path.join(folder, "node_modules/budao");
  fs.mkdirSync(installed, { recursive: true });
  for (const part of ["package.json", "dist", "bin"]) fs.cpSync(path.join(home, part), path.join(installed, part), { recursive: true });
  for (const [name, of] of [["ws", "web"], ["zod", "zod"]]) {
    fs.symlinkSync(path.dirname(peerFile(`${name}/package.json`, of)), path.join(folder, "node_modules", name));
  }
  const start = (file, env = {}, args = []) =>
    spawn(process.execPath, [path.join(folder, file), ...args], { cwd: folder, env: { PATH: process.env.PATH, HOME: folder, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  return {
    folder,
    write: (name, text) => fs.writeFileSync(path.join(folder, name), text),
    start,
    run: (file, env, args) =>
      new Promise((resolve, reject) => {
        const child = start(file, env, args);
        let out = "";
        for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (out += bytes));
        child.once("error", reject).once("close", (code) => resolve({ code, out }));
      }),
    remove: () => fs.rmSync(folder, { recursive: true, force: true }),
  };
}
