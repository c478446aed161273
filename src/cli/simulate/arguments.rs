//! The arguments of `weir simulate`, and the command that repeats a run.

use std::fmt::Write as _;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::cli::process::CONFIG_VARIABLE;
use crate::config::parse_duration;
use crate::simulation::Workload;
use crate::simulation::plan::{LoadBalance, ReplicaFault};

/// Default number of accounts.
pub const ACCOUNTS: u32 = 2;
/// Default length: a day.
pub const LENGTH: Duration = Duration::from_secs(24 * 3_600);
/// A year: longer runs are typing errors.
const HOURS_MAX: f64 = 366.0 * 24.0;
/// More replicas than anybody runs for one upstream.
const REPLICAS_MAX: u32 = 100;
/// More bots do not fit into memory.
const BOTS_MAX: i64 = 1_000_000;
const DOCUMENTED: &str = concat!(
    "Plays a workload in virtual time: bots, the same decision core as the gateway's, a network that can delay, reorder and lose, and the upstream emulator.\n",
    "Nothing is sent anywhere, and a day takes seconds. All figures are those of the emulator's own books, not of ours.\n\n",
    "The same arguments make the same run, to the last request. When an invariant of the decision core breaks, the seed and the command that shows it\n",
    "again are printed and the exit code is 1.\n\n",
    "How many tokens do we need? Describe your bots with --workload, or record what they do with the JSON log and give it with --trace; then compare\n",
    "--accounts 1, 2, 3, or let --accounts auto look for the least number with which at most one request in a thousand is refused.",
);

/// The arguments of `weir simulate`.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(long_about = DOCUMENTED)]
pub struct Simulate {
    /// Accounts, pools, clients, limits and pacing of this config
    ///
    /// Its secrets are not looked for, and nothing is sent anywhere. Bots are distributed over its
    /// clients in turn. Rights and reach of its tokens are not simulated.
    #[arg(long, env = CONFIG_VARIABLE, hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Chooses everything that looks like chance
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// How many seeds to play, from --seed on, on all cores
    #[arg(long, default_value = "1", value_name = "COUNT")]
    pub seeds: NonZeroU64,
    /// Virtual hours, 24 without a trace; 0.5 is half an hour
    #[arg(long, value_parser = hours, value_name = "H")]
    pub hours: Option<Duration>,
    /// How many bots
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=BOTS_MAX), value_name = "N")]
    pub bots: u32,
    /// How many accounts the bots share; `auto` looks for the least number that is enough [default:
    /// 2, or as in the config]
    ///
    /// With a config it varies its first pool: further accounts are like the pool's last. `auto`
    /// plays one seed for each number, and ends where twice as many accounts serve no more; what no
    /// number would serve, such as a write of a client without an account for it, does not count.
    #[arg(long, value_parser = accounts, value_name = "N|auto")]
    pub accounts: Option<Accounts>,
    /// What the bots do
    #[arg(long, default_value = "mixed", value_parser = workload, value_name = "NAME", help = workloads(), hide_default_value = true)]
    pub workload: Workload,
    /// Somebody else who spends the first account's budget, such as 1/s, 30/m or 500/h
    #[arg(long, value_parser = rate, value_name = "RATE")]
    pub outside: Option<Duration>,
    /// Of a hundred exchanges, how many bring no answer; a fifth of these was never executed, which
    /// nobody can tell
    #[arg(long, default_value_t = 0.0, value_parser = percent, value_name = "PERCENT")]
    pub lost: f64,
    /// By how many milliseconds the reset in an answer is off at most; it is rounded to whole
    /// seconds, as the header has it
    #[arg(long, default_value = "0", value_parser = millis, value_name = "MS")]
    pub wobble: Duration,
    /// Requests and answers overtake each other
    #[arg(long)]
    pub reorder: bool,
    /// How many gateways share the accounts, each with a part of every limit
    #[arg(long, default_value = "1", value_parser = replicas, value_name = "N")]
    pub replicas: NonZeroU32,
    /// Which gateway gets a request: every one as many, nine of ten the first, or one all, each
    /// minute another one
    #[arg(long, default_value = "even", value_parser = balance, value_name = "even|skewed|moving")]
    pub balance: LoadBalance,
    /// How far the clocks of the gateways are off at most
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    pub skew: Duration,
    /// How often a gateway ends at once, and another one takes its place
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub kill: Option<Duration>,
    /// How often a gateway stands still for longer than its parts of the limits last
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub pause: Option<Duration>,
    /// How often a gateway does not reach the common store for five minutes
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub partition: Option<Duration>,
    /// How often no gateway reaches the common store for five minutes
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub redis_away: Option<Duration>,
    /// How often the common store loses everything
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub flush: Option<Duration>,
    /// The least time between two writes of one account, such as 0s [default: as in the config, or
    /// 1s]
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub spacing: Option<Duration>,
    /// The requests of a recorded access log instead of a workload
    ///
    /// The log is the gateway's in JSON, or one of nginx, Apache, HAProxy or Envoy, in text or
    /// JSON, the service's audit log, or CSV with the heading time,client,method,path. The same
    /// requests of the same clients come at the same distances in time. The gateway's log has no
    /// queries and no bodies: what differed only in these counts as the same. What is left out is
    /// counted, and the first lines that cannot be read are shown. The log has its own bots, so
    /// --bots and --workload are refused beside it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bots", "workload"])]
    pub trace: Option<PathBuf>,
    /// How many times as many clients as in the log ask, such as 3x or 0.5x; further ones ask for
    /// other things of the same kind
    #[arg(long, value_parser = times, value_name = "N", requires = "trace")]
    pub scale: Option<f64>,
    /// Draw demand against budget over the time of the run into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Tell what led to the first refusal by the upstream, event by event
    #[arg(long)]
    pub explain: bool,
    /// Fail also when the upstream refuses a request of ours, or one is sent although an answer
    /// said to wait
    #[arg(long)]
    pub strict: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounts {
    Number(NonZeroU32),
    /// The least number that is enough.
    Auto,
}

