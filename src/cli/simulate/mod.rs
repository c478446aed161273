//! `weir simulate`: a workload in virtual time, and its figures.
//!
//! Nothing is sent anywhere. Exit code 1 when an invariant of the decision core broke, with the
//! seed and the command that repeats it.

mod arguments;
mod picture;
mod table;

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;

use super::admin::advise::of_trace;
use super::process::{BAD_CONFIG, FAILED};
use crate::config::{self, Config};
use crate::decision::cache::freshness::Mode;
use crate::simulation::plan::{Known, Narration, Network, Order, Outside, Replicas};
use crate::simulation::rivals::{self, Rival};
use crate::simulation::sizing::{self, Sizing};
use crate::simulation::sweep::{Sweep, sweep};
use crate::simulation::trace::Trace;
use crate::simulation::{Plan, Report, Unplayable};

use arguments::Accounts;
pub use arguments::Simulate;

/// Most unknown clients named in a message.
const UNKNOWN_SHOWN: usize = 5;

/// The files that the arguments name, read once.
struct Sources {
    config: Option<Config>,
    trace: Option<Arc<Trace>>,
}

impl Simulate {
    pub fn run(self) -> ExitCode {
        let played = self.sources().and_then(|sources| match self.accounts {
            Some(Accounts::Auto) => self.size(&sources),
            _ if self.compares() => self.compare(&sources),
            _ => self.play(&sources),
        });
        match played {
            Ok((text, exit_code)) => {
                // A closed pager is no error.
                let _ = io::stdout().lock().write_all(text.as_bytes());
                exit_code
            }
            Err(problem) => {
                eprintln!("weir simulate: {problem}");
                BAD_CONFIG.into()
            }
        }
    }

    fn sources(&self) -> Result<Sources, String> {
        if self.accounts == Some(Accounts::Auto) && (self.seeds.get() > 1 || self.explain) {
            return Err("--accounts auto plays one seed and tells no story: give it without --seeds and --explain".to_owned());
        }
        let config = self.config.as_deref().map(config::load_without_secrets).transpose();
        let config = config.map_err(|faults| faults.to_string())?;
        let trace = self.trace.as_deref().map(read_trace).transpose()?;
        let scaled = |trace: Trace| self.scale.map_or(trace.clone(), |times| trace.scaled(times));
        let trace = trace.map(scaled).map(Arc::new);
        if let (Some(config), Some(trace)) = (&config, &trace) {
            report_left_out(config, trace)?;
        }
        Ok(Sources { config, trace })
    }

    /// Builds the plan of the arguments with this many accounts.
    fn plan(&self, sources: &Sources, accounts: Option<u32>) -> Plan {
        let mut plan = match &sources.config {
            Some(config) => Plan::from_config(config, self.workload, accounts, self.bots),
            None => Plan::new(self.workload, accounts.unwrap_or(arguments::ACCOUNTS), self.bots),
        };
        if let Some(trace) = &sources.trace {
            let known = if sources.config.is_some() { Known::FromConfig } else { Known::FromTrace };
            plan = plan.replaying(Arc::clone(trace), known);
        }
        plan.seed = self.seed;
        let usual = if sources.trace.is_some() { plan.length } else { arguments::LENGTH };
        plan.length = self.hours.unwrap_or(usual);
        plan.network = Network {
            order: if self.reorder { Order::Shuffled } else { Order::Kept },
            lost_percent: self.lost,
            wobble: self.wobble,
            ..plan.network
        };
        plan.replicas = Replicas { count: self.replicas, balance: self.balance, skew: self.skew };
        plan.faults = self.faults().map(|(_, fault, every)| (fault, every)).collect();
        if let Some(spacing) = self.spacing {
            plan.settings.spacing = spacing;
            plan.settings.notify_spacing = plan.settings.notify_spacing.min(spacing);
        }
        plan.outside =
            self.outside.map(|every| Outside { account: crate::decision::AccountId(0), every });
        plan.narration = if self.explain { Narration::FirstRefusal } else { Narration::Silent };
        plan
    }

