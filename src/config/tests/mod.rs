//! The config as a whole: accepted files, effective values and secrecy. Faults are in `faults.rs`.

mod apps;
mod ca_file;
mod client_certificate;
mod client_keys;
mod connections;
mod credentials;
mod faults;
mod https;
mod issuers;
mod otlp;
mod proxy;
mod query_rules;
mod schema;
mod second_reading;
mod spools;
mod state;
mod unbuilt;
mod unreadable;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use secrecy::ExposeSecret;

use super::*;
use crate::api::{AccountKind, Dialect, TokenKind};

const KEY_A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const KEY_B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// A config without a fault; each case below changes one line of it.
const VALID: &str = r#"[upstream]
url = "https://api.example.com"
connect_timeout = "5s"
[[accounts]]
name = "bot"
kind = "user"
[[accounts]]
name = "acme-app"
kind = "installation"
[[tokens]]
account = "bot"
kind = "classic"
secret = { env = "BOT_TOKEN" }
[[tokens]]
account = "acme-app"
kind = "installation"
secret = { value = "value-s3cret" }
[[pools]]
name = "readers"
accounts = ["bot"]
[[pools]]
name = "all"
accounts = ["bot", "acme-app"]
[[clients]]
name = "ci"
key_sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
reads = "readers"
writes = "bot"
allow = ["GET *"]
[[clients]]
name = "scan"
key_sha256 = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
reads = "all"
[cache]
max_size = "64MiB"
[limits]
concurrency = 10
[writes]
store = "memory"
[listen]
admin = "127.0.0.1:9090"
"#;

const APP_KEY: &str = include_str!("../../emulator/seed/app_key.pem");

fn environment(name: &str) -> Option<String> {
    match name {
        "BOT_TOKEN" => Some("env-s3cret".to_owned()),
        "SCAN_BOT_TOKEN" => Some("scan-s3cret".to_owned()),
        "EMPTY" => Some(String::new()),
        "APP_KEY" => Some(APP_KEY.to_owned()),
        "OTHER_APP_KEY" => Some(include_str!("../../emulator/seed/initech_app_key.pem").to_owned()),
        "TWO_LINES" => Some("one\ntwo".to_owned()),
        "BUILD_BOT_TOKEN" | "WEIR_BOT_TOKEN" | "WEIR_ADMIN_TOKEN" => {
            Some("other-s3cret".to_owned())
        }
        _ => None,
    }
}

/// A folder with the files that configs name.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/certificates");

fn parsed(text: &str) -> Result<Config, Faults> {
    parse(text, "weir.toml", &environment, Path::new(FILES))
}

fn accepted(text: &str) -> Config {
    parsed(text).unwrap_or_else(|faults| panic!("refused:\n{faults}"))
}

/// `VALID` with `from` replaced once by `to`.
fn spoilt(from: &str, to: &str) -> String {
    assert!(VALID.contains(from), "{from} is not in the valid config");
    VALID.replacen(from, to, 1)
}

