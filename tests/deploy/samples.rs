//! The sample configs and service files: each config is valid, a gateway serves by each as far as
//! its surroundings can be made here, and systemd, nginx and the linter accept their files.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::programs::{Program, TOKEN, Upstream, free_address, path, until};
use super::redis_server::RedisServer;
use super::tools::{documents, result, run, tool};
use super::{ROOT, file, http};

/// Every config below `deploy/`.
const CONFIGS: [&str; 4] = [
    "deploy/replicas.toml",
    "deploy/weir.toml",
    "deploy/kubernetes/overlays/single/weir.toml",
    "deploy/kubernetes/overlays/replicas/weir.toml",
];

/// Checks a config without its secrets, and returns the effective one.
#[track_caller]
pub fn assert_valid(text: &str) -> Value {
    let folder = tempfile::tempdir().expect("a folder for the config");
    let written = folder.path().join("weir.toml");
    fs::write(&written, text).expect("the config is written");
    let mut check = Command::new(env!("CARGO_BIN_EXE_weir"));
    check.args(["check", "--json", "--no-secrets", "--config", path(&written)]);
    let (is_done, text) = result(&mut check);
    assert!(is_done, "{text}");
    let report: Value = serde_json::from_str(&text).expect("a report");
    report["config"].clone()
}

/// The files with this ending below a folder.
fn files(folder: &Path, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry").path();
        if entry.is_dir() {
            found.extend(files(&entry, ending));
        } else if entry.to_string_lossy().ends_with(ending) {
            found
                .push(path(entry.strip_prefix(ROOT).expect("a file of the repository")).to_owned());
        }
    }
    found
}

#[test]
fn each_config_is_valid() {
    let mut found = files(&Path::new(ROOT).join("deploy"), ".toml");
    found.sort();
    let mut known = CONFIGS.map(str::to_owned).to_vec();
    known.sort();
    assert_eq!(found, known, "each config is tried");
    for config in CONFIGS {
        assert_valid(&file(config));
    }
}

/// A gateway by each config: its addresses, upstream, secrets and Redis are those of the test, and
/// everything else is as in the file.
#[test]
fn a_gateway_serves_by_each_config() {
    let upstream = Upstream::start();
    for config in CONFIGS {
        let redis = RedisServer::start(&[
            "--requirepass",
            "sesame",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--maxmemory-policy",
            "noeviction",
        ]);
        let folder = tempfile::tempdir().expect("a folder for secrets and state");
        let secrets =
            [("build-bot", TOKEN), ("admin-token", "admin"), ("redis-password", "sesame")];
        for (name, secret) in secrets {
            fs::write(folder.path().join(name), secret).expect("a secret");
        }
        let (clients, admin) = (free_address(), free_address());
        let text = placed(&file(config), folder.path(), &upstream, &redis, (&clients, &admin));
        let written = folder.path().join("weir.toml");
        fs::write(&written, text).expect("the config is written");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_weir"));
        serve.args(["serve", "--config", path(&written)]).env_remove("WEIR_LOG");
        // As LoadCredential of weir.service hands the secrets over.
        serve.env("CREDENTIALS_DIRECTORY", folder.path());
        let gateway = Program::start(serve);
        until(&format!("{config} serves:\n{}", gateway.output()), || {
            http::get(&admin, "/readyz").filter(|answer| answer.status == 200)
        });
        let answer = http::get(&clients, "/user").expect("an answer");
        assert_eq!(answer.status, 401, "{config} asks for a key: {answer:?}");
        let metrics = http::get(&admin, "/metrics").expect("an answer");
        let status = if file(config).contains("admin_token = ") { 401 } else { 200 };
        assert_eq!(metrics.status, status, "{config}: {metrics:?}");
    }
}

