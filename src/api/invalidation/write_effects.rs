//! Write effects: the stored paths that a write makes stale.
//!
//! A write changes its own path and each parent below the root of its owner:
//! `/repos/{owner}/{repo}`, `/orgs/{org}`, `/users/{username}`, `/user` and the like. Except for a
//! POST, it also changes everything below its path. So a comment on an issue makes the comments,
//! the issue and the list of issues stale, but not the whole repository.
//!
//! A write also has the effects of its webhook events: a pull request is an issue too, and a
//! written file changes commits and branches. This file maps writes to events, `events` maps events
//! to paths, and `side_effects` lists effects without an event.

use http::Method;

use super::aliases::aliases;
use super::events::{Invalidation, Subject, Unknown, stale_after};
use super::path_pattern::{Fit, matches};
use super::side_effects::side_effects;
use crate::api::endpoint::owner_root::{collections, root_segments, segment_count, split_after};

/// Effects of a write below a repository: the tail of its path, the events, and the treatment of a
/// parameter without a value. `{name}` matches any segment and gives its value to the event's row;
/// `**` matches any rest. The first matching row counts.
const IN_REPOSITORY: &[(&str, &[&str], Unknown)] = &[
    ("", &["repository"], Unknown::Any),
    ("/transfer", &["repository"], Unknown::Any),
    ("/topics", &["page_build"], Unknown::Any),
    ("/issues", &["issues"], Unknown::New),
    ("/issues/comments/{comment}/**", &["issue_comment"], Unknown::Any),
    ("/issues/{number}/comments", &["issue_comment"], Unknown::Any),
    ("/issues/{number}/dependencies/**", &["issue_dependencies"], Unknown::Any),
    ("/issues/{number}/sub_issues/**", &["sub_issues"], Unknown::Any),
    ("/issues/{number}/sub_issue", &["sub_issues"], Unknown::Any),
    ("/issues/{number}/**", &["issues"], Unknown::Any),
    ("/pulls", &["pull_request"], Unknown::New),
    ("/pulls/comments/**", &["pull_request_review_comment"], Unknown::Any),
    ("/pulls/{number}/merge", &["pull_request", "push"], Unknown::Any),
    ("/pulls/{number}/update-branch", &["pull_request", "push"], Unknown::Any),
    ("/pulls/{number}/reviews/**", &["pull_request_review"], Unknown::Any),
    ("/pulls/{number}/comments/**", &["pull_request_review_comment"], Unknown::Any),
    ("/pulls/{number}/**", &["pull_request"], Unknown::Any),
    ("/contents/**", &["push"], Unknown::Any),
    // A release shows the commit of its tag.
    ("/git/**", &["push", "release"], Unknown::Any),
    ("/merges", &["push"], Unknown::Any),
    ("/merge-upstream", &["push"], Unknown::Any),
    // Everything that names the branch changes.
    (
        "/branches/{branch}/rename",
        &["push", "branch_protection_rule", "release", "deployment", "workflow_run"],
        Unknown::Any,
    ),
    ("/branches/**", &["push", "branch_protection_rule"], Unknown::Any),
    ("/rulesets/**", &["repository_ruleset"], Unknown::Any),
    ("/statuses/{sha}", &["status"], Unknown::Any),
    ("/check-runs/**", &["check_run"], Unknown::Any),
    ("/check-suites/**", &["check_suite"], Unknown::Any),
    ("/actions/runs/{run}/**", &["workflow_run"], Unknown::Any),
    ("/actions/jobs/**", &["workflow_job"], Unknown::Any),
    ("/actions/workflows/**", &["workflow_run"], Unknown::Any),
    ("/actions/artifacts/**", &["workflow_run"], Unknown::Any),
    ("/actions/caches/**", &["workflow_run"], Unknown::Any),
    ("/dispatches", &["repository_dispatch"], Unknown::Any),
    ("/labels", &["label.created"], Unknown::New),
    ("/labels/**", &["label"], Unknown::Any),
    ("/milestones", &["milestone.created"], Unknown::New),
    ("/milestones/**", &["milestone"], Unknown::Any),
    ("/releases/**", &["release"], Unknown::Any),
    ("/collaborators/**", &["member"], Unknown::Any),
    ("/invitations/**", &["member"], Unknown::Any),
    ("/comments/**", &["commit_comment"], Unknown::Any),
    ("/commits/{sha}/comments", &["commit_comment"], Unknown::Any),
    ("/deployments/**", &["deployment"], Unknown::Any),
    ("/environments/**", &["deployment"], Unknown::Any),
    ("/forks", &["fork"], Unknown::Any),
    ("/keys/**", &["deploy_key"], Unknown::Any),
    ("/pages/**", &["page_build"], Unknown::Any),
    ("/properties/values", &["custom_property_values"], Unknown::Any),
    ("/subscription", &["watch"], Unknown::Any),
    ("/import/**", &["push"], Unknown::Any),
    ("/vulnerability-alerts", &["repository_vulnerability_alert"], Unknown::Any),
    ("/security-advisories/**", &["repository_advisory"], Unknown::Any),
    ("/code-scanning/**", &["code_scanning_alert"], Unknown::Any),
    ("/secret-scanning/**", &["secret_scanning_alert"], Unknown::Any),
    ("/dependabot/**", &["dependabot_alert"], Unknown::Any),
];
/// Effects of a write below an organization.
const IN_ORGANIZATION: &[(&str, &[&str], Unknown)] = &[
    ("", &["organization"], Unknown::Any),
    ("/repos", &["repository"], Unknown::Any),
    ("/members/**", &["membership"], Unknown::Any),
    ("/memberships/**", &["membership"], Unknown::Any),
    ("/public_members/**", &["membership"], Unknown::Any),
    ("/invitations/**", &["membership"], Unknown::Any),
    ("/outside_collaborators/**", &["membership"], Unknown::Any),
    ("/organization-roles/**", &["membership"], Unknown::Any),
    ("/teams/{team}/memberships/**", &["membership"], Unknown::Any),
    ("/teams/{team}/members/**", &["membership"], Unknown::Any),
    ("/security-managers/**", &["team"], Unknown::Any),
    ("/teams/**", &["team"], Unknown::Any),
    ("/team/**", &["team", "membership"], Unknown::Any),
    ("/properties/**", &["custom_property"], Unknown::Any),
    ("/rulesets/**", &["repository_ruleset"], Unknown::Any),
];

