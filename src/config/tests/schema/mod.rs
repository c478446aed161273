//! The JSON schema, `config/weir.schema.json`: it has every key that the reader knows, and accepts
//! and refuses what the reader does.
//!
//! A test prints how to write the file anew when a key was added.

mod generate;
mod types;

use std::collections::BTreeSet;

use serde_json::Value;
use toml::{Table, Value as Toml};

use super::*;
use crate::config::input::visits::{Visit, recorded};

const PAPER: &str = include_str!("../../../../config/README.md");

/// Branches of the reader that no other sample takes; they may have faults.
const BRANCHES: &str = r#"
include = ["a.toml"]
[listen]
https = { address = "127.0.0.1:1", certificates = [{ cert = "a", key = "b" }], client_ca = "a" }
admin_tls = { certificates = [{ cert = "a", key = "b" }], client_ca = "a" }
[[issuers]]
name = "i"
url = "https://i"
audience = "a"
jwks_file = "a"
ca_file = "a"
[[accounts]]
name = "a"
kind = "user"
also_spends = "b"
[[accounts]]
name = "b"
kind = "user"
[[apps]]
app_id = 1
private_key = { env = "APP_KEY" }
account = "a"
installations = [{ id = 1, account = "a" }]
[[clients]]
name = "c"
reads = "default"
writes = "a"
keys = [{ sha256 = "0", expires = "2027-01-31" }]
[[cache.rules]]
route = "/meta"
ttl = "1s"
[[cache.rules]]
graphql = "A"
ttl = "1s"
[state]
redis = { url = "rediss://a", cluster = true, ca_file = "a" }
[telemetry]
otlp_endpoint = "https://a"
otlp_client_certificate = { cert = "a", key = "b" }
[webhooks]
hooks = [{ at = "/app/hook", account = "a", reach = ["a"] }]
"#;

fn visits() -> Vec<Visit> {
    recorded(|| {
        for text in [VALID, EVERYTHING, BRANCHES] {
            let _ = parsed(text);
        }
        let _ = parsed(
            "[listen]\nhttps = { address = \"127.0.0.1:1\", cert = \"a\", key = \"b\" }\n\
             admin_tls = { cert = \"a\", key = \"b\" }",
        );
    })
}

/// The file of the schema, which the program prints.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/weir.schema.json");

fn published() -> Value {
    serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap()
}

fn validator() -> jsonschema::Validator {
    jsonschema::draft202012::new(&published()).unwrap()
}

