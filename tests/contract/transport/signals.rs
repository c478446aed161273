//! Signals of `weir serve` (SPECIFICATION, "Commands").

use std::path::PathBuf;

use rustix::process::Signal;

use super::drain::{get, is_whole};
use crate::support::process::{Process, serve};
use crate::support::raw::Connection;
use crate::support::{Setup, World};

const REPOSITORY: &str = "/repos/acme/widgets";

/// An emulator, and a config for processes in front of it.
struct Stage {
    _world: World,
    _folder: tempfile::TempDir,
    config: PathBuf,
}

impl Stage {
    async fn new(listen: &str) -> Self {
        let world = Setup::new().listen("admin = \"127.0.0.1:0\"").listen(listen).start().await;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("weir.toml");
        std::fs::write(&config, &world.text).unwrap();
        Self { _world: world, _folder: folder, config }
    }
}

async fn ask(process: &Process, message: &str, path: &str) -> String {
    let mut client = Connection::open(process.address(message).await).await;
    client.send(get(path, "signals").replace("Host: weir", "Host: 127.0.0.1").as_bytes()).await;
    client.read_answer().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sigquit_drains_like_a_sigterm() {
    let folder = Stage::new("").await;
    for signal in [Signal::TERM, Signal::QUIT, Signal::INT] {
        let process = Process::start(serve(&folder.config));
        process.logged("listening").await;
        process.signal(signal);
        assert!(process.ended().await.success(), "{signal:?}");
        process.logged("drained").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sigusr1_does_nothing_nor_a_sigusr2_alone() {
    let folder = Stage::new("").await;
    let process = Process::start(serve(&folder.config));
    process.logged("listening").await;
    for signal in [Signal::USR1, Signal::USR2] {
        process.signal(signal);
    }
    process.logged("SIGUSR1 does nothing").await;
    process.logged("SIGUSR2 does nothing without listen.takeover").await;
    assert!(is_whole(&ask(&process, "listening", REPOSITORY).await, 200));
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
}

/// A day is longer than the test: the second signal ends the delay.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_delay_ends_readiness_before_the_port_closes() {
    let folder = Stage::new("drain_delay = \"1d\"").await;
    let process = Process::start(serve(&folder.config));
    let ready = ask(&process, "admin listening", "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    process.signal(Signal::TERM);
    process.logged("not ready any more; the drain begins later").await;
    let ready = ask(&process, "admin listening", "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    let answer = ask(&process, "listening", REPOSITORY).await;
    assert!(is_whole(&answer, 200), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
}