/// Returns all paths that a write to `path` (without query) makes stale, executed or possibly
/// executed.
pub fn stale_after_write(method: &Method, path: &str) -> Vec<Invalidation> {
    let path = path.strip_suffix('/').unwrap_or(path);
    // The path of a mutation does not name its effects.
    if path.is_empty() || path == "/graphql" {
        return vec![Invalidation::Everything];
    }
    let mut stale: Vec<Invalidation> =
        collections(path).map(str::to_owned).map(Invalidation::Exactly).collect();
    stale.extend(collections(path).flat_map(aliases).map(Invalidation::Exactly));
    // A POST adds to the collection that it names. Other methods change or remove the path with
    // everything below it.
    let changed = if method == Method::POST { changed_at_once(path) } else { Some(path) };
    stale.extend(changed.into_iter().flat_map(addresses).map(Invalidation::Below));
    stale.extend(caused_in_repository(path));
    stale.extend(caused_in_organization(path));
    stale.extend(caused_by_caller(path));
    stale.extend(addresses(path).iter().flat_map(|path| side_effects(path)));
    stale.sort();
    stale.dedup();
    stale
}

/// Collection of a `POST …/add` or `POST …/remove`, which names the members only in its body.
fn changed_at_once(path: &str) -> Option<&str> {
    let (collection, _) =
        path.rsplit_once('/').filter(|(_, word)| matches!(*word, "add" | "remove"))?;
    collections(path).any(|above| above == collection).then_some(collection)
}

/// Returns the further paths that become stale when the answer of a write shows a milestone: its
/// counters may have changed.
pub fn stale_by_milestone(path: &str) -> Vec<Invalidation> {
    repository_of(path).map_or_else(Vec::new, |head| {
        stale_after("milestone", &subject_of_repository(head), Unknown::Any)
    })
}

fn caused_in_repository(path: &str) -> Vec<Invalidation> {
    let Some(head) = repository_of(path) else { return Vec::new() };
    caused(IN_REPOSITORY, path.get(head.len()..).unwrap_or_default(), subject_of_repository(head))
}

fn repository_of(path: &str) -> Option<&str> {
    root(path).filter(|_| path.starts_with("/repos/") || path.starts_with("/repositories/"))
}

/// A repository known only by its number can have any owner.
fn subject_of_repository(head: &str) -> Subject {
    let owner =
        head.strip_prefix("/repos/").and_then(|names| names.split('/').next()).unwrap_or("*");
    let organizations = addresses(&format!("/orgs/{owner}"));
    Subject {
        repositories: addresses(head),
        owners: [&organizations[..], &addresses(&format!("/users/{owner}"))].concat(),
        organizations,
        users: any_user(),
        ..Subject::default()
    }
}

