// The examples do what they say, in a project in which the package is installed.

import assert from "node:assert/strict";
import fs from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeProject } from "../../../harness/project.mjs";

const folder = fileURLToPath(new URL("../../examples/", import.meta.url));
const BUDAO_BINARY = process.env.BUDAO_BIN || fileURLToPath(new URL("../../../../target/debug/budao", import.meta.url));
const shows = {
  typo: ["the model was wrong: ERR_VAL_002", "it calls: stock { unit: 'box', item_number: 'B-1042' }", '"count":3'],
  approval: ["asked: pay 70", "paid 70", "asked: pay 7000", "paid: [ 70 ]"],
  cancel: ["the function was cancelled", "the run was cancelled"],
  killed_worker: ["killing the worker in `index all`", "end: index answered:", "killing the worker in `post parcel`", "told: ERR_TOOL_022"],
};

let project;
before(() => {
  project = makeProject();
});
after(() => project.remove());

for (const [name, texts] of Object.entries(shows)) {
  test(`the example ${name} shows what it says`, async () => {
    project.write(`${name}.mjs`, fs.readFileSync(`${folder}${name}.mjs`, "utf8"));
    const { code, out } = await project.run(`${name}.mjs`, { BUDAO_BINARY, BUDAO__SERVE__WORKERS__GRACE: "1000" });
    assert.equal(code, 0, out);
    for (const text of texts) assert.ok(out.includes(text), `no ${JSON.stringify(text)} in:\n${out}`);
  });
}
