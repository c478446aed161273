//! `listen.https`: accepted certificates, and the faults of their files.

use super::*;

fn certificate(name: &str) -> String {
    format!("{}/tests/support/certificates/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn with_https(https: &str) -> String {
    spoilt("admin = \"127.0.0.1:9090\"", &format!("https = {{ {https} }}"))
}

fn pair(cert: &str, key: &str) -> String {
    format!("cert = {:?}, key = {:?}", certificate(cert), certificate(key))
}

#[test]
fn a_listener_for_tls_has_one_certificate_or_several() {
    let address = "address = \"127.0.0.1:8443\"";
    let (one, other) = (pair("server.pem", "server.pem"), pair("other_name.pem", "other_name.pem"));
    for (https, count) in [
        (format!("{address}, {one}"), 1),
        (format!("{address}, certificates = [{{ {one} }}, {{ {other} }}]"), 2),
    ] {
        let text = with_https(&https);
        let config = accepted(&text);
        let https = config.listen.https.as_ref().unwrap();
        assert_eq!(https.certificates.len(), count);
        assert!(https.certificates.iter().all(|files| files.loaded.is_some()));
        let printed = config.redacted_toml();
        assert!(printed.contains("other_name.pem") == (count == 2), "{printed}");
        assert!(!format!("{config:?}").contains("PRIVATE"));
    }
}

#[test]
fn an_unusable_certificate_is_a_fault_of_its_file() {
    let absent = "address = \"127.0.0.1:8443\", cert = \"/absent.pem\", key = \"/absent.pem\"";
    let server = pair("server.pem", "server.pem");
    let at = |files: String| format!("address = \"127.0.0.1:8443\", {files}");
    for (https, key, message) in [
        (absent.to_owned(), "cert", "/absent.pem cannot be read"),
        (at(pair("cut_off.pem", "server.pem")), "cert", "a certificate is damaged or cut off"),
        (at(pair("server.pem", "authority.pem")), "key", "it has no private key"),
        (at(pair("server.pem", "other_name.pem")), "key", "it does not belong to the certificate"),
        (at(format!("{server}, certificates = []")), "cert", "not beside certificates"),
        (at("certificates = []".to_owned()), "certificates", "empty"),
        (server.clone(), "address", "missing"),
        ("address = \"127.0.0.1:8443\"".to_owned(), "cert", "missing"),
    ] {
        let faults = parsed(&with_https(&https)).unwrap_err();
        let fault = &faults.0[0];
        assert_eq!(fault.key, format!("listen.https.{key}"), "{faults}");
        assert!(fault.to_string().contains(message), "{fault}");
    }
}

#[test]
fn a_config_examined_without_secrets_needs_no_certificate() {
    let text = with_https("address = \"127.0.0.1:8443\", cert = \"/a.pem\", key = \"/a.key\"");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, text).unwrap();
    let config = load_without_secrets(&path).unwrap();
    assert!(config.listen.https.unwrap().certificates[0].loaded.is_none());
}
