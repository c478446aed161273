//! Invalidation of other stored responses by writes and events: below the written path, at its
//! other addresses, and on lists that gain an entry. Each response here has a lifetime of an hour.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::support::{Reply, Setup, World, config};

const REPOSITORY: &str = "/repos/acme/widgets";
const RENAMED: &str = "/repos/acme/renamed";
const RULES: [&str; 7] = [
    "/repos/{owner}/{repo}",
    "/repos/{owner}/{repo}/issues/{issue_number}",
    "/repositories/{id}",
    "/repos/{owner}/{repo}/labels",
    "/orgs/{org}",
    "/orgs/{org}/hooks/{hook_id}/config",
    "/orgs/{org}/teams/{team_slug}/repos",
];

async fn world() -> World {
    let rules: String = RULES.map(|route| config::cache_ttl(route, "1h")).concat();
    let world = Setup::new().manual_clock().unspaced_writes().config(&rules).start().await;
    // Some of the stored responses are older than a change may be.
    world.advance_both(Duration::from_mins(1));
    world
}

async fn stored(world: &World, path: &str, status: u16) -> Reply {
    world.get(path).await.assert_status(status);
    let again = world.get(path).await;
    assert_eq!((again.status.as_u16(), again.cache_status()), (status, "weir; hit"), "{path}");
    again
}

async fn writes(world: &World, method: Method, path: &str, body: &Value) {
    let answer =
        world.send(method, path, &[("content-type", "application/json")], &body.to_string()).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

#[tokio::test]
async fn a_renamed_repository_is_found_by_its_new_name_at_once() {
    for by_number in [false, true] {
        let world = world().await;
        let id = stored(&world, REPOSITORY, 200).await.json()["id"].clone();
        stored(&world, RENAMED, 404).await;
        stored(&world, &format!("{RENAMED}/labels"), 404).await;
        let path = if by_number { format!("/repositories/{id}") } else { REPOSITORY.to_owned() };
        writes(&world, Method::PATCH, &path, &json!({ "name": "renamed" })).await;
        for path in [RENAMED, &format!("{RENAMED}/labels")] {
            world.get(path).await.assert_status(200);
        }
        assert_eq!(
            world.get(REPOSITORY).await.header("x-from-cache"),
            None,
            "the old name is asked for as well"
        );
    }
}

#[tokio::test]
async fn a_write_invalidates_what_lies_below_its_path() {
    let world = world().await;
    let hook = json!({ "name": "web", "config": { "url": "http://127.0.0.1:9/", "content_type": "json" } });
    let id = world.ask_emulator(Method::POST, "/orgs/acme/hooks", &hook)["id"].clone();
    let (hook, config) =
        (format!("/orgs/acme/hooks/{id}"), format!("/orgs/acme/hooks/{id}/config"));
    stored(&world, &config, 200).await;
    let other = json!({ "config": { "url": "http://127.0.0.1:9/other", "content_type": "json" } });
    writes(&world, Method::PATCH, &hook, &other).await;
    assert_eq!(world.get(&config).await.json()["url"], "http://127.0.0.1:9/other");
    world.send(Method::DELETE, &hook, &[], "").await.assert_status(204);
    world.get(&config).await.assert_status(404);
}

#[tokio::test]
async fn a_label_created_through_an_issue_shows_at_once() {
    let world = world().await;
    let labels = format!("{REPOSITORY}/labels?per_page=100");
    let writes_of = [
        (
            Method::POST,
            format!("{REPOSITORY}/issues"),
            json!({ "title": "It rattles", "labels": ["one"] }),
        ),
        (Method::PATCH, format!("{REPOSITORY}/issues/3"), json!({ "labels": ["two"] })),
        (Method::PUT, format!("{REPOSITORY}/issues/3/labels"), json!({ "labels": ["three"] })),
    ];
    for (method, path, body) in writes_of {
        stored(&world, &labels, 200).await;
        writes(&world, method, &path, &body).await;
        let reply = world.get(&labels).await;
        assert_ne!(reply.cache_status(), "weir; hit", "{path}");
        let name = body["labels"][0].as_str().unwrap();
        assert!(
            reply.json().as_array().unwrap().iter().any(|label| label["name"] == name),
            "{path}: {name}"
        );
        world.advance_both(Duration::from_mins(1));
        world.get(&labels).await.assert_status(200);
    }
}

#[tokio::test]
async fn an_issue_joining_a_milestone_shows_on_the_milestones_issues() {
    let world = world().await;
    let milestone = world.ask_emulator(
        Method::POST,
        &format!("{REPOSITORY}/milestones"),
        &json!({ "title": "next" }),
    )["number"]
        .clone();
    let first = format!("{REPOSITORY}/issues/3");
    world.ask_emulator(Method::PATCH, &first, &json!({ "milestone": milestone }));
    let count = |reply: &Reply| reply.json()["milestone"]["open_issues"].as_u64();
    let before = count(&stored(&world, &first, 200).await).unwrap();
    writes(
        &world,
        Method::POST,
        &format!("{REPOSITORY}/issues"),
        &json!({ "title": "another", "milestone": milestone }),
    )
    .await;
    assert_eq!(count(&world.get(&first).await), Some(before + 1));
}

#[tokio::test]
async fn an_issue_without_a_milestone_leaves_the_others_alone() {
    let world = world().await;
    let other = format!("{REPOSITORY}/issues/4");
    stored(&world, &other, 200).await;
    world.advance_both(Duration::from_mins(1));
    writes(&world, Method::POST, &format!("{REPOSITORY}/issues"), &json!({ "title": "another" }))
        .await;
    world.get(&other).await.assert_hit();
}
