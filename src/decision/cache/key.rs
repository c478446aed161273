//! The cache key: the view that an answer shows, not the token that fetched it (SPECIFICATION D2).
//!
//! The key consists of the visibility scope, the raw path and query, the normalized `Accept` and
//! the API version. GET and HEAD share it. There is one upstream, so it is not part of the key.
//! Other headers that `Vary` names are compared inside an entry, by the store.

use std::fmt;

/// Visibility scope of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All clients of this pool.
    Pool(u32),
    /// This account alone: routes about the caller.
    Account(u32),
    /// Clients with this credential, which is their own and not in the config.
    Credential(CredentialKey),
    Public,
}

/// Fingerprint of a client's credential: the first 128 bits of its digest under a secret of the
/// process. It has no collisions and does not reveal the credential; still it is never printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CredentialKey([u8; 16]);

impl CredentialKey {
    pub fn of_digest(digest: &[u8; 32]) -> Self {
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        Self(key)
    }
}

impl fmt::Debug for CredentialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialKey(..)")
    }
}

/// Key of a stored answer, in one allocation. Maps choose the hash: keys come from clients, so the
/// hash must be seeded.
///
/// A store holds a hundred thousand keys, so the scope is in the allocation too, in as few bytes as
/// its number needs. A separate field would have the size of the rare long scope (a credential) in
/// every key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// Kind and length of the scope, the scope, path and query, `\n`, the API version, `\n`, the
    /// `Accept`. None of these texts can contain a line feed.
    packed: Box<[u8]>,
}

// First byte of a scope, by its kind; the low bits hold the number of bytes that follow.
const POOL: u8 = 0x00;
const ACCOUNT: u8 = 0x20;
const CREDENTIAL: u8 = 0x40;
const PUBLIC: u8 = 0x60;
/// Bits of the first byte with the number of bytes that follow.
const FOLLOWING: u8 = 0x1f;

impl CacheKey {
    /// Creates the key of a GET or HEAD. `path_and_query` is the canonical one that goes upstream.
    /// `api_version` is the version that the upstream applies; give the default where a request
    /// names none.
    pub fn new(scope: Scope, path_and_query: &str, accept: &Accept, api_version: &str) -> Self {
        let following = match scope {
            Scope::Pool(number) | Scope::Account(number) => significant_bytes(number),
            Scope::Credential(_) => size_of::<CredentialKey>(),
            Scope::Public => 0,
        };
        // Exact: a shrink in place would keep the larger size class.
        let mut packed = Vec::with_capacity(
            1 + following + path_and_query.len() + api_version.len() + accept.text().len() + 2,
        );
        match scope {
            Scope::Pool(pool) => push_number(&mut packed, POOL, pool),
            Scope::Account(account) => push_number(&mut packed, ACCOUNT, account),
            Scope::Credential(CredentialKey(key)) => {
                packed.push(CREDENTIAL | 16);
                packed.extend_from_slice(&key);
            }
            Scope::Public => packed.push(PUBLIC),
        }
        for part in [path_and_query, "\n", api_version, "\n", accept.text()] {
            packed.extend_from_slice(part.as_bytes());
        }
        Self { packed: packed.into() }
    }

    /// Returns the key of another answer at the same address, distinguished by the values of the
    /// headers that `Vary` names (RFC 9111 §4.1).
    #[must_use]
    pub fn variant<'v>(&self, values: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut packed = self.packed.to_vec();
        packed.push(b'\n');
        for value in values {
            // The length keeps two values from being read as one.
            packed.extend_from_slice(&value.len().to_le_bytes());
            packed.extend_from_slice(value);
        }
        Self { packed: packed.into() }
    }

    /// All but the scope, for a file.
    pub fn text(&self) -> &[u8] {
        let (_, _, text) = self.parts();
        text
    }

    /// Returns the key with this [`CacheKey::text`]; `None` for a text that no key has.
    pub fn of_text(scope: Scope, text: &[u8]) -> Option<Self> {
        let path = text.split(|byte| *byte == b'\n').next()?;
        let is_path = path.first() == Some(&b'/') && std::str::from_utf8(path).is_ok();
        let of_scope = Self::new(scope, "", &Accept::Json, "").packed;
        let (scope, _line_feeds) = of_scope.split_last_chunk::<2>()?;
        is_path.then(|| Self { packed: [scope, text].concat().into() })
    }

    pub fn scope(&self) -> Scope {
        let (first, own, _) = self.parts();
        let number = || {
            let mut number = [0; 4];
            number.iter_mut().zip(own).for_each(|(to, from)| *to = *from);
            u32::from_le_bytes(number)
        };
        match first & !FOLLOWING {
            POOL => Scope::Pool(number()),
            ACCOUNT => Scope::Account(number()),
            CREDENTIAL => Scope::Credential(CredentialKey(own.try_into().unwrap_or_default())),
            _ => Scope::Public,
        }
    }

    /// Path and query, for invalidation by prefix.
    pub fn path_and_query(&self) -> &str {
        let (_, _, text) = self.parts();
        let path = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        // It was valid before.
        std::str::from_utf8(path).unwrap_or_default()
    }

    /// Bytes of its allocation, for the store's weigher.
    pub fn allocation(&self) -> usize {
        self.packed.len()
    }

    fn parts(&self) -> (u8, &[u8], &[u8]) {
        let (first, rest) = self.packed.split_first().unwrap_or((&PUBLIC, &[]));
        let (own, text) =
            rest.split_at_checked(usize::from(first & FOLLOWING)).unwrap_or((&[], rest));
        (*first, own, text)
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheKey")
            .field("scope", &self.scope())
            .field("path_and_query", &self.path_and_query())
            .finish_non_exhaustive()
    }
}