fn caused_in_organization(path: &str) -> Vec<Invalidation> {
    // A team's address by number names no organization.
    let (head, tail) = if let Some(name) = path.strip_prefix("/user/memberships/orgs/") {
        (format!("/orgs/{name}"), "/memberships".to_owned())
    } else if path.starts_with("/teams/") {
        ("/orgs/*".to_owned(), format!("/team{}", path.get("/teams".len()..).unwrap_or_default()))
    } else if path.starts_with("/orgs/") || path.starts_with("/organizations/") {
        let Some(head) = root(path) else { return Vec::new() };
        (head.to_owned(), path.get(head.len()..).unwrap_or_default().to_owned())
    } else {
        return Vec::new();
    };
    let name = head.strip_prefix("/orgs/").filter(|name| *name != "*");
    // Some routes take the name where others take the number.
    let by_name = name.map(|name| format!("/organizations/{name}"));
    let subject = Subject {
        organizations: addresses(&head).into_iter().chain(by_name).collect(),
        owners: addresses(&head),
        territories: vec![format!("/repos/{}", name.unwrap_or("*"))],
        // The number and the name of a team, or of a person, cannot be matched.
        teams: addresses("/teams/*"),
        users: any_user(),
        repositories: repository_of_team(&tail)
            .map_or_else(Vec::new, |repository| addresses(&repository)),
        ..Subject::default()
    };
    caused(IN_ORGANIZATION, &tail, subject)
}

fn repository_of_team(tail: &str) -> Option<String> {
    let (_, names) = tail.split_once("/repos/").filter(|_| tail.starts_with("/team"))?;
    Some(format!("/repos/{names}"))
}

fn any_user() -> Vec<String> {
    addresses("/users/*")
}

fn caused_by_caller(path: &str) -> Vec<Invalidation> {
    let starred = path.strip_prefix("/user/starred/").map(|name| (name, "star"));
    let watched = path.strip_prefix("/user/subscriptions/").map(|name| (name, "watch"));
    starred.or(watched).map_or_else(Vec::new, |(name, event)| {
        stale_after(event, &subject_of_repository(&format!("/repos/{name}")), Unknown::Any)
    })
}

fn caused(
    table: &'static [(&'static str, &'static [&'static str], Unknown)],
    tail: &str,
    mut subject: Subject,
) -> Vec<Invalidation> {
    let found = table
        .iter()
        .find_map(|(pattern, events, unknown)| Some((values(pattern, tail)?, *events, *unknown)));
    let Some((values, events, unknown)) = found else { return Vec::new() };
    subject.values = values;
    events.iter().flat_map(|event| stale_after(event, &subject, unknown)).collect()
}

pub(super) fn values(pattern: &'static str, tail: &str) -> Option<Vec<(&'static str, String)>> {
    let mut values = Vec::new();
    let is_match = matches(pattern, tail, |wanted, value| match wanted {
        Some(name) if name.starts_with('{') => {
            values.push((name.trim_start_matches('{').trim_end_matches('}'), value.to_owned()));
            Fit::Yes
        }
        wanted => Fit::from(wanted == Some(value)),
    });
    is_match.then_some(values)
}

fn root(path: &str) -> Option<&str> {
    let wanted = root_segments(path);
    (wanted > 0 && segment_count(path) >= wanted).then(|| split_after(path, wanted).0)
}

