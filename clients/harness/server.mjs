// The real server for tests in JavaScript: `budao serve` on a free port, in a folder of its own.

import { spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const built = fileURLToPath(new URL("../../target/debug/budao", import.meta.url));

/** A token that tests sign in with. */
export const TOKEN = "a-token-for-tests";

/** Starts a server. `model` is a model's name, or the text of a script; `origins` may connect from a browser; `port` is any free one unless it is given; `token` signs in; `args` are more arguments, `env` more variables. */
export async function startServer({ model = "demo:fast", script, origins = [], home, port: wanted, token = TOKEN, args: more = [], env = {} } = {}) {
  const folder = home ?? fs.mkdtempSync(path.join(os.tmpdir(), "budao-serve-"));
  if (script !== undefined) {
    fs.writeFileSync(path.join(folder, "script.toml"), script);
    model = "script:script.toml";
  }
  const args = ["serve", "--listen", `127.0.0.1:${wanted ?? (await freePort())}`, "--journal", "journal.db", "--token", token, "--model", model];
  for (const origin of origins) args.push("--origin", origin);
  args.push(...more);
  const child = spawn(process.env.BUDAO_BIN || built, args, {
    cwd: folder,
    env: { PATH: process.env.PATH, HOME: folder, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const port = await portOf(child);
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const kill = async (signal) => {
    child.kill(signal);
    await ended;
  };
  return {
    port,
    home: folder,
    url: `ws://127.0.0.1:${port}/ws`,
    /** As `kill -9`: nothing is said, the folder stays. */
    crash: () => kill("SIGKILL"),
    stop: async () => {
      await kill("SIGTERM");
      fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    },
  };
}

// Ports below those that systems give to whoever names none: neither another server nor the end of a connection gets
// such a port while a server that is started again at its address is away. Each process begins at a random one.
const FIRST = 16_000;
const COUNT = 16_000;
let next = Math.floor(Math.random() * COUNT);

/** A port of this machine that nobody listens on. */
export async function freePort() {
  for (let tries = 0; tries < COUNT; tries += 1) {
    next = (next + 1) % COUNT;
    const port = FIRST + next;
    const probe = net.createServer();
    const isFree = await new Promise((resolve) => {
      probe.once("error", () => resolve(false));
      probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
  throw new Error("no port is free");
}

/** The port in the first line that names the address. */
function portOf(child) {
  return new Promise((resolve, reject) => {
    let said = "";
    child.once("exit", (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
    child.stdout.on("data", (bytes) => {
      said += bytes;
      const found = /127\.0\.0\.1:(\d+)\D/.exec(said);
      if (found !== null) resolve(Number(found[1]));
    });
  });
}
