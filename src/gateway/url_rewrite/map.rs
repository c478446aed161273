//! Rewrites URLs in answers to the gateway's address (SPECIFICATION, "Rewritten URLs").
//!
//! The upstream's URLs in a JSON body are located once, when the body arrives. Each answer then
//! gets the client's own origin. User text and `html_url` stay unchanged.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memmem};

use crate::gateway::address::{Root, below};
use crate::gateway::spool::kept::StoredFile;
use crate::gateway::url_rewrite::offsets::{Builder, UrlOffset, UrlOffsets};
use crate::gateway::url_rewrite::rendering::{Rendering, Replacement};

/// The key of a short-lived secret in repository objects.
const SECRET_KEYS: [&[u8]; 2] = [b"\"temp_clone_token\"", b"\"tempCloneToken\""];

/// The API root of the self-hosted shape.
const API_V3: &str = "/api/v3";

/// A URL prefix of the upstream and its replacement under each root of the gateway.
#[derive(Clone, Debug)]
struct Prefix {
    upstream: String,
    plain: &'static str,
    v3: &'static str,
}

/// The upstream's URL prefixes, longest first.
#[derive(Clone, Debug)]
pub struct UrlMap {
    prefixes: Vec<Prefix>,
}

/// The client's address of the gateway: `scheme://host[:port]` and the root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// For example `http://weir:8080`, without a trailing slash.
    pub base: String,
    pub root: Root,
}

#[derive(Clone, Debug, Default)]
pub struct Body {
    text: Text,
    offsets: UrlOffsets,
}

/// The place of a body's text.
#[derive(Clone, Debug)]
enum Text {
    InMemory(Bytes),
    OnDisk(Arc<StoredFile>),
}

impl Default for Text {
    fn default() -> Self {
        Self::InMemory(Bytes::new())
    }
}

