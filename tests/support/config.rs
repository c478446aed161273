//! The config of a gateway, as tests write it. No other file of the tests spells out a section.
//!
//! Functions return TOML text, because the sections go into files for the built program, into
//! gateways of the test's own process, and into edits before a reload. `keys` are further lines of
//! a section. `config/weir.toml` shows every setting.

use std::path::Path;

use weir::config::{self, Config};

/// The dialect of the emulator in most tests.
pub const GITHUB: &str = "dialect = \"github\"\n";
/// The cache follows RFC 9111 alone.
pub const RFC9111: &str = "freshness = \"rfc9111\"";
/// Writes of one account may follow each other immediately.
pub const UNSPACED: &str = "spacing = \"0s\"\nnotify_spacing = \"0s\"";

/// `[name]` with its keys, or nothing without keys.
pub fn section(name: &str, keys: &str) -> String {
    if keys.is_empty() { String::new() } else { format!("[{name}]\n{keys}\n") }
}

/// An HTTP listener, on a free port when the address ends in `:0`.
pub fn listen(address: &str, keys: &str) -> String {
    section("listen", &format!("http = [\"{address}\"]\n{keys}"))
}

/// An upstream of the default dialect unless `keys` name another one.
pub fn upstream(url: &str, keys: &str) -> String {
    section("upstream", &format!("url = \"{url}\"\n{keys}"))
}

pub fn account(name: &str, kind: &str, keys: &str) -> String {
    format!("[[accounts]]\nname = \"{name}\"\nkind = \"{kind}\"\n{keys}\n")
}

pub fn token(account: &str, kind: &str, secret: &str) -> String {
    format!(
        "[[tokens]]\naccount = \"{account}\"\nkind = \"{kind}\"\nsecret = {{ value = \"{secret}\" }}\n"
    )
}

/// A user's account with one classic token.
pub fn user(name: &str, secret: &str) -> String {
    account(name, "user", "") + &token(name, "classic", secret)
}

/// An app with its installations, each an id and an account.
pub fn app(id: u64, key: &str, installations: &[(u64, &str)]) -> String {
    let list: Vec<String> = installations
        .iter()
        .map(|(id, account)| format!("{{ id = {id}, account = \"{account}\" }}"))
        .collect();
    format!(
        "[[apps]]\napp_id = {id}\nprivate_key = {{ value = \"\"\"\n{key}\"\"\" }}\ninstallations = [{}]\n",
        list.join(", ")
    )
}

/// A client and its key, of which the config holds the digest.
pub fn client(name: &str, key: &str, keys: &str) -> String {
    let digest = config::digest_hex(key.as_bytes());
    format!("[[clients]]\nname = \"{name}\"\nkey_sha256 = \"{digest}\"\n{keys}\n")
}

pub fn pool(name: &str, accounts: &[&str]) -> String {
    format!("[[pools]]\nname = \"{name}\"\naccounts = {accounts:?}\n")
}

/// The key of `[cache]` for a snapshot in this file.
pub fn snapshot(path: &Path) -> String {
    format!("snapshot = \"{}\"", path.display())
}

/// A cache rule that sets the lifetime of a route's responses.
pub fn cache_ttl(route: &str, ttl: &str) -> String {
    format!("[[cache.rules]]\nroute = \"{route}\"\nttl = \"{ttl}\"\n")
}

/// The parsed config. A fault in it fails the test.
pub fn parsed(text: &str) -> Config {
    config::parse(text, "test", &|_| None, Path::new("."))
        .unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}
