"""Plays one scenario with PyGithub and prints its observations as one line of JSON.

The input is {"base_url", "key", "scenario", "arguments"} on standard input. PyGithub gets the base
address and the key, and otherwise keeps its defaults. The exceptions are the scenarios without
PyGithub's pauses, and the one that must not wait for a reset. The caller judges the observations.
"""

import io
import json
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import github
import requests
import urllib3

import scenarios as further

# No scenario takes this long, even with PyGithub's pauses between requests and between writes.
DEADLINE_SECONDS = 180


class Watch:
    """Records all connections, exchanges and addresses of this process."""

    def __init__(self):
        self.contacted = set()
        self.exchanges = []
        self.addresses = set()
        sys.addaudithook(self.connection)
        self.wrap_exchanges()
        self.wrap_answers()

    def connection(self, event, args):
        if event == "socket.connect":
            address = args[1]
            self.contacted.add(
                f"{address[0]}:{address[1]}" if isinstance(address, tuple) else f"unix:{address}"
            )
        elif event == "socket.getaddrinfo":
            # Name resolution contacts other machines too.
            self.contacted.add(f"{args[0]}:{args[1]}")

    def wrap_exchanges(self):
        connection = urllib3.connection.HTTPConnection
        request, getresponse = connection.request, connection.getresponse

        def watched_request(wire, method, url, *args, **kwargs):
            scheme = "https" if isinstance(wire, urllib3.connection.HTTPSConnection) else "http"
            exchange = {
                "method": method,
                "url": f"{scheme}://{wire.host}:{wire.port}{url}",
                "status": None,
                "link": None,
                "location": None,
            }
            wire.open_exchange = exchange
            self.exchanges.append(exchange)
            return request(wire, method, url, *args, **kwargs)

        def watched_getresponse(wire):
            response = getresponse(wire)
            wire.open_exchange.update(
                status=response.status,
                link=response.headers.get("link"),
                location=response.headers.get("location"),
            )
            return response

        connection.request, connection.getresponse = watched_request, watched_getresponse

    def wrap_answers(self):
        send = requests.Session.send

        def watched_send(session, request, **kwargs):
            response = send(session, request, **kwargs)
            if "json" in response.headers.get("content-type", "") and response.content:
                self.collect_addresses(response.json())
            return response

        requests.Session.send = watched_send

    def collect_addresses(self, value):
        """Collects the addresses in a JSON answer that client libraries follow."""
        if isinstance(value, list):
            for inner in value:
                self.collect_addresses(inner)
        elif isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, str) and (
                    key == "url" or (key.endswith("_url") and key != "html_url")
                ):
                    self.addresses.add(inner)
                else:
                    self.collect_addresses(inner)


def connect(plan, **options):
    return github.Github(base_url=plan["base_url"], auth=github.Auth.Token(plan["key"]), **options)


def full_name(given):
    return f"{given['owner']}/{given['repo']}"


def get_repository(plan, given):
    hub = connect(plan)
    repo = hub.get_repo(full_name(given))
    facts = {
        name: getattr(repo, name) for name in ("id", "full_name", "url", "issues_url", "html_url")
    }
    return {**facts, "remaining": hub.rate_limiting[0]}


