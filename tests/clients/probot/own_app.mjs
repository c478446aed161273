// A Probot app behind the gateway: the gateway's key is a header of each request, and the app's own
// credentials go through.
//
// The input is {"base_url", "key", "arguments"} on standard input. The caller judges the
// observations.

import { text } from "node:stream/consumers";
import { Probot, ProbotOctokit } from "probot";

const { base_url, key, arguments: given } = JSON.parse(await text(process.stdin));

const withKey = (octokit) => {
  octokit.hook.before("request", (options) => {
    options.headers["x-weir-key"] = key;
  });
};
const probot = new Probot({
  appId: given.app_id,
  privateKey: given.private_key,
  logLevel: "fatal",
  Octokit: ProbotOctokit.plugin(withKey).defaults({ baseUrl: base_url }),
});

const app = await probot.auth();
const { data: self } = await app.rest.apps.getAuthenticated();
const octokit = await probot.auth(given.installation_id);
const repositories = await octokit.paginate(octokit.rest.apps.listReposAccessibleToInstallation);
const { owner, repo, title } = given;
const { data: created } = await octokit.rest.issues.create({ owner, repo, title });
const { data: read } = await octokit.request(created.url);
console.log(
  JSON.stringify({
    app: self.slug,
    repositories: repositories.length > 0,
    title: read.title,
    author: read.user.login,
  }),
);