    /// Draws the picture of a run, if one is wanted.
    fn draw(&self, report: &Report, plan: &Plan) -> Result<(), String> {
        let Some(path) = &self.svg else { return Ok(()) };
        let picture = picture::of(&report.course, &plan.upstream, report.runs);
        std::fs::write(path, picture)
            .map_err(|fault| format!("{}: cannot be written: {fault}", path.display()))
    }

    fn play(&self, sources: &Sources) -> Result<(String, ExitCode), String> {
        let plan = self.plan(sources, self.fixed_accounts());
        let shows_progress = self.seeds.get() > 1 && io::stderr().is_terminal();
        let report_progress = |ended: u64| {
            if shows_progress {
                eprint!("\r{ended} of {} seeds ", self.seeds);
            }
        };
        // The worst seed is played once more for its story.
        let silent = Plan {
            narration: if self.seeds.get() > 1 { Narration::Silent } else { plan.narration },
            ..plan.clone()
        };
        let mut swept =
            sweep(&silent, self.seeds.get(), self.threads(), &report_progress).map_err(in_words)?;
        if shows_progress {
            eprint!("\r                        \r");
        }
        self.replay_worst(&plan, &mut swept).map_err(in_words)?;
        if self.strict {
            fail_refused(&mut swept);
        }
        for (seed, problem) in &swept.failures {
            eprintln!(
                "weir simulate: seed {seed} failed: {problem}\n  again: {}",
                self.command(*seed)
            );
        }
        self.draw(&swept.total, &plan)?;
        let text =
            if self.json { self.as_json(&swept) } else { table::of_sweep(self, &plan, &swept) };
        Ok((text, exit_code(!swept.failures.is_empty())))
    }

    /// Plays the worst seed again with its story.
    fn replay_worst(&self, plan: &Plan, swept: &mut Sweep) -> Result<(), Unplayable> {
        let has_story = self.seeds.get() > 1 && self.explain;
        if let Some(worst) = swept.worst.as_mut().filter(|_| has_story)
            && worst.report.refusals() > 0
        {
            let again = sweep(&Plan { seed: worst.seed, ..plan.clone() }, 1, 1, &|_| ())?;
            worst.report.story = again.total.story;
        }
        Ok(())
    }

    fn fixed_accounts(&self) -> Option<u32> {
        match self.accounts {
            Some(Accounts::Number(accounts)) => Some(accounts.get()),
            Some(Accounts::Auto) | None => None,
        }
    }

    /// Returns true if other gateways' rules are played too.
    fn compares(&self) -> bool {
        self.workload.is_polling() && self.trace.is_none() && !self.explain
    }

    fn compare(&self, sources: &Sources) -> Result<(String, ExitCode), String> {
        let plan = self.plan(sources, self.fixed_accounts());
        let rivals = rivals::compare(&plan, self.seeds.get(), self.threads()).map_err(in_words)?;
        let mut has_failed = false;
        for rival in &rivals {
            for (seed, problem) in &rival.swept.failures {
                eprintln!("weir simulate: {}: seed {seed} failed: {problem}", rival.rules.name());
                has_failed = true;
            }
            // With lifetimes, answers may be that old.
            if rival.rules.is_ours()
                && plan.freshness == Mode::Revalidate
                && rival.report().tally.stale > 0
            {
                let (name, stale) = (rival.rules.name(), rival.report().tally.stale);
                eprintln!("weir simulate: {name}: {stale} stale answers");
                has_failed = true;
            }
        }
        let as_json = |rival: &Rival| json!({ "rules": rival.rules, "report": rival.report() });
        let text = if self.json {
            format!("{}\n", json!({ "gateways": rivals.iter().map(as_json).collect::<Vec<_>>() }))
        } else {
            table::of_rivals(self, &plan, &rivals)
        };
        Ok((text, exit_code(has_failed)))
    }

    fn threads(&self) -> usize {
        std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(usize::try_from(self.seeds.get()).unwrap_or(1))
    }

