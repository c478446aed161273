//! Aliases: the addresses of one resource, by name and by number, with wild segments.
//!
//! A repository is `/repos/{owner}/{repo}` and `/repositories/{id}`; which number belongs to a name
//! is often unknown. A change known by one address invalidates *every* address of the other form,
//! with `*` for the unknown segment: `/repositories/*/issues`. The same form means "any issue"
//! where a change of one issue shows at others. Only the segments listed here can be wild.

use super::path_pattern::{Fit, matches};
use crate::api::endpoint::owner_root::{segment_count, split_after};

/// A pattern of paths with its wild segments. Every lookup after a change may ask for them, so they
/// are computed once.
struct WildPattern {
    text: &'static str,
    form: WildForm,
}

/// The patterns of [`WILD`].
static PATTERNS: [WildPattern; WILD.len()] = patterns();

/// Leading parts of paths. `.` is any segment, `*` any segment that may be wild, `#` a number that
/// may be wild.
const WILD: [&str; 24] = [
    "/repos/*/*",
    "/repos/./*",
    "/repositories/#",
    "/orgs/*",
    "/organizations/#",
    "/users/*",
    "/user/#",
    "/orgs/*/teams/*",
    "/orgs/./teams/*",
    "/organizations/#/team/#",
    "/organizations/./team/#",
    "/teams/#",
    "/repos/././issues/#",
    "/repos/*/*/issues/#",
    "/repositories/./issues/#",
    "/repositories/#/issues/#",
    "/repos/././pulls/#",
    "/repos/*/*/pulls/#",
    "/repositories/./pulls/#",
    "/repositories/#/pulls/#",
    "/repos/././commits/*",
    "/repos/*/*/commits/*",
    "/repositories/./commits/*",
    "/repositories/#/commits/*",
];

/// Forms of address of one resource. The first form that fits a path is its own. Deeper forms come
/// before their prefixes.
const ALIASES: [&[&str]; 4] = [
    &["/repos/*/*", "/repositories/#"],
    &["/orgs/*/teams/*", "/organizations/#/team/#", "/teams/#"],
    &["/orgs/*", "/organizations/#"],
    &["/users/*", "/user/#"],
];

/// Set of [`WildForm`]s, one bit each.
pub type WildForms = u32;

/// One combination of wild segments in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WildForm {
    /// Bit in a [`WildForms`].
    pub bit: WildForms,
    /// Wild segments: bit 0 is the first.
    pub segments: u32,
}

/// Returns the forms among `among` under which an invalidation may name the path.
pub fn wild_forms(path: &str, among: WildForms) -> impl Iterator<Item = WildForm> {
    PATTERNS
        .iter()
        .filter(move |known| among & known.form.bit != 0 && is_below(known.text, path, false))
        .map(|known| known.form)
}

/// Returns the form of a path with `*` segments; `None` without such a segment, or where no lookup
/// uses the form.
pub fn wild_form(path: &str) -> Option<WildForm> {
    let segments = path.split('/').skip(1).take(32).enumerate();
    let wild = segments
        .filter(|(_, segment)| *segment == "*")
        .fold(0, |wild: u32, (at, _)| wild | 1 << at);
    PATTERNS
        .iter()
        .filter(|known| wild != 0 && known.form.segments == wild)
        .find(|known| is_below(known.text, path, true))
        .map(|known| known.form)
}

/// Returns the other addresses of `path`, with `*` for unknown segments.
pub fn aliases(path: &str) -> impl Iterator<Item = String> {
    let own = ALIASES
        .iter()
        .find_map(|forms| Some((forms, forms.iter().position(|form| is_below(form, path, true))?)));
    own.into_iter().flat_map(move |(forms, own)| {
        let (_, tail) = split_after(path, forms.get(own).map_or(0, |form| segment_count(form)));
        let others = forms.iter().enumerate().filter(move |(other, _)| *other != own);
        others.map(move |(_, form)| form.replace('#', "*") + tail)
    })
}

