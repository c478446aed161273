//! `weir check`: where secrets are not, for programs, and what it shows of secrets.

use std::path::Path;

use serde_json::{Value, json};

use super::{err, out, weir};

/// A config with a secret of each source, and with files that only the gateway's machine has.
const CONFIG: &str = r#"[listen]
admin = "127.0.0.1:9090"
admin_token = { value = "inline-s3cret" }
https = { address = "127.0.0.1:8443", cert = "tls.crt", key = "tls.key" }
admin_tls = { cert = "admin.crt", key = "admin.key", client_ca = "operators.pem" }
[upstream]
url = "http://code.corp"
ca_file = "authority.pem"
client_certificate = { cert = "weir.crt", key = "weir.key" }
proxy = { url = "http://proxy.corp", username = "me", password = { env = "PROXY_PASSWORD" } }
[[accounts]]
name = "bot"
kind = "user"
[[tokens]]
account = "bot"
kind = "classic"
secret = { env = "BOT_TOKEN" }
[[tokens]]
account = "bot"
kind = "classic"
secret = { file = "run/token" }
[[tokens]]
account = "bot"
kind = "classic"
secret = { credential = "bot-token" }
[[issuers]]
name = "actions"
url = "https://token.corp"
audience = "weir"
jwks_file = "keys.json"
[[clients]]
name = "ci"
key_sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
[cache]
snapshot = "var/weir.cache"
spool_folder = "var/spool"
[writes]
store = { path = "var/weir.redb" }
"#;

pub fn checked(
    text: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), text).unwrap();
    checked_in(folder.path(), arguments, variables)
}

