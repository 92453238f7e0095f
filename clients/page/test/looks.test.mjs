// Views compared with how they looked when somebody last approved them. `looks.json` has a coarse grid of each.
// After a change that is meant, BUDAO_PAGE_LOOKS=approve writes the grids of now; look at `target/page/looks *.png` first.

import assert from "node:assert/strict";
import fs from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { difference, gridOf } from "../../harness/pixels.mjs";
import { onPage, picture, runSession } from "../stage.mjs";
import { SCRIPT, views } from "../views.mjs";

const file = fileURLToPath(new URL("../looks.json", import.meta.url));
const isApproval = process.env.BUDAO_PAGE_LOOKS === "approve";
/** The share of cells that may differ: other fonts, times and lengths. */
const TOLERANCE = 0.04;
/** How views are looked at: language, theme, width. */
const WAYS = [["en", "light", 1280], ["en", "dark", 1280], ["en", "light", 360], ["zh", "light", 1280]];

test("every view looks as it did when it was last approved, in both themes and languages, wide and narrow", async () => {
  const known = JSON.parse(fs.readFileSync(file, "utf8"));
  const [seen, changed] = [{}, []];
  await onPage({ script: SCRIPT, where: "/faults/ERR_RATE_001" }, async (page, { origin }) => {
    const done = await runSession(origin, ["go"], { session_name: "A good one" });
    const failed = await runSession(origin, ["go"], { session_name: "A bad one" });
    const look = async () => gridOf(await page.screenshot({ animations: "disabled", mask: [page.locator("#lanes"), page.locator("#over-time"), page.locator("#recovery")], maskColor: "#888888" }));
    for (const [lang, theme, width] of WAYS) {
      await page.context().addCookies(["lang", "theme"].map((name) => ({ name, value: name === "lang" ? lang : theme, url: origin })));
      await page.setViewportSize({ width, height: 800 });
      for (const [name, address, ready] of views(done, failed)) {
        await page.goto(`${origin}${address}`);
        await page.locator(ready).first().waitFor();
        const key = `${name} ${lang} ${theme} ${width}`;
        seen[key] = await look();
        await picture(page, `looks ${key}`);
        const share = difference(seen[key], known[key] ?? "");
        if (share > TOLERANCE) changed.push(`${key}: ${Math.round(share * 100)} %`);
      }
    }
    // What the comparison is for: a page that lost its style is another page.
    await page.goto(`${origin}/now`);
    await page.locator("#failing li").first().waitFor();
    const whole = await look();
    await page.evaluate(() => [...document.styleSheets].forEach((sheet) => (sheet.disabled = true)));
    assert.ok(difference(whole, await look()) > 2 * TOLERANCE, "a page without style is noticed");
  });
  if (isApproval) fs.writeFileSync(file, `${JSON.stringify(seen, null, 1)}\n`);
  else assert.deepEqual(changed, []);
});
