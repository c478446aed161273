//! Routes of which events tell all changes, so that while a webhook is alive an answer is good
//! until it tells of one.
//!
//! Named one by one, because an event that touches a route is no proof: most answers change in ways
//! that no event tells of too. Left out for that are, among others: what shows a whole repository
//! (its settings, its counters), pull requests themselves (whether one can be merged is worked out
//! in silence), git's history and files (a push of many tags causes no event, and names may be
//! tags), commit comments, runs, checks and deployments (what is deleted, or goes on in between),
//! releases (their counts of downloads), people, teams and their rights, keys (their last use),
//! secrets, variables, webhooks, traffic, reactions.
//!
//! Of an answer of these routes, no event tells of what belongs to others: what a person or an
//! owner is called, what an organization calls its types of issues, how far an issue's sub-issues
//! and what blocks it are, and how many reactions an issue or a comment has (README,
//! `webhook_ttl`).

/// As the endpoint table has them.
const ROUTES: &[&str] = &[
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

/// Whether events tell of all changes of this route.
pub(super) fn is_fully_covered(template: &str) -> bool {
    ROUTES.contains(&template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Dialect, Table, events_of};

    #[test]
    fn every_route_that_events_tell_of_exists_and_has_an_event_of_its_own() {
        for dialect in [Dialect::Service, Dialect::Github] {
            let table = Table::embedded(dialect);
            for route in ROUTES {
                let is_read = table.iter().any(|endpoint| {
                    endpoint.method == http::Method::GET && endpoint.template == *route
                });
                assert!(is_read, "{route}");
                let mut events = events_of(route).map(|(event, _)| event);
                // These three are about everything below a repository or an organization.
                assert!(
                    events.any(|event| !matches!(event, "organization" | "public" | "repository")),
                    "{route}"
                );
            }
        }
    }

    #[test]
    fn what_changes_without_an_event_is_told_of_by_none() {
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
