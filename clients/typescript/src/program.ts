// Finds the program `budao` in the package of this platform.

import { createRequire } from "node:module";
import path from "node:path";

/** The path of the program: `BUDAO_BINARY`, else the one in the package of this platform, looked for from the file `from`. */
export function findProgram(from?: string): string {
  const named = process.env["BUDAO_BINARY"];
  if (named !== undefined && named !== "") return named;
  const platform = `@budao/cli-${process.platform}-${process.arch}`;
  // From the program that runs, then from the folder it runs in: one of them has the package installed.
  for (const place of [from, process.argv[1], path.join(process.cwd(), "package.json")]) {
    try {
      if (place !== undefined) return createRequire(path.resolve(place)).resolve(`${platform}/bin/budao`);
    } catch {
      // Not installed there.
    }
  }
  throw new Error(
    `the package ${platform} with the program is not installed: install without --omit=optional on a supported platform, or name the program in BUDAO_BINARY`,
  );
}
