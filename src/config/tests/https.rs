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
        assert_eq!(https.tls.certificates.len(), count);
        assert!(https.tls.certificates.iter().all(|files| files.loaded.is_some()));
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
        (at(pair("version_1.pem", "version_1.pem")), "cert", "another version of X.509 than 3"),
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
fn files_beside_a_list_of_certificates_are_refused_by_name() {
    let both = "address = \"127.0.0.1:8443\", cert = \"a\", key = \"b\", certificates = []";
    let faults = parsed(&with_https(both)).unwrap_err();
    let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(keys, ["listen.https.cert", "listen.https.key"], "{faults}");
    assert!(!faults.to_string().contains("unknown key"), "{faults}");
}

#[test]
fn a_config_examined_without_secrets_needs_no_certificate() {
    let text = with_https("address = \"127.0.0.1:8443\", cert = \"/a.pem\", key = \"/a.key\"");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, text).unwrap();
    let config = load_without_secrets(&path).unwrap();
    assert!(config.listen.https.unwrap().tls.certificates[0].loaded.is_none());
}

#[test]
fn certificates_of_clients_need_an_authority() {
    let server = format!("address = \"127.0.0.1:8443\", {}", pair("server.pem", "server.pem"));
    let authority = certificate("client_authority.pem");
    for (https, auth) in [("", None), (", client_auth = \"required\"", Some("required"))] {
        let text = with_https(&format!("{server}, client_ca = {authority:?}{https}"));
        let config = accepted(&text);
        let tls = &config.listen.https.as_ref().unwrap().tls;
        assert_eq!(tls.requires_clients(), auth.is_some());
        let printed = format!("client_auth = \"{}\"", auth.unwrap_or("optional"));
        assert!(config.redacted_toml().contains(&printed));
    }
    for (more, key, message) in [
        (", client_auth = \"required\"".to_owned(), "client_auth", "there is no client_ca"),
        (", client_ca = \"/absent.pem\"".to_owned(), "client_ca", "/absent.pem cannot be read"),
        (format!(", client_ca = {authority:?}, client_auth = \"never\""), "client_auth", "never"),
    ] {
        let faults = parsed(&with_https(&format!("{server}{more}"))).unwrap_err();
        assert_eq!(faults.0[0].key, format!("listen.https.{key}"), "{faults}");
        assert!(faults.to_string().contains(message), "{faults}");
    }
}

#[test]
fn a_client_has_a_key_or_a_certificate_of_its_own() {
    let authority = certificate("client_authority.pem");
    let server = format!("address = \"127.0.0.1:8443\", {}", pair("server.pem", "server.pem"));
    let text = with_https(&format!("{server}, client_ca = {authority:?}"));
    let client = |name: &str, keys: &str| {
        format!("[[clients]]\nname = \"{name}\"\nreads = \"readers\"\n{keys}\n")
    };
    let named = client("certified", "certificate = \"spiffe://corp/ci\"");
    let config = accepted(&format!("{text}\n{named}"));
    let certified = config.clients.last().unwrap();
    assert_eq!(certified.certificate, Some(CertificateName::Uri("spiffe://corp/ci".into())));
    assert!(certified.keys.is_empty());
    // A fault of the listener is no fault of the client.
    let absent = "address = \"127.0.0.1:8443\", cert = \"/a.pem\", key = \"/a.key\"";
    let incomplete = with_https(&format!("{absent}, client_ca = {authority:?}"));
    let faults = parsed(&format!("{incomplete}\n{named}")).unwrap_err();
    assert!(faults.0.iter().all(|fault| fault.key.starts_with("listen.https")), "{faults}");
    for (text, message) in [
        (format!("{text}\n{named}{}", named.replace("certified", "twin")), "duplicate certificate"),
        (format!("{text}\n{}", client("keyless", "")), "missing"),
        (format!("{text}\n{}", client("empty", "certificate = \"\"")), "certificate"),
        (format!("{}\n{named}", with_https(&server)), "no listener asks for certificates"),
    ] {
        let faults = parsed(&text).unwrap_err();
        assert!(faults.to_string().contains(message), "{message}: {faults}");
    }
}

#[test]
fn an_admin_listener_with_required_certificates_needs_no_token() {
    let authority = certificate("client_authority.pem");
    let tls = |more: &str| {
        let pair = pair("server.pem", "server.pem");
        let admin = format!("admin = \"0.0.0.0:9090\"\nadmin_tls = {{ {pair}{more} }}");
        spoilt("admin = \"127.0.0.1:9090\"", &admin)
    };
    let required = format!(", client_ca = {authority:?}, client_auth = \"required\"");
    assert!(accepted(&tls(&required)).listen.admin_tls.is_some());
    for more in [String::new(), format!(", client_ca = {authority:?}")] {
        let faults = parsed(&tls(&more)).unwrap_err();
        assert!(faults.to_string().contains("there is no admin_token"), "{faults}");
    }
    let pair = pair("server.pem", "server.pem");
    let alone = format!("admin_tls = {{ {pair} }}");
    let faults = parsed(&spoilt("admin = \"127.0.0.1:9090\"", &alone)).unwrap_err();
    assert!(faults.to_string().contains("there is no admin listener"), "{faults}");
}

#[test]
fn a_client_ca_without_an_authority_is_warned_of() {
    let warned = |client_ca: &str| {
        let https = format!(
            "address = \"127.0.0.1:8443\", {}, client_ca = {:?}",
            pair("server.pem", "server.pem"),
            certificate(client_ca)
        );
        let warnings = accepted(&with_https(&https)).warnings().into_iter();
        warnings.map(|warning| (warning.key, warning.problem)).collect::<Vec<_>>()
    };
    let problem = "certificate 1 of the file belongs to no authority: no other client's certificate is accepted by it";
    let key = "listen.https.client_ca";
    assert_eq!(warned("ci_client.pem"), [(key.to_owned(), problem.to_owned())]);
    assert_eq!(warned("client_authority.pem"), []);
}

#[test]
fn clients_that_are_administrators_are_warned_of() {
    let warned = |admin_ca: &str, admin: &str| {
        let server = pair("server.pem", "server.pem");
        let [of_clients, of_admin] = ["client_authority.pem", admin_ca].map(certificate);
        let text = spoilt(
            "admin = \"127.0.0.1:9090\"",
            &format!(
                "admin = \"127.0.0.1:9090\"\n\
                 https = {{ address = \"127.0.0.1:8443\", {server}, client_ca = {of_clients:?} }}\n\
                 admin_tls = {{ {server}, client_ca = {of_admin:?}{admin} }}"
            ),
        );
        let warnings = accepted(&text).warnings();
        warnings.into_iter().any(|warning| warning.key == "listen.admin_tls")
    };
    let required = ", client_auth = \"required\"";
    assert!(warned("client_authority.pem", required));
    assert!(!warned("renewed_authority.pem", required));
    assert!(!warned("client_authority.pem", ""));
}
