// The package as it is installed: the documented example, both module systems, the types.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { peerFile } from "../../../harness/peers.mjs";
import { makeProject } from "../../../harness/project.mjs";
import { startServer, TOKEN } from "../../../harness/server.mjs";

const page = fs.readFileSync(fileURLToPath(new URL("../../../../docs/clients.md", import.meta.url)), "utf8");
const example = /documented\.test\.mjs runs this -->\n```ts\n([\s\S]*?)```/.exec(page)[1];

let project;
before(() => {
  project = makeProject();
});
after(() => project.remove());

async function runExample(server) {
  const address = example.replace("ws://127.0.0.1:7333/ws", server.url);
  project.write("example.mjs", `const token = process.env.TOKEN;\n${address}`);
  return project.run("example.mjs", { TOKEN });
}

test("the documented example ends with the answer", async () => {
  const server = await startServer({ script: 'order = "history"\n[[step]]\ntext = "All is well."\nrepeat = "forever"\n' });
  const { code, out } = await runExample(server);
  assert.equal(code, 0, out);
  assert.match(out, /agent\.final_answer All is well\./);
  await server.stop();
});

test("the documented example ends when the run fails", async () => {
  const server = await startServer({ script: '[[step]]\nfault = "model_authentication"\nrepeat = "forever"\n' });
  const { code, out } = await runExample(server);
  assert.equal(code, 0, out);
  assert.match(out, /agent\.error/);
  await server.stop();
});

test("both module systems have the same names", async () => {
  project.write("names.mjs", 'import * as all from "budao"; console.log(Object.keys(all).sort().join(" "));');
  project.write("names.cjs", 'console.log(Object.keys(require("budao")).filter((name) => name !== "default").sort().join(" "));');
  const [modules, common] = await Promise.all([project.run("names.mjs"), project.run("names.cjs")]);
  assert.match(modules.out, /Client .*ToolError .*Worker .*serve tool/);
  assert.equal(modules.out, common.out);
});

test("a program of its user is typed in both module systems", () => {
  const program = `
    import { Client, tool, Worker, ToolError, type SessionEvent } from "budao";
    import { z } from "zod";
    const stock = tool({ name: "stock", description: "Counts.", parameters: z.object({ item: z.string() }), run: ({ item }) => item.toUpperCase() });
    const plain = tool<{ n: number }>({ name: "plain", description: "Adds.", parameters: { type: "object" }, run: async ({ n }, { signal }) => (signal.aborted ? 0 : n + 1) });
    async function main(client: Client): Promise<string> {
      new Worker(client, [stock, plain]);
      const session = await client.create();
      session.run("go", { approve: (question) => question.metadata.tool_name === "stock" });
      for await (const event of session.stream("go")) {
        const known: SessionEvent = event;
        if (known.event === "agent.final_answer") return known.content;
      }
      throw new ToolError("no", { advice: "yes" });
    }
    export { main };
  `;
  const tsc = path.join(path.dirname(peerFile("typescript/package.json", "web")), "bin/tsc");
  for (const name of ["typed.mts", "typed.cts"]) {
    project.write(name, program);
    const args = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--lib", "es2022,dom", "--module", "nodenext", "--moduleResolution", "nodenext", "--types", "", name];
    try {
      execFileSync(process.execPath, [tsc, ...args], { cwd: project.folder });
    } catch (error) {
      assert.fail(`${name}: ${error.stdout}`);
    }
  }
});

test("npx says what is missing where no program is installed", async () => {
  const { code, out } = await project.run("node_modules/budao/bin/budao.js");
  assert.equal(code, 1);
  assert.match(out, /@budao\/cli-linux-x64.*BUDAO_BINARY/s);
});

test("npx passes arguments, output and exit code through", async () => {
  const program = process.env.BUDAO_BIN || fileURLToPath(new URL("../../../../target/debug/budao", import.meta.url));
  const { code, out } = await project.run("node_modules/budao/bin/budao.js", { BUDAO_BINARY: program }, ["explain", "ERR_TIMEOUT_01"]);
  assert.equal(code, 2);
  assert.match(out, /ERR_TIMEOUT_001/);
});
