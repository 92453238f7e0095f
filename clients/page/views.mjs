// Every view of the page, for tests that go through all of them.

/** What the model says: a table and code, a call that fails, a retry, and then a failure that stays. */
export const SCRIPT = `
order = "requests"
[[step]]
text = '''# Result

| a | b |
| --- | --- |
| 1 | [two](https://example.com) |

\`\`\`rust
let x = 1; // one
\`\`\`

- [x] done
'''
[[step.call]]
tool = "fs_read"
arguments = { file = "x" }
[[step.call]]
tool = "fs_glob"
arguments = { pattern = "*" }
[[step]]
fault = "model_rate_limited"
retry_after_ms = 100
[[step]]
text = "Fine."
[[step]]
fault = "model_authentication"
repeat = "forever"
`;

/** Every view, with what must be there before it is looked at. */
export const views = (done, failed) => [
  ["welcome", "/", "#welcome"],
  ["conversation", `/?session=${done}`, ".entry.end"],
  ["failed", `/?session=${failed}`, "button.retry:not([hidden])"],
  ["now", "/now", "#failing li"],
  ["sessions", "/sessions", "#rows tr"],
  ["session", `/sessions/${done}?at=9`, "#detail h2"],
  ["faults", "/faults?window=1h", "#over-time svg"],
  ["explain", "/faults/ERR_RATE_001", ".explain h1"],
  ["machines", "/machines", "#no-hub:not([hidden])"],
  ["missing", "/nothing", "h1"],
];
