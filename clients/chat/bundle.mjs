// Bundles the page into one script. `budao/front-end` comes from the sources beside this folder; a page of yours takes it from
// the package `budao`.

import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));

/** Puts the page into a folder. `esbuild` is the bundler; `nodePaths` are further places for packages. */
export async function bundle(esbuild, folder, nodePaths = []) {
  fs.mkdirSync(folder, { recursive: true });
  for (const name of ["index.html", "chat.css"]) fs.copyFileSync(path.join(here, name), path.join(folder, name));
  await esbuild.build({
    entryPoints: [path.join(here, "chat.jsx")],
    outfile: path.join(folder, "chat.js"),
    bundle: true,
    format: "esm",
    jsx: "automatic",
    minify: true,
    define: { "process.env.NODE_ENV": '"production"' },
    alias: { "budao/front-end": path.join(here, "../typescript/src/front_end.ts") },
    nodePaths,
    logLevel: "warning",
  });
}
