//! Resolves references in answers (RFC 3986 §5.2) to paths below the API root, as in cache keys.
//!
//! Left out: references of a query alone, which lead to the requested path.

use crate::gateway::address::{decode_unreserved, path_of};
use crate::gateway::url_rewrite::map::UrlMap;

impl UrlMap {
    /// Resolves `reference` in an answer to `target` to a path without query; `None` if elsewhere.
    pub fn named_path(&self, target: &str, reference: &str) -> Option<String> {
        let reference = decode_unreserved(path_of(reference));
        let first = reference.split('/').next().unwrap_or_default();
        if reference.starts_with("//") || first.contains(':') {
            return self.own_path(&reference).map(without_dots);
        }
        if reference.is_empty() {
            return None;
        }
        let whole = if reference.starts_with('/') {
            without_dots(&reference)
        } else {
            let directory = path_of(target).rsplit_once('/').map_or("", |(directory, _)| directory);
            without_dots(&format!("{}{directory}/{reference}", self.api_path()))
        };
        self.own_path(&whole).map(str::to_owned)
    }
}

/// RFC 3986 §5.2.4, for a path that begins with a slash.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_resolved_against_the_requested_path() {
        let map = UrlMap::new("https://h", "https://h/graphql", "https://u");
        for (reference, path) in [
            ("j3", Some("/a/b/j3")),
            ("./j3?x=1#y", Some("/a/b/j3")),
            ("../../j/4", Some("/j/4")),
            ("../../../../j", Some("/j")),
            ("..", Some("/a/")),
            ("/x/../j/6d", Some("/j/6d")),
            ("/x/%2e%2E/j", Some("/j")),
            ("https://h/x/./j", Some("/x/j")),
            ("//h/j", Some("/j")),
            ("https://elsewhere/j", None),
            ("//elsewhere/j", None),
            ("mailto:j", None),
            ("?page=2", None),
            ("", None),
        ] {
            assert_eq!(map.named_path("/a/b/c?d=/e", reference).as_deref(), path, "{reference:?}");
        }
    }

    #[test]
    fn a_reference_is_resolved_below_the_api_root() {
        let map = UrlMap::new("https://h/api/v3", "https://h/api/graphql", "https://h/api/uploads");
        for (reference, path) in [
            ("j", "/a/j"),
            ("/api/v3/a/../j", "/j"),
            ("../j", "/j"),
            ("https://h/api/v3/x/../j", "/j"),
        ] {
            assert_eq!(map.named_path("/a/b", reference).as_deref(), Some(path), "{reference:?}");
        }
    }
}
