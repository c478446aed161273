//! `weir telemetry` and `/api/telemetry` of a real process: what it logs and traces is changed
//! while it runs.

use std::process::Command;

use serde_json::Value;

use crate::support::process::{Process, serve};
use crate::support::raw::Connection;
use crate::support::{KEY, Setup, World};

/// `weir serve` in front of an emulator.
struct Stage {
    _world: World,
    _folder: tempfile::TempDir,
    process: Process,
}

impl Stage {
    async fn start(telemetry: &str) -> Self {
        let setup = Setup::new().listen("admin = \"127.0.0.1:0\"");
        let world = setup.config(&format!("[telemetry]\n{telemetry}\n")).start().await;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("weir.toml");
        std::fs::write(&config, &world.text).unwrap();
        let process = Process::start(serve(&config));
        process.logged("listening").await;
        Self { _world: world, _folder: folder, process }
    }

    /// Asks the gateway for what needs no upstream, and waits for the answer.
    async fn request(&self) {
        let mut client = Connection::open(self.process.address("listening").await).await;
        let request = format!(
            "GET /user HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\r\n"
        );
        client.send(request.as_bytes()).await;
        client.read_answer().await;
    }

    /// Runs `weir telemetry` with these arguments. Returns what it prints, faults included.
    async fn run(&self, arguments: &[&str]) -> String {
        let admin = self.process.address("admin listening").await.to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["telemetry", "--admin", &admin]).args(arguments);
        let ran = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = ran.await.unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    fn requests_logged(&self) -> usize {
        let log = self.process.log();
        log.iter().filter(|line| line["message"] == "request").count()
    }

    async fn warning(&self, message: &str) -> (Value, Value) {
        let line = self.process.logged(message).await;
        assert_eq!(line["level"], "WARN");
        (line["from"].clone(), line["to"].clone())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_of_the_log_changes_without_a_restart() {
    let stage = Stage::start("").await;
    let no_traces = "traces have no destination\n";
    assert_eq!(stage.run(&[]).await, format!("log level info\n{no_traces}"));
    stage.request().await;
    stage.process.logged("request").await;
    let printed = stage.run(&["--log-level", "warn"]).await;
    assert_eq!(printed, format!("log level warn (info at the start)\n{no_traces}"));
    let changed = "the level of the log was changed by the admin API";
    assert_eq!(stage.warning(changed).await, ("info".into(), "warn".into()));
    let before = stage.requests_logged();
    stage.request().await;
    assert_eq!(stage.run(&["--log-level", "info"]).await, format!("log level info\n{no_traces}"));
    assert_eq!(stage.requests_logged(), before, "{:#?}", stage.process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_traced_part_changes_without_a_restart() {
    let stage = Stage::start("otlp_endpoint = \"http://127.0.0.1:9\"\nsample_ratio = 0.25").await;
    let printed = stage.run(&["--sample-ratio", "1"]).await;
    assert_eq!(printed, "log level info\ntraced part of the requests 1 (0.25 at the start)\n");
    let changed = "the traced part of the requests was changed by the admin API";
    assert_eq!(stage.warning(changed).await, (0.25.into(), 1.0.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_cannot_be_made_is_refused_with_the_reason() {
    let stage = Stage::start("").await;
    for (arguments, reason) in [
        (
            ["--log-level", "loud"],
            "unknown level \"loud\" (accepted: off, error, warn, info, debug)",
        ),
        (["--sample-ratio", "2"], "sample_ratio is 2: accepted is a number from 0 to 1"),
        (["--sample-ratio", "0.5"], "traces have no destination: set telemetry.otlp_endpoint"),
    ] {
        let printed = stage.run(&arguments).await;
        assert!(printed.contains(reason), "{printed}");
    }
    assert!(stage.run(&[]).await.starts_with("log level info\n"));
}