#[test]
fn references_are_resolved_and_defaults_filled_in() {
    let config = accepted(VALID);
    assert_eq!(config.tokens[1].account, 1);
    assert_eq!(
        (config.tokens[0].kind, config.tokens[0].secret.expose_secret()),
        (TokenKind::Classic, "env-s3cret")
    );
    assert_eq!(config.pools[1].accounts, [0, 1]);
    let [ci, scan] = config.clients.as_slice() else { panic!("two clients") };
    assert_eq!((ci.reads, ci.writes, ci.keys[0].sha256), (0, Some(0), [0xaa; 32]));
    assert_eq!(
        (scan.reads, scan.writes, scan.weight.get(), scan.priority),
        (1, None, 1, Priority::Normal)
    );
    assert_eq!(
        (scan.max_wait, scan.allow.as_slice()),
        (Duration::from_secs(30), [Allow::everything()].as_slice())
    );
    assert_eq!(config.listen.http, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(config.upstream.dialect, Dialect::Service);
    assert_eq!((config.cache.max_size, config.cache.max_object), (64 << 20, 8 << 20));
    assert_eq!(
        (config.limits.secondary.concurrency, config.limits.secondary.content_per_hour),
        (10, 500)
    );
    assert_eq!(
        (config.writes.store, config.writes.retention),
        (WriteStore::Memory, Duration::from_hours(24))
    );
    assert_eq!(
        (config.telemetry.log, config.telemetry.service_name.as_ref()),
        (LogFormat::Json, "weir")
    );
    assert!(config.webhooks.is_none() && !config.passthrough.enabled);
}

#[test]
fn the_default_pool_has_all_accounts_and_clients() {
    let without_pools = VALID.replace("reads = \"readers\"\n", "").replace("reads = \"all\"\n", "");
    let (before, rest) = without_pools.split_once("[[pools]]").unwrap();
    let config = accepted(&format!("{before}{}", &rest[rest.find("[[clients]]").unwrap()..]));
    assert_eq!(
        (config.pools[0].name.as_ref(), config.pools[0].accounts.as_slice()),
        ("default", [0, 1].as_slice())
    );
    assert!(config.clients.iter().all(|client| client.reads == 0));
}

/// Changes of `VALID` to values that are only just accepted.
const AT_BOUNDS: &[(&str, &str)] = &[
    ("\"5s\"", "\"366d\""),
    ("\"5s\"", "\"1ms\""),
    ("\"64MiB\"", "\"1B\""),
    ("concurrency = 10", "concurrency = 4_294_967_295"),
    ("concurrency = 10", "batch_floor = 1"),
    ("admin = \"127.0.0.1:9090\"", "admin = \"[::ffff:127.0.0.1]:9090\""),
    ("admin = \"127.0.0.1:9090\"", "admin = \"0.0.0.0:9090\"\nadmin_token = { value = \"t\" }"),
    ("admin = \"127.0.0.1:9090\"", "http = [\"127.0.0.1:0\", \"127.0.0.1:0\"]"),
    ("admin = \"127.0.0.1:9090\"", "http = []\nunix = \"weir.sock\""),
    ("\"GET *\"", "\"* /repos/acme/**\""),
    ("name = \"ci\"", "name = \"ci of [team]: a/b\""),
    ("[cache]", "[[accounts]]\nname = \"none\"\nkind = \"anonymous\"\n[cache]"),
    ("admin = \"127.0.0.1:9090\"", "admin = \"[fe80::1%2]:9090\"\nadmin_token = { value = \"t\" }"),
    (
        "admin = \"127.0.0.1:9090\"",
        "trusted_proxies = [\"::1\", \"fd00::/8\", \"10.0.0.0/8\", \"::ffff:10.0.0.1\"]",
    ),
    ("\"GET *\"", "\"GET /\", \" POST  /repos/*/a%20b \""),
    ("{ env = \"BOT_TOKEN\" }", "{ value = \"t\" }"),
];

#[test]
fn values_at_their_bounds_are_accepted() {
    for (from, to) in AT_BOUNDS {
        accepted(&spoilt(from, to));
    }
}

#[test]
fn a_small_cache_has_no_object_larger_than_itself() {
    assert_eq!(accepted(&spoilt("64MiB", "1MiB")).cache.max_object, 1 << 20);
}

#[test]
fn a_secret_file_is_read_without_its_final_line_break() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "file-s3cret\r\n").unwrap();
    std::fs::write(
        folder.path().join("weir.toml"),
        spoilt("{ env = \"BOT_TOKEN\" }", "{ file = \"token\" }"),
    )
    .unwrap();
    let config = load(&folder.path().join("weir.toml")).unwrap();
    assert_eq!(config.tokens[0].secret.expose_secret(), "file-s3cret");
}

#[test]
fn listen_is_read_alone_from_any_config() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, EVERYTHING).unwrap();
    let listen = super::load_listen(&file).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(listen.admin.is_some());
    std::fs::write(&file, "[listne]\n").unwrap();
    assert!(super::load_listen(&file).unwrap_err().to_string().contains("did you mean `listen`"));
}

/// A config with every section of SPECIFICATION, "Configuration", and each secret as `s3cret`.
const EVERYTHING: &str = include_str!("everything.toml");

