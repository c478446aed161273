//! URLs in answers point at the gateway, as this client addresses it (CONTRACT §3; CLIENTS.md, 1, 2
//! and 7).
//!
//! Where the upstream's URLs stand in a JSON body is found once, when the body arrives; the
//! client's own origin is put in on every answer. Text that a person wrote, and `html_url`, stay as
//! they are. Which client may see a body is not decided here.

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memmem};

use crate::gateway::address::Root;
use crate::gateway::url_rewrite::offsets::{UrlOffset, UrlOffsets};

/// The key of a short-lived secret (Document 3, Repository object).
const SECRET_KEY: &[u8] = b"\"temp_clone_token\"";

/// One of the upstream's URL prefixes and what stands for it under each shape of the gateway.
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

/// How a client addresses the gateway: `scheme://host[:port]`, and the shape it used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// `http://weir:8080`, without a slash at the end.
    pub base: String,
    /// The shape its URLs are made in.
    pub root: Root,
}

/// A body and the places in it that are rendered per client.
#[derive(Clone, Debug, Default)]
pub struct Body {
    bytes: Bytes,
    offsets: UrlOffsets,
}

impl UrlMap {
    /// From the upstream's API root, GraphQL address and upload root, none ending in a slash.
    #[must_use]
    pub fn new(api: &str, graphql: &str, uploads: &str) -> Self {
        let mut prefixes = vec![
            Prefix { upstream: api.to_owned(), plain: "", v3: "/api/v3" },
            Prefix { upstream: graphql.to_owned(), plain: "/graphql", v3: "/api/graphql" },
            Prefix { upstream: uploads.to_owned(), plain: "/api/uploads", v3: "/api/uploads" },
        ];
        // A service on the API's own address (uploads on the same host) must not shadow the API.
        prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.upstream.len()));
        prefixes.dedup_by(|a, b| a.upstream == b.upstream);
        Self { prefixes }
    }

    /// Which prefix `url` begins with, at a boundary: `https://api.example.community` is not under
    /// `https://api.example.com`.
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

    /// A single URL, as in `Location`; `None` when it does not point at the upstream.
    #[must_use]
    pub fn rewrite_url(&self, url: &str, origin: &Origin) -> Option<String> {
        let prefix = self.prefix_of(url.as_bytes())?;
        Some(format!(
            "{}{}{}",
            origin.base,
            self.replacement(prefix, origin),
            &url[self.prefixes[prefix].upstream.len()..]
        ))
    }

    /// A URL or a path, as in `Location`, made absolute; `None` when it leads elsewhere than to the
    /// upstream.
    #[must_use]
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
        let own = self.api_path();
        let path = reference
            .strip_prefix(own)
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .unwrap_or(reference);
        let prefix = if origin.root == Root::V3 { "/api/v3" } else { "" };
        Some(format!("{}{prefix}{path}", origin.base))
    }

    /// The path and query below the API's address that a URL or a path leads to; `None` when it
    /// leads elsewhere.
    #[must_use]
    pub fn own_path<'r>(&self, reference: &'r str) -> Option<&'r str> {
        if reference.starts_with('/') && !reference.starts_with("//") {
            let below = reference
                .strip_prefix(self.api_path())
                .filter(|rest| rest.is_empty() || rest.starts_with('/'));
            return Some(below.unwrap_or(reference));
        }
        if let Some(host) = reference.strip_prefix("//") {
            // RFC 3986 §4.2: a network path takes the scheme of its base.
            let own = self.prefixes.iter().find(|prefix| prefix.v3 == "/api/v3")?;
            let rest = host.strip_prefix(own.upstream.split_once("://")?.1)?;
            return (rest.is_empty() || rest.starts_with('/')).then_some(rest);
        }
        let prefix = self
            .prefix_of(reference.as_bytes())
            .map(|place| &self.prefixes[place])
            .filter(|prefix| prefix.v3 == "/api/v3")?;
        Some(&reference[prefix.upstream.len()..])
    }

    /// Whether a path at the upstream is the same path here.
    #[must_use]
    pub fn keeps_paths(&self, origin: &Origin) -> bool {
        let host = origin.base.split_once("://").map_or(origin.base.as_str(), |(_, rest)| rest);
        origin.root == Root::Plain && !host.contains('/') && self.api_path().is_empty()
    }

    /// The path of the API's address, like `/api/v3` or nothing.
    pub fn api_path(&self) -> &str {
        let api = self
            .prefixes
            .iter()
            .find(|prefix| prefix.v3 == "/api/v3")
            .map_or("", |prefix| prefix.upstream.as_str());
        let host = api.split_once("://").map_or("", |(_, rest)| rest);
        host.find('/').map_or("", |at| &host[at..])
    }

    /// The beginning of a URL, long enough to tell whose it is, or the whole of a shorter one with
    /// the quote that ends it.
    pub fn rewrite_beginning(&self, beginning: &[u8], origin: &Origin) -> Option<Vec<u8>> {
        let prefix = self.prefix_of(beginning)?;
        let rest = &beginning[self.prefixes[prefix].upstream.len()..];
        Some([origin.base.as_bytes(), self.replacement(prefix, origin).as_bytes(), rest].concat())
    }

    /// Bytes of the longest of the upstream's prefixes.
    pub fn longest_prefix(&self) -> usize {
        self.prefixes.first().map_or(0, |prefix| prefix.upstream.len())
    }

    /// `Link` (RFC 8288 §3): every target between `<` and `>`; relations and parameters stay.
    #[must_use]
    pub fn rewrite_link(&self, link: &str, origin: &Origin) -> String {
        let mut out = String::with_capacity(link.len() + 32);
        let mut rest = link;
        while let Some(open) = rest.find('<') {
            out.push_str(&rest[..=open]);
            rest = &rest[open + 1..];
            let end = rest.find('>').unwrap_or(rest.len());
            out.push_str(
                &self.rewrite_url(&rest[..end], origin).unwrap_or_else(|| rest[..end].to_owned()),
            );
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    /// Finds the API URLs of a JSON body: string values of `url`, of keys ending in `_url` but for
    /// `html_url`, and of the keys of `_links`.
    #[must_use]
    pub fn with_url_offsets(&self, bytes: Bytes) -> Body {
        let mut offsets = UrlOffsets::builder();
        let mut key: &[u8] = &[];
        let mut at = 0;
        while let Some(open) = find(&bytes, at, b'"') {
            let Some(end) = string_end(&bytes, open + 1) else { break };
            let text = &bytes[open + 1..end];
            let next = bytes[end + 1..].iter().find(|byte| !byte.is_ascii_whitespace());
            if next == Some(&b':') {
                key = text;
            } else {
                if is_url_key(key)
                    && let Some(prefix) = self.prefix_of(text)
                {
                    offsets.push(UrlOffset { at: open + 1, prefix });
                }
                key = &[];
            }
            at = end + 1;
        }
        Body { bytes, offsets: offsets.finish() }
    }

    /// The body as this client sees it; the stored bytes themselves when there is nothing to
    /// change.
    #[must_use]
    pub fn render(&self, body: &Body, origin: &Origin) -> Bytes {
        if body.offsets.is_empty() {
            return body.bytes.clone();
        }
        let mut out = Vec::with_capacity(self.rendered_bytes(body, origin));
        self.render_into(body, origin, &mut out);
        out.into()
    }

    /// How long a body is as this client sees it.
    #[must_use]
    pub fn rendered_bytes(&self, body: &Body, origin: &Origin) -> usize {
        // Every address that is replaced stands in the body.
        let grown = |length: usize, offset: UrlOffset| {
            length + origin.base.len() + self.replacement(offset.prefix, origin).len()
                - self.prefixes[offset.prefix].upstream.len()
        };
        body.offsets.iter().fold(body.bytes.len(), grown)
    }

    /// Writes the body as this client sees it.
    pub fn render_into(&self, body: &Body, origin: &Origin, out: &mut Vec<u8>) {
        let mut done = 0;
        for offset in body.offsets.iter() {
            out.extend_from_slice(&body.bytes[done..offset.at]);
            out.extend_from_slice(origin.base.as_bytes());
            out.extend_from_slice(self.replacement(offset.prefix, origin).as_bytes());
            done = offset.at + self.prefixes[offset.prefix].upstream.len();
        }
        out.extend_from_slice(&body.bytes[done..]);
    }
}

impl Body {
    /// A body that is passed on as it is.
    #[must_use]
    pub fn opaque(bytes: Bytes) -> Self {
        Self { bytes, offsets: UrlOffsets::default() }
    }

    /// Whether every client gets the same bytes.
    #[must_use]
    pub fn is_alike_for_all(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The text as it is kept, with the upstream's addresses.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, kept as long as it is held.
    #[must_use]
    pub fn shared_text(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Bytes on the heap, by allocation: the text and the marks.
    #[must_use]
    pub fn allocations(&self) -> [usize; 2] {
        [self.bytes.len(), self.offsets.bytes()]
    }
}

/// DESIGN D2: short-lived secrets are neither kept nor shared. Empties the value of every
/// `temp_clone_token` (Document 3, Repository object).
#[must_use]
pub fn blank_secrets(bytes: &Bytes) -> Bytes {
    let mut out: Option<BytesMut> = None;
    let mut done = 0;
    for at in memmem::find_iter(bytes, SECRET_KEY) {
        let after = &bytes[at + SECRET_KEY.len()..];
        let value = after
            .iter()
            .position(|byte| !byte.is_ascii_whitespace() && *byte != b':')
            .map(|offset| at + SECRET_KEY.len() + offset);
        let Some(open) = value.filter(|&open| open >= done && bytes[open] == b'"') else {
            continue;
        };
        let Some(end) = string_end(bytes, open + 1) else { break };
        out.get_or_insert_with(|| BytesMut::with_capacity(bytes.len()))
            .extend_from_slice(&bytes[done..=open]);
        done = end;
    }
    match out {
        Some(mut out) => {
            out.extend_from_slice(&bytes[done..]);
            out.freeze()
        }
        None => bytes.clone(),
    }
}

/// The same for bytes that are nobody else's: sharing them would cost an allocation for as long as
/// they are kept.
#[must_use]
pub fn without_secrets(bytes: Bytes) -> Bytes {
    if may_hold_secrets(&bytes) { blank_secrets(&bytes) } else { bytes }
}

/// Whether what is kept of these bytes may not be what the upstream sent.
#[must_use]
pub fn may_hold_secrets(bytes: &[u8]) -> bool {
    memmem::find(bytes, SECRET_KEY).is_some()
}

/// Whether the value of a key is a short-lived secret.
pub fn is_secret_key(key: &[u8]) -> bool {
    SECRET_KEY.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) == Some(key)
}

pub fn is_url_key(key: &[u8]) -> bool {
    // The last three stand in `_links` of contents and pull requests.
    matches!(key, b"url" | b"href" | b"self" | b"git")
        || (key.ends_with(b"_url") && key != b"html_url")
}

fn find(bytes: &[u8], from: usize, wanted: u8) -> Option<usize> {
    memchr(wanted, bytes.get(from..)?).map(|offset| from + offset)
}

/// Where the string that begins at `from` has its closing quote.
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
    fn a_path_is_the_same_here_only_where_nothing_stands_before_it() {
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
    fn what_leads_elsewhere_has_no_path_of_our_own() {
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
    fn html_urls_and_what_people_wrote_stay() {
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
            (r#"{"temp_clone_token":null}"#, r#"{"temp_clone_token":null}"#),
            (r#"{"temp_clone_token":"""#, r#"{"temp_clone_token":"""#),
            (r#"{"temp_clone_token":"broken"#, r#"{"temp_clone_token":"broken"#),
        ] {
            assert_eq!(
                blank_secrets(&Bytes::from_static(json.as_bytes())),
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
    fn a_reference_without_a_host_becomes_the_gateways() {
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
