//! Lanes: the writes of a client to one lane keep their order (SPECIFICATION D7; "Promises" 4). The
//! path alone determines the lane, so unknown routes have one too.
//!
//! A lane is a collection below its owner, with all members. A client that names a member may
//! delete it and create another of the same name, by the member or by the collection: `DELETE
//! …/git/refs/heads/a`, then `POST …/git/refs`. A member has a lane of its own only where the
//! upstream creates its name and never reuses it ([`MADE_ONCE`]), as the number of an issue.
//! Addresses that write to the same thing share a lane ([`SAME`]).
//!
//! The comparison ignores case: the upstream ignores it for owners, repositories and organizations,
//! and elsewhere the lane only becomes wider. A number and a name of the same thing
//! (`/repositories/7`) have different lanes, because the mapping is unknown.

use super::owner_root::root_segments;

/// Segments that only group collections: the next segment is the collection.
const GROUPING_SEGMENTS: [&str; 6] =
    ["actions", "code-scanning", "codespaces", "dependabot", "notifications", "secret-scanning"];

/// Collections with members that the upstream names by a number or a digest and never reuses. Other
/// numbered collections have a second unique name: hooks an address, keys and labels the value
/// itself, milestones a title, releases a tag, assets a name.
const MADE_ONCE: [&str; 12] = [
    "alerts",
    "artifacts",
    "check-runs",
    "check-suites",
    "comments",
    "deployments",
    "gists",
    "issues",
    "jobs",
    "runs",
    "statuses",
    "threads",
];

/// Names of collections, and the name that replaces them in lanes.
const SAME: [(&str, &str); 12] = [
    ("organizations", "orgs"),
    // A pull request and the issue of the same number are one.
    ("pulls", "issues"),
    // A person is invited, becomes a member, and is removed.
    ("collaborators", "people"),
    ("invitations", "people"),
    ("members", "people"),
    ("memberships", "people"),
    ("outside_collaborators", "people"),
    ("public_members", "people"),
    // All of these move a branch: its name, its protection, a commit on it.
    ("contents", "branches"),
    ("git", "branches"),
    ("merges", "branches"),
    ("merge-upstream", "branches"),
];

/// Returns the lane of a write to `path`, which has no `/api/v3` and no query.
pub fn lane_of(path: &str) -> String {
    let path = path.trim_end_matches('/').to_ascii_lowercase();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let lane = match &segments[..] {
        // The repositories of an owner are a collection too.
        ["repos", owner, _] | ["repos", owner, _, "transfer"] | ["orgs", owner, "repos"] => {
            vec!["repos", owner]
        }
        // The organization's route writes the values of its repositories too.
        ["repos", owner, _, "properties", ..] => vec!["orgs", owner, "properties"],
        // A team has one number, with or without its organization's number before it.
        ["teams", team, ..] | ["organizations", _, "team", team, ..] => vec!["teams", number(team)],
        _ => lane_below_root(&segments, root_segments(&path)),
    };
    format!("/{}", lane.join("/"))
}

fn lane_below_root<'p>(segments: &[&'p str], root_segments: usize) -> Vec<&'p str> {
    let (root, below) = segments.split_at_checked(root_segments).unwrap_or((segments, &[]));
    let mut lane = root.to_vec();
    if let Some(kind) = lane.first_mut() {
        *kind = collection(kind);
    }
    let mut below = below.iter().copied().peekable();
    while let Some(name) = below.next() {
        let name = collection(name);
        lane.push(name);
        if GROUPING_SEGMENTS.contains(&name) {
            continue;
        }
        match below.peek().filter(|_| MADE_ONCE.contains(&name)) {
            // Comments have their own numbers, apart from those of the issues.
            Some(inner) if MADE_ONCE.contains(inner) => {}
            Some(member) if member.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                lane.push(number(member));
                break;
            }
            _ => break,
        }
    }
    lane
}

fn collection(name: &str) -> &str {
    SAME.iter().find(|(other, _)| *other == name).map_or(name, |(_, same)| same)
}

