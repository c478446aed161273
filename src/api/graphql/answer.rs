//! The answer to a GraphQL query: its errors, and the things that it names by node id or URL.
//!
//! A URL in an answer is mostly that of a web page. It stands for the REST resource that the page
//! shows. Fields may be renamed by the query, so every text counts, whatever the name of its field.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::api::Invalidation;

/// Longest text that is taken for an id or a URL. Ours: several times the longest seen.
const NAME_BYTES_MAX: usize = 1024;
/// Lengths of node ids. Ours: the service's have 12 to 60 characters.
const NODE_ID_BYTES: std::ops::RangeInclusive<usize> = 4..=200;

/// Returns true unless an answer is a JSON object with data and without the member `errors`.
pub fn has_errors(answer: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        data: Option<IgnoredAny>,
        #[serde(default, deserialize_with = "is_there")]
        errors: bool,
    }
    serde_json::from_slice::<Answer>(answer)
        .map_or(true, |answer| answer.errors || answer.data.is_none())
}

/// A `null` counts too.
fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// Parent of the paths that stand for node ids in the invalidation log.
const NODES: &str = "/graphql/node";

/// The change of everything that has a node id.
pub fn any_node() -> Invalidation {
    Invalidation::Below(NODES.to_owned())
}

/// The path that stands for a node id in the invalidation log; `None` for a text that is no id.
pub fn node_path(id: &str) -> Option<String> {
    let is_of_id =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'=' | b'+');
    let fits = NODE_ID_BYTES.contains(&id.len()) && id.bytes().all(is_of_id);
    fits.then(|| format!("{NODES}/{id}"))
}

/// Calls `named` with each short text in an answer. Returns false if it cannot be read.
pub fn each_text(answer: &[u8], named: &mut dyn FnMut(&str)) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(answer);
    Texts(named).deserialize(&mut reader).is_ok()
}

/// Returns the REST paths of the resources on a web page, given the page's path with its fragment.
pub fn paths_of_page(page: &str) -> Vec<String> {
    let (page, fragment) = page.split_once('#').unwrap_or((page, ""));
    let page = page.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = page.split('/').filter(|segment| !segment.is_empty()).collect();
    let (owner, name, rest) = match segments[..] {
        [] => return Vec::new(),
        [owner] => return vec![format!("/users/{owner}"), format!("/orgs/{owner}")],
        ["orgs", org, "teams", team, ..] => return vec![format!("/orgs/{org}/teams/{team}")],
        ["orgs", org, ..] => return vec![format!("/orgs/{org}")],
        [owner, name, ref rest @ ..] => (owner, name, rest),
    };
    let at = |tail: String| format!("/repos/{owner}/{name}{tail}");
    let mut paths = match *rest {
        ["issues", number, ..] => vec![at(format!("/issues/{number}"))],
        ["pull" | "pulls", number, ..] => {
            vec![at(format!("/pulls/{number}")), at(format!("/issues/{number}"))]
        }
        ["commit" | "commits", sha, ..] => vec![at(format!("/commits/{sha}"))],
        ["milestone" | "milestones", number, ..] => vec![at(format!("/milestones/{number}"))],
        ["labels", label, ..] => vec![at(format!("/labels/{label}"))],
        ["releases", "tag", tag, ..] => vec![at(format!("/releases/tags/{tag}"))],
        _ => vec![at(String::new())],
    };
    let comments = [("issuecomment-", "issues"), ("discussion_r", "pulls")];
    paths.extend(comments.iter().filter_map(|(before, kind)| {
        Some(at(format!("/{kind}/comments/{}", fragment.strip_prefix(before)?)))
    }));
    paths
}

struct Texts<'n>(&'n mut dyn FnMut(&str));

impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Texts<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if text.len() <= NAME_BYTES_MAX {
            self.0(text);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Texts(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key::<Cow<'de, str>>()?.is_some() {
            members.next_value_seed(Texts(&mut *self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_without_errors_has_none() {
        for good in ["{\"data\":{}}", "{\"data\":{\"errors\":[]},\"extensions\":{}}"] {
            assert!(!has_errors(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "[]",
            "{}",
            "{\"data\":null}",
            "{\"data\":{},\"errors\":[]}",
            "{\"data\":{},\"errors\":null}",
            "{\"data\":{},\"err\\u006frs\":[{}]}",
            "{\"data\":{}} x",
            "--boundary",
        ] {
            assert!(has_errors(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn every_text_of_an_answer_is_named_once() {
        let mut found = Vec::new();
        let answer =
            r#"{"data":{"x":"I_1","n":[1,-2,0.5,null,true,"I\u005f2",{"y":"https:\/\/a\/b"}]}}"#;
        assert!(each_text(answer.as_bytes(), &mut |text| found.push(text.to_owned())));
        assert_eq!(found, ["I_1", "I_2", "https://a/b"]);
        assert!(!each_text(b"{\"data\":", &mut |_| {}));
    }

    #[test]
    fn a_page_stands_for_the_resources_that_it_shows() {
        let tail = |paths: &[&str]| -> Vec<String> {
            paths.iter().map(|path| format!("/repos/acme/widgets{path}")).collect()
        };
        for (page, paths) in [
            ("/acme/widgets", tail(&[""])),
            ("/acme/widgets/issues/5", tail(&["/issues/5"])),
            (
                "/acme/widgets/issues/5?x=y#issuecomment-7",
                tail(&["/issues/5", "/issues/comments/7"]),
            ),
            (
                "/acme/widgets/pull/5/files#discussion_r8",
                tail(&["/pulls/5", "/issues/5", "/pulls/comments/8"]),
            ),
            ("/acme/widgets/commit/abc", tail(&["/commits/abc"])),
            ("/acme/widgets/releases/tag/v1", tail(&["/releases/tags/v1"])),
            ("/acme/widgets/wiki", tail(&[""])),
            ("/ada", vec!["/users/ada".into(), "/orgs/ada".into()]),
            ("/orgs/acme/teams/core", vec!["/orgs/acme/teams/core".into()]),
            ("/", Vec::new()),
        ] {
            assert_eq!(paths_of_page(page), paths, "{page}");
        }
    }

    #[test]
    fn a_node_id_is_a_word_and_nothing_else() {
        assert_eq!(node_path("I_kwDO=").as_deref(), Some("/graphql/node/I_kwDO="));
        for other in ["", "abc", "a b c d", "https://a/b", "****", "/acme/widgets"] {
            assert_eq!(node_path(other), None, "{other}");
        }
    }
}
