//! Texts of clients without their credentials, for lines, spans and pages.
//!
//! A credential in its place is never logged. These are in a path, a `User-Agent` or an error by
//! mistake. Left out: secrets without a mark, which nothing tells from names.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// Replaces a credential.
const REDACTED: &str = "[redacted]";
/// Prefixes of credentials of the `github` dialect and of this gateway's keys. The upstream
/// documents none.
const CREDENTIAL_PREFIXES: [&str; 7] =
    ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "weir_"];
/// Fewest characters after such a prefix that may be a secret: a repository may be called
/// `weir_docs`.
const CREDENTIAL_TAIL_MIN: usize = 16;
/// The first characters of most tokens, which are `{"` in Base64.
const TOKEN_PREFIX: &str = "eyJ";

/// Returns the text with a mark in place of each likely credential.
pub fn redacted(raw: &str) -> Cow<'_, str> {
    // Most texts have neither an underscore nor a token, and cost two scans and no copy.
    match without_tokens(raw) {
        Cow::Borrowed(raw) => without_prefixed(raw),
        Cow::Owned(clean) => Cow::Owned(without_prefixed(&clean).into_owned()),
    }
}

/// Returns true if a part in Base64 may begin a JSON object, as the first two of a token do (RFC
/// 7515 §3.1). White space may come first.
pub fn begins_object(part: &[u8]) -> bool {
    const FEW: usize = 16;
    if part.starts_with(TOKEN_PREFIX.as_bytes()) {
        return true;
    }
    let few = &part[..part.len().min(FEW) / 4 * 4];
    let beginning = BASE64_URL_SAFE_NO_PAD.decode(few).unwrap_or_default();
    let inside = match beginning.trim_ascii_start() {
        [] => return few.len() == FEW,
        [b'{', inside @ ..] => inside.trim_ascii_start(),
        _ => return false,
    };
    inside.first().map_or(few.len() == FEW, |next| matches!(next, b'"' | b'}'))
}

fn without_tokens(raw: &str) -> Cow<'_, str> {
    let mut clean = String::new();
    let mut done = 0;
    let mut from = 0;
    while let Some((start, end)) = token(raw, from) {
        clean.push_str(&raw[done..start]);
        clean.push_str(REDACTED);
        (done, from) = (end, end);
    }
    if done == 0 {
        return Cow::Borrowed(raw);
    }
    clean.push_str(&raw[done..]);
    Cow::Owned(clean)
}

/// Finds the next token: two JSON objects and a signature in Base64, with dots between. Other
/// letters may be around it.
fn token(raw: &str, from: usize) -> Option<(usize, usize)> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let bytes = raw.as_bytes();
    let mut dots = memchr::memchr_iter(b'.', bytes.get(from..)?).map(|at| from + at).peekable();
    while let Some(dot) = dots.next() {
        let Some(next) = dots.peek().copied() else { break };
        let (header, claims) = (&bytes[from..dot], &bytes[dot + 1..next]);
        if !claims.iter().copied().all(is_token) || !begins_object(claims) {
            continue;
        }
        let start = dot - header.iter().rev().take_while(|byte| is_token(**byte)).count();
        let glued = raw[start..dot].find(TOKEN_PREFIX).map_or(start, |at| start + at);
        let start = if begins_object(&bytes[start..dot]) { start } else { glued };
        if begins_object(&bytes[start..dot]) {
            let signature = bytes[next + 1..].iter().take_while(|byte| is_token(**byte)).count();
            return Some((start, next + 1 + signature));
        }
    }
    None
}

fn without_prefixed(raw: &str) -> Cow<'_, str> {
    if !raw.contains('_') {
        return Cow::Borrowed(raw);
    }
    let mut clean = String::with_capacity(raw.len());
    for piece in raw.split_inclusive(|character: char| !is_word(character)) {
        let word = piece.trim_end_matches(|character: char| !is_word(character));
        if looks_like_credential(word) {
            clean.push_str(REDACTED);
            clean.push_str(&piece[word.len()..]);
        } else {
            clean.push_str(piece);
        }
    }
    Cow::Owned(clean)
}

const fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn looks_like_credential(word: &str) -> bool {
    CREDENTIAL_PREFIXES.iter().any(|prefix| {
        word.find(prefix).is_some_and(|at| word.len() - at - prefix.len() >= CREDENTIAL_TAIL_MIN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jwt(header: &str, claims: &str) -> String {
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.c2lnbmF0-XJl_", encode(header), encode(claims))
    }

    #[test]
    fn a_token_of_an_issuer_is_redacted_wherever_it_is() {
        let claims = r#"{"iss":"https://issuer","sub":"repo:acme/x"}"#;
        let token = jwt(r#"{"alg":"ES256","kid":"a"}"#, claims);
        for (before, after) in
            [("", ""), ("/repos/acme/", "/x"), ("a.b; ", ". End"), ("bot/1.0 (", ")")]
        {
            let text = format!("{before}{token}{after}");
            assert_eq!(redacted(&text), format!("{before}[redacted]{after}"), "{text}");
        }
        let glued = format!("x={token} token{token}, ghp_{}", "a1B2".repeat(9));
        assert_eq!(redacted(&glued), "x=[redacted] token[redacted], [redacted]");
        let spaced = jwt("{ \"alg\": \"ES256\" }", "\n{}");
        assert_eq!(redacted(&format!("<{spaced}>")), "<[redacted]>");
        let parts = [token.as_str(); 3].join(".");
        assert!(!redacted(&parts).contains("eyJ"), "{}", redacted(&parts));
    }

    #[test]
    fn a_text_that_only_resembles_a_token_is_kept() {
        for text in [
            "curl/8.14.1",
            "Mozilla/5.0 (X11; Linux x86-64) Gecko/20100101 Firefox/128.0",
            "/repos/acme/eyJ.eyJ",
            "eyJ0eXAi.docs.acme",
            "com.example.SomethingRatherLong.Client",
            "/repos/acme/example.extension.json",
            "example.example.com extra.extended.js com.example.express.app",
            "",
            "..",
            "é.ü.ß",
        ] {
            assert!(matches!(redacted(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn a_name_with_the_prefix_of_a_key_is_kept() {
        assert_eq!(redacted("/repos/acme/weir_docs"), "/repos/acme/weir_docs");
        assert_eq!(redacted(&format!("`ghp_{}`", "a1B2".repeat(9))), "`[redacted]`");
    }
}
