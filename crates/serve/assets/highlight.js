// A light touch of colour for code: comments, strings, numbers and keywords. One scanner for all languages; what it does
// not know stays plain. The result is nodes, never markup.

import { h } from "./kit.js";

/** Longer code is shown plain. */
const CHARS_MAX = 60_000;

const C_LIKE = "break case catch class const continue default delete do else enum export extends false finally for function if import in instanceof interface let new null of return static super switch this throw true try type typeof undefined var void while yield async await";
const WORDS = {
  js: C_LIKE,
  rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
  python: "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield match case",
  go: "break case chan const continue default defer else fallthrough for func go goto if import interface map nil package range return select struct switch true false type var",
  c: "auto bool break case char class const constexpr continue default delete do double else enum extern false float for friend if inline int long namespace new nullptr operator private protected public return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void volatile while",
  java: "abstract boolean break case catch class const continue default do else enum extends final finally for if implements import instanceof int interface long new null package private protected public return static super switch synchronized this throw throws true false try void while var record fun val when object",
  shell: "case do done elif else esac export fi for function if in local return set then until while exit echo cd",
  sql: "add all alter and as asc between by case create delete desc distinct drop else end exists from group having in index inner insert into is join key left like limit not null on or order outer primary references right select set table then union unique update values view when where with",
  data: "true false null yes no on off",
};
const ALIASES = { javascript: "js", ts: "js", typescript: "js", tsx: "js", jsx: "js", mjs: "js", rs: "rust", py: "python", golang: "go", cpp: "c", "c++": "c", h: "c", csharp: "java", cs: "java", kotlin: "java", swift: "js", sh: "shell", bash: "shell", zsh: "shell", console: "shell", psql: "sql", sqlite: "sql", json: "data", jsonc: "data", yaml: "data", yml: "data", toml: "data", ini: "data" };
/** How comments begin. */
const HASH = new Set(["python", "shell", "data"]);

const tables = new Map();

function wordsOf(language) {
  if (!tables.has(language)) tables.set(language, new Set(WORDS[language].split(" ")));
  return tables.get(language);
}

/** The nodes of a piece of code. */
export function highlighted(code, name) {
  if (name === "diff" || name === "patch") return diffLines(code);
  const language = ALIASES[name] ?? name;
  if (WORDS[language] === undefined || code.length > CHARS_MAX) return [code];
  const comment = language === "sql" ? "--[^\\n]*|/\\*[^]*?\\*/" : HASH.has(language) ? "#[^\\n]*" : "//[^\\n]*|/\\*[^]*?\\*/";
  const string = language === "rust" ? '"(?:[^"\\\\]|\\\\[^])*"' : '"(?:[^"\\\\\\n]|\\\\[^])*"|\'(?:[^\'\\\\\\n]|\\\\[^])*\'|`(?:[^`\\\\]|\\\\[^])*`';
  const pattern = new RegExp(`(${comment})|(${string})|(\\b\\d[\\d_.]*(?:[a-z]\\w*)?\\b)|([A-Za-z_]\\w*)`, "g");
  const words = wordsOf(language);
  const nodes = [];
  let at = 0;
  for (const match of code.matchAll(pattern)) {
    const [text, isComment, isString, isNumber, word] = match;
    const known = word !== undefined && words.has(language === "sql" ? word.toLowerCase() : word);
    const kind = isComment !== undefined ? "comment" : isString !== undefined ? "string" : isNumber !== undefined ? "number" : known ? "keyword" : undefined;
    if (kind === undefined) continue;
    nodes.push(code.slice(at, match.index), h("span", { class: `hl-${kind}` }, text));
    at = match.index + text.length;
  }
  return [...nodes, code.slice(at)];
}

/** Is this text a unified diff? */
export function isDiff(text) {
  return /^(diff --git |--- [^\n]+\n\+\+\+ [^\n]+\n@@ )/m.test(text) && /^@@ -\d/m.test(text);
}

/** The lines of a diff: what came, what went, where. */
export function diffLines(text) {
  const lines = text.split("\n");
  return lines.map((line, index) => {
    const kind = /^(\+\+\+|---|diff |index )/.test(line) ? "file" : line.startsWith("@@") ? "place" : line.startsWith("+") ? "came" : line.startsWith("-") ? "went" : undefined;
    const end = index === lines.length - 1 ? "" : "\n";
    return kind === undefined ? line + end : h("span", { class: `diff-${kind}` }, line + end);
  });
}
