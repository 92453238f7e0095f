#!/usr/bin/env node
// `npx budao`: runs the program of the platform package, with our arguments, streams, signals and exit code.

import { spawn } from "node:child_process";
import os from "node:os";
import { fileURLToPath } from "node:url";
import { findProgram } from "../dist/program.js";

let program;
try {
  program = findProgram(fileURLToPath(import.meta.url));
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends its signals to both of us; the program decides what they mean.
for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`error: cannot start ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + (os.constants.signals[signal] ?? 0)));