fn push_number(packed: &mut Vec<u8>, kind: u8, number: u32) {
    let length = significant_bytes(number);
    // At most four.
    packed.push(kind | u8::try_from(length).unwrap_or(0));
    packed.extend(number.to_le_bytes().iter().take(length));
}

/// Bytes of a number without the leading zeros.
fn significant_bytes(number: u32) -> usize {
    (u32::BITS - number.leading_zeros()).div_ceil(8) as usize
}

/// Normalized `Accept`: equal for all spellings of the same representation (SPECIFICATION, "Client
/// libraries" 14).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Accept {
    /// Plain JSON: the header is absent or empty, `*/*`, `application/json`, the vendor's type or
    /// its `v3`.
    Json,
    /// Anything else: several JSON types as a sorted set, every other list verbatim.
    Other(Box<str>),
}

impl Accept {
    /// Normalizes all `Accept` lines of a request, joined by commas; `None` without any.
    pub fn normalise(header: Option<&str>) -> Self {
        let Some(header) = header.map(str::trim).filter(|header| !header.is_empty()) else {
            return Self::Json;
        };
        // Shortcut for the values of nearly all clients.
        if matches!(
            header,
            "application/vnd.github+json"
                | "application/vnd.github.v3+json"
                | "application/json"
                | "*/*"
        ) {
            return Self::Json;
        }
        if header.contains('\n') {
            return Self::Other(header.replace('\n', " ").into());
        }
        let lower = header.to_ascii_lowercase();
        let mut essences: Vec<&str> = ranges(&lower).map(essence).collect();
        if !ranges(&lower).any(has_quality) {
            if essences.iter().all(|range| is_plain_json(range)) {
                return Self::Json;
            }
            // JSON types request additional fields, in any order. Between other types the order
            // may decide, so it stays.
            if essences.iter().all(|range| is_plain_json(range) || is_preview(range)) {
                essences.retain(|range| !is_plain_json(range));
                essences.sort_unstable();
                essences.dedup();
                return Self::Other(essences.join(",").into());
            }
        }
        // These go upstream as they are, and case or parameters may choose the answer.
        Self::Other(ranges(header).collect::<Vec<_>>().join(",").into())
    }

    /// Returns a sorted set of JSON types as a header value; `None` for plain JSON and for other
    /// lists.
    pub fn set(&self) -> Option<&str> {
        match self {
            Self::Other(types) if types.split(',').all(is_preview) => Some(types),
            _ => None,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Json => "",
            Self::Other(text) => text,
        }
    }
}

fn ranges(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|range| !range.is_empty())
}

/// Media range without its parameters.
fn essence(range: &str) -> &str {
    range.split(';').next().unwrap_or_default().trim()
}

/// True for a range with a weight: order and weights decide, and the list stays verbatim.
fn has_quality(range: &str) -> bool {
    range.split(';').skip(1).any(|parameter| parameter.trim().starts_with("q="))
}

/// Matches `application/vnd.NAME+json` and `application/vnd.NAME.v3+json` for the names of the
/// dialects, and the generic types. Another vendor's type is another representation.
fn is_plain_json(essence: &str) -> bool {
    if matches!(essence, "*/*" | "application/*" | "application/json") {
        return true;
    }
    vendor_json(essence).is_some_and(|name| {
        matches!(name.strip_suffix(".v3").unwrap_or(name), "service" | "github")
    })
}

/// Matches `application/vnd.NAME.SOMETHING-preview+json`.
fn is_preview(essence: &str) -> bool {
    vendor_json(essence).is_some_and(|name| name.ends_with("-preview"))
}

