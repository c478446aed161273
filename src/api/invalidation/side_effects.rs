//! Side effects: the changes by a write at addresses that neither its own path nor an event names.
//! Examples are notifications, the caller's own lists, and an organization's settings for its
//! repositories.
//!
//! A row names too much rather than too little, as in `events`. The writing account is unknown
//! here, so its lists are invalidated under any name.

use super::events::Invalidation;
use super::write_effects::{addresses, values};

/// Written path (`{name}` any segment, `**` any rest), and the changed paths: a `{name}` again, `*`
/// any segment, `**` all below. All matching rows count.
const ROWS: &[(&str, &[&str])] = &[
    ("/notifications", &["/repos/*/*/notifications", "/notifications/threads/**"]),
    (
        "/notifications/threads/{thread}/**",
        &["/repos/*/*/notifications", "/notifications/threads/{thread}/**"],
    ),
    ("/repos/{owner}/{repo}/notifications", &["/notifications/**"]),
    ("/repos/{owner}/{repo}/subscription", &["/notifications/**"]),
    ("/user", &["/users/*", "/search/users"]),
    ("/user/emails", &["/user", "/user/public_emails", "/users/*"]),
    ("/user/email/visibility", &["/user", "/user/emails", "/user/public_emails", "/users/*"]),
    ("/user/keys/**", &["/users/*/keys"]),
    ("/user/gpg_keys/**", &["/users/*/gpg_keys"]),
    ("/user/ssh_signing_keys/**", &["/users/*/ssh_signing_keys"]),
    ("/user/social_accounts", &["/users/*/social_accounts"]),
    (
        "/user/following/{person}",
        &["/user", "/users/*", "/users/{person}/followers", "/users/*/following/**"],
    ),
    (
        "/user/blocks/{person}",
        &[
            "/user",
            "/users/*",
            "/user/followers",
            "/user/following/**",
            "/users/*/followers",
            "/users/*/following/**",
        ],
    ),
    (
        "/user/repos",
        &[
            "/user",
            "/users/*",
            "/users/*/repos",
            "/installation/repositories",
            "/repositories",
            "/search/repositories",
        ],
    ),
    (
        "/user/repository_invitations/{invitation}",
        &[
            "/user/repos",
            "/repos/*/*/collaborators/**",
            "/repos/*/*/assignees/**",
            "/repos/*/*/invitations",
        ],
    ),
    (
        "/user/installations/{installation}/**",
        &["/installation/**", "/user/installations/**", "/user/repos"],
    ),
    ("/app/installations/{installation}/suspended", INSTALLATION),
    ("/app/installations/{installation}", INSTALLATION),
    ("/user/interaction-limits", &["/repos/*/*/interaction-limits"]),
    (
        "/user/codespaces/**",
        &["/user/codespaces/**", "/repos/*/*/codespaces/**", "/orgs/*/codespaces"],
    ),
    ("/repos/{owner}/{repo}/codespaces/**", &["/user/codespaces/**", "/orgs/*/codespaces"]),
    ("/gists/**", &["/gists/public", "/gists/starred", "/user", "/users/*", "/users/*/gists"]),
    ("/gists/{gist}/**", &["/gists/{gist}/**"]),
    // Naming an unknown label on an issue creates it.
    ("/repos/{owner}/{repo}/issues", NEW_LABEL),
    ("/repos/{owner}/{repo}/issues/{issue}", NEW_LABEL),
    ("/repos/{owner}/{repo}/issues/{issue}/labels", NEW_LABEL),
    // Lists of pull requests show the topics too.
    ("/repos/{owner}/{repo}/topics", &["/repos/{owner}/{repo}/pulls"]),
    ("/repos/{owner}/{repo}", &["/repos/*/*/forks", "/users/*/starred", "/users/*/subscriptions"]),
    // Only the body names the new owner.
    ("/repos/{owner}/{repo}/transfer", NEW_REPOSITORY),
    ("/repos/{owner}/{repo}/generate", NEW_REPOSITORY),
    ("/repos/{owner}/{repo}/forks", NEW_REPOSITORY),
    ("/repos/{owner}/{repo}/dependency-graph/**", &["/repos/{owner}/{repo}/dependency-graph/**"]),
    // Everything it owns disappears with it, also by number.
    (
        "/orgs/{org}",
        &[
            "/users/{org}",
            "/organizations",
            "/repositories/**",
            "/search/**",
            "/user/starred/**",
            "/user/subscriptions",
            "/installation/repositories",
        ],
    ),
    ("/orgs/{org}/hooks/{hook}/**", &["/orgs/{org}/hooks/{hook}/**"]),
    ("/repos/{owner}/{repo}/hooks/{hook}/**", &["/repos/{owner}/{repo}/hooks/{hook}/**"]),
    (
        "/enterprises/{enterprise}/teams/**",
        &["/orgs/*/teams/**", "/organizations/*/team/**", "/teams/**", "/user/teams"],
    ),
    ("/orgs/{org}/repos", &["/orgs/{org}", "/users/{org}"]),
    ("/orgs/{org}/actions/**", &["/orgs/{org}/actions/**", "/repos/{org}/*/actions/**"]),
    (
        "/orgs/{org}/code-security/**",
        &["/orgs/{org}/code-security/**", "/repos/{org}/*/code-security-configuration"],
    ),
    ("/orgs/{org}/interaction-limits", &["/repos/{org}/*/interaction-limits"]),
    ("/orgs/{org}/properties/**", &["/repos/{org}/*/properties/**"]),
    (
        "/orgs/{org}/rulesets/**",
        &["/repos/{org}/*/rulesets/**", "/repos/{org}/*/rules/**", "/repos/{org}/*/branches/**"],
    ),
    (
        "/orgs/{org}/settings/immutable-releases/**",
        &["/orgs/{org}/settings/immutable-releases/**", "/repos/{org}/*/immutable-releases"],
    ),
];
const INSTALLATION: &[&str] =
    &["/installation/**", "/user/installations/**", "/orgs/*/installations"];
