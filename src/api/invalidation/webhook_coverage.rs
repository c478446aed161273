//! Routes fully covered by webhooks: while the webhook is healthy, a stored answer stays valid
//! until an event invalidates it.
//!
//! Each route is listed by hand, because an event about a route proves nothing: most answers also
//! change without an event. Examples are:
//!
//! - whole repositories (settings, counters) and pull requests themselves (the upstream computes
//!   mergeability silently)
//! - git's history and files (a push of many tags causes no event, and names may be tags)
//! - commit comments, runs, checks and deployments (deletions, progress), releases (download
//!   counts)
//! - people, teams and their permissions, keys (last use), secrets, variables, webhooks, traffic,
//!   reactions
//!
//! No event covers the foreign data in these answers: names of people and owners, names of issue
//! types, progress of sub-issues and blockers, counts of reactions (`webhook_ttl` bounds their
//! age).

/// Templates of the endpoint table.
pub(super) const COVERED_ROUTES: &[&str] = &[
    "/orgs/{org}/properties/schema",
    "/orgs/{org}/properties/schema/{custom_property_name}",
    "/repos/{owner}/{repo}/branches",
    "/repos/{owner}/{repo}/issues",
    "/repos/{owner}/{repo}/issues/comments",
    "/repos/{owner}/{repo}/issues/comments/{comment_id}",
    "/repos/{owner}/{repo}/issues/{issue_number}",
    "/repos/{owner}/{repo}/issues/{issue_number}/comments",
    "/repos/{owner}/{repo}/issues/{issue_number}/labels",
    "/repos/{owner}/{repo}/labels",
    "/repos/{owner}/{repo}/labels/{name}",
    "/repos/{owner}/{repo}/milestones",
    "/repos/{owner}/{repo}/milestones/{milestone_number}",
    "/repos/{owner}/{repo}/milestones/{milestone_number}/labels",
    "/repos/{owner}/{repo}/properties/values",
    "/repos/{owner}/{repo}/pulls/{pull_number}/files",
    "/repos/{owner}/{repo}/pulls/{pull_number}/merge",
    "/repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Dialect, Table, events_of};

    #[test]
    fn every_covered_route_exists_and_has_its_own_event() {
        for dialect in [Dialect::Service, Dialect::Github] {
            let table = Table::embedded(dialect);
            for route in COVERED_ROUTES {
                let is_read = table.endpoints().iter().any(|endpoint| {
                    endpoint.method == http::Method::GET && endpoint.template == *route
                });
                assert!(is_read, "{route}");
                let mut events = events_of(route).map(|(event, _)| event);
                // These three cover everything below a repository or an organization.
                assert!(
                    events.any(|event| !matches!(event, "organization" | "public" | "repository")),
                    "{route}"
                );
            }
        }
    }

    #[test]
    fn a_route_that_changes_silently_has_no_events() {
        for route in [
            "/orgs/{org}/issue-fields",
            "/orgs/{org}/hooks",
            "/orgs/{org}/hooks/{hook_id}/deliveries",
            "/orgs/{org}/actions/cache/usage",
            "/orgs/{org}/actions/variables",
            "/repos/{owner}/{repo}",
            "/repos/{owner}/{repo}/actions/secrets",
            "/repos/{owner}/{repo}/autolinks",
            "/repos/{owner}/{repo}/issues/{issue_number}/reactions",
            "/repos/{owner}/{repo}/topics",
            "/repos/{owner}/{repo}/traffic/views",
            "/repos/{owner}/{repo}/{*rest}",
        ] {
            assert_eq!(events_of(route).next(), None, "{route}");
        }
    }
}
