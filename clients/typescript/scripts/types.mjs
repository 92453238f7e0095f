// Makes src/protocol.ts from docs/protocol.schema.json. With `--check` it changes nothing and fails if it would.

import fs from "node:fs";
import { fileURLToPath } from "node:url";

const schemaFile = fileURLToPath(new URL("../../../docs/protocol.schema.json", import.meta.url));
const typesFile = fileURLToPath(new URL("../src/protocol.ts", import.meta.url));

/** The TypeScript file for a schema. Every definition becomes a type of its name; the whole is `Protocol`. */
export function typesOf(schema) {
  const defs = { ...schema.definitions, ...schema.$defs };
  const { $defs, definitions, $schema, $id, title, description, ...whole } = schema;
  const parts = Object.entries(defs).map(([name, def]) => declared(typeName(name), def));
  if (Object.keys(whole).length > 0) parts.push(declared("Protocol", { ...whole, description }));
  const head = "// Made from docs/protocol.schema.json by scripts/types.mjs. Do not edit.\n";
  return [head, ...parts].join("\n");
}

function declared(name, def) {
  return `${comment(def, "")}export type ${name} = ${type(def, "")};\n`;
}

function typeName(name) {
  const words = name.split(/[^A-Za-z0-9]+/).filter((word) => word !== "");
  return words.map((word) => word[0].toUpperCase() + word.slice(1)).join("");
}

function type(def, indent) {
  if (def === true || def === undefined) return "unknown";
  if (def === false) return "never";
  if (def.$ref !== undefined) return typeName(def.$ref.split("/").at(-1));
  if ("const" in def) return JSON.stringify(def.const);
  if (def.enum !== undefined) return union(def.enum.map((value) => JSON.stringify(value)));
  const own = { ...def, oneOf: undefined, anyOf: undefined, allOf: undefined };
  const parts = [];
  const alternatives = def.oneOf ?? def.anyOf;
  if (own.type !== undefined || own.properties !== undefined) parts.push(plain(own, indent));
  if (alternatives !== undefined) parts.push(`(${union(alternatives.map((one) => type(one, indent)))})`);
  for (const part of def.allOf ?? []) parts.push(type(part, indent));
  return parts.length === 0 ? "unknown" : parts.join(" & ");
}

function plain(def, indent) {
  if (Array.isArray(def.type)) return union(def.type.map((one) => plain({ ...def, type: one }, indent)));
  switch (def.type ?? "object") {
    case "string":
      return "string";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    case "null":
      return "null";
    case "array":
      if (def.prefixItems !== undefined) return `[${def.prefixItems.map((one) => type(one, indent)).join(", ")}]`;
      return `(${type(def.items, indent)})[]`;
    default:
      return object(def, indent);
  }
}

function object(def, indent) {
  const inner = `${indent}  `;
  const required = new Set(def.required ?? []);
  const fields = Object.entries(def.properties ?? {}).map(([name, field]) => {
    const key = /^[A-Za-z_]\w*$/.test(name) ? name : JSON.stringify(name);
    const mark = required.has(name) ? "" : "?";
    return `${comment(field, inner)}${inner}${key}${mark}: ${type(field, inner)};\n`;
  });
  const more = def.additionalProperties;
  if (fields.length === 0) return `Record<string, ${more === undefined ? "unknown" : type(more, inner)}>`;
  if (more !== undefined && more !== false) fields.push(`${inner}[more: string]: unknown;\n`);
  return `{\n${fields.join("")}${indent}}`;
}

function union(types) {
  return [...new Set(types)].join(" | ");
}

function comment(def, indent) {
  const text = typeof def === "object" ? def.description : undefined;
  return text === undefined ? "" : `${indent}/** ${text.replaceAll("*/", "* /").replaceAll("\n", " ")} */\n`;
}

const wanted = typesOf(JSON.parse(fs.readFileSync(schemaFile, "utf8")));
if (process.argv.includes("--check")) {
  const found = fs.existsSync(typesFile) ? fs.readFileSync(typesFile, "utf8") : "";
  if (found !== wanted) {
    console.error("src/protocol.ts is not what docs/protocol.schema.json says; run `node scripts/types.mjs`");
    process.exit(1);
  }
} else {
  fs.writeFileSync(typesFile, wanted);
}