#[test]
fn the_public_service_with_the_neutral_dialect_gets_a_warning() {
    let warned = |url: &str, dialect: &str| {
        let upstream = format!("{url}\"\ndialect = \"{dialect}");
        accepted(&spoilt("https://api.example.com", &upstream)).warnings()
    };
    let of_service = warned("https://api.github.com", "service");
    assert_eq!(
        of_service.iter().map(|warning| warning.key.as_str()).collect::<Vec<_>>(),
        ["upstream.url", "upstream.graphql_url", "upstream.uploads_url"]
    );
    assert!(of_service[0].problem.contains("dialect = \"github\""), "{of_service:?}");
    assert_eq!(warned("https://api.acme.ghe.com", "service").len(), 3);
    for (url, dialect) in [
        ("https://api.github.com", "github"),
        ("https://github.com.example.org", "service"),
        ("https://code.corp/api/v3", "service"),
    ] {
        assert_eq!(warned(url, dialect), [], "{url} {dialect}");
    }
}

#[test]
fn tokens_in_clear_and_idle_accounts_are_worth_a_warning() {
    assert_eq!(accepted(VALID).warnings(), []);
    let warned = |from, to| {
        accepted(&spoilt(from, to))
            .warnings()
            .into_iter()
            .map(|warning| warning.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        warned("https://api.example.com", "http://code.corp"),
        ["upstream.url", "upstream.graphql_url", "upstream.uploads_url"]
    );
    assert!(warned("https://api.example.com", "http://[::1]:8090").is_empty());
    assert_eq!(
        warned("accounts = [\"bot\", \"acme-app\"]", "accounts = [\"bot\"]"),
        ["accounts[1]"]
    );
}

#[test]
fn an_admin_listener_in_clear_for_others_is_worth_a_warning() {
    let token = "admin_token = { value = \"an-admin-s3cret\" }";
    let warned = |address: &str| {
        let admin = format!("admin = \"{address}\"\n{token}");
        let warnings = accepted(&spoilt("admin = \"127.0.0.1:9090\"", &admin)).warnings();
        warnings.into_iter().map(|warning| warning.key).collect::<Vec<_>>()
    };
    assert_eq!(warned("0.0.0.0:9090"), ["listen.admin"]);
    assert!(warned("127.0.0.1:9090").is_empty());
}

#[test]
fn predictions_that_are_never_made_are_worth_a_warning() {
    let warned =
        |dialect: &str| {
            let text = spoilt("[upstream]", &format!("[upstream]\ndialect = \"{dialect}\""))
                .replacen("[cache]", "[cache]\npredicted_etags = true", 1);
            accepted(&text).warnings().into_iter().map(|warning| warning.key).collect::<Vec<_>>()
        };
    assert_eq!(warned("service"), ["cache.predicted_etags"]);
    assert!(warned("github").is_empty());
}

#[test]
fn no_secret_and_no_key_hash_is_ever_shown() {
    let config = accepted(EVERYTHING);
    let key_bytes = format!("{:?}", config.clients[0].keys[0].sha256);
    for shown in [config.redacted_toml(), format!("{config:?}"), format!("{config:#?}")] {
        for secret in [
            "s3cret",
            &KEY_A[..16],
            &KEY_B[..16],
            &key_bytes,
            "170, 170",
            "BEGIN",
            &APP_KEY[40..80],
        ] {
            assert!(!shown.contains(secret), "{secret} is shown in {shown}");
        }
    }
    assert_eq!(config.redacted_toml().matches("\"<redacted>\"").count(), 17);
    assert!(config.redacted_toml().contains("private_key = { env = \"APP_KEY\" }\n"));
}

/// A line of `keys` with a hash for each that is hidden.
fn unredacted_keys(line: &str, position: usize) -> String {
    let parts = line.split("\"<redacted>\"").enumerate();
    let hash = |index: usize| format!("\"{:064}\"", position * 1_000 + index);
    let parts = parts.map(|(index, part)| match index {
        0 => part.to_owned(),
        _ => hash(index) + part,
    });
    parts.collect()
}

#[test]
fn the_effective_config_parses_to_itself() {
    for text in [VALID, EVERYTHING] {
        let effective = accepted(text).redacted_toml();
        let mut position = 0;
        let mut restored = String::new();
        for line in effective.lines() {
            position += 1;
            let line = match line {
                "key_sha256 = \"<redacted>\"" => format!("key_sha256 = \"{position:064}\""),
                keys if keys.starts_with("keys = [") => unredacted_keys(keys, position),
                other => other.replace("<redacted>", &format!("id:{position:032}")),
            };
            restored.push_str(&line);
            restored.push('\n');
        }
        assert_eq!(accepted(&restored).redacted_toml(), effective);
    }
}

#[test]
fn the_example_files_are_valid() {
    accepted(include_str!("../../../config/weir.toml"));
    let minimal = accepted(include_str!("../../../config/minimal.toml"));
    assert_eq!((minimal.clients.len(), minimal.warnings().len()), (1, 0));
}

#[test]
fn the_full_example_shows_the_defaults() {
    let full = accepted(include_str!("../../../config/weir.toml")).redacted_toml();
    let minimal = accepted(include_str!("../../../config/minimal.toml")).redacted_toml();
    let sections = |text: &str| -> HashMap<String, String> {
        let parts = text.split("\n\n").filter(|part| !part.starts_with("[["));
        parts
            .filter_map(|part| part.split_once('\n'))
            .map(|(name, keys)| (name.to_owned(), keys.trim_end().to_owned()))
            .collect()
    };
    let (mut full, minimal) = (sections(&full), sections(&minimal));
    if let Some(listen) = full.get_mut("[listen]") {
        *listen = listen.replace("admin = \"127.0.0.1:9090\"\n", "");
        *listen = listen.replace("admin_token = { env = \"WEIR_ADMIN_TOKEN\" }\n", "");
    }
    assert_eq!(full, minimal);
}

#[test]
fn the_names_of_kinds_and_dialects_are_those_of_the_api() {
    fn same<T: input::reader::Choice + serde::de::DeserializeOwned + std::fmt::Debug>() {
        for (name, value) in T::ALL {
            assert_eq!(serde_json::from_value::<T>((*name).into()).ok(), Some(*value), "{name}");
        }
    }
    same::<Dialect>();
    same::<AccountKind>();
    same::<TokenKind>();
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}") {
        let _ = parsed(&text);
    }

    #[test]
    fn no_change_of_a_valid_config_makes_it_panic(start in 0..VALID.len(), length in 0..40_usize, with in "[\\[\\]{}\"'=.,#a-z0-9\\n -]{0,12}") {
        let mut text = VALID.to_owned();
        text.replace_range(start..(start + length).min(VALID.len()), &with);
        if let Err(faults) = parsed(&text) {
            prop_assert!(!faults.0.is_empty());
        }
    }

    #[test]
    fn no_bytes_in_a_file_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.toml");
        std::fs::write(&path, bytes).unwrap();
        let _ = load(&path);
    }
}

#[test]
fn the_account_name_passthrough_is_reserved_when_enabled() {
    let named = VALID.replace("\"acme-app\"", "\"passthrough\"");
    assert!(!accepted(&named).passthrough.enabled);
    let faults =
        parsed(&format!("{named}\n[passthrough]\nenabled = true\n")).unwrap_err().to_string();
    assert!(
        faults.contains("accounts[1]: the name `passthrough` is that of clients' own credentials"),
        "{faults}"
    );
}

#[test]
fn an_account_is_shared_if_several_clients_may_use_it() {
    let is_shared = |text: &str| {
        let accounts = accepted(text).ledger_settings().accounts;
        accounts.iter().map(|account| account.is_shared).collect::<Vec<_>>()
    };
    assert_eq!(is_shared(VALID), [true, false], "both read by the bot, one by the app");
    let alone = VALID.replace("[\"bot\", \"acme-app\"]", "[\"acme-app\"]");
    assert_eq!(is_shared(&alone), [false, false]);
}
