// Measures AJV and zod on the arguments that `tools.rs` measures ours on: CPU time, one JSON line.
//
//     node validate.mjs <folder with node_modules> <corpus file>

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const [folder, file] = process.argv.slice(2);
const require = createRequire(join(folder, "package.json"));
const Ajv = require("ajv").default ?? require("ajv");
const { z } = require("zod");

const { schema, calls } = JSON.parse(readFileSync(file, "utf8"));
const valid = calls[0];
const invalid = structuredClone(valid);
delete invalid.edits[0].path;

// The options of the reference.
const options = { allErrors: true, strict: false };
const ajv = new Ajv(options);
const check = ajv.compile(schema);
const edit = z.object({
  path: z.string(),
  find: z.string(),
  replace: z.string(),
  replace_all: z.boolean().optional(),
});
const zod = z.strictObject({ edits: z.array(edit).min(1) });

function nanos(run) {
  for (let i = 0; i < 2000; i++) run();
  const rounds = [];
  let batch = 1;
  for (;;) {
    const before = process.cpuUsage();
    for (let i = 0; i < batch; i++) run();
    const { user, system } = process.cpuUsage(before);
    if (user + system >= 20_000) rounds.push(((user + system) * 1000) / batch);
    else batch *= 2;
    if (rounds.length === 15) break;
  }
  rounds.sort((a, b) => a - b);
  return rounds[7];
}

let kept;
const numbers = {
  ajv_valid: nanos(() => (kept = check(valid))),
  zod_valid: nanos(() => (kept = zod.safeParse(valid))),
  ajv_invalid: nanos(() => {
    check(invalid);
    kept = ajv.errorsText(check.errors, { separator: "\n" });
  }),
  zod_invalid: nanos(() => (kept = zod.safeParse(invalid).error.message)),
  ajv_build: nanosOnce(() => (kept = new Ajv(options).compile(structuredClone(schema)))),
};

function nanosOnce(run) {
  const rounds = [];
  for (let i = 0; i < 25; i++) {
    const before = process.cpuUsage();
    run();
    const { user, system } = process.cpuUsage(before);
    rounds.push((user + system) * 1000);
  }
  rounds.sort((a, b) => a - b);
  return rounds[12];
}

if (kept === undefined) throw new Error("nothing was measured");
console.log(JSON.stringify(numbers));
