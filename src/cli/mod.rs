//! The subcommands (SPECIFICATION, "Commands").
//!
//! Exit codes: 0 success, 1 failure while running, 2 bad usage or bad config.

mod admin;
mod check;
mod completions;
#[cfg(feature = "emulator")]
mod demo;
#[cfg(feature = "emulator")]
mod emulate;
mod handover;
mod key;
mod man;
mod notify;
mod otlp;
mod process;
mod serve;
#[cfg(feature = "emulator")]
mod simulate;
mod stored_writes;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "weir",
    about = "A rate-limit-aware caching gateway for a code-hosting service's API",
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway
    Serve(serve::Serve),
    /// Run the gateway in front of the embedded emulator, with sample bots
    #[cfg(feature = "emulator")]
    Demo(demo::Demo),
    /// Run the upstream emulator alone
    #[cfg(feature = "emulator")]
    Emulate(emulate::Emulate),
    /// Validate a config and print the effective one, without secrets
    Check(check::Check),
    /// Play a workload against the decision core and the emulator in virtual time
    #[cfg(feature = "emulator")]
    Simulate(simulate::Simulate),
    /// Show what is left of every account's budgets, asked of a running gateway
    Budgets(admin::Budgets),
    /// Show what is stored in a running gateway, or take some of it out
    Cache(admin::Cache),
    /// Show what each client asks, waits and spends, asked of a running gateway
    Clients(admin::Clients),
    /// Tell the story of one request of a running gateway
    Explain(admin::Explain),
    /// Ask a running gateway if it is ready; the exit code says it
    Healthcheck(admin::Healthcheck),
    /// Make a running gateway read its config again
    Reload(admin::Reload),
    /// Show which replica holds which part of the limits, asked of a running gateway
    Replicas(admin::Replicas),
    /// Show the last requests of a running gateway
    Requests(admin::Requests),
    /// Show or change what a running gateway logs and traces
    Telemetry(admin::Telemetry),
    /// Show the health of every token, asked of a running gateway
    Tokens(admin::Tokens),
    /// Show live what a running gateway does, who spends and what is left
    Top(admin::Top),
    /// Show the queue of writes of a running gateway, cancel one or try it again
    Writes(admin::Writes),
    /// Make a client key; prints it once, with the line for the config
    Key(key::Key),
    /// Print the completions of a shell
    Completions(completions::Completions),
    /// Print the manual page, or write the pages of all commands into a folder
    Man(man::Man),
}

/// Returns the command line of this build.
fn command() -> clap::Command {
    Arguments::command().version(version::text())
}

/// Runs the subcommand of the process's arguments.
pub fn main() -> ExitCode {
    let matches = command().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|fault| fault.exit());
    match arguments.command {
        Command::Serve(serve) => serve.run(),
        #[cfg(feature = "emulator")]
        Command::Demo(demo) => demo.run(),
        #[cfg(feature = "emulator")]
        Command::Emulate(emulate) => emulate.run(),
        Command::Check(check) => check.run(),
        #[cfg(feature = "emulator")]
        Command::Simulate(simulate) => simulate.run(),
        Command::Budgets(budgets) => budgets.run(),
        Command::Cache(cache) => cache.run(),
        Command::Clients(clients) => clients.run(),
        Command::Explain(explain) => explain.run(),
        Command::Healthcheck(healthcheck) => healthcheck.run(),
        Command::Reload(reload) => reload.run(),
        Command::Replicas(replicas) => replicas.run(),
        Command::Requests(requests) => requests.run(),
        Command::Telemetry(telemetry) => telemetry.run(),
        Command::Tokens(tokens) => tokens.run(),
        Command::Top(top) => top.run(),
        Command::Writes(writes) => writes.run(),
        Command::Key(key) => key.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    }
}

fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
