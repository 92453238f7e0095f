// The packages of others that tests use, from where `cargo xtask peers web` put them.

import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";

const folder = process.env.BUDAO_PEERS || path.join(os.homedir(), ".cache/budao/peers");

/** A package of the peer `web`. */
export function peer(name) {
  return createRequire(path.join(folder, "web", "package.json"))(name);
}