impl UrlMap {
    /// Creates the map from the API root, GraphQL address and upload root, none ending in `/`.
    pub fn new(api: &str, graphql: &str, uploads: &str) -> Self {
        let mut prefixes = vec![
            Prefix { upstream: api.to_owned(), plain: "", v3: API_V3 },
            Prefix { upstream: graphql.to_owned(), plain: "/graphql", v3: "/api/graphql" },
            Prefix { upstream: uploads.to_owned(), plain: "/api/uploads", v3: "/api/uploads" },
        ];
        // Longest first: uploads on the API's own host must not be taken for the API.
        prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.upstream.len()));
        prefixes.dedup_by(|a, b| a.upstream == b.upstream);
        Self { prefixes }
    }

    /// Returns the prefix of `url`, matched at a boundary: `https://api.example.community` is not
    /// under `https://api.example.com`.
    fn prefix_of(&self, url: &[u8]) -> Option<usize> {
        self.prefixes.iter().position(|prefix| {
            url.len() >= prefix.upstream.len()
                && url[..prefix.upstream.len()].eq_ignore_ascii_case(prefix.upstream.as_bytes())
                && url
                    .get(prefix.upstream.len())
                    .is_none_or(|byte| matches!(byte, b'/' | b'?' | b'{' | b'#' | b'"' | b'>'))
        })
    }

    fn replacement(&self, prefix: usize, origin: &Origin) -> &'static str {
        match origin.root {
            Root::Plain => self.prefixes[prefix].plain,
            Root::V3 => self.prefixes[prefix].v3,
        }
    }

    pub fn rewrite_url(&self, url: &str, origin: &Origin) -> Option<String> {
        String::from_utf8(self.rewrite_beginning(url.as_bytes(), origin)?).ok()
    }

    /// Rewrites a URL or a path, as in `Location`; `None` if it leads to another host.
    pub fn rewrite_reference(&self, reference: &str, origin: &Origin) -> Option<String> {
        if let Some(rest) = reference.strip_prefix("//") {
            // RFC 3986 §4.2: a network path takes the scheme of its base.
            return ["https://", "http://"]
                .iter()
                .find_map(|scheme| self.rewrite_url(&format!("{scheme}{rest}"), origin));
        }
        if !reference.starts_with('/') {
            return self.rewrite_url(reference, origin);
        }
        let path = below(reference, self.api_path()).unwrap_or(reference);
        let prefix = if origin.root == Root::V3 { API_V3 } else { "" };
        Some(format!("{}{prefix}{path}", origin.base))
    }

    /// Returns the path and query below the API root; `None` if the reference leads elsewhere.
    pub fn own_path<'r>(&self, reference: &'r str) -> Option<&'r str> {
        if reference.starts_with('/') && !reference.starts_with("//") {
            return Some(below(reference, self.api_path()).unwrap_or(reference));
        }
        if let Some(network_path) = reference.strip_prefix("//") {
            // RFC 3986 §4.2: a network path takes the scheme of its base.
            return below(network_path, self.api().upstream.split_once("://")?.1);
        }
        let prefix = &self.prefixes[self.prefix_of(reference.as_bytes())?];
        (prefix.v3 == API_V3).then(|| &reference[prefix.upstream.len()..])
    }

    /// True if an upstream path is the same path here.
    pub fn keeps_paths(&self, origin: &Origin) -> bool {
        let host = origin.base.split_once("://").map_or(origin.base.as_str(), |(_, rest)| rest);
        origin.root == Root::Plain && !host.contains('/') && self.api_path().is_empty()
    }

    /// The path of the API root, such as `/api/v3` or nothing.
    pub fn api_path(&self) -> &str {
        let host = self.api().upstream.split_once("://").map_or("", |(_, rest)| rest);
        host.find('/').map_or("", |at| &host[at..])
    }

    fn api(&self) -> &Prefix {
        // Always there: of equal upstream addresses, the API's stays.
        let api = self.prefixes.iter().find(|prefix| prefix.v3 == API_V3);
        api.unwrap_or(&self.prefixes[0])
    }

    /// Rewrites a URL's beginning, long enough to match a prefix, or a whole quoted URL.
    pub fn rewrite_beginning(&self, beginning: &[u8], origin: &Origin) -> Option<Vec<u8>> {
        let prefix = self.prefix_of(beginning)?;
        let rest = &beginning[self.prefixes[prefix].upstream.len()..];
        Some([origin.base.as_bytes(), self.replacement(prefix, origin).as_bytes(), rest].concat())
    }

    pub fn longest_prefix(&self) -> usize {
        self.prefixes.first().map_or(0, |prefix| prefix.upstream.len())
    }

    /// Rewrites every target of a `Link` (RFC 8288 §3); relations and parameters stay.
    pub fn rewrite_link(&self, link: &str, origin: &Origin) -> String {
        let mut out = String::with_capacity(link.len() + 32);
        let mut rest = link;
        while let Some(open) = rest.find('<') {
            out.push_str(&rest[..=open]);
            rest = &rest[open + 1..];
            // A target that is not closed must not hide the next one.
            let end = rest.find(['<', '>']).unwrap_or(rest.len());
            out.push_str(
                &self.rewrite_url(&rest[..end], origin).unwrap_or_else(|| rest[..end].to_owned()),
            );
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    /// Locates the API URLs of a JSON body: string values of `url`, of keys ending in `_url` except
    /// `html_url`, and of the keys of `_links`.
    pub fn with_url_offsets(&self, bytes: Bytes) -> Body {
        let mut offsets = Builder::default();
        let mut key: &[u8] = &[];
        let (mut at, mut colon) = (0, 0);
        while let Some(open) = memchr(b'"', &bytes[at..]).map(|offset| at + offset) {
            let Some(end) = string_end(&bytes, open + 1) else { break };
            let text = &bytes[open + 1..end];
            let is_space = u8::is_ascii_whitespace;
            let next = bytes[end + 1..].iter().position(|byte| !is_space(byte));
            let next = next.map(|offset| end + 1 + offset).filter(|next| bytes[*next] == b':');
            if let Some(next) = next {
                (key, colon) = (text, next);
            } else {
                // Of a list, no item is the value of the key.
                if is_url_key(key)
                    && bytes[colon + 1..open].iter().all(is_space)
                    && let Some(prefix) = self.prefix_of(text)
                {
                    offsets.push(UrlOffset { at: open + 1, prefix });
                }
                key = &[];
            }
            at = end + 1;
        }
        Body { text: Text::InMemory(bytes), offsets: offsets.finish() }
    }

    /// Renders the body for this client; returns the stored bytes themselves if nothing changes.
    pub fn render(&self, body: &Body, origin: &Origin) -> Bytes {
        if body.offsets.is_empty() {
            return body.shared_text();
        }
        let mut out = Vec::with_capacity(self.rendered_bytes(body, origin));
        self.render_into(body, origin, &mut out);
        out.into()
    }

    /// Begins to render the body for this client piece by piece.
    pub fn rendering(&self, body: &Body, origin: &Origin) -> Rendering {
        if body.offsets.is_empty() {
            return Rendering::opaque(body.shared_text());
        }
        let replacement = |prefix: usize| Replacement {
            replaced_bytes: self.prefixes[prefix].upstream.len(),
            by: [origin.base.as_bytes(), self.replacement(prefix, origin).as_bytes()]
                .concat()
                .into(),
        };
        let replacements = (0..self.prefixes.len()).map(replacement).collect();
        let (text, offsets) = (body.shared_text(), body.offsets.clone());
        Rendering::new(text, offsets, replacements, self.rendered_bytes(body, origin))
    }

    /// The length of the body for this client; of one on disk before its URLs are rewritten.
    pub fn rendered_bytes(&self, body: &Body, origin: &Origin) -> usize {
        let (counts, _) = body.offsets.counts();
        // Every replaced prefix is part of the body, so this cannot underflow.
        let counted = self.prefixes.iter().zip(counts).enumerate();
        counted.fold(body.len(), |length, (index, (prefix, count))| {
            let by = origin.base.len() + self.replacement(index, origin).len();
            length + count * by - count * prefix.upstream.len()
        })
    }

    pub fn render_into(&self, body: &Body, origin: &Origin, out: &mut Vec<u8>) {
        let (text, mut done) = (body.text(), 0);
        for offset in body.offsets.iter() {
            out.extend_from_slice(&text[done..offset.at]);
            out.extend_from_slice(origin.base.as_bytes());
            out.extend_from_slice(self.replacement(offset.prefix, origin).as_bytes());
            done = offset.at + self.prefixes[offset.prefix].upstream.len();
        }
        out.extend_from_slice(&text[done..]);
    }
}

impl Body {
    pub fn opaque(bytes: Bytes) -> Self {
        Self { text: Text::InMemory(bytes), offsets: UrlOffsets::default() }
    }

    /// A body that is read from a file. URLs in it are rewritten as it is sent.
    pub fn on_disk(file: Arc<StoredFile>) -> Self {
        Self { text: Text::OnDisk(file), offsets: UrlOffsets::default() }
    }

    /// The file of a body that is not in memory.
    pub fn file(&self) -> Option<&Arc<StoredFile>> {
        match &self.text {
            Text::OnDisk(file) => Some(file),
            Text::InMemory(_) => None,
        }
    }

    /// The length of the stored text.
    pub fn len(&self) -> usize {
        match &self.text {
            Text::InMemory(text) => text.len(),
            Text::OnDisk(file) => usize::try_from(file.len()).unwrap_or(usize::MAX),
        }
    }

    /// True if both have the same text; of files only the same one.
    pub fn is_same_as(&self, other: &Self) -> bool {
        match (self.file(), other.file()) {
            (None, None) => self.text() == other.text(),
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// True if every client gets the same bytes.
    pub fn is_alike_for_all(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The stored text with the upstream's URLs; empty if it is on disk.
    pub fn text(&self) -> &[u8] {
        match &self.text {
            Text::InMemory(text) => text,
            Text::OnDisk(_) => &[],
        }
    }

    pub fn shared_text(&self) -> Bytes {
        match &self.text {
            Text::InMemory(text) => text.clone(),
            Text::OnDisk(_) => Bytes::new(),
        }
    }

    /// Heap allocations in bytes: the text and the URL offsets.
    pub fn allocations(&self) -> [usize; 2] {
        [self.text().len(), self.offsets.bytes()]
    }
}

/// Blanks every `temp_clone_token`, and the same in GraphQL; no secret is stored or shared
/// (SPECIFICATION D2).
pub fn blank_secrets(bytes: Bytes) -> Bytes {
    SECRET_KEYS.iter().fold(bytes, blank_values)
}

fn blank_values(bytes: Bytes, key: &&[u8]) -> Bytes {
    let mut out: Option<BytesMut> = None;
    let mut done = 0;
    for at in memmem::find_iter(&bytes, key) {
        // An escaped quote begins no key.
        let backslashes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if backslashes % 2 == 1 {
            continue;
        }
        let after = &bytes[at + key.len()..];
        let value = after
            .iter()
            .position(|byte| !byte.is_ascii_whitespace() && *byte != b':')
            .map(|offset| at + key.len() + offset);
        let Some(open) = value.filter(|&open| open >= done && bytes[open] == b'"') else {
            continue;
        };
        let Some(end) = string_end(&bytes, open + 1) else { break };
        out.get_or_insert_with(|| BytesMut::with_capacity(bytes.len()))
            .extend_from_slice(&bytes[done..=open]);
        done = end;
    }
    match out {
        Some(mut out) => {
            out.extend_from_slice(&bytes[done..]);
            out.freeze()
        }
        None => bytes,
    }
}

/// True if the stored bytes may differ from those that the upstream sent.
pub fn may_hold_secrets(bytes: &[u8]) -> bool {
    SECRET_KEYS.iter().any(|key| memmem::find(bytes, key).is_some())
}

pub fn is_secret_key(key: &[u8]) -> bool {
    let quoted = |secret: &[u8]| secret.get(1..secret.len() - 1) == Some(key);
    SECRET_KEYS.into_iter().any(quoted)
}

pub fn is_url_key(key: &[u8]) -> bool {
    // The last three occur in `_links` of contents and pull requests.
    matches!(key, b"url" | b"href" | b"self" | b"git")
        || (key.ends_with(b"_url") && key != b"html_url")
}

/// The position of the closing quote of the string that begins at `from`.
fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> UrlMap {
        UrlMap::new(
            "https://api.example.com",
            "https://api.example.com/graphql",
            "https://uploads.example.com",
        )
    }

    fn origin(root: Root) -> Origin {
        Origin { base: "http://weir:8080".into(), root }
    }

    #[test]
    fn paths_are_kept_only_without_a_prefix_on_either_side() {
        let below = Origin { base: "https://weir.internal/gateway".into(), root: Root::Plain };
        assert!(map().keeps_paths(&origin(Root::Plain)));
        assert!(!map().keeps_paths(&origin(Root::V3)) && !map().keeps_paths(&below));
        let self_hosted =
            UrlMap::new("https://h/api/v3", "https://h/api/graphql", "https://h/api/uploads");
        assert!(!self_hosted.keeps_paths(&origin(Root::Plain)));
        assert_eq!(self_hosted.own_path("/api/v3/repos/a/b"), Some("/repos/a/b"));
        assert_eq!(self_hosted.own_path("https://h/api/v3/repos/a/b?x"), Some("/repos/a/b?x"));
    }

    #[test]
    fn a_reference_to_another_host_has_no_own_path() {
        assert_eq!(map().own_path("//api.example.com/repos/a/b"), Some("/repos/a/b"));
        for other in [
            "https://elsewhere.example/repos/a/b",
            "//elsewhere.example/a",
            "//api.example.community/a",
            "42",
            "https://uploads.example.com/a",
            "",
        ] {
            assert_eq!(map().own_path(other), None, "{other}");
        }
    }

    fn rendered(json: &str, root: Root) -> String {
        let map = map();
        let body = map.with_url_offsets(Bytes::copy_from_slice(json.as_bytes()));
        String::from_utf8(map.render(&body, &origin(root)).to_vec()).unwrap()
    }

    #[test]
    fn a_body_in_pieces_equals_the_whole_one() {
        let json = r#"{"url":"https://api.example.com","a_url":"https://uploads.example.com/a","title":"text of some length","b_url":"https://api.example.com/graphql","c_url":"https://api.example.com/c"}"#;
        let map = map();
        for (json, root) in [(json, Root::V3), (json, Root::Plain), ("[1]", Root::V3)] {
            let body = map.with_url_offsets(Bytes::from_static(json.as_bytes()));
            let whole = map.render(&body, &origin(root));
            assert_eq!(map.rendered_bytes(&body, &origin(root)), whole.len());
            for bytes in [1, 2, 7, 16, 1_000] {
                let mut rendering = map.rendering(&body, &origin(root));
                let mut pieces = Vec::new();
                while rendering.bytes_left() > 0 {
                    let piece = rendering.piece(bytes);
                    assert!(!piece.is_empty() && piece.len() <= bytes, "{bytes}");
                    pieces.extend_from_slice(&piece);
                }
                assert_eq!((&pieces[..], rendering.piece(1).len()), (&whole[..], 0), "{bytes}");
            }
            for begin in 0..whole.len() {
                let range = begin..=whole.len().min(begin + 9);
                let mut part = map.rendering(&body, &origin(root)).part(&range);
                let expected = &whole[begin..whole.len().min(begin + 10)];
                assert_eq!((part.bytes_left(), &part.piece(100)[..]), (expected.len(), expected));
            }
        }
    }

    #[test]
    fn api_urls_in_a_body_point_at_the_gateway_in_the_clients_shape() {
        let json = r#"{"url":"https://api.example.com/repos/a/b","labels_url": "https://api.example.com/repos/a/b/labels{/name}","upload_url":"https://uploads.example.com/repos/a/b/releases/1/assets{?name,label}"}"#;
        assert_eq!(
            rendered(json, Root::V3),
            r#"{"url":"http://weir:8080/api/v3/repos/a/b","labels_url": "http://weir:8080/api/v3/repos/a/b/labels{/name}","upload_url":"http://weir:8080/api/uploads/repos/a/b/releases/1/assets{?name,label}"}"#
        );
        assert!(rendered(json, Root::Plain).starts_with(r#"{"url":"http://weir:8080/repos/a/b""#));
    }

    #[test]
    fn links_inside_a_body_point_at_the_gateway() {
        assert_eq!(
            rendered(
                r#"{"_links":{"self":"https://api.example.com/a","git":"https://api.example.com/g","html":"https://example.com/h","x":{"href":"https://api.example.com/c"}}}"#,
                Root::Plain
            ),
            r#"{"_links":{"self":"http://weir:8080/a","git":"http://weir:8080/g","html":"https://example.com/h","x":{"href":"http://weir:8080/c"}}}"#
        );
    }

    #[test]
    fn html_urls_and_user_text_stay_unchanged() {
        for json in [
            r#"{"html_url":"https://api.example.com/a"}"#,
            r#"{"body":"see https://api.example.com/repos/a \"url\":\"https://api.example.com/x\""}"#,
            r#"{"title":"url","x":"https://api.example.com/a"}"#,
            r#"{"url":"https://api.example.community/a"}"#,
            r#"{"url":null,"x":"https://api.example.com/a"}"#,
        ] {
            assert_eq!(rendered(json, Root::Plain), json);
        }
    }

    #[test]
    fn short_lived_secrets_are_emptied() {
        for (json, blanked) in [
            (
                r#"[{"temp_clone_token": "AB12","a":1},{"temp_clone_token":"x"}]"#,
                r#"[{"temp_clone_token": "","a":1},{"temp_clone_token":""}]"#,
            ),
            (
                r#"{"tempCloneToken":"x","temp_clone_token":"y","z":{"tempCloneToken" : "AB"}}"#,
                r#"{"tempCloneToken":"","temp_clone_token":"","z":{"tempCloneToken" : ""}}"#,
            ),
            (r#"{"temp_clone_token":null}"#, r#"{"temp_clone_token":null}"#),
            // Another key, and one after a key that ends with a backslash.
            (r#"{"x_\"temp_clone_token":"y"}"#, r#"{"x_\"temp_clone_token":"y"}"#),
            (r#"{"a":"\\","temp_clone_token":"y"}"#, r#"{"a":"\\","temp_clone_token":""}"#),
            (r#"{"temp_clone_token":"""#, r#"{"temp_clone_token":"""#),
            (r#"{"temp_clone_token":"broken"#, r#"{"temp_clone_token":"broken"#),
        ] {
            assert_eq!(
                blank_secrets(Bytes::from_static(json.as_bytes())),
                blanked.as_bytes(),
                "{json}"
            );
        }
    }

    #[test]
    fn broken_json_is_passed_on_as_it_is() {
        for json in ["{\"url\":\"https://api.exa", "\"", "{\"url\":\"x\\", ""] {
            assert_eq!(rendered(json, Root::Plain), json);
        }
    }

    #[test]
    fn every_relation_of_a_link_is_rewritten_and_kept() {
        let link = r#"<https://api.example.com/repositories/1/issues?page=2>; rel="next", <https://api.example.com/repositories/1/issues?page=9>; rel="last", <https://other.example/x>; rel="help""#;
        assert_eq!(
            map().rewrite_link(link, &origin(Root::V3)),
            r#"<http://weir:8080/api/v3/repositories/1/issues?page=2>; rel="next", <http://weir:8080/api/v3/repositories/1/issues?page=9>; rel="last", <https://other.example/x>; rel="help""#
        );
    }

    #[test]
    fn an_unclosed_link_hides_no_other() {
        assert_eq!(
            map().rewrite_link("<a, <https://api.example.com/b>, <", &origin(Root::Plain)),
            "<a, <http://weir:8080/b>, <"
        );
    }

    #[test]
    fn a_redirect_to_another_host_passes_unchanged() {
        assert_eq!(
            map().rewrite_url("https://codeload.example.com/a.tar.gz", &origin(Root::Plain)),
            None
        );
        assert_eq!(
            map()
                .rewrite_url("https://api.example.com/repositories/1", &origin(Root::Plain))
                .as_deref(),
            Some("http://weir:8080/repositories/1")
        );
    }

    #[test]
    fn a_reference_to_the_upstream_gets_the_gateways_address() {
        let hosted = UrlMap::new(
            "https://code.corp/api/v3",
            "https://code.corp/api/graphql",
            "https://code.corp/api/uploads",
        );
        for (map, reference, root, expected) in [
            (map(), "/repositories/1", Root::V3, Some("http://weir:8080/api/v3/repositories/1")),
            (map(), "//api.example.com/x", Root::Plain, Some("http://weir:8080/x")),
            (
                hosted,
                "/api/v3/repositories/1",
                Root::Plain,
                Some("http://weir:8080/repositories/1"),
            ),
            (map(), "//elsewhere.example/x", Root::Plain, None),
            (map(), "https://elsewhere.example/x", Root::Plain, None),
        ] {
            assert_eq!(
                map.rewrite_reference(reference, &origin(root)).as_deref(),
                expected,
                "{reference}"
            );
        }
    }

    #[test]
    fn uploads_on_the_apis_own_address_do_not_shadow_it() {
        let map = UrlMap::new(
            "http://127.0.0.1:8090",
            "http://127.0.0.1:8090/graphql",
            "http://127.0.0.1:8090",
        );
        assert_eq!(
            map.rewrite_url("http://127.0.0.1:8090/repos", &origin(Root::Plain)).as_deref(),
            Some("http://weir:8080/repos")
        );
    }
}
