// Plays one scenario with Octokit and prints its observations as one line of JSON.
//
// The input is {"base_url", "key", "scenario", "arguments"} on standard input. Octokit gets the
// base address and the key, and keeps its throttling and retry plugins except where a scenario
// says otherwise. The caller judges the observations.

import diagnostics from "node:diagnostics_channel";
import net from "node:net";
import { text } from "node:stream/consumers";
import { Octokit } from "octokit";
import { scenarios as furtherScenarios } from "./scenarios.mjs";

// No scenario takes this long, even with the throttling plugin's pauses between writes.
const DEADLINE_MS = 180_000;

const plan = JSON.parse(await text(process.stdin));
const contacted = watchConnections();
const exchanges = watchExchanges();
const addresses = new Set();
const handled = [];

const octokit = new Octokit({
  baseUrl: plan.base_url,
  auth: plan.key,
  // The plugin requires handlers. These record its verdicts and request no retry, which would start
  // only after the reset.
  throttle: {
    onRateLimit: (retryAfter, options) =>
      void handled.push({ limit: "primary", retry_after: retryAfter, url: options.url }),
    onSecondaryRateLimit: (retryAfter, options) =>
      void handled.push({ limit: "secondary", retry_after: retryAfter, url: options.url }),
  },
});
octokit.hook.after("request", (response) => collectAddresses(response.data));

