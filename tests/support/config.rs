//! The config of a gateway, as tests write it: each section is made here and nowhere else.
//!
//! Functions return TOML text, because the same sections go into files for the built program, into
//! gateways of the test's own process, and into edits for a reload. `keys` are further lines of a
//! section. `config/weir.toml` shows everything that a config may contain.

use std::path::Path;

use weir::config::{self, Config};

/// The dialect of the emulator in most tests.
pub const GITHUB: &str = "dialect = \"github\"\n";
/// Reads of the pool are revalidated by the rules of RFC 9111 alone.
pub const RFC9111: &str = "freshness = \"rfc9111\"";
/// Writes of one account may follow each other at once.
pub const UNSPACED: &str = "spacing = \"0s\"\nnotify_spacing = \"0s\"";

/// `[name]` with its keys; nothing when there are none.
pub fn section(name: &str, keys: &str) -> String {
    if keys.is_empty() { String::new() } else { format!("[{name}]\n{keys}\n") }
}

/// An HTTP listener, on a free port when the address ends in `:0`.
pub fn listen(address: &str, keys: &str) -> String {
    section("listen", &format!("http = [\"{address}\"]\n{keys}"))
}

/// An upstream of the default dialect unless `keys` name another.
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

/// An app, and its installations by number and account.
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

/// A client by its key, which the config knows as a digest.
pub fn client(name: &str, key: &str, keys: &str) -> String {
    let digest = config::digest_hex(key.as_bytes());
    format!("[[clients]]\nname = \"{name}\"\nkey_sha256 = \"{digest}\"\n{keys}\n")
}

pub fn pool(name: &str, accounts: &[&str]) -> String {
    format!("[[pools]]\nname = \"{name}\"\naccounts = {accounts:?}\n")
}

/// A rule that gives the responses of a route a lifetime.
pub fn cache_ttl(route: &str, ttl: &str) -> String {
    format!("[[cache.rules]]\nroute = \"{route}\"\nttl = \"{ttl}\"\n")
}

/// The config as the gateway reads it; a test with faults in its config ends here.
pub fn parsed(text: &str) -> Config {
    config::parse(text, "test", &|_| None, Path::new("."))
        .unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}