    fn size(&self, sources: &Sources) -> Result<(String, ExitCode), String> {
        let sizing: Sizing =
            sizing::size(|accounts| self.plan(sources, Some(accounts))).map_err(in_words)?;
        self.draw(&sizing.report, &self.plan(sources, sizing.enough))?;
        let trace = sources.trace.as_deref();
        let rules = trace.map(|trace| of_trace(trace, sources.config.as_ref()).rules);
        let rules = rules.unwrap_or_default();
        let text = if self.json {
            let mut answer = json!(sizing);
            answer["cache_rules"] = json!(rules);
            format!("{answer}\n")
        } else {
            table::of_sizing(&sizing, &rules)
        };
        let is_refused = sizing.report.refusals() + sizing.report.sent_too_early > 0;
        let has_failed = sizing.report.broken() > 0 || (self.strict && is_refused);
        Ok((text, exit_code(has_failed)))
    }

    fn as_json(&self, swept: &Sweep) -> String {
        let failures: Vec<_> = swept
            .failures
            .iter()
            .map(|(seed, problem)| json!({ "seed": seed, "problem": problem, "again": self.command(*seed) }))
            .collect();
        let worst =
            swept.worst.as_ref().map(|worst| json!({ "seed": worst.seed, "report": worst.report }));
        let seeds = json!({ "first": self.seed, "count": self.seeds });
        format!(
            "{}\n",
            json!({ "seeds": seeds, "report": swept.total, "worst": worst, "failures": failures })
        )
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of `map_err`")]
fn in_words(unplayable: Unplayable) -> String {
    unplayable.to_string()
}

fn exit_code(has_failed: bool) -> ExitCode {
    if has_failed { FAILED.into() } else { ExitCode::SUCCESS }
}

/// Makes a denial by the upstream a failure of the worst seed.
fn fail_refused(swept: &mut Sweep) {
    let Some(worst) = &swept.worst else { return };
    let (refusals, sent_early) = (swept.total.refusals(), swept.total.sent_too_early);
    if refusals + sent_early > 0 {
        swept.failures.push((worst.seed, format!("{refusals} refusals by the upstream in all seeds, {sent_early} sent although told to wait")));
    }
}

/// Reports on standard error the requests of clients unknown to the config, which are not played.
/// Fails when those are all requests.
fn report_left_out(config: &Config, trace: &Trace) -> Result<(), String> {
    let has = |name: &Arc<str>| config.clients.iter().any(|known| known.name == *name);
    let is_known = |client: usize| trace.clients.get(client).is_some_and(has);
    let left_out = trace.requests.iter().filter(|request| !is_known(request.client)).count();
    let unknown: Vec<&str> =
        trace.clients.iter().filter(|name| !has(name)).map(AsRef::as_ref).collect();
    if left_out > 0 {
        let shown = unknown
            .get(..UNKNOWN_SHOWN)
            .map_or_else(|| unknown.join(", "), |first| format!("{} and others", first.join(", ")));
        let problem = format!(
            "{left_out} of {} recorded requests are of clients that the config does not have ({shown})",
            trace.requests.len()
        );
        if left_out == trace.requests.len() {
            return Err(problem);
        }
        eprintln!("weir simulate: {problem}: they are left out");
    }
    Ok(())
}

/// Reads a recorded log, and reports unreadable lines on standard error.
fn read_trace(path: &Path) -> Result<Trace, String> {
    let failed = |fault: io::Error| format!("{}: cannot be read: {fault}", path.display());
    let trace = Trace::read(BufReader::new(File::open(path).map_err(failed)?)).map_err(failed)?;
    for (line, problem) in &trace.first_bad {
        eprintln!("weir simulate: {}:{line}: {problem}", path.display());
    }
    let further = trace.bad - trace.first_bad.len();
    let path = path.display();
    if further > 0 {
        eprintln!("weir simulate: {path}: {further} further lines that cannot be read");
    }
    if trace.others + trace.free > 0 {
        eprintln!(
            "weir simulate: {path}: {} requests; left out: {} lines of other records, {} requests that cost nothing",
            trace.requests.len(),
            trace.others,
            trace.free
        );
    }
    if trace.requests.is_empty() {
        return Err(format!("{path}: no line of it is a request in a format that is known"));
    }
    Ok(trace)
}

#[cfg(test)]
mod tests;
