//! `upstream.proxy`, and the environment variables that count without it.

use std::path::Path;

use secrecy::ExposeSecret;

use super::*;

/// The config of an upstream with these keys, in an environment of these variables.
fn read(keys: &str, variables: &[(&str, &str)]) -> Result<Config, Faults> {
    let env = |name: &str| {
        if name == "BOT_TOKEN" {
            return Some("token-of-bot".to_owned());
        }
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    parse(&spoilt("url = \"https://api.example.com\"", keys), "test", &env, Path::new("."))
}

/// The proxy of each address: REST, GraphQL, uploads.
fn chosen(keys: &str, variables: &[(&str, &str)]) -> Vec<Option<String>> {
    let upstream = read(keys, variables).unwrap_or_else(|faults| panic!("{faults}")).upstream;
    [&upstream.url, &upstream.graphql_url, &upstream.uploads_url]
        .into_iter()
        .map(|url| upstream.proxies.of(url).map(ToString::to_string))
        .collect()
}

fn direct() -> Vec<Option<String>> {
    vec![None; 3]
}

fn all(proxy: &str) -> Vec<Option<String>> {
    vec![Some(proxy.to_owned()); 3]
}

const HTTPS: &str = "url = \"https://api.corp.test\"";
const HTTP: &str = "url = \"http://api.corp.test\"";

#[test]
fn the_key_decides_before_the_environment() {
    let variables = [("HTTPS_PROXY", "http://env:1"), ("NO_PROXY", "*")];
    let keys = format!("{HTTPS}\nproxy = \"http://Proxy.corp:3128/\"");
    assert_eq!(chosen(&keys, &variables), all("http://proxy.corp:3128"));
    let keys = format!("{HTTPS}\nproxy = \"none\"");
    assert_eq!(chosen(&keys, &variables[..1]), direct());
}

#[test]
fn the_scheme_of_the_upstream_chooses_the_variable() {
    for (keys, variables, expected) in [
        (HTTPS, [("HTTPS_PROXY", "proxy:3128")].as_slice(), all("http://proxy:3128 (HTTPS_PROXY)")),
        (HTTPS, &[("https_proxy", "a"), ("HTTPS_PROXY", "b")], all("http://a (https_proxy)")),
        (HTTPS, &[("http_proxy", "a")], direct()),
        (HTTP, &[("http_proxy", "https://a:8443")], all("https://a:8443 (http_proxy)")),
        // A header `Proxy` of a client has this name in CGI.
        (HTTP, &[("HTTP_PROXY", "a"), ("HTTPS_PROXY", "b")], direct()),
        (HTTP, &[("ALL_PROXY", "http://a")], all("http://a (ALL_PROXY)")),
        (HTTPS, &[("https_proxy", ""), ("all_proxy", "a")], all("http://a (all_proxy)")),
    ] {
        assert_eq!(chosen(keys, variables), expected, "{keys} {variables:?}");
    }
}

#[test]
fn no_proxy_exempts_names_suffixes_addresses_networks_and_ports() {
    for (host, entries, is_exempt) in [
        ("api.corp.test", "*", true),
        ("api.corp.test", "other, corp.test", true),
        ("api.corp.test", "CORP.test.", true),
        ("api.corp.test", ".corp.test", true),
        ("api.corp.test", "*.corp.test", true),
        ("corp.test", ".corp.test", false),
        ("corp.test", "corp.test", true),
        ("notcorp.test", "corp.test", false),
        ("api.corp.test", "api.corp.test:443", true),
        ("api.corp.test", "api.corp.test:8443", false),
        ("api.corp.test:8443", "a b corp.test:8443", true),
        ("10.1.2.3", "10.0.0.0/8", true),
        ("10.1.2.3", "10.1.2.128/25, 10.1.2.4", false),
        ("10.1.2.3", "10.1.2.3:443", true),
        ("[2001:db8::1]", "2001:db8::/32", true),
        ("[2001:db8::1]", "[2001:db8::1]:443", true),
        ("[2001:db8::1]", "[2001:db8::1]", true),
        ("[2001:db8::1]", "2001:db8::1", true),
        ("[2001:db8::1]", "[2001:db8::1]:80", false),
        ("127.0.0.1", "", true),
        ("localhost", "", true),
    ] {
        let keys = format!("url = \"https://{host}/api/v3\"");
        let variables = [("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", entries)];
        let expected = if is_exempt { direct() } else { all("http://proxy:3128 (HTTPS_PROXY)") };
        assert_eq!(chosen(&keys, &variables), expected, "{host} by {entries:?}");
    }
}

#[test]
fn credentials_are_basic_and_never_printed() {
    let keys = format!(
        "{HTTPS}\nproxy = {{ url = \"https://proxy:8443\", username = \"me\", password = {{ env = \"P\" }} }}"
    );
    let variables = [("P", "pa:ss")];
    let config = read(&keys, &variables).unwrap();
    let proxy = config.upstream.proxies.of(&config.upstream.url).unwrap();
    assert_eq!(proxy.authorization().unwrap().expose_secret(), "Basic bWU6cGE6c3M=");
    let printed = config.redacted_toml();
    assert!(
        printed.contains("proxy = { url = \"https://proxy:8443\", username = \"me\", password = { env = \"P\" } }\n"),
        "{printed}"
    );
    let variables =
        [("HTTPS_PROXY", "http://me:p%40%3ass@proxy:3128/"), ("NO_PROXY", "uploads.corp.test")];
    let config = read("url = \"https://api.corp.test\"", &variables).unwrap();
    let proxy = config.upstream.proxies.of(&config.upstream.url).unwrap();
    assert_eq!(proxy.authorization().unwrap().expose_secret(), "Basic bWU6cEA6c3M=");
    let printed = config.redacted_toml();
    assert!(
        printed.contains(
            "password = { value = \"<redacted>\" } } # from HTTPS_PROXY; uploads_url: none\n"
        ),
        "{printed}"
    );
    for text in [printed, format!("{config:?}")] {
        assert!(!text.contains("p@") && !text.contains("p%40") && !text.contains("bWU6"), "{text}");
    }
}

#[test]
fn a_faulty_proxy_is_refused_without_a_quote() {
    for (keys, variables, message) in [
        (
            "proxy = \"http://me:s3cret@proxy\"",
            [].as_slice(),
            "upstream.proxy: bad address of a proxy: it has a user name or password",
        ),
        ("proxy = \"socks5://s3cret\"", &[], "its scheme is neither http nor https"),
        ("proxy = \"http://s3cret/path\"", &[], "it has a path"),
        ("proxy = \"s3cret\"", &[], "bad address of a proxy"),
        ("proxy = 7", &[], "upstream.proxy: wrong type"),
        (
            "proxy = { username = \"me\", password = { value = \"s3cret\" } }",
            &[],
            "upstream.proxy.url: missing",
        ),
        (
            "proxy = { url = \"http://p\", username = \"me\" }",
            &[],
            "upstream.proxy.username: without password",
        ),
        (
            "proxy = { url = \"http://p\", password = { value = \"s3cret\" } }",
            &[],
            "upstream.proxy.password: without username",
        ),
        (
            "proxy = { url = \"http://p\", username = \"a:b\", password = { value = \"s3cret\" } }",
            &[],
            "upstream.proxy.username: it has a colon",
        ),
        (
            "",
            &[("HTTPS_PROXY", "socks5://s3cret")],
            "upstream.proxy: not set, so that the environment variable HTTPS_PROXY counts, which is no address of a proxy: its scheme",
        ),
        ("", &[("all_proxy", "http://s3cret:pw@")], "the environment variable all_proxy counts"),
    ] {
        let faults = read(&format!("{HTTPS}\n{keys}"), variables).unwrap_err().to_string();
        assert!(faults.contains(message), "{keys} {variables:?}: {faults}");
        assert!(!faults.contains("s3cret"), "{faults}");
    }
}

#[test]
fn a_variable_that_no_address_needs_may_be_anything() {
    let variables = [("ALL_PROXY", "socks5://localhost:1080")];
    assert_eq!(chosen("url = \"http://127.0.0.1:9\"", &variables), direct());
    let variables = [("HTTPS_PROXY", "proxy"), ("all_proxy", "socks5://localhost:1080")];
    assert_eq!(chosen(HTTPS, &variables), all("http://proxy (HTTPS_PROXY)"));
}
