//! Finds a key of this gateway, or a token of an issuer, outside of its place (SPECIFICATION,
//! "Keys").
//!
//! The places of both are `X-Weir-Key`, and `Authorization` in the forms that identify a client.
//! From anywhere else it could reach the upstream, which would then know it. A text is searched as
//! it stands, percent-decoded and Base64-decoded. Left out: bodies, which are the client's text.

use std::borrow::Cow;
use std::iter;
use std::sync::LazyLock;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter};
use percent_encoding::percent_decode;

use crate::config::KEY_PREFIX;
use crate::gateway::request::clients::{Clients, KEY_BYTES_MAX, KEY_HEADER};
use crate::gateway::request::oidc::TOKEN_BYTES_MAX;
use crate::gateway::request::validate::ValidRequest;
use crate::telemetry::begins_object;

/// Lookups for one request, because each hashes its text. Chosen here: a request has one key, and
/// more texts that look like keys are no accident.
const LOOKUPS_MAX: u32 = 400;
/// Bytes of one request that are decoded because they may be a token, or in Base64. Chosen here:
/// four times the largest head, which take a millisecond.
const DECODED_BYTES_MAX: usize = 128 * 1024;
/// Percent-decodings of one text. Chosen here: a proxy and a framework decode once each.
const DECODINGS_MAX: usize = 3;
/// The length of a key that `weir key` makes: the prefix and 32 bytes in hex.
const GENERATED_BYTES: usize = KEY_PREFIX.len() + 64;
/// The prefix in Base64 at each of the three offsets, with the number of characters before it in
/// its group of four; then the same of `weir%`.
const PREFIX_IN_BASE64: [(&[u8], usize); 6] = [
    (b"d2Vpcl", 0),
    (b"dlaXJf", 2),
    (b"3ZWlyX", 3),
    (b"d2Vpci", 0),
    (b"dlaXIl", 2),
    (b"3ZWlyJ", 3),
];
/// The first characters of most tokens, which are `{"` and more in Base64.
const TOKEN_PREFIX: &str = "eyJ";
/// The same in Base64, as [`PREFIX_IN_BASE64`].
const TOKEN_PREFIX_IN_BASE64: [(&[u8], usize); 3] = [(b"ZXlK", 0), (b"V5S", 2), (b"leU", 3)];
/// Searchers, because each request needs all of them.
static PREFIX: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(KEY_PREFIX));
static IN_BASE64: LazyLock<[(Finder<'static>, usize); PREFIX_IN_BASE64.len()]> =
    LazyLock::new(|| PREFIX_IN_BASE64.map(|(prefix, before)| (Finder::new(prefix), before)));
static TOKEN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(TOKEN_PREFIX));
static TOKEN_IN_BASE64: LazyLock<[(Finder<'static>, usize); TOKEN_PREFIX_IN_BASE64.len()]> =
    LazyLock::new(|| TOKEN_PREFIX_IN_BASE64.map(|(prefix, before)| (Finder::new(prefix), before)));
/// As lenient as the most lenient recipient.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Names the first misplaced key's position, such as `the query`. `headers` is `None` if the
/// connection's previous request had the same header lines.
pub fn misplaced_key(
    clients: &Clients,
    headers: Option<&HeaderMap>,
    valid: &ValidRequest,
) -> Option<String> {
    let mut search = Search { clients, lookups: 0, decoded: 0 };
    // A plain HTTP cache passes unknown methods on.
    if search.finds(valid.method.as_str().as_bytes()) {
        return Some("the method".into());
    }
    if search.finds(valid.path.as_bytes()) {
        return Some("the path".into());
    }
    if valid.query.as_ref().is_some_and(|query| search.finds(query.as_bytes())) {
        return Some("the query".into());
    }
    let mut found = headers.into_iter().flatten().filter(|(name, value)| {
        name.as_str() != KEY_HEADER
            && search.finds(value.as_bytes())
            && !(*name == AUTHORIZATION && clients.have_place_in(value))
    });
    found.next().map(|(name, _)| name.to_string())
}

struct Search<'c> {
    clients: &'c Clients,
    lookups: u32,
    /// Bytes decoded so far.
    decoded: usize,
}

impl Search<'_> {
    fn finds(&mut self, text: &[u8]) -> bool {
        let mut text = Cow::Borrowed(text);
        for _ in 0..DECODINGS_MAX {
            if self.finds_plain(&text)
                || self.finds_in_base64(&text, &*IN_BASE64, KEY_BYTES_MAX, Self::finds_plain)
            {
                return true;
            }
            if self.clients.have_issuers()
                && (self.finds_token(&text)
                    || self.finds_in_base64(
                        &text,
                        &*TOKEN_IN_BASE64,
                        4 * TOKEN_BYTES_MAX,
                        Self::finds_token,
                    ))
            {
                return true;
            }
            if memchr(b'%', &text).is_none() {
                return false;
            }
            let decoded = match Cow::<[u8]>::from(percent_decode(&text)) {
                Cow::Owned(decoded) => decoded,
                Cow::Borrowed(_) => return false,
            };
            text = Cow::Owned(decoded);
        }
        false
    }

    /// A key ends with a word, or with its length. Any other character may belong to a key that
    /// `weir key` did not make, or follow it.
    fn finds_plain(&mut self, text: &[u8]) -> bool {
        PREFIX.find_iter(text).any(|start| {
            let rest = text.get(start..).unwrap_or_default();
            let item = beginning(rest, KEY_BYTES_MAX, |byte| byte.is_ascii_graphic());
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let ends = (KEY_PREFIX.len() + 1..=item.len()).filter(|end| {
                let is_whole = item.get(*end).is_none_or(|next| !is_word(next));
                is_whole || *end == GENERATED_BYTES
            });
            ends.into_iter().any(|end| self.is_key(&item[..end]))
        })
    }

    /// A token has three parts. Those of other issuers are their clients' affair.
    fn finds_token(&mut self, text: &[u8]) -> bool {
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        let mut runs = text.split(|byte| !is_token(byte));
        runs.any(|run| {
            let mut rest = run;
            loop {
                let mut dots = memchr_iter(b'.', rest);
                let (Some(first), Some(_)) = (dots.next(), dots.next()) else { return false };
                let end = dots.next().unwrap_or(rest.len());
                let glued = TOKEN.find_iter(&rest[..first]).filter(|start| *start > 0);
                let mut starts =
                    iter::once(0).chain(glued).filter(|start| begins_object(&rest[*start..first]));
                if starts.any(|start| self.is_token(&rest[start..end])) {
                    return true;
                }
                rest = &rest[first + 1..];
            }
        })
    }

    fn finds_in_base64(
        &mut self,
        text: &[u8],
        prefixes: &[(Finder<'static>, usize)],
        bytes_max: usize,
        finds: fn(&mut Self, &[u8]) -> bool,
    ) -> bool {
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
        prefixes.iter().any(|(prefix, before)| {
            prefix.find_iter(text).any(|at| {
                let rest = at.checked_sub(*before).and_then(|start| text.get(start..));
                let encoded = beginning(rest.unwrap_or_default(), bytes_max, is_base64);
                if self.counts(encoded) {
                    return true;
                }
                // A single character after the last group encodes nothing.
                let whole = encoded.len() - usize::from(encoded.len() % 4 == 1);
                let standard = encoded.iter().take(whole).map(|byte| match byte {
                    b'-' => b'+',
                    b'_' => b'/',
                    other => *other,
                });
                let decoded = BASE64.decode(standard.collect::<Vec<u8>>());
                decoded.is_ok_and(|decoded| {
                    finds(self, &decoded) || finds(self, &Cow::from(percent_decode(&decoded)))
                })
            })
        })
    }

    fn is_token(&mut self, text: &[u8]) -> bool {
        self.lookups += 1;
        self.lookups > LOOKUPS_MAX || self.counts(text) || self.clients.have_issuer_of(text)
    }

    /// Counts the decoding of a text. Returns true if there were too many.
    fn counts(&mut self, text: &[u8]) -> bool {
        self.decoded += text.len();
        self.decoded > DECODED_BYTES_MAX
    }

    fn is_key(&mut self, text: &[u8]) -> bool {
        self.lookups += 1;
        self.lookups > LOOKUPS_MAX || self.clients.have_key(text)
    }
}

/// The leading bytes that fit, as many as `bytes_max` take in Base64.
fn beginning(text: &[u8], bytes_max: usize, fits: impl Fn(u8) -> bool) -> &[u8] {
    let end = text.iter().take(2 * bytes_max).position(|byte| !fits(*byte));
    text.get(..end.unwrap_or(text.len().min(2 * bytes_max))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
    use http::{HeaderName, HeaderValue, Method};
    use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
    use proptest::prelude::*;

    use super::*;
    use crate::config::fixture;
    use crate::gateway::address::{Root, Service};
    use crate::gateway::environment::Environment;
    use crate::gateway::request::validate::BodyFraming;

    const KEY: &str = "weir_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn clients() -> Clients {
        let text = fixture::text("[upstream]\nurl = \"http://127.0.0.1:9\"\n");
        let digest = crate::config::digest_hex(KEY.as_bytes());
        let client = format!("[[clients]]\nname = \"keyed\"\nkey_sha256 = \"{digest}\"\n");
        Clients::new(&Environment::of_test(&(text + &client)), None)
    }

    fn with_issuer() -> Clients {
        let issuer = "[[issuers]]\nname = \"i\"\nurl = \"https://issuer\"\naudience = \"a\"\n";
        let text = fixture::text(&format!("[upstream]\nurl = \"http://127.0.0.1:9\"\n{issuer}"));
        Clients::new(&Environment::of_test(&text), None)
    }

    fn finds(text: &[u8]) -> bool {
        Search { clients: &clients(), lookups: 0, decoded: 0 }.finds(text)
    }

    fn place(name: &str, value: &str) -> Option<String> {
        let valid = ValidRequest {
            method: Method::GET,
            root: Root::Plain,
            service: Service::Rest,
            path: "/meta".into(),
            query: None,
            host: String::new(),
            is_https: false,
            body: BodyFraming::None,
        };
        let headers = HeaderMap::from_iter([(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        )]);
        misplaced_key(&clients(), Some(&headers), &valid)
    }

    #[test]
    fn a_key_is_in_its_place_only_where_it_identifies_its_client() {
        let basic = BASE64_STANDARD.encode(format!("bot:{KEY}"));
        for value in [&format!("Bearer {KEY}"), &format!("token  {KEY}"), &format!("Basic {basic}")]
        {
            assert_eq!(place("authorization", value), None, "{value}");
            assert_eq!(place("x-api-key", value).as_deref(), Some("x-api-key"), "{value}");
        }
        assert_eq!(place("x-weir-key", KEY), None);
        for value in [KEY, &format!("Key {KEY}"), &format!("Bearer \"{KEY}\"")] {
            assert_eq!(place("authorization", value).as_deref(), Some("authorization"), "{value}");
        }
    }

    #[test]
    fn a_text_that_only_resembles_a_key_is_none() {
        for text in [
            "weir_bot/1.0",
            "/repos/acme/weir_integration_fixtures_of_a_certain_length",
            "weir_",
            "d2Vpcl9ib3Q=",
            &KEY[..68],
        ] {
            assert!(!finds(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_key_of_any_characters_is_found_beside_others() {
        let key = "weir_alice-key.1~x";
        let text = fixture::text("[upstream]\nurl = \"http://127.0.0.1:9\"\n");
        let digest = crate::config::digest_hex(key.as_bytes());
        let client = format!("[[clients]]\nname = \"keyed\"\nkey_sha256 = \"{digest}\"\n");
        let clients = Clients::new(&Environment::of_test(&(text + &client)), None);
        for (before, after) in [
            ("/repos/", "/x"),
            ("", ":main"),
            ("compare/", "...b"),
            ("https://u:", "@host/p"),
            ("bot (", ")"),
            ("application/", "+json"),
            ("", "-y"),
            ("", ""),
        ] {
            let text = format!("{before}{key}{after}");
            let mut search = Search { clients: &clients, lookups: 0, decoded: 0 };
            assert!(search.finds(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_text_full_of_seeming_tokens_is_refused_early() {
        let clients = with_issuer();
        let runs = |word: &str| (word.repeat(1_020 / word.len()) + " ").repeat(30);
        for text in [
            "ZXlK".repeat(16_000),
            runs("ZXlK"),
            runs("d2Vpci"),
            runs("AAAleUBA"),
            format!("{}.a.a", "eyJ".repeat(20_000)),
        ] {
            let mut search = Search { clients: &clients, lookups: 0, decoded: 0 };
            assert!(search.finds(text.as_bytes()));
            assert!(search.decoded < 2 * DECODED_BYTES_MAX, "{}", search.decoded);
        }
    }

    #[test]
    fn a_long_list_of_names_has_no_token() {
        let hosts = "example.acme.org+fileUrl.example0.com+".repeat(600);
        let clients = with_issuer();
        let mut search = Search { clients: &clients, lookups: 0, decoded: 0 };
        assert!(!search.finds(hosts.as_bytes()));
    }

    #[test]
    fn a_text_full_of_seeming_keys_is_refused_without_hashing_all() {
        assert!(finds("weir_x ".repeat(4_000).as_bytes()));
    }

    proptest! {
        #[test]
        fn a_key_is_found_in_any_surrounding_and_encoding(
            before in "[ -~]{0,9}", after in "([^0-9A-Za-z_][ -~]{0,9})?", encoding in 0..7_u8
        ) {
            let plain = format!("{before}{KEY}{after}");
            let encoded = match encoding {
                0 => plain,
                1 => percent_encode(plain.as_bytes(), NON_ALPHANUMERIC).to_string(),
                2 => KEY.replace('_', "%255F"),
                3 => format!("Basic {}", BASE64_STANDARD.encode(plain)),
                4 => format!("{{\"a\":\"{}\"}}", BASE64_URL_SAFE_NO_PAD.encode(plain)),
                5 => format!("Basic {}", BASE64_STANDARD.encode(KEY.replace('_', "%5F"))),
                _ => format!("{KEY}glued"),
            };
            prop_assert!(finds(encoded.as_bytes()), "{}", encoded);
        }
    }
}
