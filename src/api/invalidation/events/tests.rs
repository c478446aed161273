//! The rows of events, each alone and against the existing routes.

use super::*;
use crate::api::{Dialect, Table};

fn subject() -> Subject {
    let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    Subject {
        repositories: owned(&["/repos/o/r", "/repositories/7"]),
        organizations: owned(&["/orgs/o", "/organizations/3"]),
        teams: owned(&["/orgs/o/teams/t", "/teams/4"]),
        users: owned(&["/users/u"]),
        owners: owned(&["/orgs/o", "/users/o"]),
        territories: owned(&["/repos/o"]),
        made: Vec::new(),
        values: vec![
            ("number", "5".into()),
            ("comment", "9".into()),
            ("sha", "abc".into()),
            ("run", "8".into()),
        ],
    }
}

/// Returns true when an event makes a path stale. A `*` must stand where lookups use one.
fn touches(event: &str, path: &str) -> bool {
    stale_after_event(event, None, &subject()).iter().any(|stale| match stale {
        Invalidation::Exactly(exact) => exact == path,
        Invalidation::Below(head) => path == head || path.starts_with(&format!("{head}/")),
        Invalidation::Everything => true,
    })
}

/// Checks events with paths below a repository that they touch, and with paths that they do not.
fn assert_touched(rows: &[(&str, &[&str], &[&str])]) {
    for (event, touched, kept) in rows {
        for (tails, expected) in [(touched, true), (kept, false)] {
            for head in ["/repos/o/r", "/repositories/7"] {
                for tail in *tails {
                    assert_eq!(
                        touches(event, &format!("{head}{tail}")),
                        expected,
                        "{event} and {head}{tail}"
                    );
                }
            }
        }
        assert!(*event == "repository" || !touches(event, "/repos/o/other/issues"), "{event}");
    }
}

#[test]
fn a_git_event_touches_the_views_of_git() {
    assert_touched(&[
        (
            "push",
            &[
                "",
                "/commits",
                "/commits/main",
                "/branches",
                "/contents/a/b",
                "/git/trees/main",
                "/compare/a...b",
                "/tags",
                "/readme",
            ],
            &["/issues", "/labels", "/releases"],
        ),
        ("create", &["/branches", "/tags", "/git/refs"], &["/issues"]),
        ("delete", &["/branches", "/tags", "/git/refs"], &["/issues"]),
        (
            "check_run",
            &["/check-runs/1", "/commits/abc/check-runs", "/commits/*/check-runs", "/actions/runs"],
            &["/commits", "/issues"],
        ),
        (
            "status",
            &["/statuses/abc", "/commits/*/status", "/pulls/5"],
            &["/commits", "/statuses/def", "/issues"],
        ),
        (
            "workflow_run",
            &["/actions/runs", "/actions/runs/8/jobs", "/actions/artifacts"],
            &["/actions/runs/9", "/actions/secrets"],
        ),
        (
            "release",
            &["/releases", "/releases/latest", "/releases/5/assets", "/tags"],
            &["/issues", "/branches"],
        ),
        ("fork", &["/forks", ""], &["/issues", "/stargazers"]),
    ]);
}

#[test]
fn an_issue_event_touches_the_views_of_the_issue() {
    assert_touched(&[
        (
            "issues",
            &[
                "",
                "/issues",
                "/issues/5",
                "/issues/5/events",
                "/issues/5/labels",
                "/issues/*/timeline",
                "/milestones/1",
                "/pulls/5",
            ],
            &["/issues/6", "/commits", "/labels"],
        ),
        (
            "issue_comment",
            &[
                "/issues/5/comments",
                "/issues/comments",
                "/issues/comments/9",
                "/issues/5",
                "/pulls/5",
            ],
            &["/issues/6/comments", "/issues/comments/8"],
        ),
        ("label", &["/labels", "/labels/bug", "/issues", "/issues/6"], &["/commits", "/releases"]),
        ("label.created", &["/labels", "/labels/bug"], &["/issues", ""]),
        ("issues.labeled", &["/labels/bug", "/issues/5", "/issues"], &["/issues/6"]),
        ("milestone", &["/milestones/1", "/issues"], &["/commits"]),
    ]);
}

