//! `weir healthcheck` as the runtime of a container runs it.

use std::process::Command;

use super::programs::{Gateway, Upstream, free_address, path};
use super::{ROOT, file};

/// The exit code, and both outputs.
fn check(arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("healthcheck").args(arguments).current_dir(std::env::temp_dir());
    let output = command.env_remove("WEIR_CONFIG").output().expect("the program");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("text");
    (output.status.code().expect("an exit code"), text)
}

#[test]
fn a_ready_gateway_is_healthy() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream.address, "");
    let config = gateway.config();
    for arguments in [["--admin", &gateway.admin], ["--config", path(&config)]] {
        assert_eq!(check(&arguments), (0, "ok\n".to_owned()));
    }
    assert_eq!(check(&["--live", "--admin", &gateway.admin]), (0, "ok\n".to_owned()));
}

#[test]
fn a_gateway_without_a_token_lives_and_is_not_ready() {
    let upstream = Upstream::start();
    let gateway = Gateway::unready(&upstream.address);
    let (code, text) = check(&["--admin", &gateway.admin]);
    assert_eq!(code, 1);
    assert!(text.contains("is not ready: ") && text.contains("ada, token 0"), "{text}");
    assert_eq!(check(&["--live", "--admin", &gateway.admin]).0, 0);
}

#[test]
fn a_missing_gateway_or_config_is_one() {
    let nobody = free_address();
    let folder = tempfile::tempdir().expect("a folder");
    let faulty = folder.path().join("weir.toml");
    std::fs::write(&faulty, "[listen]\nadmin = 3\n").expect("a config");
    let no_admin = folder.path().join("other.toml");
    std::fs::write(&no_admin, "[listen]\n").expect("a config");
    for (arguments, reason) in [
        (["--admin", &nobody], "nothing answers at "),
        (["--config", path(&faulty)], "listen.admin"),
        (["--config", path(&no_admin)], "where is the gateway?"),
    ] {
        let (code, text) = check(&arguments);
        assert_eq!(code, 1, "{text}");
        assert!(text.starts_with("weir healthcheck: ") && text.contains(reason), "{text}");
    }
}

#[test]
fn another_server_is_no_gateway() {
    let upstream = Upstream::start();
    let (code, text) = check(&["--admin", &upstream.address]);
    assert_eq!(code, 1);
    assert!(text.contains("is not the admin listener of a gateway"), "{text}");
}

#[test]
fn a_gateway_with_tls_is_asked_by_tls() {
    let upstream = Upstream::start();
    let server = format!("{ROOT}/tests/support/certificates/server.pem");
    let tls = format!("admin_tls = {{ cert = \"{server}\", key = \"{server}\" }}");
    let gateway = Gateway::start_with_tls(&upstream.address, &tls);
    assert_eq!(check(&["--config", path(&gateway.config())]).0, 0);
    let address = format!("https://{}", gateway.admin);
    let authority = format!("{ROOT}/tests/support/certificates/authority.pem");
    assert_eq!(check(&["--admin", &address, "--admin-ca", &authority]).0, 0);
    assert_eq!(check(&["--admin", &gateway.admin]).0, 1);
}

#[test]
fn the_image_has_this_health_check() {
    let image = file("deploy/Dockerfile");
    assert!(image.contains("HEALTHCHECK") && image.contains("\"healthcheck\""), "{image}");
}