const scenarios = {
  async get_repository({ owner, repo }) {
    const { data, headers } = await octokit.rest.repos.get({ owner, repo });
    return { ...repositoryFacts(data), remaining: Number(headers["x-ratelimit-remaining"]) };
  },

  async list_issues({ owner, repo, per_page, state }) {
    const pages = [];
    for await (const page of octokit.paginate.iterator(octokit.rest.issues.listForRepo, {
      owner,
      repo,
      per_page,
      state,
    })) {
      pages.push(page.data.map((issue) => issue.number));
    }
    return { numbers: pages.flat(), pages: pages.length };
  },

  async lazy_user({ owner, repo, number }) {
    const { data: issue } = await octokit.rest.issues.get({ owner, repo, issue_number: number });
    const { data: user } = await octokit.request(issue.user.url);
    const { data: comments } = await octokit.request(issue.comments_url);
    return {
      login: issue.user.login,
      name: user.name,
      created_at: user.created_at,
      comments: comments.length,
      said: issue.comments,
    };
  },

  async create_issue({ owner, repo, title, body }) {
    const newest = async () =>
      (await octokit.rest.issues.listForRepo({ owner, repo })).data.map((issue) => issue.number);
    const before = await newest();
    const { data: created } = await octokit.rest.issues.create({ owner, repo, title, body });
    const { data: read } = await octokit.request(created.url);
    return {
      before,
      number: created.number,
      read: { number: read.number, title: read.title, body: read.body },
      after: await newest(),
    };
  },

  async rename_repository({ owner, repo, name, description }) {
    const { data: renamed } = await octokit.rest.repos.update({ owner, repo, name });
    const { data: found, url } = await octokit.rest.repos.get({ owner, repo });
    // The old name yields a 307, after which the method and the body stay the same.
    const { data: described } = await octokit.rest.repos.update({ owner, repo, name, description });
    return {
      renamed: renamed.full_name,
      found: { full_name: found.full_name, id: found.id, at: url },
      described: { full_name: described.full_name, description: described.description },
    };
  },

  async rate_limit() {
    const { data } = await octokit.rest.rateLimit.get();
    const facts = ({ limit, remaining, reset }) => ({
      limit,
      remaining,
      seconds_to_reset: reset - Date.now() / 1000,
    });
    return {
      core: facts(data.resources.core),
      search: facts(data.resources.search),
      rate: facts(data.rate),
    };
  },

  async exhaust({ owner, repo, numbers }) {
    const served = [];
    for (const number of numbers) {
      try {
        const { headers } = await octokit.rest.issues.get({ owner, repo, issue_number: number });
        served.push(Number(headers["x-ratelimit-remaining"]));
      } catch (error) {
        return {
          served,
          refused: { ...failure(error), ...rateFacts(error.response?.headers ?? {}) },
          handled,
        };
      }
    }
    return { served, refused: null, handled };
  },

  async labels({ owner, repo, name, color, new_name, new_color }) {
    const { data: before } = await octokit.rest.issues.listLabelsForRepo({ owner, repo });
    const { data: created } = await octokit.rest.issues.createLabel({ owner, repo, name, color });
    const { data: read } = await octokit.rest.issues.getLabel({ owner, repo, name });
    const { data: changed } = await octokit.rest.issues.updateLabel({
      owner,
      repo,
      name,
      new_name,
      color: new_color,
    });
    const { status } = await octokit.rest.issues.deleteLabel({ owner, repo, name: changed.name });
    const facts = (label) => ({ name: label.name, color: label.color, url: label.url });
    return {
      before: before.map((label) => label.name),
      created: facts(created),
      read: facts(read),
      changed: facts(changed),
      deleted: status,
    };
  },

  async create_file({ owner, repo, path, message, text }) {
    const content = Buffer.from(text).toString("base64");
    const { data } = await octokit.rest.repos.createOrUpdateFileContents({
      owner,
      repo,
      path,
      message,
      content,
    });
    return {
      path: data.content.path,
      sha: data.content.sha,
      url: data.content.url,
      commit: data.commit.sha,
    };
  },

  async archive_link({ owner, repo, ref }) {
    // The scenario does not follow the link, which leaves the gateway.
    const request = { redirect: "manual" };
    const { status, headers } = await octokit.request("GET /repos/{owner}/{repo}/tarball/{ref}", {
      owner,
      repo,
      ref,
      request,
    });
    return { status, location: headers.location };
  },

  async release_assets({ owner, repo, tag, name, label, text, new_name, new_label }) {
    const { data: release } = await octokit.rest.repos.getReleaseByTag({ owner, repo, tag });
    const { data: uploaded } = await octokit.request({
      method: "POST",
      url: release.upload_url,
      headers: { "content-type": "text/plain" },
      name,
      label,
      data: text,
    });
    const { data: assets } = await octokit.request(release.assets_url);
    const { data: asset } = await octokit.request(assets[0].url);
    const { data: changed } = await octokit.request({
      method: "PATCH",
      url: asset.url,
      name: new_name,
      label: new_label,
    });
    const { status } = await octokit.request({ method: "DELETE", url: asset.url });
    const facts = (one) => ({ id: one.id, name: one.name, label: one.label, size: one.size });
    return {
      upload_url: release.upload_url,
      uploaded: facts(uploaded),
      assets: assets.map((one) => one.id),
      asset: facts(asset),
      changed: facts(changed),
      deleted: status,
    };
  },

  async invalid_label({ owner, repo, name, color }) {
    try {
      await octokit.rest.issues.createLabel({ owner, repo, name, color });
      return null;
    } catch (error) {
      return {
        status: error.status,
        message: error.response.data.message,
        errors: error.response.data.errors,
      };
    }
  },

  async render_markdown({ owner, repo, text }) {
    const { data } = await octokit.rest.markdown.render({
      text,
      mode: "gfm",
      context: `${owner}/${repo}`,
    });
    return { html: data };
  },

  async search_issues({ query }) {
    const { data } = await octokit.rest.search.issuesAndPullRequests({ q: query });
    return { total: data.total_count, numbers: data.items.map((issue) => issue.number) };
  },

  async comment_burst({ owner, repo, number, texts }) {
    const octokit = unhurried();
    const ids = [];
    for (const body of texts) {
      const { data } = await octokit.rest.issues.createComment({
        owner,
        repo,
        issue_number: number,
        body,
      });
      ids.push(data.id);
    }
    return { ids };
  },

  async comments_at_once({ owner, repo, comments }) {
    const octokit = unhurried();
    const write = async ({ number, text }) => {
      const { data } = await octokit.rest.issues.createComment({
        owner,
        repo,
        issue_number: number,
        body: text,
      });
      return { id: data.id, text: data.body };
    };
    return { written: await Promise.all(comments.map(write)) };
  },

  async comments_handed_over({ owner, repo, number, texts }) {
    const octokit = unhurried();
    const accepted = [];
    for (const body of texts) {
      const headers = { prefer: "respond-async", "idempotency-key": body };
      const { status, data } = await octokit.rest.issues.createComment({
        owner,
        repo,
        issue_number: number,
        body,
        headers,
      });
      accepted.push({ status, id: data.id });
    }
    const states = [];
    const ids = [];
    for (const { id } of accepted) {
      let write;
      do {
        ({ data: write } = await octokit.request("GET /_weir/writes/{id}", {
          id,
          headers: { prefer: "wait=20" },
        }));
      } while (["queued", "sending"].includes(write.state));
      states.push(write.state);
      ids.push(write.response.body.id);
    }
    return { statuses: accepted.map((one) => one.status), states, ids };
  },

  async root() {
    const { data } = await octokit.rest.meta.root();
    return { rate_limit_url: data.rate_limit_url, user_url: data.user_url };
  },

  async raw_content({ owner, repo, path }) {
    const { data } = await octokit.rest.repos.getContent({
      owner,
      repo,
      path,
      mediaType: { format: "raw" },
    });
    return { text: data };
  },

  async mark_notifications() {
    const { status } = await octokit.rest.activity.markNotificationsAsRead();
    return { status };
  },
};