pub fn checked_in(
    folder: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (i32, String, String) {
    let output = weir(folder, &[&["check"], arguments].concat(), variables);
    (output.status.code().unwrap(), out(&output), err(&output))
}

#[test]
fn a_check_without_secrets_reads_none_and_says_so() {
    // Even one that is there.
    let (code, out, err) = checked(CONFIG, &["--no-secrets"], &[("BOT_TOKEN", "\n")]);
    assert_eq!(code, 0, "{err}");
    for line in [
        "note: weir.toml: checked without secrets",
        "note: weir.toml: tokens[0].secret.env: not checked: environment variable BOT_TOKEN",
        "note: weir.toml: tokens[1].secret.file: not checked: file run/token",
        "note: weir.toml: tokens[2].secret.credential: not checked: credential bot-token",
        "note: weir.toml: listen.https.key: not checked: file tls.key",
        "note: weir.toml: listen.admin_tls.cert: not checked: file admin.crt",
        "note: weir.toml: listen.admin_tls.client_ca: not checked: file operators.pem",
        "note: weir.toml: upstream.client_certificate.key: not checked: file weir.key",
        "note: weir.toml: upstream.proxy.password.env: not checked: environment variable PROXY_PASSWORD",
        "note: weir.toml: issuers[0].jwks_file: not checked: file keys.json",
        "note: weir.toml: upstream.ca_file: not checked: file authority.pem",
        "note: weir.toml: cache.spool_folder: not checked: folder var/spool",
        "note: weir.toml: cache.snapshot: not checked: file var/weir.cache",
        "note: weir.toml: writes.store: not checked: file var/weir.redb",
        "warning: weir.toml:7: upstream.url: http://code.corp is plain HTTP",
    ] {
        assert!(err.contains(line), "{line}: {err}");
    }
    assert!(!err.contains("admin_token"), "a secret in the config itself is checked: {err}");
    assert!(out.contains("secret = { env = \"BOT_TOKEN\" }\n"), "{out}");
    assert!(out.contains("password = { env = \"PROXY_PASSWORD\" } }\n"), "{out}");
}

#[test]
fn a_check_without_secrets_finds_all_other_faults() {
    for (from, to, expected) in [
        ("kind = \"user\"", "kind = \"human\"", "weir.toml:13: accounts[0].kind: unknown value"),
        ("{ env = \"BOT_TOKEN\" }", "{ env = 3 }", "tokens[0].secret.env: wrong type: an integer"),
        ("{ env = \"BOT_TOKEN\" }", "{}", "tokens[0].secret: the secret's source is missing"),
        ("{ file = \"run/token\" }", "{ env = \"BOT_TOKEN\" }", "tokens[1].secret: duplicate"),
        ("inline-s3cret", "inline\\ns3cret", "listen.admin_token: the secret has a character"),
        ("authority.pem", "weir.toml", "upstream.ca_file: weir.toml: it has no certificate"),
        ("keys.json", "weir.toml", "issuers[0].jwks_file: the file named here has no key"),
        (
            "{ credential = \"bot-token\" }",
            "{ credential = \"a/b\" }",
            "this cannot be the name of a",
        ),
        ("var/spool", "weir.toml", "cache.spool_folder: weir.toml is no folder"),
        ("var/weir.redb", "weir.toml", "writes.store: "),
    ] {
        assert!(CONFIG.contains(from), "{from}");
        let (code, out, err) = checked(&CONFIG.replacen(from, to, 1), &["--no-secrets"], &[]);
        assert_eq!((code, out.as_str()), (2, ""), "{to}: {err}");
        assert!(err.contains(expected) && !err.contains("s3cret"), "{expected}: {err}");
    }
}

#[test]
fn a_misplaced_secret_is_not_shown_where_secrets_are_not_read() {
    for source in
        ["{ env = \"ghp_s3cret\" }", "{ file = \"ghp_s3cret\" }", "{ credential = \"ghp_s3cret\" }"]
    {
        let text = CONFIG.replacen("{ env = \"BOT_TOKEN\" }", source, 1);
        for json in [&[][..], &["--json"]] {
            let (code, out, err) = checked(&text, &[&["--no-secrets"], json].concat(), &[]);
            assert_eq!(code, 0, "{err}");
            assert!(!out.contains("s3cret") && !err.contains("s3cret"), "{out}{err}");
        }
    }
}

#[test]
fn secrets_are_either_left_out_or_asked_about() {
    let (code, _, err) = checked(CONFIG, &["--no-secrets", "--online"], &[]);
    assert_eq!(code, 2);
    assert!(err.contains("cannot be used with"), "{err}");
}

/// A config for any machine, with a warning.
pub const SMALL: &str = r#"[upstream]
url = "http://code.corp"
[[accounts]]
name = "bot"
kind = "user"
[[tokens]]
account = "bot"
kind = "classic"
secret = { env = "BOT_TOKEN" }
[[clients]]
name = "ci"
key_sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
"#;

#[test]
fn the_effective_config_names_the_source_of_each_secret() {
    let text = SMALL.replace("[upstream]", "[listen]\nadmin_token = { file = \"t\" }\n[upstream]")
        + "[webhooks]\nsecret = { value = \"inline-s3cret\" }\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), text).unwrap();
    std::fs::write(folder.path().join("t"), "file-s3cret").unwrap();
    let (code, out, err) = checked_in(folder.path(), &[], &[("BOT_TOKEN", "env-s3cret")]);
    assert_eq!(code, 0, "{err}");
    for line in [
        "admin_token = { file = \"t\" }",
        "secret = { env = \"BOT_TOKEN\" }",
        "secret = { value = \"<redacted>\" }",
        "key_sha256 = \"<redacted>\"",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("s3cret") && !err.contains("s3cret"), "{out}{err}");
}

#[test]
fn a_valid_config_is_one_json_object_for_programs() {
    let (code, out, err) = checked(SMALL, &["--json"], &[("BOT_TOKEN", "env-s3cret")]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(!out.contains("s3cret"), "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let members: Vec<&String> = report.as_object().unwrap().keys().collect();
    let documented = [
        "config", "faults", "file", "files", "left_out", "secrets", "status", "tokens", "warnings",
    ];
    assert_eq!(members, documented);
    assert_eq!(report["status"], "valid");
    assert_eq!((&report["file"], &report["secrets"]), (&json!("weir.toml"), &json!("read")));
    assert_eq!((&report["faults"], &report["tokens"]), (&json!([]), &json!([])));
    assert_eq!(report["config"]["listen"]["http"], json!(["127.0.0.1:8080"]));
    assert_eq!(report["config"]["tokens"][0]["secret"], json!({ "env": "BOT_TOKEN" }));
    let warning = &report["warnings"][0];
    assert_eq!((&warning["file"], &warning["key"]), (&json!("weir.toml"), &json!("upstream.url")));
    assert!(warning["problem"].as_str().unwrap().contains("plain HTTP"), "{warning}");
}

#[test]
fn problems_of_certificates_and_keys_are_json() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates");
    let checked = |name: &str| {
        let path = certificates.join(name);
        let path = path.display();
        let tls = format!(
            "https = {{ address = \"127.0.0.1:8443\", cert = \"{path}\", key = \"{path}\" }}"
        );
        let hash = SMALL.lines().last().unwrap().trim_start_matches("key_sha256 = ");
        let keys = format!("keys = [{{ sha256 = {hash}, expires = \"2020-01-31\" }}]");
        let text = SMALL.replace(&format!("key_sha256 = {hash}"), &keys);
        std::fs::write(folder.path().join("weir.toml"), format!("{text}\n[listen]\n{tls}\n"))
            .unwrap();
        let (code, out, _) = checked_in(folder.path(), &["--json"], &[("BOT_TOKEN", "a")]);
        (code, serde_json::from_str::<Value>(&out).unwrap())
    };
    let (code, report) = checked("expired.pem");
    assert_eq!((code, &report["faults"][0]["key"]), (2, &json!("listen.https")), "{report}");
    let problem = report["faults"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("the certificate ended at 2020-02-01"), "{problem}");
    let (code, report) = checked("server.pem");
    assert_eq!(code, 0, "{report}");
    let warnings = report["warnings"].as_array().unwrap();
    let of_key = warnings.iter().find(|warning| warning["key"] == "clients[0].keys[0]").unwrap();
    assert!(of_key["problem"].as_str().unwrap().contains("has expired"), "{of_key}");
}

#[test]
fn faults_are_json_with_their_lines() {
    let text = SMALL.replace("kind = \"user\"", "kind = 3");
    let (code, out, err) = checked(&text, &["--json", "--no-secrets"], &[]);
    assert_eq!((code, err.as_str()), (2, ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["status"], &report["config"]), (&json!("faulty"), &Value::Null));
    assert_eq!((&report["secrets"], &report["files"]), (&json!("left_out"), &json!([])));
    assert_eq!(
        report["faults"],
        json!([{
            "file": "weir.toml",
            "line": 5,
            "key": "accounts[0].kind",
            "problem": "wrong type: an integer",
            "accepted": "user, installation, app, oauth-app, workflow, anonymous",
        }])
    );
    let (code, out, _) = checked("upstream", &["--json"], &[]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["faults"][0]["key"]), (2, &Value::Null), "{report}");
}

#[test]
fn tokens_of_an_online_check_are_json_too() {
    let text = SMALL.replace("http://code.corp", "http://127.0.0.1:9")
        + "[listen]\nhttp = [\"127.0.0.1:0\"]\n";
    let (code, out, _) = checked(&text, &["--json", "--online"], &[("BOT_TOKEN", "env-s3cret")]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["status"]), (2, &json!("faulty")), "{report}");
    let token = &report["tokens"][0];
    assert_eq!((&token["account"], &token["state"]), (&json!("bot"), &json!("unknown")));
    assert!(token["reason"].as_str().unwrap().contains("refused"), "{token}");
    assert_eq!(report["faults"][0]["problem"], "no token could be checked");
    assert_eq!(report["files"], json!([]));
}

#[test]
fn the_schema_is_printed_without_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, err) = checked_in(folder.path(), &["--schema"], &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, std::fs::read_to_string("config/weir.schema.json").unwrap());
    let schema: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let drain = &schema["properties"]["listen"]["properties"]["drain"];
    assert_eq!(drain["default"], "30s");
}
