// Plays one scenario in a browser, and prints what it returned and what the browser refused. The
// plan is JSON on the standard input.
import { chromium } from "playwright-core";
import * as scenarios from "./scenarios.mjs";

const read = async () => {
  let text = "";
  for await (const piece of process.stdin) text += piece;
  return JSON.parse(text);
};

const plan = await read();
const report = { values: null, error: null, refused: [], contacted: [] };
const browser = await chromium.launch({
  executablePath: plan.browser,
  // A container's root has no other way.
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});
try {
  const context = await browser.newContext(plan.context);
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  page.on("console", (message) => {
    if (/Content.Security.Policy/i.test(message.text())) report.refused.push(message.text());
  });
  page.on("pageerror", (error) => report.refused.push(String(error)));
  // Requests that the policy has refused get no response.
  context.on("response", (response) => {
    const { origin } = new URL(response.url());
    if (!report.contacted.includes(origin)) report.contacted.push(origin);
  });
  report.values = await scenarios[plan.scenario](page, plan);
} catch (error) {
  report.error = String(error.stack ?? error);
} finally {
  await browser.close();
}
process.stdout.write(JSON.stringify(report));
