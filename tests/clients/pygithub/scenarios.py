"""Scenarios of bots beyond issues and repositories, with PyGithub's own functions.

They cover webhooks, notifications, migrations, teams, custom properties, releases, pull requests,
GraphQL, and an app that acts as itself. Each function gets a connection and its arguments, and
returns its observations.
"""

import io

import github
import requests


def logins_of(users):
    return sorted(user.login for user in users)


def until(look, wanted):
    while True:
        seen = look()
        if wanted(seen):
            return seen


def create_webhook(hub, given):
    org = hub.get_organization(given["org"])
    config = {"url": given["url"], "content_type": "json", "secret": given["secret"]}
    hook = org.create_hook("web", config, given["events"], active=True)
    hook.ping()
    _, read = hub.requester.requestJsonAndCheck("GET", f"{hook.url}/config")
    return {
        "id": hook.id,
        "events": hook.events,
        "active": hook.active,
        "secret_shown": hook.config.get("secret"),
        "masked": read["secret"],
    }


def redeliver(hub, given):
    org = hub.get_organization(given["org"])

    def look():
        return list(org.get_hook_deliveries(given["hook_id"]))

    def answered(one):
        return one.event == given["event"] and one.status_code == 200

    first = next(one for one in until(look, lambda seen: any(map(answered, seen))) if answered(one))
    detail = org.get_hook_delivery(given["hook_id"], first.id)
    # PyGithub has no function for redelivery.
    path = f"/orgs/{given['org']}/hooks/{given['hook_id']}/deliveries/{first.id}/attempts"
    status, _, _ = hub.requester.requestJson("POST", path)

    def repeated(one):
        return one.guid == first.guid and one.redelivery and one.status_code == 200

    again = until(look, lambda seen: any(map(repeated, seen)))
    return {
        "action": detail.request.payload["action"],
        "status": status,
        "answered": detail.response.payload,
        "attempts": sum(1 for one in again if one.guid == first.guid),
    }


def notifications(hub, _given):
    me = hub.get_user()

    def unread():
        return list(me.get_notifications())

    before = unread()
    thread = before[0]
    thread.mark_as_read()
    read = me.get_notification(thread.id)
    _, subscription = hub.requester.requestJsonAndCheck(
        "PUT", read.subscription_url, input={"ignored": True}
    )
    one_less = len(unread())
    me.mark_notifications_as_read()
    return {
        "before": len(before),
        "marked": 205,
        "unread": read.unread,
        "ignored": subscription["ignored"],
        "one_less": one_less,
        "marked_all": 205,
        "after": len(unread()),
    }


def migration(hub, given):
    me = hub.get_user()
    begun = me.create_migration(given["repositories"], lock_repositories=False)
    state = begun.state
    until(begun.get_status, lambda seen: seen == "exported")
    done = next(one for one in me.get_migrations() if one.id == begun.id)
    archive = requests.get(begun.get_archive_url(), timeout=30).content
    return {
        "begun": state,
        "repositories": [one.full_name for one in done.repositories],
        # Magic number of gzip (RFC 1952 §2.3.1).
        "is_gzip": archive[:2] == b"\x1f\x8b",
    }


def team_membership(hub, given):
    team = hub.get_organization(given["org"]).get_team_by_slug(given["team_slug"])
    person = hub.get_user(given["username"])

    def members():
        return logins_of(team.get_members())

    before = members()
    team.add_membership(person, role="maintainer")
    added = team.get_team_membership(person)
    during = members()
    team.remove_membership(person)
    return {
        "before": before,
        "added": {"role": added.role, "state": added.state},
        "during": during,
        "removed": 204,
        "after": members(),
    }


def custom_properties(hub, given):
    org = hub.get_organization(given["org"])
    wanted = github.OrganizationCustomProperty.CustomProperty(
        property_name=given["name"],
        value_type="single_select",
        allowed_values=given["allowed_values"],
        description="from a client",
    )
    defined = org.create_custom_property(wanted)
    org.create_custom_property_values([given["repo"]], {given["name"]: given["value"]})
    own = next(
        one for one in org.list_custom_property_values() if one.repository_name == given["repo"]
    )
    return {
        "defined": defined.property_name,
        "allowed": defined.allowed_values,
        "value": own.properties[given["name"]],
    }


def release(hub, given):
    repo = hub.get_repo(f"{given['owner']}/{given['repo']}", lazy=True)
    made = repo.create_git_release(given["tag"], given["tag"], "")
    content = given["text"].encode()
    asset = made.upload_asset_from_memory(
        io.BytesIO(content), len(content), given["name"], "text/plain"
    )
    latest = repo.get_release(given["tag"])
    return {
        "tag": latest.tag_name,
        "assets": [one.name for one in latest.get_assets()],
        "size": asset.size,
    }


def look_around(hub, given):
    repo = hub.get_repo(f"{given['owner']}/{given['repo']}")
    org = hub.get_organization(given["org"])
    branch = repo.get_branch(list(repo.get_branches())[0].name)
    return {
        "login": hub.get_user().login,
        "branch": branch.name,
        "head": branch.commit.sha == repo.get_commits()[0].sha,
        "readme": repo.get_readme().name,
        "pulls": len(list(repo.get_pulls(state="all"))) > 0,
        "members": logins_of(org.get_members()),
        "teams": sorted(team.slug for team in org.get_teams()),
    }


def graphql(hub, given):
    query = """query ($owner: String!, $repo: String!) {
      viewer { login }
      repository(owner: $owner, name: $repo) {
        nameWithOwner issues(first: 5) { totalCount nodes { number title } }
      }
      rateLimit { cost remaining }
    }"""
    _, answer = hub.requester.graphql_query(query, {"owner": given["owner"], "repo": given["repo"]})
    data = answer["data"]
    repository = data["repository"]
    return {
        "login": data["viewer"]["login"],
        "name": repository["nameWithOwner"],
        "issues": len(repository["issues"]["nodes"]),
        "cost": data["rateLimit"]["cost"],
    }


def app(_hub, given):
    auth = github.Auth.AppAuth(given["app_id"], given["private_key"])
    integration = github.GithubIntegration(auth=auth, base_url=given["base_url"])
    installations = list(integration.get_installations())
    repositories = list(installations[0].get_repos())
    _, hook = integration.requester.requestJsonAndCheck("GET", "/app/hook/config")
    return {
        "installations": len(installations),
        "repositories": len(repositories) > 0,
        "has_hook": isinstance(hook["url"], str),
    }


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        create_webhook,
        redeliver,
        notifications,
        migration,
        team_membership,
        custom_properties,
        release,
        look_around,
        graphql,
        app,
    )
}