/// Lists where a new repository may appear.
const NEW_REPOSITORY: &[&str] = &[
    "/user",
    "/user/repos",
    "/users/*",
    "/users/*/repos",
    "/orgs/*/repos",
    "/installation/repositories",
    "/search/repositories",
];

const NEW_LABEL: &[&str] = &["/repos/{owner}/{repo}/labels/**", "/search/labels"];

pub(super) fn side_effects(path: &str) -> Vec<Invalidation> {
    let fitting =
        ROWS.iter().filter_map(|(pattern, changed)| Some((values(pattern, path)?, *changed)));
    fitting
        .flat_map(|(values, changed)| {
            changed.iter().flat_map(move |pattern| filled(pattern, &values))
        })
        .collect()
}

/// Fills the pattern, and adds all aliases.
fn filled(pattern: &str, values: &[(&'static str, String)]) -> Vec<Invalidation> {
    let (pattern, is_below) =
        pattern.strip_suffix("/**").map_or((pattern, false), |head| (head, true));
    let mut path = pattern.to_owned();
    for (name, value) in values {
        path = path.replace(&format!("{{{name}}}"), value);
    }
    let invalidation = if is_below { Invalidation::Below } else { Invalidation::Exactly };
    addresses(&path).into_iter().map(invalidation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::invalidation::events::is_like;
    use crate::api::{Dialect, Table, stale_after_write};

    fn after(written: &str) -> Vec<Invalidation> {
        stale_after_write(&http::Method::POST, written)
    }

    fn is_stale_after(written: &str, path: &str) -> bool {
        after(written).iter().any(|stale| match stale {
            Invalidation::Exactly(exact) => exact == path,
            Invalidation::Below(head) => path == head || path.starts_with(&format!("{head}/")),
            Invalidation::Everything => true,
        })
    }

    #[test]
    fn a_write_invalidates_its_side_effects_by_every_alias() {
        for (written, stale) in [
            ("/notifications", "/repos/*/*/notifications"),
            ("/notifications", "/repositories/*/notifications"),
            ("/notifications", "/notifications/threads/5"),
            ("/notifications/threads/5", "/notifications"),
            ("/notifications/threads/5", "/repos/*/*/notifications"),
            ("/notifications/threads/5", "/notifications/threads/5/subscription"),
            ("/repos/o/r/notifications", "/notifications"),
            ("/repos/o/r/notifications", "/notifications/threads/5"),
            ("/repositories/7/notifications", "/notifications"),
            ("/gists", "/users/*/gists"),
            ("/gists/5", "/gists/public"),
            ("/gists/5/star", "/gists/starred"),
            ("/user/following/u", "/users/u/followers"),
            ("/user/following/u", "/users/*/following/u"),
            ("/user/blocks/u", "/user/following/u"),
            ("/user", "/users/*"),
            ("/user", "/user/*"),
            ("/user/email/visibility", "/user/emails"),
            ("/user/keys/5", "/users/*/keys"),
            ("/repos/o/r/forks", "/orgs/*/repos"),
            ("/repos/o/r/transfer", "/users/*/repos"),
            ("/repositories/7/transfer", "/orgs/*/repos"),
            ("/orgs/o/actions/permissions", "/orgs/o/actions/permissions/repositories"),
            ("/orgs/o/actions/permissions", "/repositories/*/actions/permissions"),
            ("/orgs/o/interaction-limits", "/repos/o/*/interaction-limits"),
            ("/organizations/3/interaction-limits", "/repos/*/*/interaction-limits"),
            ("/organizations/3", "/organizations"),
            ("/orgs/o", "/repositories/7/issues"),
            ("/orgs/o", "/search/issues"),
            ("/orgs/o/hooks/5/pings", "/orgs/o/hooks/5/deliveries"),
            ("/enterprises/e/teams/t", "/orgs/*/teams"),
            ("/enterprises/e/teams/t/memberships/u", "/organizations/*/teams"),
            ("/user/repos", "/repositories"),
            ("/repos/o/r/issues", "/repos/o/r/labels/new"),
            ("/repos/o/r/issues/5", "/repos/o/r/labels"),
            ("/repos/o/r/issues/5/labels", "/repos/o/r/labels/new"),
            ("/repositories/7/issues/5/labels", "/repos/*/*/labels"),
            ("/repos/o/r/topics", "/repos/o/r/pulls"),
        ] {
            assert!(
                is_stale_after(written, stale),
                "a write to {written} changes {stale}: {:#?}",
                after(written)
            );
        }
        for (written, kept) in [
            ("/notifications", "/repos/*/*/issues"),
            ("/repos/o/r/issues/5", "/notifications"),
            ("/repos/o/r/issues/5/comments", "/repos/o/r/labels"),
            ("/gists/5", "/gists/6"),
            ("/user/keys", "/user"),
            ("/orgs/o/hooks", "/repos/o/*/actions/runs"),
        ] {
            assert!(!is_stale_after(written, kept), "{written} and {kept}: {:#?}", after(written));
        }
    }

    #[test]
    fn every_row_is_unique_and_changes_an_existing_route() {
        let table = Table::embedded(Dialect::Service);
        for (written, changed) in ROWS {
            assert_eq!(ROWS.iter().filter(|(other, _)| other == written).count(), 1, "{written}");
            for pattern in *changed {
                let unknown = pattern.split('/').find(|segment| {
                    segment.starts_with('{') && !written.split('/').any(|known| known == *segment)
                });
                assert_eq!(unknown, None, "{written}: {pattern}");
                let is_read = |endpoint: &&crate::api::Endpoint| {
                    endpoint.method == http::Method::GET && is_like(pattern, &endpoint.template)
                };
                assert!(
                    table.endpoints().iter().any(|endpoint| is_read(&endpoint)),
                    "no route is like {pattern} of {written}"
                );
            }
        }
    }
}
