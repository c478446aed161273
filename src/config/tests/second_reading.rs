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
    let [token, webhook] = ["secret", "parts/secret"].map(|name| folder.path().join(name));
    // The other may be half written.
    let part = config.with_present_files(std::slice::from_ref(&webhook)).unwrap();
    assert_eq!(secrets(&part), ["token 1", "webhook 2"]);
    let stamp =
        |config: &Config| config.secret_files.iter().find(|file| file.path == token).unwrap().stamp;
    assert_eq!(stamp(&part), stamp(&config), "its change is yet to be seen");
    let again = part.with_present_files(&[token, webhook]).unwrap();
    assert_eq!(secrets(&again), ["token 2", "webhook 2"]);
    assert_eq!(again.redacted_toml(), config.redacted_toml());
    assert_eq!((&*again.clients[0].name, again.upstream.url.host()), ("ci", "code.corp"));
    assert_eq!(again.warnings(), config.warnings());
    assert!(again.warnings().iter().any(|warning| warning.key == "include[1]"));
}

#[test]
fn certificates_that_are_gone_hold_up_no_other_file() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let files = ["server.pem", "client_authority.pem"];
    for name in files {
        std::fs::copy(fixtures.join(name), at(name)).unwrap();
    }
    let listen = "[listen]\nhttps = { address = \"127.0.0.1:0\", cert = \"server.pem\", key = \"server.pem\", client_ca = \"client_authority.pem\" }\n[upstream]\nca_file = \"client_authority.pem\"";
    let client = "[[clients]]\nname = \"ci\"\nkey_sha256 = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\n";
    let text = CONFIG
        .replace("[upstream]", listen)
        .replace("include = [\"parts/c*.toml\", \"none/n*.toml\"]\n", "");
    std::fs::write(at("weir.toml"), text + client).unwrap();
    std::fs::write(at("secret"), "token 1").unwrap();
    let config = load(&at("weir.toml")).unwrap();
    std::fs::write(at("secret"), "token 2").unwrap();
    for name in files {
        std::fs::remove_file(at(name)).unwrap();
    }
    let changed = [at("secret")];
    let again = config.with_present_files(&changed).unwrap();
    assert_eq!(again.tokens[0].secret.expose_secret(), "token 2");
    let tls = |config: &Config| config.listen.https.as_ref().unwrap().tls.clone();
    assert_eq!(tls(&again).certificates[0].loaded, tls(&config).certificates[0].loaded);
    assert_eq!(tls(&again).client_ca, tls(&config).client_ca);
    assert_eq!(again.upstream.ca_file, config.upstream.ca_file);
    let problems = again.loaded_files.iter().filter(|file| file.problem.is_some());
    assert_eq!(problems.count(), 3);
    // As in the first reading, not from one reading to the next alone.
    assert!(again.with_present_files(&changed).is_ok());
}

#[test]
fn a_certificate_and_its_key_may_change_one_after_the_other() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates");
    let folder = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let put = |name: &str, path: &Path| _ = std::fs::copy(fixtures.join(name), path).unwrap();
    let files = format!("{{ cert = \"{}\", key = \"{}\" }}", cert.display(), key.display());
    let files = format!("[upstream]\nclient_certificate = {files}");
    let text = VALID.replace("[upstream]", &files).replace("env = \"BOT_TOKEN\"", "value = \"t\"");
    let chain = |config: &Config| {
        let files = config.upstream.client_certificate.as_ref().unwrap();
        files.loaded.as_ref().unwrap().certified.cert.clone()
    };
    for order in [[&key, &cert], [&cert, &key]] {
        put("server.pem", &cert);
        put("server.pem", &key);
        let before = accepted(&text);
        put("rsa.pem", order[0]);
        let first = std::slice::from_ref(order[0]);
        let between = before
            .with_present_files(first)
            .or_else(|_| before.with_each_present_file(first).0.ok_or(()));
        let between = between.unwrap_or(before);
        put("rsa.pem", order[1]);
        let changed: Vec<_> = order.iter().map(|path| (*path).clone()).collect();
        // A file that was read, if in vain, has not changed since.
        let is_changed = |path: &PathBuf| {
            let file = between.secret_files.iter().find(|file| file.path == *path).unwrap();
            file.stamp != crate::config::Stamp::of(path)
        };
        let changed: Vec<_> = changed.into_iter().filter(is_changed).collect();
        let after = between.with_present_files(&changed).unwrap();
        assert!(chain(&after) != chain(&between), "{order:?}");
    }
}
