//! `clients[].keys`: several keys of a client, and their ends.

use super::*;
use crate::clock::Timestamp;

const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

/// A config whose first client has this line in place of its key.
fn with(line: &str) -> String {
    spoilt(&format!("key_sha256 = \"{HASH}\""), line)
}

#[test]
fn a_client_has_one_key_without_an_end_or_a_list_of_keys() {
    let keys = format!(
        "keys = [{{ sha256 = \"{HASH}\", expires = 2027-01-31 }}, {{ sha256 = \"{OTHER}\" }}]"
    );
    let config = accepted(&with(&keys));
    let ends = config.clients[0].keys.iter().map(|key| key.expires.map(Timestamp::rfc3339));
    assert_eq!(ends.collect::<Vec<_>>(), [Some("2027-02-01T00:00:00Z".to_owned()), None]);
    assert_eq!(config.clients[0].keys[1].sha256, [0xcc; 32]);
}

#[test]
fn keys_that_are_no_use_or_ambiguous_are_refused() {
    let one = format!("{{ sha256 = \"{HASH}\" }}");
    for (line, key, message) in [
        ("keys = []".to_owned(), "clients[0].keys", "empty"),
        (format!("keys = [{one}, {one}]"), "clients[0].keys", "this client has the same"),
        (
            "keys = [{ sha256 = \"BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB\" }]"
                .to_owned(),
            "clients[1].key_sha256",
            "client `ci` has the same",
        ),
        (
            format!("keys = [{one}]\nkey_sha256 = \"{HASH}\""),
            "clients[0].key_sha256",
            "not beside keys",
        ),
        ("keys = [{ sha256 = \"weir_x\" }]".to_owned(), "clients[0].keys[0].sha256", "a key instead"),
        ("keys = [{ expires = \"2027-01-31\" }]".to_owned(), "clients[0].keys[0].sha256", "missing"),
        (
            format!("keys = [{{ sha256 = \"{HASH}\", expires = \"31.1.2027\" }}]"),
            "clients[0].keys[0].expires",
            "neither a day nor a time",
        ),
        (
            format!("keys = [{{ sha256 = \"{HASH}\", ends = 1 }}]"),
            "clients[0].keys[0].ends",
            "unknown key",
        ),
        (String::new(), "clients[0].key_sha256", "missing"),
    ] {
        let faults = parsed(&with(&line)).unwrap_err();
        let found = faults.0.iter().find(|fault| fault.key == key);
        assert!(found.is_some_and(|fault| fault.problem.contains(message)), "{line}: {faults}");
        assert!(!faults.to_string().contains(HASH), "{faults}");
    }
}