const fn patterns() -> [WildPattern; WILD.len()] {
    const NONE: WildPattern = WildPattern { text: "", form: WildForm { bit: 0, segments: 0 } };
    let mut patterns = [NONE; WILD.len()];
    let mut place = 0;
    while place < WILD.len() {
        let text = WILD[place];
        let form = WildForm { bit: 1 << place, segments: wild_segments(text) };
        patterns[place] = WildPattern { text, form };
        place += 1;
    }
    patterns
}

/// Wild segments of a pattern as bits: bit 0 is the first.
const fn wild_segments(pattern: &str) -> u32 {
    let (bytes, mut at, mut segment, mut wild) = (pattern.as_bytes(), 1, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'/' => segment += 1,
            b'*' | b'#' => wild |= 1 << segment,
            _ => {}
        }
        at += 1;
    }
    wild
}

/// Returns true when the beginning of `path` matches `pattern`. With `starred`, a `*` in the path
/// matches a number.
fn is_below(pattern: &str, path: &str, starred: bool) -> bool {
    matches(pattern, path, |wanted, segment| {
        Fit::from(match wanted {
            None => return Fit::WithRest,
            Some("." | "*") => !segment.is_empty(),
            Some("#") => {
                starred && segment == "*"
                    || !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit())
            }
            Some(wanted) => segment.eq_ignore_ascii_case(wanted),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases_of(path: &str) -> Vec<String> {
        aliases(path).collect()
    }

    #[test]
    fn a_name_and_a_number_are_aliases_of_each_other() {
        assert_eq!(aliases_of("/repos/acme/widgets/issues/5"), ["/repositories/*/issues/5"]);
        assert_eq!(aliases_of("/repositories/7/issues"), ["/repos/*/*/issues"]);
        assert_eq!(
            aliases_of("/orgs/acme/teams/core/members"),
            ["/organizations/*/team/*/members", "/teams/*/members"]
        );
        assert_eq!(aliases_of("/teams/5"), ["/orgs/*/teams/*", "/organizations/*/team/*"]);
        assert_eq!(aliases_of("/orgs/acme"), ["/organizations/*"]);
        assert_eq!(aliases_of("/user/5/repos"), ["/users/*/repos"]);
        for alone in [
            "/user/repos",
            "/user",
            "/notifications",
            "/repos/acme",
            "/",
            "",
            "/repositories/widgets",
        ] {
            assert!(aliases_of(alone).is_empty(), "{alone}");
        }
    }

    #[test]
    fn a_wild_form_is_found_by_every_path_that_it_matches() {
        for (noted, path) in [
            ("/repositories/*/issues/5", "/repositories/7/issues/5"),
            ("/repos/*/*/issues", "/repos/acme/widgets/issues"),
            ("/repos/acme/widgets/issues/*/timeline", "/repos/acme/widgets/issues/5/timeline"),
            ("/repositories/*/issues/*/timeline", "/repositories/7/issues/5/timeline"),
            ("/orgs/*/teams/*/members", "/orgs/acme/teams/core/members"),
            ("/orgs/acme/teams/*", "/orgs/acme/teams/core"),
            ("/teams/*/members", "/teams/3/members"),
        ] {
            let form = wild_form(noted).unwrap_or_else(|| panic!("{noted} has a form"));
            assert!(
                wild_forms(path, form.bit).any(|found| found == form),
                "{path} is looked for as {noted}"
            );
            assert_eq!(wild_forms(path, 0).count(), 0);
        }
    }

    #[test]
    fn an_unused_wildcard_has_no_form() {
        for path in [
            "/repos/acme/widgets/issues",
            "/repos/*/widgets/issues",
            "/gists/*",
            "/repos/acme/widgets/labels/*",
            "",
        ] {
            assert_eq!(wild_form(path), None, "{path}");
        }
        assert_eq!(
            wild_forms("/repos/acme/widgets/issues/comments", u32::MAX).count(),
            2,
            "comments are no issue: only the repository may be wild"
        );
    }
}
