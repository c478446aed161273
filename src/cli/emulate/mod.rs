//! `weir emulate`: the upstream emulator alone, for developing a bot or trying the gateway
//! (SPECIFICATION, "Emulator").

mod banner;
mod settings;

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;

use super::process::{Failure, ProcessSignal, Signals, runtime};
use crate::api::Dialect;
use crate::clock::Clock;
use crate::config::parse_duration;
use crate::emulator::{Emulator, Handle, Options, Recording, Server};
use settings::Settings;

/// Default address.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8090);

/// The arguments of `weir emulate`. What is not given is taken from the config file, then from the
/// defaults.
#[derive(Args, Debug, Default)]
pub struct Emulate {
    /// A TOML file with the same settings as keys, and limits and faults; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where it listens; loopback unless another address is given [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The names it speaks: "service" or "github" [default: service]
    #[arg(long, value_parser = dialect)]
    dialect: Option<Dialect>,
    /// Chooses the details of its world; the same seed makes the same world [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many repositories its world has, 6 at least [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(repositories()))]
    repositories: Option<u32>,
    /// How fast its time runs: 60 lets an hour of windows pass in a minute [default: 1]
    #[arg(long, value_name = "F", value_parser = settings::speed)]
    speed: Option<f64>,
    /// How long each answer takes, such as 40ms; real time, whatever the speed [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    latency: Option<Duration>,
    /// Serve recorded exchanges instead of a made-up world: the package @octokit/fixtures, its
    /// scenarios folder, or one scenario
    #[arg(long, value_name = "DIR")]
    replay: Option<PathBuf>,
}

impl Emulate {
    /// Serves until Ctrl-C or SIGTERM.
    pub fn run(self) -> ExitCode {
        match self.start_and_serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        }
    }

    fn start_and_serve(self) -> Result<(), Failure> {
        let settings = self.config.as_deref().map(settings::load).transpose();
        let settings = settings.map_err(Failure::bad_config)?.unwrap_or_default();
        let replay = self.replay.as_deref().or(settings.replay.as_deref());
        let recording = replay
            .map(Recording::load)
            .transpose()
            .map_err(|error| Failure::bad_config(format_args!("weir emulate: {error}")))?;
        runtime(None)
            .map_err(|error| error.to_string())
            .and_then(|runtime| runtime.block_on(self.serve(settings, recording)))
            .map_err(|error| Failure::running(format_args!("weir emulate: {error}")))
    }

    async fn serve(self, settings: Settings, recording: Option<Recording>) -> Result<(), String> {
        let mut signals = Signals::install().map_err(|error| error.to_string())?;
        let listen = self.listen.or(settings.listen).unwrap_or(LISTEN);
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|error| format!("cannot listen on {listen}: {error}"))?;
        let handle = self.start(listener, settings, recording);
        // A closed terminal does not end the service.
        let _ = std::io::stdout().lock().write_all(banner::banner(&handle).as_bytes());
        loop {
            match signals.next().await {
                ProcessSignal::End => break,
                ProcessSignal::Reload => self.reload(&handle),
                ProcessSignal::Succeed | ProcessSignal::Unused => {}
            }
        }
        handle.shutdown().await;
        Ok(())
    }

    fn start(
        &self,
        listener: TcpListener,
        settings: Settings,
        recording: Option<Recording>,
    ) -> Handle {
        let speed = self.speed.or(settings.speed).unwrap_or(1.0);
        let clock =
            if (speed - 1.0).abs() < f64::EPSILON { Clock::system() } else { Clock::scaled(speed) };
        let defaults = Options::default();
        let options = Options {
            dialect: self.dialect.or(settings.dialect).unwrap_or(defaults.dialect),
            seed: self.seed.or(settings.seed).unwrap_or(defaults.seed),
            repositories: self
                .repositories
                .or(settings.repositories)
                .unwrap_or(defaults.repositories),
            // Answers use the caller's address, because the listener may be reachable by several.
            base_url: String::new(),
            ..defaults
        };
        let mut emulator = match recording {
            Some(recording) => Emulator::replaying(options, recording, clock.now()),
            None => Emulator::new(options, clock.now()),
        };
        emulator.paced(speed, clock.now());
        emulator.impose(settings.conditions);
        let latency = self.latency.or(settings.latency).unwrap_or(Duration::ZERO);
        Server::start(listener, emulator, clock, latency)
    }

    /// Applies the file's limits and faults at SIGHUP; everything else waits for the next start.
    fn reload(&self, handle: &Handle) {
        let Some(path) = self.config.as_deref() else { return };
        match settings::load(path) {
            Ok(settings) => handle.with_emulator(|emulator| emulator.impose(settings.conditions)),
            Err(faults) => eprintln!("{faults}\nthe limits and faults stay as they are"),
        }
    }
}

