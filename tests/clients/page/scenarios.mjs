// What a person does on the page. Each scenario returns what the person sees; the tests say what
// that is to be.

const COMMENTS = "/repos/acme/widgets/issues/1/comments";

// Asks the gateway as a client does.
const ask = (plan, method, path, headers = {}, body = undefined) =>
  fetch(plan.gateway + path, {
    method,
    headers: { authorization: `Bearer ${plan.key}`, ...headers },
    body,
  });

// Asks the control plane of the emulator.
const control = async (plan, method, path, body) => {
  const answer = await fetch(`http://${plan.upstream}/_emulator/${path}`, {
    method,
    headers: { "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  return answer.status === 204 ? null : answer.json();
};

// Two writes to one issue: the upstream holds the first, and the second waits for it.
const queueTwoWrites = async (plan) => {
  const match = { method: "POST", path: COMMENTS };
  const gate = await control(plan, "POST", "gates", { match });
  const ids = [];
  for (const body of ["one", "two"]) {
    const json = JSON.stringify({ body });
    const accepted = await ask(plan, "POST", COMMENTS, { prefer: "respond-async" }, json);
    ids.push((await accepted.json()).id);
  }
  return { ids, open: () => control(plan, "DELETE", `gates/${gate.id}`) };
};

const logIn = async (page, plan) => {
  await page.goto(plan.page);
  await page.getByLabel("Admin token").fill(plan.token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Budgets" }).waitFor();
};

const isLive = (page) => page.getByRole("status").filter({ hasText: "Live." }).waitFor();

export const logInAndOut = async (page, plan) => {
  await page.goto(plan.page);
  const focused = await page.getByLabel("Admin token").evaluate((input) => input === document.activeElement);
  await page.getByLabel("Admin token").fill("not the token");
  await page.getByRole("button", { name: "Log in" }).click();
  const problem = await page.getByRole("alert").textContent();
  await logIn(page, plan);
  await isLive(page);
  const cookies = await page.context().cookies();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Admin token").waitFor();
  await page.goto(plan.page);
  const isOut = await page.getByLabel("Admin token").isVisible();
  return { focused, problem, isOut, cookies };
};

export const cancelAndRetry = async (page, plan) => {
  const { ids, open } = await queueTwoWrites(plan);
  await logIn(page, plan);
  await page.getByRole("button", { name: `Cancel write ${ids[1]}` }).click();
  const cancelled = await page.locator(".notice").textContent();
  await page.getByRole("button", { name: `Retry write ${ids[1]}` }).click();
  const retried = await page.locator(".notice").textContent();
  await open();
  // The end of both comes without a reload.
  await page.locator("#writes").filter({ hasText: "2 done" }).waitFor();
  return { id: ids[1], cancelled, retried, buttons: await page.locator("#writes button").count() };
};

export const seeAChange = async (page, plan) => {
  await page.goto(plan.page);
  await isLive(page);
  await ask(plan, "GET", "/repos/acme/widgets/issues");
  await page.locator("#budgets").filter({ hasText: "4,999 of 5,000" }).waitFor();
  const { ids, open } = await queueTwoWrites(plan);
  const button = page.getByRole("button", { name: `Cancel write ${ids[1]}` });
  await button.focus();
  await ask(plan, "GET", "/repos/acme/sprockets/issues");
  // The held write may count already.
  await page.locator("#budgets").filter({ hasText: /4,99[78] of 5,000/ }).waitFor();
  const keepsFocus = await button.evaluate((element) => element === document.activeElement);
  await open();
  await button.waitFor({ state: "detached" });
  const section = await page.evaluate(() => document.activeElement.id);
  return { keepsFocus, section, address: page.url() };
};

export const useTheKeyboard = async (page, plan) => {
  const { ids, open } = await queueTwoWrites(plan);
  await page.goto(plan.page);
  await page.keyboard.type(plan.token);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Budgets" }).waitFor();
  await isLive(page);
  await page.keyboard.press("Tab");
  const first = await page.evaluate(() => document.activeElement.textContent);
  await page.keyboard.press("Enter");
  const section = await page.evaluate(() => document.activeElement.id);
  let presses = 0;
  const outlines = [];
  while (presses < 60) {
    await page.keyboard.press("Tab");
    presses += 1;
    const at = await page.evaluate(() => {
      const { id, tagName } = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      return { id, tagName, outline: `${outlineStyle} ${outlineWidth}` };
    });
    outlines.push(at.outline);
    if (at.id === `cancel-${ids[1]}`) break;
  }
  await page.keyboard.press("Enter");
  const notice = await page.locator(".notice").textContent();
  await open();
  return { first, section, presses, outlines: [...new Set(outlines)], notice, id: ids[1] };
};

export const withoutAScript = async (page, plan) => {
  await ask(plan, "GET", "/repos/acme/widgets/issues");
  const { ids, open } = await queueTwoWrites(plan);
  await logIn(page, plan);
  const tables = await page.getByRole("table").count();
  const budget = await page.getByRole("table", { name: /emptiest budgets/ }).textContent();
  await page.getByRole("button", { name: `Cancel write ${ids[1]}` }).click();
  const notice = await page.locator(".notice").textContent();
  await open();
  await page.getByRole("link", { name: "Refresh" }).click();
  const address = page.url();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Admin token").waitFor();
  return { tables, budget, notice, id: ids[1], address };
};

export const onAPhone = async (page, plan) => {
  await ask(plan, "GET", "/repos/acme/widgets/issues");
  const { ids, open } = await queueTwoWrites(plan);
  await logIn(page, plan);
  await isLive(page);
  const overflow = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  const button = page.getByRole("button", { name: `Cancel write ${ids[1]}` });
  await button.scrollIntoViewIfNeeded();
  const { height } = await button.boundingBox();
  await button.tap();
  const notice = await page.locator(".notice").textContent();
  await open();
  return { overflow, height, notice, id: ids[1] };
};

// Names, roles, and the contrast of each text with the ground behind it.
export const hearAndRead = async (page, plan) => {
  await ask(plan, "GET", "/repos/acme/widgets/issues");
  await ask(plan, "GET", "/repos/acme/missing/issues", { authorization: "Bearer nobody" });
  const { open } = await queueTwoWrites(plan);
  await page.goto(plan.page);
  await isLive(page);
  const roles = {};
  for (const role of ["banner", "main", "navigation", "table", "columnheader", "rowheader"]) {
    roles[role] = await page.getByRole(role).count();
  }
  const nameless = await page.getByRole("table", { name: /^$/ }).count();
  const regions = await page.locator("section").count();
  const named = await page.getByRole("region", { name: "Budgets", exact: true }).count();
  const contrast = await page.evaluate(() => {
    const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
    const light = ([red, green, blue]) => {
      const [r, g, b] = [red, green, blue].map((part) => {
        const share = part / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = parts(getComputedStyle(at).backgroundColor);
        if (colour[3] !== 0) return colour;
      }
      return [255, 255, 255];
    };
    let least = 21;
    let where = "";
    for (const element of document.querySelectorAll("body *")) {
      const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      if (!hasText) continue;
      const pair = [light(parts(getComputedStyle(element).color)), light(ground(element))];
      const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
      if (ratio < least) [least, where] = [ratio, element.outerHTML.slice(0, 100)];
    }
    return { least, where };
  });
  await open();
  return { roles, nameless, regions, named, contrast };
};

// Proves that the driver notices what the policy refuses.
export const bringForeignCode = async (page, plan) => {
  await page.goto(plan.page);
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "document.title = 'taken'";
    document.body.append(script);
    const image = new Image();
    image.src = "https://evil.example/x.png";
    document.body.append(image);
  });
  return { title: await page.title() };
};