def list_issues(plan, given):
    hub = connect(plan, per_page=given["per_page"])
    # The list needs only the repository's address, so the repository itself is not read.
    issues = hub.get_repo(full_name(given), lazy=True).get_issues(
        **({"state": given["state"]} if given.get("state") else {})
    )
    numbers = [issue.number for issue in issues]
    return {"numbers": numbers, "pages": -(-len(numbers) // given["per_page"])}


def lazy_user(plan, given):
    issue = connect(plan).get_repo(full_name(given), lazy=True).get_issue(given["number"])
    # An issue contains only its author's login; PyGithub fetches other fields from the author's
    # `url`.
    name, created_at = issue.user.name, issue.user.created_at
    comments = sum(1 for _ in issue.get_comments())
    return {
        "login": issue.user.login,
        "name": name,
        "created_at": created_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "comments": comments,
        "said": issue.comments,
    }


def create_issue(plan, given):
    repo = connect(plan).get_repo(full_name(given))

    def newest():
        return [issue.number for issue in repo.get_issues().get_page(0)]

    before = newest()
    created = repo.create_issue(given["title"], given["body"])
    read = repo.get_issue(created.number)
    return {
        "before": before,
        "number": created.number,
        "read": {"number": read.number, "title": read.title, "body": read.body},
        "after": newest(),
    }


def rename_repository(plan, given):
    hub = connect(plan)
    repo = hub.get_repo(full_name(given), lazy=True)
    repo.edit(name=given["name"])
    found = hub.get_repo(full_name(given))
    # PyGithub does not follow a 307, so this scenario has no write under the old name.
    return {"renamed": repo.full_name, "found": {"full_name": found.full_name, "id": found.id}}


def unhurried(plan):
    """Connects without PyGithub's pauses and retries, which a gateway makes superfluous.

    The timeout is longer than the windows of the limits.
    """
    return connect(
        plan, seconds_between_requests=None, seconds_between_writes=None, retry=None, timeout=120
    )


def comment_burst(plan, given):
    issue = unhurried(plan).get_repo(full_name(given), lazy=True).get_issue(given["number"])
    return {"ids": [issue.create_comment(text).id for text in given["texts"]]}


def comments_at_once(plan, given):
    comments = given["comments"]
    together = threading.Barrier(len(comments))

    def write(comment):
        # A PyGithub object holds one exchange at a time, so each thread needs its own.
        issue = unhurried(plan).get_repo(full_name(given), lazy=True).get_issue(comment["number"])
        together.wait()
        written = issue.create_comment(comment["text"])
        return {"id": written.id, "text": written.body}

    with ThreadPoolExecutor(len(comments)) as pool:
        return {"written": list(pool.map(write, comments))}


def comments_handed_over(plan, given):
    requester = unhurried(plan).requester
    path = f"/repos/{full_name(given)}/issues/{given['number']}/comments"
    accepted = []
    for text in given["texts"]:
        headers = {"Prefer": "respond-async", "Idempotency-Key": text}
        status, _, body = requester.requestJson("POST", path, input={"body": text}, headers=headers)
        accepted.append((status, json.loads(body)["id"]))
    states, ids = [], []
    for _, name in accepted:
        state = None
        while state in (None, "queued", "sending"):
            _, write = requester.requestJsonAndCheck(
                "GET", f"/_weir/writes/{name}", headers={"Prefer": "wait=20"}
            )
            state = write["state"]
        states.append(state)
        ids.append(write["response"]["body"]["id"])
    return {"statuses": [status for status, _ in accepted], "states": states, "ids": ids}


def rate_limit(plan, _given):
    overview = connect(plan).get_rate_limit()

    def facts(rate):
        return {
            "limit": rate.limit,
            "remaining": rate.remaining,
            "seconds_to_reset": rate.reset.timestamp() - time.time(),
        }

    return {
        "core": facts(overview.resources.core),
        "search": facts(overview.resources.search),
        "rate": facts(overview.rate),
    }


def exhaust(plan, given):
    # PyGithub's retry would wait up to an hour for the reset.
    repo = connect(plan, retry=None).get_repo(full_name(given), lazy=True)
    served = []
    for number in given["numbers"]:
        try:
            issue = repo.get_issue(number)
            # Reading a lazy attribute forces the fetch.
            assert issue.title
            served.append(issue.requester.rate_limiting[0])
        except github.GithubException as error:
            rate = {
                "remaining": int(error.headers["x-ratelimit-remaining"]),
                "seconds_to_reset": int(error.headers["x-ratelimit-reset"]) - time.time(),
                "retry_after": int(error.headers.get("retry-after", 0)),
            }
            return {"served": served, "refused": {**failure(error), **rate}, "handled": []}
    return {"served": served, "refused": None, "handled": []}


def labels(plan, given):
    repo = connect(plan).get_repo(full_name(given), lazy=True)

    def facts(label):
        return {"name": label.name, "color": label.color, "url": label.url}

    before = [label.name for label in repo.get_labels()]
    created = facts(repo.create_label(given["name"], given["color"]))
    label = repo.get_label(given["name"])
    read = facts(label)
    label.edit(given["new_name"], given["new_color"])
    changed = facts(label)
    label.delete()
    # PyGithub raises unless the label was deleted.
    return {"before": before, "created": created, "read": read, "changed": changed, "deleted": 204}


def create_file(plan, given):
    repo = connect(plan).get_repo(full_name(given), lazy=True)
    made = repo.create_file(given["path"], given["message"], given["text"])
    return {
        "path": made["content"].path,
        "sha": made["content"].sha,
        "url": made["content"].url,
        "commit": made["commit"].sha,
    }


def archive_link(plan, given):
    # The scenario does not follow the link, which leaves the gateway.
    repo = connect(plan).get_repo(full_name(given), lazy=True)
    return {"status": 302, "location": repo.get_archive_link("tarball", given["ref"])}


def release_assets(plan, given):
    release = connect(plan).get_repo(full_name(given), lazy=True).get_release(given["tag"])

    def facts(one):
        return {"id": one.id, "name": one.name, "label": one.label, "size": one.size}

    content = given["text"].encode()
    uploaded = facts(
        release.upload_asset_from_memory(
            io.BytesIO(content), len(content), given["name"], "text/plain", given["label"]
        )
    )
    assets = list(release.get_assets())
    asset = facts(assets[0])
    changed = assets[0].update_asset(given["new_name"], given["new_label"])
    changed.delete_asset()
    return {
        "upload_url": release.upload_url,
        "uploaded": uploaded,
        "assets": [one.id for one in assets],
        "asset": asset,
        "changed": facts(changed),
        "deleted": 204,
    }


def invalid_label(plan, given):
    try:
        connect(plan).get_repo(full_name(given), lazy=True).create_label(
            given["name"], given["color"]
        )
    except github.GithubException as error:
        return {
            "status": error.status,
            "message": error.data["message"],
            "errors": error.data["errors"],
        }
    return None


def render_markdown(plan, given):
    hub = connect(plan)
    return {"html": hub.render_markdown(given["text"], hub.get_repo(full_name(given), lazy=True))}


def search_issues(plan, given):
    found = connect(plan).search_issues(given["query"])
    # The page comes first: it contains the total, which would otherwise cost another request.
    numbers = [issue.number for issue in found.get_page(0)]
    return {"total": found.totalCount, "numbers": numbers}


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        get_repository,
        list_issues,
        lazy_user,
        create_issue,
        rename_repository,
        comment_burst,
        comments_at_once,
        comments_handed_over,
        rate_limit,
        exhaust,
        labels,
        create_file,
        archive_link,
        release_assets,
        invalid_label,
        render_markdown,
        search_issues,
    )
}


def failure(error):
    return {
        "kind": type(error).__name__,
        "status": getattr(error, "status", None),
        "message": str(error),
    }


def overdue(_signal, _frame):
    raise TimeoutError(f"no end after {DEADLINE_SECONDS} s")


def main():
    plan = json.load(sys.stdin)
    watch = Watch()
    signal.signal(signal.SIGALRM, overdue)
    signal.alarm(DEADLINE_SECONDS)
    outcome = {"values": None, "error": None}
    try:
        name, given = plan["scenario"], plan["arguments"]
        if name in SCENARIOS:
            outcome["values"] = SCENARIOS[name](plan, given)
        else:
            outcome["values"] = further.SCENARIOS[name](connect(plan), given)
    except Exception as error:  # The caller reports every failure.
        outcome["error"] = failure(error)
    seen = {
        "contacted": sorted(watch.contacted),
        "exchanges": watch.exchanges,
        "addresses": sorted(watch.addresses),
    }
    print(json.dumps({**outcome, **seen}))


main()