fn repositories() -> RangeInclusive<i64> {
    i64::from(*Options::REPOSITORIES.start())..=i64::from(*Options::REPOSITORIES.end())
}

fn dialect(text: &str) -> Result<Dialect, String> {
    match text {
        "service" => Ok(Dialect::Service),
        "github" => Ok(Dialect::Github),
        _ => Err("\"service\" or \"github\" is accepted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use http::Request;

    use super::*;
    use crate::cli::process::BAD_CONFIG;

    #[derive(Parser)]
    struct TestCommand {
        #[command(flatten)]
        emulate: Emulate,
    }

    fn parsed(arguments: &[&str]) -> Result<Emulate, clap::Error> {
        TestCommand::try_parse_from(std::iter::once(&"weir").chain(arguments))
            .map(|command| command.emulate)
    }

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("emulate.toml");
        std::fs::write(&path, text).expect("a file");
        (folder, path.display().to_string())
    }

    async fn started(arguments: &[&str]) -> (Emulate, Handle) {
        let emulate = parsed(arguments).expect("well-formed arguments");
        let settings = emulate
            .config
            .as_deref()
            .map(settings::load)
            .transpose()
            .expect("a valid file")
            .unwrap_or_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let handle = emulate.start(listener, settings, None);
        (emulate, handle)
    }

    fn get(handle: &Handle, path: &str) -> serde_json::Value {
        let request = Request::get(path).body(bytes::Bytes::new()).expect("well formed");
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let answer = handle
            .with_emulator(|emulator| emulator.respond(Clock::system().now(), &request, peer));
        serde_json::from_slice(answer.body()).expect("JSON")
    }

    #[tokio::test]
    async fn flags_win_over_the_file_and_the_file_over_the_defaults() {
        let (_folder, path) = file(
            "seed = 5\nrepositories = 7\n[limits]\ncore = 9\n[[faults]]\nfault = \"lost\"\nmatch = { path = \"/x\" }\n",
        );
        let (_, handle) = started(&["--config", &path, "--seed", "6"]).await;
        assert_eq!(
            get(&handle, "/_emulator/seed"),
            serde_json::json!({ "seed": 6, "repositories": 7, "dialect": "service" })
        );
        assert_eq!(get(&handle, "/_emulator/limits")["limits"]["core.user"], 9);
        assert_eq!(get(&handle, "/_emulator/faults")["faults"][0]["fault"], "lost");
        handle.shutdown().await;
        let (_, handle) = started(&[]).await;
        assert_eq!(
            get(&handle, "/_emulator/seed"),
            serde_json::json!({ "seed": 1, "repositories": 20, "dialect": "service" })
        );
        handle.shutdown().await;
    }

    #[tokio::test]
    async fn a_reload_applies_limits_and_faults_of_a_valid_file() {
        let (_folder, path) = file("[limits]\ncore = 9\n[[faults]]\nfault = \"lost\"\n");
        let (emulate, handle) = started(&["--config", &path]).await;
        std::fs::write(&path, "[limits]\ncore = \"x\"\n").expect("a file");
        emulate.reload(&handle);
        assert_eq!(get(&handle, "/_emulator/limits")["limits"]["core.user"], 9);
        std::fs::write(&path, "[limits]\nsearch = 3\n").expect("a file");
        emulate.reload(&handle);
        let limits = get(&handle, "/_emulator/limits");
        assert_eq!(
            (&limits["limits"]["core.user"], &limits["limits"]["search"]),
            (&5_000.into(), &3.into())
        );
        assert_eq!(get(&handle, "/_emulator/faults")["faults"], serde_json::json!([]));
        handle.shutdown().await;
    }

    #[test]
    fn a_bad_or_missing_file_is_bad_config() {
        let (_folder, path) = file("colour = 1\n");
        for path in [path, "/none/such.toml".to_owned()] {
            let emulate = parsed(&["--config", &path]).expect("well-formed arguments");
            assert_eq!(format!("{:?}", emulate.run()), format!("{:?}", ExitCode::from(BAD_CONFIG)));
        }
    }

    #[test]
    fn a_flag_with_a_bad_value_is_bad_usage() {
        for arguments in [
            ["--listen", "nowhere"],
            ["--dialect", "other"],
            ["--seed", "-1"],
            ["--repositories", "5"],
            ["--repositories", "1000001"],
            ["--speed", "0"],
            ["--latency", "fast"],
        ] {
            let error = parsed(&arguments).expect_err("a bad value");
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
        }
    }
}
