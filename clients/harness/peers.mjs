// The packages of others that tests use, from where `cargo xtask peers` put them.

import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";

const folder = process.env.BUDAO_PEERS || path.join(os.homedir(), ".cache/budao/peers");

/** A package of a peer, of `web` unless another one is named. */
export function peer(name, of = "web") {
  return createRequire(path.join(folder, of, "package.json"))(name);
}

/** Where a file of a peer's package is. */
export function peerFile(name, of) {
  return createRequire(path.join(folder, of, "package.json")).resolve(name);
}
