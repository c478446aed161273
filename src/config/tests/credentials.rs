//! `{ credential = "NAME" }`: secrets that systemd hands over.

use secrecy::ExposeSecret;

use super::*;

/// Parses a config whose first token is the credential of this name.
fn read(name: &str, folder: Option<&str>) -> Result<Config, Faults> {
    let text = spoilt("{ env = \"BOT_TOKEN\" }", &format!("{{ credential = \"{name}\" }}"));
    let env = |variable: &str| match variable {
        "CREDENTIALS_DIRECTORY" => folder.map(str::to_owned),
        variable => environment(variable),
    };
    parse(&text, "weir.toml", &env, Path::new("."))
}

#[test]
fn a_credential_of_systemd_is_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("build-bot"), "s3cret\n").unwrap();
    let config = read("build-bot", folder.path().to_str()).unwrap();
    assert_eq!(config.tokens[0].secret.expose_secret(), "s3cret");
    assert_eq!(config.secret_files[0].path, folder.path().join("build-bot"));
    assert!(config.redacted_toml().contains("secret = { credential = \"build-bot\" }\n"));
}

#[test]
fn a_credential_that_cannot_be_read_is_a_clear_fault() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty"), "").unwrap();
    let given = folder.path().to_str();
    for (name, folder, message) in [
        ("build-bot", None, "CREDENTIALS_DIRECTORY is not set: systemd sets it"),
        ("build-bot", Some("run"), "CREDENTIALS_DIRECTORY is not an absolute path"),
        ("build-bot", given, "the file named here cannot be read: No such file or directory"),
        ("empty", given, "the secret is empty"),
        ("../build-bot", given, "this cannot be the name of a credential"),
        ("/etc/passwd", given, "this cannot be the name of a credential"),
        ("..", given, "this cannot be the name of a credential"),
        ("", given, "this cannot be the name of a credential"),
    ] {
        let faults = read(name, folder).unwrap_err();
        let [fault] = faults.0.as_slice() else { panic!("one fault of {name}: {faults}") };
        assert_eq!(fault.key, "tokens[0].secret.credential");
        assert!(fault.problem.contains(message), "{name}: {fault}");
    }
}

#[test]
fn a_config_examined_without_secrets_needs_no_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    let text = spoilt("{ env = \"BOT_TOKEN\" }", "{ credential = \"build-bot\" }");
    std::fs::write(&path, text).unwrap();
    assert!(load_without_secrets(&path).is_ok());
    let Examined { config, left_out, .. } = examine(&path).unwrap();
    let config = config.unwrap();
    let key = "tokens[0].secret.credential";
    assert!(left_out.iter().any(|one| one.key == key && one.what == "credential build-bot"));
    assert!(config.redacted_toml().contains("secret = { credential = \"build-bot\" }\n"));
}