fn vendor_json(essence: &str) -> Option<&str> {
    essence.strip_prefix("application/vnd.")?.strip_suffix("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(header: &str) -> Accept {
        Accept::normalise(Some(header))
    }

    fn key(scope: Scope, path: &str, header: Option<&str>) -> CacheKey {
        CacheKey::new(scope, path, &Accept::normalise(header), "2022-11-28")
    }

    #[test]
    fn all_spellings_of_plain_json_normalise_alike() {
        assert_eq!(Accept::normalise(None), Accept::Json);
        for header in [
            "",
            " ",
            "*/*",
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/vnd.service+json",
            "application/vnd.github+json",
            "application/vnd.github.v3+json",
            "application/vnd.github.v3+json, application/json",
        ] {
            assert_eq!(accept(header), Accept::Json, "{header}");
        }
    }

    #[test]
    fn other_representations_stay_distinct() {
        let others = [
            "application/vnd.github.raw",
            "application/vnd.github.raw+json",
            "application/vnd.github.v3.diff",
            "application/vnd.github.html+json",
            "application/octet-stream",
        ];
        for (place, header) in others.iter().enumerate() {
            assert_ne!(accept(header), Accept::Json, "{header}");
            assert!(
                others[..place].iter().all(|other| accept(other) != accept(header)),
                "{header}"
            );
        }
    }

    #[test]
    fn preview_types_form_an_unordered_set() {
        let one =
            accept("application/vnd.github.a-preview+json, application/vnd.github.b-preview+json");
        assert_eq!(
            one,
            accept("application/vnd.github.b-preview+json,application/vnd.github.a-preview+json")
        );
        assert_eq!(
            one,
            accept(
                "application/vnd.github.b-preview+json,application/vnd.github.v3+json,application/vnd.github.a-preview+json"
            )
        );
        assert_ne!(one, accept("application/vnd.github.a-preview+json"));
    }

    #[test]
    fn order_and_weights_between_representations_are_kept() {
        assert_ne!(
            accept("application/vnd.github.raw, application/json"),
            accept("application/json, application/vnd.github.raw")
        );
        assert_ne!(accept("text/html, */*; q=0.2"), accept("text/html, */*"));
    }

    #[test]
    fn case_and_parameters_of_representations_are_kept() {
        let diff = "application/vnd.github.diff";
        for other in ["; a=b", "; a=B", ";a=b;c=d"] {
            assert_ne!(accept(diff), accept(&format!("{diff}{other}")), "{other}");
        }
        assert_ne!(accept("text/html; a=b"), accept("text/html; a=B"));
        assert_ne!(accept("text/html"), accept("TEXT/html"));
        assert_eq!(accept("application/json; indent=4"), Accept::Json, "sent without it");
    }

    #[test]
    fn scopes_never_share_a_key() {
        let [one, other] =
            [1, 2].map(|byte| Scope::Credential(CredentialKey::of_digest(&[byte; 32])));
        let keys = [Scope::Pool(1), Scope::Pool(2), Scope::Account(1), one, other, Scope::Public]
            .map(|scope| key(scope, "/a", None));
        for (place, one) in keys.iter().enumerate() {
            assert!(keys[..place].iter().all(|other| other != one));
        }
    }

    #[test]
    fn a_key_returns_its_scope_and_path_unchanged() {
        let numbers = [0, 1, 9, 10, 255, 256, 65_536, u32::MAX];
        let numbered =
            numbers.into_iter().flat_map(|number| [Scope::Pool(number), Scope::Account(number)]);
        let credentials =
            [0, 10, 255].map(|byte| Scope::Credential(CredentialKey::of_digest(&[byte; 32])));
        let scopes: Vec<_> = numbered.chain(credentials).chain([Scope::Public]).collect();
        let keys: Vec<_> =
            scopes.iter().map(|scope| key(*scope, "/a\u{e9}?b", Some("text/html"))).collect();
        for (place, (scope, one)) in scopes.iter().zip(&keys).enumerate() {
            assert_eq!((one.scope(), one.path_and_query()), (*scope, "/a\u{e9}?b"));
            assert_eq!(CacheKey::of_text(*scope, one.text()).as_ref(), Some(one));
            assert!(keys[..place].iter().all(|other| other != one), "{scope:?}");
        }
    }

    #[test]
    fn a_credential_key_is_not_printed() {
        let scope = Scope::Credential(CredentialKey::of_digest(&[171; 32]));
        assert_eq!(format!("{scope:?}"), "Credential(CredentialKey(..))");
        assert_eq!(
            format!("{:?}", key(scope, "/a", None)),
            "CacheKey { scope: Credential(CredentialKey(..)), path_and_query: \"/a\", .. }"
        );
    }

    #[test]
    fn query_accept_and_version_are_part_of_the_key() {
        let plain = key(Scope::Public, "/a", None);
        assert_eq!(plain, key(Scope::Public, "/a", Some("*/*")));
        assert_ne!(plain, key(Scope::Public, "/a?page=1", None));
        assert_ne!(plain, key(Scope::Public, "/a", Some("application/vnd.github.raw")));
        assert_ne!(plain, CacheKey::new(Scope::Public, "/a", &Accept::Json, "2026-03-10"));
        assert_eq!(key(Scope::Public, "/a?b=c", Some("text/html")).path_and_query(), "/a?b=c");
    }

    #[test]
    fn a_line_feed_in_a_header_cannot_forge_another_key() {
        let forged = CacheKey::new(Scope::Public, "/a", &accept("x\ny"), "v");
        let (_, _, text) = forged.parts();
        assert_eq!(text.split(|byte| *byte == b'\n').count() - 1, 2);
    }
}