/// A sample config in the surroundings of the test.
fn placed(
    text: &str,
    folder: &Path,
    upstream: &Upstream,
    redis: &RedisServer,
    (clients, admin): (&str, &str),
) -> String {
    let folder = path(folder);
    let url = format!("http://{}\"\ndialect = \"github", upstream.address);
    let replaced = [
        ("0.0.0.0:8080", clients),
        ("127.0.0.1:8080", clients),
        ("0.0.0.0:9090", admin),
        ("127.0.0.1:9090", admin),
        ("https://api.example.com", &url),
        ("/run/secrets/weir", folder),
        ("/run/secrets", folder),
        ("/var/lib/weir", folder),
        ("redis://redis:6379", &redis.url()),
        ("redis://redis-sentinel:26379", &redis.url()),
        // The test has no Sentinels.
        ("sentinel = \"weir\"\n", ""),
    ];
    replaced.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[test]
fn the_image_passes_its_linter() {
    run(tool("hadolint").arg("deploy/Dockerfile"));
    let image = file("deploy/Dockerfile");
    let toolchain = file("rust-toolchain.toml");
    let version = toolchain.split("channel = \"").nth(1).and_then(|rest| rest.split('"').next());
    let version = version.expect("a version").trim_end_matches(".0");
    assert!(image.contains(&format!("FROM rust:{version}-")), "another compiler than {version}");
    let needed = file("deploy/Dockerfile.dockerignore");
    let copied = image.lines().filter(|line| line.starts_with("COPY") && !line.contains("--from"));
    for source in
        copied.flat_map(|line| line.split(' ').skip(1)).filter(|word| !word.starts_with("./"))
    {
        assert!(Path::new(ROOT).join(source).exists(), "{source} does not exist");
        assert!(needed.contains(&format!("!{source}\n")), "{source} is not sent to the build");
    }
}

#[test]
fn compose_names_only_what_exists() {
    let compose = &documents(&file("deploy/compose.yaml"))[0];
    let keys = |section: &str| -> Vec<String> {
        compose[section].as_object().expect("a section").keys().cloned().collect()
    };
    let names = |value: &Value| -> Vec<String> {
        let list = value.as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let (services, volumes) = (keys("services"), keys("volumes"));
    let (networks, secrets) = (keys("networks"), keys("secrets"));
    for (name, service) in compose["services"].as_object().expect("services") {
        let depended = service["depends_on"].as_object();
        let depended = depended.map(|map| map.keys().cloned().collect());
        let depended: Vec<_> = depended.unwrap_or_else(|| names(&service["depends_on"]));
        assert!(depended.iter().all(|other| services.contains(other)), "{name}: {depended:?}");
        assert!(names(&service["networks"]).iter().all(|one| networks.contains(one)), "{name}");
        assert!(names(&service["secrets"]).iter().all(|one| secrets.contains(one)), "{name}");
        assert!(service["healthcheck"].is_object(), "{name} has no health check");
        assert_eq!(service["read_only"], true, "{name}");
        for mount in names(&service["volumes"]) {
            let source = mount.split(':').next().unwrap_or_default();
            let exists = match source.strip_prefix("./") {
                Some(file) => Path::new(ROOT).join("deploy").join(file).exists(),
                None => volumes.iter().any(|volume| volume == source),
            };
            assert!(exists, "{name}: {mount}");
        }
    }
    let scraped = &documents(&file("deploy/prometheus/prometheus.yaml"))[0];
    let targets = names(&scraped["scrape_configs"][0]["static_configs"][0]["targets"]);
    let gateways = services.iter().filter(|name| name.starts_with("weir-"));
    let gateways: Vec<_> = gateways.map(|name| format!("{name}:9090")).collect();
    assert_eq!(targets, gateways, "Prometheus scrapes each gateway");
}

#[test]
fn systemd_accepts_the_units() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the units");
    for unit in ["weir.service", "weir.socket"] {
        // The program is not installed here.
        let text = file(&format!("deploy/{unit}"))
            .replace("/usr/local/bin/weir", env!("CARGO_BIN_EXE_weir"));
        fs::write(folder.path().join(unit), text).expect("a unit");
    }
    for unit in ["weir.service", "weir.socket"] {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no", path(&folder.path().join(unit))]);
        let output = verify.output().expect("systemd-analyze (deploy/setup.sh test)");
        let said = String::from_utf8_lossy(&output.stderr);
        // It says so too where systemd does not run.
        let about = said.lines().filter(|line| line.contains("weir.s")).collect::<Vec<_>>();
        assert!(output.status.success() && about.is_empty(), "{unit}: {said}");
    }
}

/// The lines of the README in a folder that takes the place of `/`, with a token in the variable
/// that they name. systemd does not start anything there.
#[test]
fn the_install_for_a_machine_works() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let readme = file("deploy/README.md");
    let block = readme.split("```sh\n").find(|block| block.starts_with("install -Dm 755"));
    let block = block.and_then(|block| block.split("```").next()).expect("the install");
    let lines: Vec<_> = block.lines().collect();
    assert!(lines.len() <= 5, "{} lines", lines.len());
    let root = tempfile::tempdir().expect("a folder for the system");
    let place = path(root.path());
    let mut script = String::from("set -euo pipefail\n");
    for line in lines {
        let line = line
            .replace("target/dist/weir", env!("CARGO_BIN_EXE_weir"))
            .replace(" /usr/local/", &format!(" {place}/usr/local/"))
            .replace(" /etc/", &format!(" {place}/etc/"))
            .replace("systemctl daemon-reload && ", "")
            .replace("systemctl enable --now", &format!("systemctl --root={place} enable"));
        script.push_str(&line);
        script.push('\n');
    }
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(ROOT).env("BUILD_BOT_TOKEN", TOKEN);
    run(&mut shell);
    let secret = root.path().join("etc/weir/secrets/build-bot");
    assert_eq!(fs::read_to_string(&secret).expect("the secret").trim_end(), TOKEN);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(&secret).expect("the secret").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600, "only root may read the secret");
    let enabled = root.path().join("etc/systemd/system/multi-user.target.wants/weir.service");
    assert!(enabled.symlink_metadata().is_ok(), "systemd starts it with the machine");
    let mut check = Command::new(root.path().join("usr/local/bin/weir"));
    let config = root.path().join("etc/weir/weir.toml");
    run(check.args(["check", "--no-secrets", "--config", path(&config)]));
}
