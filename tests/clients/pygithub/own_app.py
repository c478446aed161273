"""PyGithub's integration behind the gateway.

The gateway's key is a header of each request, and the app's own credentials go through. The input
is {"base_url", "key", "arguments"} on standard input. The caller judges the observations.
"""

import json
import sys

import github
import requests

PLAN = json.load(sys.stdin)
GIVEN = PLAN["arguments"]

send = requests.Session.request


def send_with_key(session, method, url, **options):
    options["headers"] = {**(options.get("headers") or {}), "x-weir-key": PLAN["key"]}
    return send(session, method, url, **options)


# PyGithub has no setting for further headers, and sends each verb by the session's own method.
requests.Session.request = send_with_key

auth = github.Auth.AppAuth(GIVEN["app_id"], GIVEN["private_key"])
integration = github.GithubIntegration(auth=auth, base_url=PLAN["base_url"], seconds_between_writes=0)
app = integration.get_app()
hub = integration.get_github_for_installation(GIVEN["installation_id"])
repositories = list(integration.get_app_installation(GIVEN["installation_id"]).get_repos())
repository = hub.get_repo(f"{GIVEN['owner']}/{GIVEN['repo']}")
created = repository.create_issue(GIVEN["title"])
read = repository.get_issue(created.number)
print(
    json.dumps(
        {
            "app": app.slug,
            "repositories": len(repositories) > 0,
            "title": read.title,
            "author": read.user.login,
        }
    )
)