impl Simulate {
    /// The faults of replicas, with their names and distances.
    pub fn faults(&self) -> impl Iterator<Item = (&'static str, ReplicaFault, Duration)> {
        let faults = [
            ("kill", ReplicaFault::Killed, self.kill),
            ("pause", ReplicaFault::Paused, self.pause),
            ("partition", ReplicaFault::CutOff, self.partition),
            ("redis-away", ReplicaFault::RecordsAway, self.redis_away),
            ("flush", ReplicaFault::RecordsLost, self.flush),
        ];
        faults.into_iter().filter_map(|(name, fault, every)| Some((name, fault, every?)))
    }

    /// Returns the command that repeats one seed with its story.
    pub fn command(&self, seed: u64) -> String {
        let mut command = format!("weir simulate --seed {seed}");
        let mut add = |argument: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = command.write_fmt(argument);
        };
        if let Some(path) = &self.config {
            add(format_args!(" --config {}", path.display()));
        }
        if let Some(hours) = self.hours {
            add(format_args!(" --hours {}", hours.as_secs_f64() / 3_600.0));
        }
        if let Some(Accounts::Number(accounts)) = self.accounts {
            add(format_args!(" --accounts {accounts}"));
        }
        match &self.trace {
            Some(path) => {
                add(format_args!(" --trace {}", path.display()));
                if let Some(times) = self.scale {
                    add(format_args!(" --scale {times}x"));
                }
            }
            None => add(format_args!(" --bots {} --workload {}", self.bots, self.workload.name())),
        }
        if let Some(every) = self.outside {
            add(format_args!(" --outside {}/h", 3_600.0 / every.as_secs_f64()));
        }
        if self.lost > 0.0 {
            add(format_args!(" --lost {}", self.lost));
        }
        if !self.wobble.is_zero() {
            add(format_args!(" --wobble {}", self.wobble.as_millis()));
        }
        if self.reorder {
            add(format_args!(" --reorder"));
        }
        if self.replicas.get() > 1 {
            let balance: &str = self.balance.into();
            add(format_args!(" --replicas {} --balance {balance}", self.replicas));
        }
        if !self.skew.is_zero() {
            add(format_args!(" --skew {}ms", self.skew.as_millis()));
        }
        for (name, _, every) in self.faults() {
            add(format_args!(" --{name} {}ms", every.as_millis()));
        }
        if let Some(spacing) = self.spacing {
            add(format_args!(" --spacing {}ms", spacing.as_millis()));
        }
        if self.strict {
            add(format_args!(" --strict"));
        }
        add(format_args!(" --explain"));
        command
    }
}

/// Returns the help of `--workload`: every name with its description.
fn workloads() -> String {
    let line = |workload: &Workload| format!("\n  {:<15} {}", workload.name(), workload.about());
    let lines: String = Workload::ALL.iter().map(line).collect();
    format!("What the bots do [default: mixed]{lines}")
}

fn workload(text: &str) -> Result<Workload, String> {
    text.parse().map_err(|_| {
        let names: Vec<_> = Workload::ALL.iter().map(|workload| workload.name()).collect();
        format!("accepted: {}", names.join(", "))
    })
}

fn accounts(text: &str) -> Result<Accounts, &'static str> {
    if text == "auto" {
        return Ok(Accounts::Auto);
    }
    let number = number(text, |number: &NonZeroU32| number.get() <= 10_000);
    number.map(Accounts::Number).ok_or("accepted: auto, or a whole number from 1 to 10000")
}

fn replicas(text: &str) -> Result<NonZeroU32, &'static str> {
    number(text, |number: &NonZeroU32| number.get() <= REPLICAS_MAX)
        .ok_or("accepted: a whole number from 1 to 100")
}

fn balance(text: &str) -> Result<LoadBalance, &'static str> {
    text.parse().map_err(|_| "accepted: even, skewed, moving")
}

fn times(text: &str) -> Result<f64, &'static str> {
    number(text.trim_end_matches('x'), |times: &f64| (0.01..=100.0).contains(times))
        .ok_or("accepted: 0.01x to 100x")
}

fn hours(text: &str) -> Result<Duration, String> {
    number(text, |hours| *hours > 0.0 && *hours <= HOURS_MAX)
        .map(|hours: f64| Duration::from_secs_f64(hours * 3_600.0))
        .ok_or_else(|| format!("accepted: hours above 0, up to {HOURS_MAX}"))
}

fn percent(text: &str) -> Result<f64, &'static str> {
    number(text, |percent| (0.0..=100.0).contains(percent)).ok_or("accepted: 0 to 100")
}

fn millis(text: &str) -> Result<Duration, &'static str> {
    number(text, |millis| *millis <= 3_600_000)
        .map(|millis: u32| Duration::from_millis(millis.into()))
        .ok_or("accepted: milliseconds, up to an hour")
}

fn number<T: FromStr>(text: &str, fits: impl FnOnce(&T) -> bool) -> Option<T> {
    text.parse().ok().filter(fits)
}

/// Parses a rate as the mean time between two requests.
fn rate(text: &str) -> Result<Duration, &'static str> {
    let read = || {
        let (count, unit) = text.split_once('/')?;
        let seconds = match unit {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        let every = seconds / count.parse::<f64>().ok().filter(|count| *count > 0.0)?;
        (0.001..=1e6).contains(&every).then(|| Duration::from_secs_f64(every))
    };
    read().ok_or("accepted: a number and a unit of time, such as 1/s, 30/m or 500/h")
}