#[test]
fn a_pull_event_touches_the_views_of_the_pull_request() {
    assert_touched(&[
        (
            "pull_request",
            &[
                "/pulls",
                "/pulls/5",
                "/pulls/5/files",
                "/pulls/5/commits",
                "/issues/5",
                "/issues",
                "/commits/*/pulls",
            ],
            &["/pulls/6", "/contents", "/labels"],
        ),
        (
            "pull_request_review",
            &["/pulls/5/reviews", "/pulls/5", "/pulls", "/issues/5/timeline"],
            &["/pulls/6/reviews", "/commits"],
        ),
        (
            "pull_request_review_comment",
            &["/pulls/5/comments", "/pulls/comments"],
            &["/pulls/6/comments", "/issues/comments"],
        ),
        ("pull_request.labeled", &["/labels/bug", "/pulls/5", "/issues/5"], &["/issues/6"]),
    ]);
}

#[test]
fn a_repository_event_touches_the_views_of_the_repository() {
    assert_touched(&[
        ("star", &["/stargazers", ""], &["/issues", "/forks"]),
        ("member", &["/collaborators", "/collaborators/u"], &["/issues"]),
        ("repository", &["", "/issues", "/anything"], &[]),
    ]);
}

#[test]
fn events_of_organizations_touch_their_people_and_teams() {
    for (event, path, expected) in [
        ("membership", "/orgs/o/members/u", true),
        ("membership", "/teams/4/members", true),
        ("membership", "/users/u/orgs", true),
        ("membership", "/repos/o/r/issues", false),
        ("team", "/orgs/o/teams", true),
        ("team", "/orgs/o/properties/schema", false),
        ("organization", "/repos/o/r/issues", true),
        ("organization", "/repos/p/r/issues", false),
        ("custom_property", "/orgs/o/properties/schema", true),
        ("custom_property", "/repos/o/*/properties/values", true),
        ("custom_property", "/repositories/*/properties/values", true),
        ("installation", "/repos/o/r/issues", true),
        ("installation", "/installation/repositories", true),
        ("installation", "/repos/p/r", false),
        ("ping", "/repos/o/r", false),
    ] {
        assert_eq!(touches(event, path), expected, "{event} and {path}");
    }
}

#[test]
fn every_row_is_unique_and_changes_an_existing_route() {
    let table = Table::embedded(Dialect::Service);
    for (event, _, groups) in rows() {
        assert_eq!(rows().filter(|(name, _, _)| *name == event).count(), 1, "{event}");
        for pattern in groups.iter().copied().flatten() {
            let exists = table
                .endpoints()
                .iter()
                .filter(|endpoint| endpoint.method == http::Method::GET)
                .any(|endpoint| may_match(pattern, &endpoint.template));
            assert!(exists, "no route is like {pattern} of {event}");
        }
    }
}

#[test]
fn each_route_names_the_events_that_change_it() {
    let events = |template| events_of(template).map(|(event, _)| event).collect::<Vec<_>>();
    assert_eq!(
        events("/repos/{owner}/{repo}/labels"),
        ["issues", "label", "public", "pull_request", "repository"]
    );
    assert!(events("/repos/{owner}/{repo}/issues").contains(&"issues"));
    assert!(!events("/repos/{owner}/{repo}/issues").contains(&"push"));
    assert_eq!(events("/emojis"), Vec::<&str>::new(), "no event tells of them");
    assert_eq!(
        events("/orgs/{org}/properties/schema"),
        ["custom_property", "custom_property_values", "organization"]
    );
    let of_organizations = |template| {
        events_of(template)
            .filter(|(_, of_organization)| *of_organization)
            .map(|(event, _)| event)
            .collect()
    };
    let organization_events: Vec<_> = of_organizations("/repos/{owner}/{repo}/properties/values");
    assert_eq!(organization_events, ["custom_property"]);
}
