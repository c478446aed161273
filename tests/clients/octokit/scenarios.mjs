// Scenarios of bots beyond issues and repositories, with Octokit's own functions.
//
// They cover webhooks, notifications, migrations, teams, custom properties, releases, pull
// requests, GraphQL, and an app that acts as itself. Each function gets an Octokit and its
// arguments, and returns its observations.

import { App, Octokit } from "octokit";

const loginsOf = (users) => users.map((user) => user.login).sort();

async function until(look, wanted) {
  for (;;) {
    const seen = await look();
    if (wanted(seen)) return seen;
  }
}

export const scenarios = {
  async create_webhook(octokit, { org, url, secret, events }) {
    const config = { url, content_type: "json", secret };
    const { data: hook } = await octokit.rest.orgs.createWebhook({
      org,
      name: "web",
      config,
      events,
      active: true,
    });
    await octokit.rest.orgs.pingWebhook({ org, hook_id: hook.id });
    const { data: read } = await octokit.rest.orgs.getWebhookConfigForOrg({
      org,
      hook_id: hook.id,
    });
    return {
      id: hook.id,
      events: hook.events,
      active: hook.active,
      secret_shown: hook.config.secret ?? null,
      masked: read.secret,
    };
  },

  async redeliver(octokit, { org, hook_id, event }) {
    const list = async () => (await octokit.rest.orgs.listWebhookDeliveries({ org, hook_id })).data;
    const deliveries = await until(list, (seen) =>
      seen.some((one) => one.event === event && one.status_code === 200),
    );
    const first = deliveries.find((one) => one.event === event);
    const { data: detail } = await octokit.rest.orgs.getWebhookDelivery({
      org,
      hook_id,
      delivery_id: first.id,
    });
    const { status } = await octokit.rest.orgs.redeliverWebhookDelivery({
      org,
      hook_id,
      delivery_id: first.id,
    });
    const again = await until(list, (seen) =>
      seen.some((one) => one.guid === first.guid && one.redelivery && one.status_code === 200),
    );
    return {
      action: detail.request.payload.action,
      status,
      answered: detail.response.payload,
      attempts: again.filter((one) => one.guid === first.guid).length,
    };
  },

  async notifications(octokit) {
    const unread = async () =>
      octokit.paginate(octokit.rest.activity.listNotificationsForAuthenticatedUser, {
        per_page: 50,
      });
    const before = await unread();
    const thread_id = Number(before[0].id);
    const { status } = await octokit.rest.activity.markThreadAsRead({ thread_id });
    const { data: thread } = await octokit.rest.activity.getThread({ thread_id });
    const { data: subscription } = await octokit.rest.activity.setThreadSubscription({
      thread_id,
      ignored: true,
    });
    const one_less = (await unread()).length;
    const all = await octokit.rest.activity.markNotificationsAsRead();
    return {
      before: before.length,
      marked: status,
      unread: thread.unread,
      ignored: subscription.ignored,
      one_less,
      marked_all: all.status,
      after: (await unread()).length,
    };
  },

  async migration(octokit, { repositories }) {
    const { data: begun } = await octokit.rest.migrations.startForAuthenticatedUser({
      repositories,
      lock_repositories: false,
    });
    const look = async () =>
      (await octokit.rest.migrations.getStatusForAuthenticatedUser({ migration_id: begun.id }))
        .data;
    const done = await until(look, (seen) => seen.state === "exported");
    const archive = await octokit.request("GET /user/migrations/{migration_id}/archive", {
      migration_id: begun.id,
    });
    const bytes = Buffer.from(archive.data);
    return {
      begun: begun.state,
      repositories: done.repositories.map((one) => one.full_name),
      // Magic number of gzip (RFC 1952 §2.3.1).
      is_gzip: bytes[0] === 0x1f && bytes[1] === 0x8b,
    };
  },

  async team_membership(octokit, { org, team_slug, username }) {
    const members = async () =>
      loginsOf((await octokit.rest.teams.listMembersInOrg({ org, team_slug })).data);
    const before = await members();
    const { data: added } = await octokit.rest.teams.addOrUpdateMembershipForUserInOrg({
      org,
      team_slug,
      username,
      role: "maintainer",
    });
    const during = await members();
    const { status } = await octokit.rest.teams.removeMembershipForUserInOrg({
      org,
      team_slug,
      username,
    });
    return {
      before,
      added: { role: added.role, state: added.state },
      during,
      removed: status,
      after: await members(),
    };
  },

  async custom_properties(octokit, { org, repo, name, allowed_values, value }) {
    const property = { value_type: "single_select", allowed_values, description: "from a client" };
    const define = "PUT /orgs/{org}/properties/schema/{custom_property_name}";
    const { data: defined } = await octokit.request(define, {
      org,
      custom_property_name: name,
      ...property,
    });
    await octokit.request("PATCH /orgs/{org}/properties/values", {
      org,
      repository_names: [repo],
      properties: [{ property_name: name, value }],
    });
    const values = await octokit.paginate("GET /orgs/{org}/properties/values", { org });
    const own = values.find((one) => one.repository_name === repo);
    return {
      defined: defined.property_name,
      allowed: defined.allowed_values,
      value: own.properties.find((one) => one.property_name === name).value,
    };
  },

  async release(octokit, { owner, repo, tag, name, text }) {
    const { data: release } = await octokit.rest.repos.createRelease({
      owner,
      repo,
      tag_name: tag,
      name: tag,
    });
    const upload = {
      method: "POST",
      url: release.upload_url,
      headers: { "content-type": "text/plain" },
      name,
      data: text,
    };
    const { data: asset } = await octokit.request(upload);
    const { data: latest } = await octokit.rest.repos.getReleaseByTag({ owner, repo, tag });
    return { tag: latest.tag_name, assets: latest.assets.map((one) => one.name), size: asset.size };
  },

  async look_around(octokit, { owner, repo, org }) {
    const { data: me } = await octokit.rest.users.getAuthenticated();
    const branches = await octokit.paginate(octokit.rest.repos.listBranches, { owner, repo });
    const { data: branch } = await octokit.rest.repos.getBranch({
      owner,
      repo,
      branch: branches[0].name,
    });
    const { data: commits } = await octokit.rest.repos.listCommits({ owner, repo });
    const { data: readme } = await octokit.rest.repos.getReadme({ owner, repo });
    const { data: pulls } = await octokit.rest.pulls.list({ owner, repo, state: "all" });
    const members = await octokit.paginate(octokit.rest.orgs.listMembers, { org });
    const teams = await octokit.paginate(octokit.rest.teams.list, { org });
    return {
      login: me.login,
      branch: branch.name,
      head: branch.commit.sha === commits[0].sha,
      readme: readme.name,
      pulls: pulls.length > 0,
      members: loginsOf(members),
      teams: teams.map((team) => team.slug).sort(),
    };
  },

  async graphql(octokit, { owner, repo }) {
    const query = `query ($owner: String!, $repo: String!) {
      viewer { login }
      repository(owner: $owner, name: $repo) {
        nameWithOwner issues(first: 5) { totalCount nodes { number title } }
      }
      rateLimit { cost remaining }
    }`;
    const { viewer, repository, rateLimit } = await octokit.graphql(query, { owner, repo });
    return {
      login: viewer.login,
      name: repository.nameWithOwner,
      issues: repository.issues.nodes.length,
      cost: rateLimit.cost,
    };
  },

  async app(_octokit, { app_id, private_key, base_url }) {
    const app = new App({
      appId: app_id,
      privateKey: private_key,
      Octokit: Octokit.defaults({ baseUrl: base_url }),
    });
    const installations = [];
    for await (const { installation } of app.eachInstallation.iterator())
      installations.push(installation.id);
    const installed = await app.getInstallationOctokit(installations[0]);
    const repositories = await installed.paginate(
      installed.rest.apps.listReposAccessibleToInstallation,
    );
    const { data: hook } = await app.octokit.rest.apps.getWebhookConfigForApp();
    return {
      installations: installations.length,
      repositories: repositories.length > 0,
      has_hook: typeof hook.url === "string",
    };
  },
};
