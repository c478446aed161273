//! Request headers that make another request of the one that was allowed, or one client's answer of
//! one that is shared.
//!
//! `headers.rs` decides where they end. Left out: credentials, which have their own places.

/// Headers by which an upstream, or a proxy before it, executes another request than the one that
/// was allowed: with another method, address or user, or from another client address.
const OVERRIDES: [&str; 10] = [
    "front-end-https",
    "remote-addr",
    "remote-user",
    "sudo",
    "x-host",
    "x-http-method",
    "x-remote-addr",
    "x-remote-user",
    "x-scheme",
    "x-url-scheme",
];
/// Words in the names of overriding headers, such as `X-Method` and `X-HTTP-Verb`.
const OVERRIDE_WORDS: [&str; 3] = ["method", "methodoverride", "verb"];
/// The same by the beginning of their names: proxies and frameworks have many of each kind.
const OVERRIDES_BEGIN: [&str; 4] = ["x-forwarded", "x-original-", "x-rewrite-", "x-weir-"];
/// The same by their ends, such as `X-HTTP-Method-Override` and `True-Client-IP`.
const OVERRIDES_END: [&str; 2] = ["-override", "-ip"];

/// Words in the names of headers that identify a client, or lead the upstream elsewhere. Beside a
/// pool's token, the answer to one of them would be stored for all clients of the pool.
const IDENTIFYING_WORDS: [&str; 30] = [
    "account",
    "assertion",
    "auth",
    "authorization",
    "cert",
    "client",
    "cookie",
    "credential",
    "email",
    "forward",
    "forwarded",
    "host",
    "identity",
    "impersonate",
    "jwt",
    "key",
    "origin",
    "password",
    "path",
    "proxy",
    "remote",
    "role",
    "secret",
    "session",
    "sudo",
    "tenant",
    "token",
    "uri",
    "url",
    "user",
];

/// True for a header of a read that is about its client.
pub(super) fn identifies(name: &str) -> bool {
    let word = |word: &str| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        IDENTIFYING_WORDS.contains(&word) || IDENTIFYING_WORDS.contains(&singular)
    };
    name.split('-').any(word)
}

/// True for overriding headers, and for names with other characters than letters, digits and `-`.
/// Upstreams that keep headers as variables read `X_HTTP_Method` as `X-HTTP-Method`.
pub(super) fn makes_another_request(name: &str) -> bool {
    OVERRIDES.contains(&name)
        || name.split('-').any(|word| OVERRIDE_WORDS.contains(&word))
        || OVERRIDES_BEGIN.iter().any(|begin| name.starts_with(begin))
        || OVERRIDES_END.iter().any(|end| name.ends_with(end))
        || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