const overdue = setTimeout(
  () =>
    report({ error: { kind: "Overdue", status: null, message: `no end after ${DEADLINE_MS} ms` } }),
  DEADLINE_MS,
);
try {
  const [scenario, further] = [scenarios[plan.scenario], furtherScenarios[plan.scenario]];
  if (!scenario && !further) throw new Error(`no scenario is called ${plan.scenario}`);
  report({
    values: scenario ? await scenario(plan.arguments) : await further(octokit, plan.arguments),
  });
} catch (error) {
  report({ error: failure(error) });
}
clearTimeout(overdue);

function report(outcome) {
  const seen = {
    values: null,
    error: null,
    ...outcome,
    contacted: [...contacted],
    exchanges,
    addresses: [...addresses],
  };
  // A pipe may take the line slowly; an earlier exit would cut it off.
  process.stdout.write(`${JSON.stringify(seen)}\n`, () => process.exit(0));
}

function failure(error) {
  return { kind: error.name, status: error.status ?? null, message: error.message };
}

// An Octokit without its plugins' pauses and retries, which a gateway makes superfluous.
function unhurried() {
  return new Octokit({
    baseUrl: plan.base_url,
    auth: plan.key,
    throttle: { enabled: false },
    retry: { enabled: false },
  });
}

function repositoryFacts({ id, full_name, url, issues_url, html_url }) {
  return { id, full_name, url, issues_url, html_url };
}

function rateFacts(headers) {
  const seconds = Number(headers["x-ratelimit-reset"]) - Date.now() / 1000;
  return {
    remaining: Number(headers["x-ratelimit-remaining"]),
    seconds_to_reset: seconds,
    retry_after: Number(headers["retry-after"]),
  };
}

// Records every address that this process connects to.
function watchConnections() {
  const seen = new Set();
  const connect = net.Socket.prototype.connect;
  net.Socket.prototype.connect = function (...given) {
    // `net.connect` passes its normalised arguments as one array.
    const first = Array.isArray(given[0]) ? given[0][0] : given[0];
    if (typeof first === "object")
      seen.add(first.path ? `unix:${first.path}` : `${first.host ?? "localhost"}:${first.port}`);
    else
      seen.add(
        typeof first === "string"
          ? `unix:${first}`
          : `${typeof given[1] === "string" ? given[1] : "localhost"}:${first}`,
      );
    return connect.apply(this, given);
  };
  return seen;
}

// Records every exchange of `fetch`, including redirects and retries.
function watchExchanges() {
  const seen = [];
  const open = new WeakMap();
  diagnostics.subscribe("undici:request:create", ({ request }) => {
    const exchange = {
      method: request.method,
      url: `${request.origin}${request.path}`,
      status: null,
      link: null,
      location: null,
    };
    open.set(request, exchange);
    seen.push(exchange);
  });
  diagnostics.subscribe("undici:request:headers", ({ request, response }) => {
    const exchange = open.get(request);
    exchange.status = response.statusCode;
    for (let at = 0; at + 1 < response.headers.length; at += 2) {
      const name = response.headers[at].toString().toLowerCase();
      if (name === "link" || name === "location")
        exchange[name] = response.headers[at + 1].toString();
    }
  });
  return seen;
}

// Collects the addresses in a JSON answer that client libraries follow.
function collectAddresses(value) {
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return;
  for (const [key, inner] of Object.entries(value)) {
    if (
      typeof inner === "string" &&
      (key === "url" || (key.endsWith("_url") && key !== "html_url"))
    )
      addresses.add(inner);
    else collectAddresses(inner);
  }
}