/// Some upstreams read `07` as 7.
fn number(text: &str) -> &str {
    text.trim_start_matches('0')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::Method;
    use proptest::prelude::*;

    use super::*;
    use crate::api::{Dialect, Table};

    fn filled(template: &str, value: &str) -> String {
        let fill =
            |segment: &str| if segment.starts_with('{') { value } else { segment }.to_owned();
        template.split('/').map(fill).collect::<Vec<_>>().join("/")
    }

    fn write_templates() -> BTreeSet<&'static str> {
        let writes = Table::embedded(Dialect::Service)
            .endpoints()
            .iter()
            .filter(|endpoint| endpoint.method != Method::GET && !endpoint.family);
        writes
            .map(|endpoint| endpoint.template.as_str())
            .filter(|template| template.starts_with('/'))
            .collect()
    }

    #[test]
    fn a_lane_is_a_collection_or_a_member_that_is_made_once() {
        for (path, lane) in [
            ("/repos/o/r/issues", "/repos/o/r/issues"),
            ("/repos/o/r/issues/5", "/repos/o/r/issues/5"),
            ("/repos/o/r/issues/5/comments", "/repos/o/r/issues/5"),
            ("/repos/o/r/issues/5/labels/bug", "/repos/o/r/issues/5"),
            ("/repos/o/r/issues/comments/7/reactions", "/repos/o/r/issues/comments/7"),
            ("/repos/o/r/pulls/5/reviews/7/dismissals", "/repos/o/r/issues/5"),
            ("/repositories/7/issues/5/comments", "/repositories/7/issues/5"),
            ("/repos/o/r/labels/bug", "/repos/o/r/labels"),
            ("/repos/o/r/contents/src/lib.rs", "/repos/o/r/branches"),
            ("/repos/o/r/statuses/0c1d", "/repos/o/r/statuses/c1d"),
            ("/repos/o/r/actions/runs/9/cancel", "/repos/o/r/actions/runs/9"),
            ("/repos/o/r/actions/secrets/TOKEN", "/repos/o/r/actions/secrets"),
            ("/orgs/o/actions/secrets/TOKEN/unlisted", "/orgs/o/actions/secrets"),
            ("/repos/o/r/unheard-of/7", "/repos/o/r/unheard-of"),
            ("/repos/o/r/unheard-of/7/", "/repos/o/r/unheard-of"),
            ("/orgs/o", "/orgs/o"),
            ("/user/repos", "/user/repos"),
            ("/notifications", "/notifications"),
            ("/notifications/threads/12/subscription", "/notifications/threads/12"),
            ("/gists/0aa1/comments/3", "/gists/aa1"),
            ("/nothing/of/the/sort", "/nothing"),
            ("/repos/o", "/repos/o"),
            ("/", "/"),
        ] {
            assert_eq!(lane_of(path), lane, "{path}");
        }
    }

    #[test]
    fn addresses_of_one_resource_are_one_lane() {
        for (one, other) in [
            ("/repos/acme/widgets/issues/1/labels", "/repos/Acme/Widgets/issues/1/comments"),
            ("/orgs/Acme/teams/t2/memberships/x", "/orgs/acme/teams/T2/memberships/X"),
            ("/repos/o/r/issues/9/dependencies/blocked_by/77", "/repos/o/r/issues/9/comments"),
            ("/repos/o/r/git/refs/heads/a", "/repos/o/r/git/refs"),
            ("/repos/o/r/git/refs/heads/a", "/repos/o/r/branches/a/protection"),
            ("/repos/o/r/contents/a", "/repos/o/r/merges"),
            ("/repos/o/r/issues/4/labels", "/repos/o/r/pulls/4"),
            ("/repos/o/r/pulls/6/merge", "/repos/o/r/issues/06/comments"),
            ("/orgs/o/memberships/x", "/orgs/o/members/x"),
            ("/orgs/o/invitations", "/orgs/o/outside_collaborators/x"),
            ("/repos/o/r/collaborators/x", "/repos/o/r/invitations/7"),
            ("/repos/o/r", "/orgs/o/repos"),
            ("/repos/o/r/properties/values", "/orgs/o/properties/values"),
            ("/teams/5/members/x", "/organizations/3/team/5/memberships/x"),
            (
                "/organizations/acme/actions/cache/storage-limit",
                "/orgs/acme/actions/cache/retention-limit",
            ),
        ] {
            assert_eq!(lane_of(one), lane_of(other), "{one} and {other}");
        }
    }

    #[test]
    fn collections_share_a_lane_with_members_not_made_once() {
        let write_templates = write_templates();
        let mut pairs = 0;
        for collection in &write_templates {
            let Some(name) = collection.rsplit('/').next().filter(|name| !name.starts_with('{'))
            else {
                continue;
            };
            for member in write_templates.iter().filter(|member| {
                member.strip_prefix(collection).is_some_and(|rest| rest.starts_with("/{"))
            }) {
                pairs += 1;
                let (whole, one) =
                    (lane_of(&filled(collection, "7")), lane_of(&filled(member, "7")));
                // Everything below a member belongs to the member.
                let is_inner =
                    ["_number}", "{gist_id}"].iter().any(|member| collection.contains(member));
                let is_made_once = MADE_ONCE.contains(&super::collection(name)) && !is_inner;
                assert_eq!(
                    whole != one,
                    is_made_once,
                    "{collection} is {whole}, {member} is {one}"
                );
            }
        }
        assert!(pairs > 60, "{pairs}");
    }

    #[test]
    fn no_lane_of_the_table_is_a_whole_repository_or_organization() {
        let whole = [
            "/repos/{owner}/{repo}",
            "/repos/{owner}/{repo}/transfer",
            "/orgs/{org}",
            "/orgs/{org}/repos",
        ];
        for template in write_templates().into_iter().filter(|template| !whole.contains(template)) {
            let lane = lane_of(&filled(template, "x"));
            let segments = lane.split('/').count() - 1;
            assert!(
                segments > root_segments(&lane) || lane == "/teams/x" || lane == "/user",
                "{template} is {lane}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_lane_does_not_depend_on_the_case_of_letters(at in any::<prop::sample::Index>(), value in "[a-zA-Z0-9._-]{1,12}") {
            let templates: Vec<_> = write_templates().into_iter().collect();
            let template = at.get(&templates);
            prop_assert_eq!(lane_of(&filled(template, &value)), lane_of(&filled(template, &value.to_ascii_uppercase())));
        }

        #[test]
        fn no_path_makes_it_panic(path in "\\PC{0,40}", mixed in "/[a-z0-9/%.]{0,60}") {
            prop_assert!(lane_of(&path).starts_with('/') && lane_of(&mixed).starts_with('/'));
        }
    }
}
