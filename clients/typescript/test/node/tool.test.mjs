// Functions as tools: what is offered of them, and how arguments are read.

import assert from "node:assert/strict";
import { test } from "node:test";
import { tool, ToolError } from "../../dist/tool.js";
import { peer } from "../../../harness/peers.mjs";

const { z } = peer("zod", "zod");

test("JSON Schema is offered as it is, with flags and times", () => {
  const parameters = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
  const plain = tool({ name: "plain", description: "Adds.", parameters, readOnly: true, confirm: true, deadline: 1500, run: () => 1 });
  assert.deepEqual(plain.offer(), { name: "plain", description: "Adds.", parameters, read_only: true, confirm: true, deadline_ms: 1500 });
});

test("a zod schema becomes JSON Schema that refuses unknown keys", () => {
  const parameters = z.object({ item: z.string().describe("The article number."), count: z.number().int().min(1).optional() });
  const { parameters: schema } = tool({ name: "stock", description: "Counts.", parameters, run: () => 1 }).offer();
  assert.deepEqual(schema.properties.item, { type: "string", description: "The article number." });
  assert.deepEqual([schema.type, schema.required, schema.additionalProperties, schema.$schema], ["object", ["item"], false, undefined]);
});

test("arguments that zod does not accept are an error that names each place", async () => {
  const parameters = z.object({ item: z.string().regex(/^[A-Z]-\d+$/), count: z.number() });
  const stock = tool({ name: "stock", description: "Counts.", parameters, run: () => 1 });
  assert.deepEqual(await stock.parse({ item: "B-1", count: 2 }), { item: "B-1", count: 2 });
  await assert.rejects(stock.parse({ item: "b1", count: "2" }), (error) => {
    assert.ok(error instanceof ToolError);
    assert.match(error.message, /item: .*; count: /);
    assert.equal(error.progress, "not_begun");
    return true;
  });
});

test("a name that cannot be offered, and a schema without JSON Schema, are refused where they are written", () => {
  assert.throws(() => tool({ name: "two words", description: "", parameters: {}, run: () => 1 }), /two words/);
  const old = { "~standard": { validate: (value) => ({ value }) } };
  assert.throws(() => tool({ name: "old", description: "", parameters: old, run: () => 1 }), /zod 4\.2/);
});