/// The path and its aliases.
pub(super) fn addresses(path: &str) -> Vec<String> {
    [path.to_owned()].into_iter().chain(aliases(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale(path: &str) -> Vec<&str> {
        collections(path).collect()
    }

    #[test]
    fn a_write_makes_its_target_and_the_lists_above_it_stale() {
        assert_eq!(stale("/repos/o/r/issues/5"), ["/repos/o/r/issues/5", "/repos/o/r/issues"]);
        assert_eq!(
            stale("/repos/o/r/issues/5/comments"),
            ["/repos/o/r/issues/5/comments", "/repos/o/r/issues/5", "/repos/o/r/issues"]
        );
        assert_eq!(
            stale("/orgs/o/teams/t/memberships/u")[..2],
            ["/orgs/o/teams/t/memberships/u", "/orgs/o/teams/t/memberships"]
        );
        assert_eq!(
            stale("/notifications/threads/5"),
            ["/notifications/threads/5", "/notifications/threads", "/notifications"]
        );
        assert_eq!(stale("/gists/5"), ["/gists/5", "/gists"]);
    }

    #[test]
    fn the_owners_root_is_stale_only_when_it_is_written_itself() {
        assert_eq!(stale("/repos/o/r"), ["/repos/o/r"]);
        assert_eq!(stale("/repos/o/r/issues"), ["/repos/o/r/issues"]);
        assert_eq!(stale("/user/repos"), ["/user/repos"]);
        assert_eq!(stale("/orgs/o"), ["/orgs/o"]);
        assert_eq!(
            stale("/repositories/7/issues/5"),
            ["/repositories/7/issues/5", "/repositories/7/issues"]
        );
    }

    #[test]
    fn odd_paths_end_too() {
        assert_eq!(stale("/"), Vec::<&str>::new());
        assert_eq!(stale(""), Vec::<&str>::new());
        assert_eq!(stale("/x/"), ["/x"]);
        assert_eq!(stale("x"), ["x"]);
    }

    fn after(method: &Method, path: &str) -> Vec<String> {
        let text = |stale| match stale {
            Invalidation::Exactly(path) => path,
            Invalidation::Below(path) => path + "/**",
            Invalidation::Everything => "everything".to_owned(),
        };
        stale_after_write(method, path).into_iter().map(text).collect()
    }

    fn after_write(path: &str) -> Vec<String> {
        after(&Method::POST, path)
    }

    fn is_stale_after(written: &str, path: &str) -> bool {
        after_write(written).iter().any(|stale| stale == path || stale == &format!("{path}/**"))
    }

    #[test]
    fn a_repository_write_invalidates_the_lists_of_its_owner() {
        for path in ["/repos/o/r", "/repos/o/r/transfer"] {
            for list in [
                "/repos/o/r",
                "/users/o/repos",
                "/orgs/o/repos",
                "/user/repos",
                "/repositories/*",
                "/organizations/*/repos",
            ] {
                assert!(
                    is_stale_after(path, list),
                    "{path} changes {list}: {:?}",
                    after_write(path)
                );
            }
        }
        assert!(
            is_stale_after("/repos/o/r/issues", "/orgs/o/repos"),
            "it shows how many issues are open"
        );
        assert!(!is_stale_after("/repos/o/r/labels", "/orgs/o/repos"));
    }

    #[test]
    fn a_write_invalidates_other_views_of_its_change() {
        for (written, stale) in [
            ("/repos/o/r/issues/5", "/repos/o/r/pulls/5"),
            ("/repos/o/r/issues/5", "/repositories/*/issues/5"),
            ("/repos/o/r/issues/5", "/issues"),
            ("/repos/o/r/pulls/5", "/repos/o/r/issues/5"),
            ("/repos/o/r/pulls/5/merge", "/repos/o/r/commits"),
            ("/repos/o/r/pulls/5/merge", "/repos/o/r/branches"),
            ("/repos/o/r/pulls/5/reviews", "/repos/o/r/issues/5"),
            ("/repos/o/r/contents/README.md", "/repos/o/r/commits"),
            ("/repos/o/r/contents/README.md", "/repos/o/r/readme"),
            ("/repos/o/r/git/refs/heads/main", "/repos/o/r/branches"),
            ("/repos/o/r/issues/comments/9", "/repos/o/r/issues/*"),
            ("/repos/o/r/labels/bug", "/repos/o/r/issues"),
            ("/repositories/7/issues/5", "/repos/*/*/pulls/5"),
            ("/orgs/o/teams/t/memberships/u", "/orgs/o/members"),
            ("/teams/7/memberships/u", "/orgs/*/members"),
            ("/user/starred/o/r", "/repos/o/r/stargazers"),
            ("/user/starred/o/r", "/users/*/starred"),
            ("/repos/o/r/subscription", "/users/*/subscriptions"),
            ("/teams/3/memberships/u", "/teams/*"),
            ("/teams/3/memberships/u", "/orgs/*/teams"),
            ("/orgs/o/teams/t/memberships/u", "/teams/*"),
            ("/orgs/o/teams/t/memberships/u", "/organizations/*/team/*"),
            ("/orgs/o/teams/t/members/u", "/orgs/o/members"),
            ("/organizations/3/team/7/memberships/u", "/teams/*"),
            ("/orgs/o/teams/t/repos/p/r", "/repos/p/r/teams"),
            ("/orgs/o/teams/t/repos/p/r", "/repositories/*/teams"),
            ("/orgs/o/teams/t/repos/p/r", "/teams/*"),
            ("/teams/3/repos/p/r", "/repos/p/r/teams"),
            ("/teams/3/repos/p/r", "/orgs/*/teams"),
            ("/orgs/o/teams/t", "/repos/o/*/teams"),
            ("/user/memberships/orgs/o", "/orgs/o/members"),
            ("/user/memberships/orgs/o", "/orgs/o/memberships"),
            ("/repos/o/r", "/teams/*/repos"),
            ("/repos/o/r", "/teams/*"),
            ("/repos/o/r", "/orgs/o/properties/values"),
            ("/repos/o/r/issues", "/repositories"),
            ("/repos/o/r/branches/main/rename", "/repos/o/r/releases"),
            ("/repos/o/r/branches/main/rename", "/repos/o/r/deployments"),
            ("/repos/o/r/branches/main/rename", "/repos/o/r/actions/runs"),
            ("/user/starred/o/r", "/orgs/o/teams/*/repos"),
            ("/orgs/o/teams/t", "/orgs/o/invitations"),
            ("/orgs/o", "/organizations/o"),
            ("/repos/o/r", "/installation/repositories"),
            ("/repos/o/r/transfer", "/users/*/repos"),
        ] {
            assert!(
                is_stale_after(written, stale),
                "a write to {written} changes {stale}: {:#?}",
                after_write(written)
            );
        }
    }

    #[test]
    fn a_write_keeps_paths_that_it_cannot_change() {
        for (written, kept) in [
            ("/repos/o/r/issues/5", "/repos/o/r/issues/6"),
            ("/repos/o/r/issues/5", "/repos/o/r/commits"),
            ("/repos/o/r/issues", "/repos/o/r/issues/*"),
            ("/repos/o/r/labels", "/repos/o/r/issues"),
            ("/repos/o/r/hooks/5", "/repos/o/r"),
            ("/gists/5", "/users/o"),
        ] {
            assert!(
                !is_stale_after(written, kept),
                "{written} and {kept}: {:#?}",
                after_write(written)
            );
        }
    }

    #[test]
    fn a_write_other_than_post_invalidates_everything_below() {
        for (written, below) in [
            ("/orgs/o/hooks/5", "/orgs/o/hooks/5/**"),
            ("/repos/o/r/hooks/5", "/repositories/*/hooks/5/**"),
            ("/enterprises/e/teams/t", "/enterprises/e/teams/t/**"),
            ("/repos/o/r/actions/permissions", "/repos/o/r/actions/permissions/**"),
            ("/repositories/7/actions/runners/5", "/repos/*/*/actions/runners/5/**"),
        ] {
            for method in [Method::PUT, Method::PATCH, Method::DELETE] {
                assert!(
                    after(&method, written).iter().any(|stale| stale == below),
                    "{method} {written}: {:#?}",
                    after(&method, written)
                );
            }
        }
        assert!(
            !after(&Method::POST, "/repos/o/r/labels")
                .contains(&"/repos/o/r/labels/5/**".to_owned())
        );
        assert!(!after(&Method::POST, "/orgs/o/hooks").contains(&"/orgs/o/hooks/**".to_owned()));
    }

    #[test]
    fn a_bulk_addition_or_removal_invalidates_each_member() {
        for written in
            ["organizations/add", "organizations/remove", "memberships/add", "memberships/remove"]
        {
            let below =
                format!("/enterprises/e/teams/ent:t/{}/**", written.split('/').next().unwrap());
            assert!(
                after_write(&format!("/enterprises/e/teams/ent:t/{written}")).contains(&below),
                "{written}"
            );
        }
        assert!(
            !after_write("/repos/o/add").contains(&"/repos/o/**".to_owned()),
            "a repository of that name is one"
        );
    }

    #[test]
    fn a_repository_written_by_number_may_have_any_owner() {
        for stale in [
            "/orgs/*",
            "/orgs/*/teams",
            "/orgs/*/repos",
            "/users/*/repos",
            "/teams/*",
            "/organizations/*/team",
            "/orgs/*/properties/values",
        ] {
            assert!(
                is_stale_after("/repositories/7", stale),
                "{stale}: {:#?}",
                after_write("/repositories/7")
            );
        }
        assert!(is_stale_after("/repositories/7/issues", "/orgs/*/teams/*/repos"));
    }

    #[test]
    fn a_milestone_in_an_answer_invalidates_the_issues() {
        let stale = stale_by_milestone("/repos/o/r/issues/5");
        assert!(
            stale.contains(&Invalidation::Below("/repos/o/r/issues".to_owned()))
                && stale.contains(&Invalidation::Below("/repositories/*/issues".to_owned()))
        );
        assert!(stale_by_milestone("/gists/5").is_empty());
    }

    #[test]
    fn a_mutation_invalidates_everything() {
        assert_eq!(after_write("/graphql"), ["everything"]);
        assert_eq!(after_write("/unknown/path"), ["/unknown", "/unknown/path"]);
    }
}