/// The config as editors see it, to which a date is a string.
fn json(table: &Table) -> Value {
    fn dated(value: &Value) -> Option<Value> {
        value.as_object()?.get("$__toml_private_datetime").cloned()
    }
    fn walk(value: &mut Value) {
        if let Some(date) = dated(value) {
            *value = date;
        }
        match value {
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::Object(members) => members.values_mut().for_each(walk),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(table).unwrap();
    walk(&mut value);
    value
}

#[test]
fn the_published_schema_is_that_of_the_reader() {
    let schema = generate::schema(&visits(), PAPER);
    if std::env::var_os("WEIR_WRITE_SCHEMA").is_some() {
        std::fs::write(FILE, format!("{schema:#}\n")).unwrap();
        return;
    }
    assert!(
        schema == published(),
        "the reader or config/README.md has changed: WEIR_WRITE_SCHEMA=1 cargo test --locked --lib \
         the_published_schema writes config/weir.schema.json anew"
    );
}

#[test]
fn the_table_has_the_keys_of_the_reader() {
    let mut keys = Vec::new();
    generate::Node::of(&visits()).keys("", &mut keys);
    let keys: BTreeSet<String> = keys.into_iter().collect();
    let rows: BTreeSet<String> = generate::rows(PAPER).into_iter().map(|row| row.key).collect();
    // A row may describe a table with the keys in it.
    let is_inside = |key: &str| rows.iter().any(|row| key.starts_with(&format!("{row}.")));
    let undescribed: Vec<_> =
        keys.iter().filter(|key| !rows.contains(*key) && !is_inside(key)).collect();
    assert!(undescribed.is_empty(), "config/README.md lacks {undescribed:?}");
    let has_inside = |row: &str| {
        let inside = [format!("{row}."), format!("{row}[].")];
        keys.iter().any(|key| inside.iter().any(|inside| key.starts_with(inside)))
    };
    let unknown: Vec<_> =
        rows.iter().filter(|row| !keys.contains(*row) && !has_inside(row)).collect();
    assert!(unknown.is_empty(), "the reader knows no {unknown:?}");
}

#[test]
fn the_sample_configs_fit_the_schema() {
    let validator = validator();
    let at_bounds: Vec<_> = AT_BOUNDS.iter().map(|(from, to)| spoilt(from, to)).collect();
    let samples = [
        VALID,
        EVERYTHING,
        include_str!("../../../../config/weir.toml"),
        include_str!("../../../../config/minimal.toml"),
        "include = [\"clients/*.toml\"]\n[upstream]\nurl = \"https://${HOST}\"\ndialect = \"${DIALECT}\"",
        "[listen]\nhttps = { address = \"127.0.0.1:1\", cert = \"a\", key = \"b\" }",
    ];
    for text in samples.into_iter().chain(at_bounds.iter().map(String::as_str)) {
        let table: Table = toml::from_str(text).unwrap();
        let faults: Vec<_> =
            validator.iter_errors(&json(&table)).map(|fault| format!("{fault}")).collect();
        assert!(faults.is_empty(), "{faults:?} in {text}");
    }
}

/// Takes a description of a change, and the change.
type Spoil<'a> = dyn FnMut(&str, &dyn Fn(&mut Table)) + 'a;

/// Calls `spoil` with each table of a config, and each of its keys.
fn spoilt_each(table: &Table, spoil: &mut Spoil<'_>) {
    fn within(path: &[String], table: &mut Table, change: &dyn Fn(&mut Table)) {
        let Some((first, rest)) = path.split_first() else { return change(table) };
        match &mut table[first.as_str()] {
            Toml::Table(inner) => within(rest, inner, change),
            Toml::Array(items) => {
                if let Some(Toml::Table(inner)) = items.first_mut() {
                    within(rest, inner, change);
                }
            }
            _ => {}
        }
    }
    fn walk(path: &[String], table: &Table, spoil: &mut Spoil<'_>) {
        spoil(&format!("{path:?} with an unknown key"), &|whole| {
            within(path, whole, &|inner| drop(inner.insert("colour".to_owned(), 1.into())));
        });
        for (key, value) in table {
            spoil(&format!("{path:?} {key} of a wrong type"), &|whole| {
                let wrong = Toml::Array(vec![Toml::Array(vec![Toml::Boolean(true)])]);
                within(path, whole, &|inner| drop(inner.insert(key.clone(), wrong.clone())));
            });
            let inner = match value {
                Toml::Table(inner) => Some(inner),
                Toml::Array(items) => items.first().and_then(Toml::as_table),
                _ => None,
            };
            if let Some(inner) = inner {
                walk(&[path, std::slice::from_ref(key)].concat(), inner, spoil);
            }
        }
    }
    walk(&[], table, spoil);
}

#[test]
fn the_schema_refuses_unknown_keys_and_wrong_types() {
    let validator = validator();
    let mut count = 0;
    let whole: Table = toml::from_str(EVERYTHING).unwrap();
    spoilt_each(&whole, &mut |what, change| {
        let mut table = whole.clone();
        change(&mut table);
        assert!(parsed(&toml::to_string(&table).unwrap()).is_err(), "the reader accepts {what}");
        assert!(!validator.is_valid(&json(&table)), "the schema accepts {what}");
        count += 1;
    });
    assert!(count > 120, "only {count} cases");
}

#[test]
fn the_schema_refuses_values_that_the_reader_refuses() {
    let validator = validator();
    for (from, to) in [
        ("\"5s\"", "\"5 parsecs\""),
        ("\"5s\"", "\"0s\""),
        ("\"64MiB\"", "\"64MB\""),
        ("\"64MiB\"", "\"0B\""),
        ("\"64MiB\"", "\"64MiB\"\nfreshness = \"fresh\""),
        ("concurrency = 10", "concurrency = 0"),
        ("concurrency = 10", "batch_floor = 1.5"),
        ("[cache]", "[passthrough]\ncredentials_max = 10001\n[cache]"),
        ("\"aaaa", "\"aaa"),
        ("kind = \"user\"", "kind = \"human\""),
        ("name = \"bot\"\n", ""),
        ("https://api", "ftp://api"),
        ("\"127.0.0.1:9090\"", "\"localhost\""),
        ("\"GET *\"", "\"GET\""),
        ("{ env = \"BOT_TOKEN\" }", "\"BOT_TOKEN\""),
        ("{ env = \"BOT_TOKEN\" }", "{ env = \"BOT_TOKEN\", file = \"a\" }"),
        ("store = \"memory\"", "store = \"disk\""),
        ("\"GET *\"", ""),
        ("\"GET *\"", "\"GET repos\""),
        ("\"GET *\"", "\"GET /repos/\""),
        ("\"127.0.0.1:9090\"", "\"localhost:9090\""),
        ("\"127.0.0.1:9090\"", "\"::1:9090\""),
        ("{ env = \"BOT_TOKEN\" }", "{ env = \"\" }"),
        ("{ env = \"BOT_TOKEN\" }", "{ file = \"\" }"),
        ("{ env = \"BOT_TOKEN\" }", "{ credential = \"a/b\" }"),
        ("{ env = \"BOT_TOKEN\" }", "{ value = \"\" }"),
    ] {
        let text = spoilt(from, to);
        assert!(parsed(&text).is_err(), "the reader accepts {to}");
        let table: Table = toml::from_str(&text).unwrap();
        assert!(!validator.is_valid(&json(&table)), "the schema accepts {to}");
    }
}

/// A default that is accepted beside other keys only.
fn needs_another(key: &str) -> bool {
    key.starts_with("webhooks") || key == "upstream.ca_roots"
}

#[test]
fn the_defaults_of_the_table_are_those_of_the_reader() {
    let usual = accepted(VALID).redacted_toml();
    let mut count = 0;
    for row in generate::rows(PAPER) {
        let Some(default) = row.value().filter(|_| !needs_another(&row.key)) else {
            continue;
        };
        let mut table: Table = toml::from_str(VALID).unwrap();
        let (section, key) = row.key.rsplit_once('.').unwrap();
        let section = section.trim_end_matches("[]");
        let entry = table.entry(section).or_insert_with(|| Table::new().into());
        let inner = match entry {
            Toml::Array(items) => items[0].as_table_mut().unwrap(),
            entry => entry.as_table_mut().unwrap(),
        };
        if inner.contains_key(key) {
            continue;
        }
        inner.insert(key.to_owned(), default);
        assert_eq!(
            accepted(&toml::to_string(&table).unwrap()).redacted_toml(),
            usual,
            "{}",
            row.key
        );
        count += 1;
    }
    assert!(count > 35, "only {count} defaults");
}
