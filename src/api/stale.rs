//! Which stored paths a write makes stale.
//!
//! The rule: the written path itself, then each of its parents, stopping before the root that owns them: `/repos/{owner}/{repo}`,
//! `/orgs/{org}`, `/users/{username}`, `/user` and their like. So a comment on an issue makes the comments, the issue and the
//! list of issues stale, but not the whole repository. What lies below the written path, and every query of each path, is for the
//! cache to find by prefix. Links between branches of the tree (a pull request is an issue too) are not known here.

/// How many leading segments make the root that owns a path. Paths that begin with none of these have no root: all parents count.
const OWNER_ROOTS: [(&str, usize); 11] = [
    ("repos", 3),
    ("repositories", 2),
    ("orgs", 2),
    ("organizations", 2),
    ("enterprises", 2),
    ("users", 2),
    ("teams", 2),
    ("user", 1),
    ("app", 1),
    ("apps", 1),
    ("installation", 1),
];

/// The written path, then its parents up to its owner's root; each a leading part of the path, without a trailing slash.
#[derive(Clone, Debug)]
pub struct Collections<'p> {
    next: Option<&'p str>,
    root_segments: usize,
}

/// How many leading segments of `path` make the root that owns it; 0 when nothing does.
pub(super) fn root_segments(path: &str) -> usize {
    let first = path.split('/').nth(1).unwrap_or_default();
    OWNER_ROOTS.iter().find(|(name, _)| *name == first).map_or(0, |(_, segments)| *segments)
}

impl<'p> Collections<'p> {
    pub(super) fn of(path: &'p str) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        let root_segments = root_segments(path);
        Self { next: (!path.is_empty()).then_some(path), root_segments }
    }
}

impl<'p> Iterator for Collections<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let path = self.next.take()?;
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let segments = parent.bytes().filter(|byte| *byte == b'/').count();
        self.next = (segments > self.root_segments).then_some(parent);
        Some(path)
    }
}

/// The owner whose lists of repositories change with a write to `path`: that of a write to `/repos/{owner}/{repo}` itself, or to its transfer.
pub(super) fn repository_owner(path: &str) -> Option<&str> {
    let mut segments = path.strip_prefix("/repos/")?.split('/');
    let owner = segments.next()?;
    segments.next()?;
    matches!((segments.next(), segments.next()), (None | Some("transfer"), None)).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale(path: &str) -> Vec<&str> {
        Collections::of(path).collect()
    }

    #[test]
    fn a_write_makes_its_target_and_the_lists_above_it_stale() {
        assert_eq!(stale("/repos/o/r/issues/5"), ["/repos/o/r/issues/5", "/repos/o/r/issues"]);
        assert_eq!(stale("/repos/o/r/issues/5/comments"), ["/repos/o/r/issues/5/comments", "/repos/o/r/issues/5", "/repos/o/r/issues"]);
        assert_eq!(stale("/orgs/o/teams/t/memberships/u")[..2], ["/orgs/o/teams/t/memberships/u", "/orgs/o/teams/t/memberships"]);
        assert_eq!(stale("/notifications/threads/5"), ["/notifications/threads/5", "/notifications/threads", "/notifications"]);
        assert_eq!(stale("/gists/5"), ["/gists/5", "/gists"]);
    }

    #[test]
    fn the_owners_root_is_stale_only_when_it_is_written_itself() {
        assert_eq!(stale("/repos/o/r"), ["/repos/o/r"]);
        assert_eq!(stale("/repos/o/r/issues"), ["/repos/o/r/issues"]);
        assert_eq!(stale("/user/repos"), ["/user/repos"]);
        assert_eq!(stale("/orgs/o"), ["/orgs/o"]);
        assert_eq!(stale("/repositories/7/issues/5"), ["/repositories/7/issues/5", "/repositories/7/issues"]);
    }

    #[test]
    fn odd_paths_end_too() {
        assert_eq!(stale("/"), Vec::<&str>::new());
        assert_eq!(stale(""), Vec::<&str>::new());
        assert_eq!(stale("/x/"), ["/x"]);
        assert_eq!(stale("x"), ["x"]);
    }

    #[test]
    fn a_repository_that_changes_changes_its_owners_lists() {
        assert_eq!(repository_owner("/repos/o/r"), Some("o"));
        assert_eq!(repository_owner("/repos/o/r/transfer"), Some("o"));
        assert_eq!(repository_owner("/repos/o/r/issues"), None);
        assert_eq!(repository_owner("/repos/o"), None);
        assert_eq!(repository_owner("/orgs/o"), None);
    }
}
