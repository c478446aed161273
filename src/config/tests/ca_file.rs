//! `upstream.ca_file` is read and checked with the config.

use super::*;

fn with_ca_file(path: &str) -> String {
    spoilt("connect_timeout = \"5s\"", &format!("ca_file = \"{path}\""))
}

#[test]
fn a_ca_file_holds_the_certificates_of_its_file() {
    for (file, count) in [("authority.pem", 1), ("self_signed.pem", 1)] {
        let config = accepted(&with_ca_file(file));
        let read = config.upstream.ca_file.map(|file| file.certificates().len());
        assert_eq!(read, Some(count), "{file}: a key in it is skipped");
    }
}

#[test]
fn a_ca_file_without_usable_certificates_is_refused() {
    for (file, message) in [
        ("missing.pem", "missing.pem cannot be read: No such file or directory"),
        ("mis\\nsing.pem", "mis\\nsing.pem cannot be read: No such file or directory"),
        (".", "is not a regular file"),
        (
            "../config.rs",
            "config.rs: it has no certificate (accepted: a file of certificates in PEM",
        ),
        ("damaged.pem", "damaged.pem: certificate 2 of the file is damaged"),
        ("cut_off.pem", "cut_off.pem: certificate 1 of the file is cut off"),
    ] {
        let faults = parsed(&with_ca_file(file)).unwrap_err();
        let [fault] = faults.0.as_slice() else { panic!("one fault of {file}: {faults}") };
        assert_eq!((fault.line, fault.key.as_str()), (Some(3), "upstream.ca_file"));
        assert!(fault.to_string().contains(message), "{file}: {fault}");
    }
}

#[test]
fn a_config_examined_without_secrets_needs_no_ca_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    std::fs::write(&path, with_ca_file("missing.pem")).unwrap();
    assert!(load_without_secrets(&path).is_ok());
}
