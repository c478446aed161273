//! `upstream.client_certificate` and `upstream.ca_roots` are read and checked with the config.

use super::*;

fn with(keys: &str) -> String {
    spoilt("connect_timeout = \"5s\"", keys)
}

/// The fault of a client certificate in these files.
fn fault_of(cert: &str, key: &str) -> String {
    let keys = format!("client_certificate = {{ cert = \"{cert}\", key = \"{key}\" }}");
    let faults = parsed(&with(&keys)).unwrap_err();
    let [fault] = faults.0.as_slice() else { panic!("one fault of {cert} and {key}: {faults}") };
    fault.to_string()
}

#[test]
fn a_client_certificate_is_read_with_its_key() {
    let keys = "client_certificate = { cert = \"server.pem\", key = \"server.pem\" }";
    let config = accepted(&with(keys));
    let loaded = config.upstream.client_certificate.as_ref().unwrap().loaded.as_ref().unwrap();
    assert_eq!(loaded.certified.cert.len(), 1);
    assert!(config.redacted_toml().contains("server.pem\" }\n"));
}

#[test]
fn a_client_certificate_of_no_use_is_refused() {
    for (cert, key, message) in [
        ("server.pem", "self_signed.pem", "it does not belong to the certificate of"),
        ("authority.pem", "authority.pem", "it has no private key that is not encrypted"),
        ("cut_off.pem", "server.pem", "a certificate is damaged or cut off"),
        ("missing.pem", "server.pem", "the file named here cannot be read: No such file"),
    ] {
        let fault = fault_of(cert, key);
        assert!(
            fault.contains("upstream.client_certificate.") && fault.contains(message),
            "{cert} {key}: {fault}"
        );
    }
}

#[test]
fn the_roots_of_no_ca_file_are_refused() {
    let faults = parsed(&with("ca_roots = \"file-and-system\"")).unwrap_err().to_string();
    assert!(faults.contains("upstream.ca_roots: without ca_file"), "{faults}");
    let keys = "ca_file = \"authority.pem\"\nca_roots = \"file-and-system\"";
    assert_eq!(accepted(&with(keys)).upstream.ca_roots, CaRoots::FileAndSystem);
    let faults = parsed(&with(&keys.replace("file-and-system", "all"))).unwrap_err().to_string();
    assert!(faults.contains("upstream.ca_roots: unknown value `all`"), "{faults}");
}
