//! `weir emulate`: the upstream emulator alone, to develop a bot against or to try the gateway in front of (CONTRACT §7).

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;

use super::run::{Asked, Signals, runtime};
use super::{BAD_CONFIG, FAILED};
use crate::api::Dialect;
use crate::clock::Clock;
use crate::emulator::{Emulator, Handle, Options, Recording, Server};

/// The arguments of `weir emulate`.
#[derive(Args)]
pub struct Emulate {
    /// Where it listens; loopback unless another address is given
    #[arg(long, default_value = "127.0.0.1:8090", value_name = "ADDR")]
    listen: SocketAddr,
    /// The names it speaks: "service" or "github"
    #[arg(long, default_value = "service", value_parser = dialect)]
    dialect: Dialect,
    /// Chooses the details of its world; the same seed makes the same world
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// How many repositories its world has, 6 at least
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(6..=1_000_000))]
    repositories: u32,
    /// How fast its time runs: 60 lets an hour of windows pass in a minute
    #[arg(long, default_value_t = 1.0, value_name = "F", value_parser = speed)]
    speed: f64,
    /// Serve recorded exchanges instead of a made-up world: the package @octokit/fixtures, its scenarios folder, or one scenario
    #[arg(long, value_name = "DIR")]
    replay: Option<PathBuf>,
}

impl Emulate {
    /// Serves until Ctrl-C or SIGTERM.
    pub fn run(self) -> ExitCode {
        let recording = match self.replay.as_deref().map(Recording::load).transpose() {
            Ok(recording) => recording,
            Err(error) => {
                eprintln!("weir emulate: {error}");
                return BAD_CONFIG.into();
            }
        };
        let served = runtime(None).map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(self.serve(recording)));
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("weir emulate: {error}");
                FAILED.into()
            }
        }
    }

    async fn serve(self, recording: Option<Recording>) -> Result<(), String> {
        let mut signals = Signals::install().map_err(|error| error.to_string())?;
        let listener = TcpListener::bind(self.listen).await.map_err(|error| format!("cannot listen on {}: {error}", self.listen))?;
        let handle = self.start(listener, recording);
        // What is printed is not the service; a closed terminal does not end it.
        let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), describe(&handle).as_bytes());
        while signals.next().await == Asked::Reload {
            // There is no config to read again.
        }
        handle.shutdown().await;
        Ok(())
    }

    fn start(&self, listener: TcpListener, recording: Option<Recording>) -> Handle {
        let clock = if (self.speed - 1.0).abs() < f64::EPSILON { Clock::system() } else { Clock::scaled(self.speed) };
        // Addresses in answers are those that the caller used: the listener may be reachable under several.
        let options = Options { dialect: self.dialect, seed: self.seed, repositories: self.repositories, base_url: String::new() };
        let emulator = match recording {
            Some(recording) => Emulator::replaying(options, recording, clock.now()),
            None => Emulator::new(options, clock.now()),
        };
        Server::start(listener, emulator, clock, Duration::ZERO)
    }
}

/// The address, then the tokens by kind. They open nothing but this emulator, so they may be shown.
fn describe(handle: &Handle) -> String {
    // Writing to a string does not fail.
    let mut text = format!("listening on http://{}\n", handle.addr());
    let (tokens, recorded) = handle.with_emulator(|emulator| (emulator.tokens(), emulator.recorded_exchanges()));
    if let Some(recorded) = recorded {
        let _ = writeln!(text, "replaying {recorded} recorded exchanges; any token is accepted");
        return text;
    }
    text.push_str("tokens:\n");
    for token in tokens {
        let _ = writeln!(text, "  {:<13} {:<38} {} ({})", token.kind, token.token, token.account, token.note);
    }
    let _ = writeln!(text, "everything else in it: http://{}/_emulator/world", handle.addr());
    text
}

fn dialect(text: &str) -> Result<Dialect, String> {
    match text {
        "service" => Ok(Dialect::Service),
        "github" => Ok(Dialect::Github),
        _ => Err("\"service\" or \"github\" is accepted".to_owned()),
    }
}

/// Time that stands still or runs backwards would keep every window shut.
fn speed(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "a number is accepted".to_owned())?;
    if factor.is_finite() && (0.01..=100_000.0).contains(&factor) {
        Ok(factor)
    } else {
        Err("a number from 0.01 to 100000 is accepted".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_speed_that_lets_time_pass_is_accepted() {
        assert_eq!(speed("60"), Ok(60.0));
        for wrong in ["0", "-1", "NaN", "inf", "fast"] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn it_prints_its_address_and_its_tokens_by_kind() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let handle = Server::start(listener, Emulator::new(Options::default(), Clock::system().now()), Clock::system(), Duration::ZERO);
        let text = describe(&handle);
        assert!(text.starts_with(&format!("listening on http://{}", handle.addr())));
        for kind in ["classic", "fine-grained", "oauth", "app-user", "installation", "workflow", "basic"] {
            assert!(text.contains(&format!("  {kind}")), "{kind}");
        }
        handle.shutdown().await;
    }
}
