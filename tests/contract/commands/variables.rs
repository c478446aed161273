//! `${NAME}` in the strings of a config.

use super::check::{SMALL, checked};

const LONG: &str = "s3cret-of-the-environment";

#[test]
fn a_variable_stands_in_any_string() {
    let text = SMALL
        .replace("http://code.corp", "${SCHEME:-https}://${HOST}/api/v3")
        .replace("\"ci\"", "\"$${HOST} $5\"")
        .replace("[upstream]", "[listen]\nhttp = [\"${ADDRESS}\"]\n[upstream]")
        + "[writes]\nstore = { path = \"${FOLDER}/weir.redb\" }\n";
    let variables = [
        ("BOT_TOKEN", LONG),
        ("HOST", "Code.Corp"),
        ("ADDRESS", "127.0.0.1:8099"),
        ("FOLDER", "."),
    ];
    let (code, out, err) = checked(&text, &[], &variables);
    assert_eq!(code, 0, "{err}");
    for line in [
        "url = \"https://code.corp/api/v3\"",
        "http = [\"127.0.0.1:8099\"]",
        "store = { path = \"./weir.redb\" }",
        "name = \"$${HOST} $5\"",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
}

#[test]
fn a_variable_that_is_not_set_is_a_fault_with_its_key() {
    let text = SMALL
        .replace("code.corp", "${HOST}")
        .replace("\"user\"", "\"${KIND\"")
        .replace("name = \"bot\"", "name = \"${NAME}\"");
    let (code, out, err) = checked(&text, &[], &[("BOT_TOKEN", LONG)]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(
        err.lines().collect::<Vec<_>>(),
        [
            "weir.toml:2: upstream.url: environment variable HOST is not set (accepted: a variable that is set, or a default: `${NAME:-default}`)",
            "weir.toml:4: accounts[0].name: environment variable NAME is not set (accepted: a variable that is set, or a default: `${NAME:-default}`)",
            "weir.toml:5: accounts[0].kind: bad reference to an environment variable (accepted: `${NAME}` or `${NAME:-default}`, with letters, digits and `_` in the name; `$${` is a plain `${`)",
        ]
    );
}

#[test]
fn a_key_is_no_place_for_a_variable() {
    let text = SMALL.replace("kind = \"user\"", "kind = \"user\"\n\"${KEY}\" = 1");
    let (code, _, err) = checked(&text, &[], &[("BOT_TOKEN", LONG), ("KEY", "reserve")]);
    assert_eq!(code, 2);
    assert!(err.contains("weir.toml:6: accounts[0].…: unknown key"), "{err}");
}

#[test]
fn a_secret_of_the_environment_is_never_shown() {
    let variables = [("BOT_TOKEN", "env-token"), ("LEAK", LONG)];
    // In a place for secrets it is one.
    let text = SMALL.replace("{ env = \"BOT_TOKEN\" }", "{ value = \"${LEAK}\" }");
    for json in [&[][..], &["--json"]] {
        let (code, out, err) = checked(&text, json, &variables);
        assert_eq!(code, 0, "{err}");
        assert!(!out.contains(LONG) && !err.contains(LONG), "{out}{err}");
    }
    // In any other it is a fault, which shows what is written.
    for (from, to, shown) in [
        ("{ env = \"BOT_TOKEN\" }", "\"${LEAK}\"", "tokens[0].secret: wrong type: a string"),
        ("{ env = \"BOT_TOKEN\" }", "{ env = \"${LEAK}\" }", "the environment variable named here"),
        ("{ env = \"BOT_TOKEN\" }", "{ file = \"${LEAK}\" }", "the file named here cannot be read"),
        ("\"user\"", "\"${LEAK}\"", "accounts[0].kind: unknown value `${LEAK}`"),
        ("http://code.corp\"", "http://a\"\nca_file = \"${LEAK}\"", "${LEAK} cannot be read"),
        ("http://code.corp\"", "http://a\"\nconnect_timeout = \"${LEAK}\"", "duration `${LEAK}`"),
        ("account = \"bot\"", "account = \"${LEAK}\"", "unknown account `${LEAK}`"),
    ] {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL);
        let (code, out, err) = checked(&text, &[], &variables);
        assert_eq!((code, out.as_str()), (2, ""), "{to}");
        assert!(err.contains(shown) && !err.contains(LONG), "{shown}: {err}");
    }
}

#[test]
fn a_check_without_secrets_needs_no_variable() {
    let text = SMALL.replace("code.corp", "${HOST}");
    let (code, out, err) = checked(&text, &["--no-secrets"], &[]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    for line in [
        "note: weir.toml: upstream.url: not checked: environment variable HOST is not set\n",
        "note: weir.toml: no effective config: a variable is not set here\n",
    ] {
        assert!(err.contains(line), "{line}: {err}");
    }
    let (code, out, _) = checked(&text, &["--no-secrets"], &[("HOST", "other.corp")]);
    assert!(code == 0 && out.contains("url = \"http://other.corp\""), "{out}");
    // Other faults are found beside it.
    let (code, _, err) = checked(&text.replace("\"user\"", "\"human\""), &["--no-secrets"], &[]);
    assert_eq!(code, 2);
    assert!(err.contains("accounts[0].kind") && !err.contains("HOST"), "{err}");
    let (code, _, err) = checked(&text.replace("${HOST}", "${}"), &["--no-secrets"], &[]);
    assert!(code == 2 && err.contains("upstream.url: bad reference"), "{err}");
}
