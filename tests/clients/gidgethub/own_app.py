"""An app of gidgethub behind the gateway.

The gateway's key is a header of each request, and the app's own credentials go through. The input
is {"base_url", "key", "arguments"} on standard input. The caller judges the observations.
"""

import asyncio
import json
import sys

import httpx2
from gidgethub import apps
from gidgethub.httpx import GitHubAPI

PLAN = json.load(sys.stdin)
GIVEN = PLAN["arguments"]


async def main():
    async with httpx2.AsyncClient(headers={"x-weir-key": PLAN["key"]}) as client:
        hub = GitHubAPI(client, "weir-clients", base_url=PLAN["base_url"])
        jwt = apps.get_jwt(app_id=str(GIVEN["app_id"]), private_key=GIVEN["private_key"])
        app = await hub.getitem("/app", jwt=jwt)
        minted = await apps.get_installation_access_token(
            hub,
            installation_id=str(GIVEN["installation_id"]),
            app_id=str(GIVEN["app_id"]),
            private_key=GIVEN["private_key"],
        )
        token = minted["token"]
        pages = hub.getiter("/installation/repositories", oauth_token=token, iterable_key="repositories")
        repositories = [repository["name"] async for repository in pages]
        path = f"/repos/{GIVEN['owner']}/{GIVEN['repo']}/issues"
        created = await hub.post(path, data={"title": GIVEN["title"]}, oauth_token=token)
        read = await hub.getitem(created["url"], oauth_token=token)
        return {
            "app": app["slug"],
            "repositories": len(repositories) > 0,
            "title": read["title"],
            "author": read["user"]["login"],
        }


print(json.dumps(asyncio.run(main())))
