//! The second reading of a config, with the present content of secret files, has everything else as
//! it was: included files and variables too.

use secrecy::ExposeSecret;

use super::*;

const CONFIG: &str = r#"include = ["parts/c*.toml", "none/n*.toml"]
[upstream]
url = "https://${UNSET_IN_TESTS:-code.corp}"
[[accounts]]
name = "bot"
kind = "user"
[[tokens]]
account = "bot"
kind = "classic"
secret = { file = "secret" }
"#;

const PART: &str = r#"[[clients]]
name = "${UNSET_IN_TESTS:-ci}"
key_sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
[webhooks]
secret = { file = "secret" }
"#;

#[test]
fn a_second_reading_keeps_included_files_and_variables() {
    let folder = tempfile::tempdir().unwrap();
    let (path, parts) = (folder.path().join("weir.toml"), folder.path().join("parts"));
    std::fs::create_dir(&parts).unwrap();
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    let secrets = |config: &Config| {
        let webhooks = config.webhooks.as_ref().unwrap();
        [config.tokens[0].secret.expose_secret(), webhooks.secret.expose_secret()]
            .map(str::to_owned)
    };
    write(&path, CONFIG);
    write(&parts.join("clients.toml"), PART);
    write(&folder.path().join("secret"), "token 1");
    write(&parts.join("secret"), "webhook 1");
    let config = load(&path).unwrap();
    assert_eq!(secrets(&config), ["token 1", "webhook 1"]);
    write(&path, "changed");
    write(&parts.join("clients.toml"), "changed");
    write(&parts.join("more.toml"), "changed");
    write(&folder.path().join("secret"), "token 2");
    write(&parts.join("secret"), "webhook 2");
    let again = config.with_present_files().unwrap();
    assert_eq!(secrets(&again), ["token 2", "webhook 2"]);
    assert_eq!(again.redacted_toml(), config.redacted_toml());
    assert_eq!((&*again.clients[0].name, again.upstream.url.host()), ("ci", "code.corp"));
    assert_eq!(again.warnings(), config.warnings());
    assert!(again.warnings().iter().any(|warning| warning.key == "include[1]"));
}
