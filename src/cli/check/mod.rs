//! `weir check`: validates a config and the files that it names, and prints the effective one. It
//! connects to nothing, so that it can run before a deployment; with `--online` it also tries to
//! open the listeners and asks the upstream about every token. With `--no-secrets` it runs where
//! the secrets are not, such as in the checks of a pull request.

mod report;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::process::{BAD_CONFIG, CONFIG_VARIABLE, DEFAULT_CONFIG, FAILED, runtime};
use super::stored_writes::with_stored_writes;
use crate::clock::Clock;
use crate::config::{self, Config, Examined, Faults, LeftOut, WriteStore};
use crate::gateway::{
    CertificateProblem, CheckedState, TokenCheck, certificate_problems, check_tokens,
    folder_problem, listen_problems, missing_authorities, obstacle,
};
use crate::telemetry::LogLevel;
use crate::writes::file::FileStore;

use report::{Finding, Report};

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Check {
    /// The config file
    #[arg(long, env = CONFIG_VARIABLE, hide_env_values = true, default_value = DEFAULT_CONFIG, value_name = "FILE")]
    config: PathBuf,
    /// Also try to open the listeners, and ask the upstream about every token: for the machine of
    /// the gateway, while it does not run
    #[arg(long)]
    online: bool,
    /// Check all but the secrets, which are not read, and files that are only on the machine of the
    /// gateway: for the checks of a pull request
    #[arg(long, conflicts_with = "online")]
    no_secrets: bool,
    /// Print one JSON object with the status, the faults, the warnings and the effective config
    #[arg(long)]
    json: bool,
    /// Print the JSON schema of the config for editors, and check nothing
    #[arg(long, conflicts_with_all = ["online", "no_secrets", "json"])]
    schema: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Valid,
    Faulty,
    /// The output could not be written, for example to a closed pager.
    Unwritten,
}

impl Check {
    /// Checks the config. The effective one goes to standard output; faults and warnings go to
    /// standard error. With `json` all of it goes to standard output.
    pub fn run(&self) -> ExitCode {
        match self.check(&mut io::stdout().lock(), &mut io::stderr().lock()) {
            Outcome::Valid => ExitCode::SUCCESS,
            Outcome::Unwritten => FAILED.into(),
            Outcome::Faulty => BAD_CONFIG.into(),
        }
    }

    fn check(&self, out: &mut dyn Write, err: &mut dyn Write) -> Outcome {
        if self.schema {
            let written = out.write_all(config::SCHEMA.as_bytes()).and_then(|()| out.flush());
            return written.map_or(Outcome::Unwritten, |()| Outcome::Valid);
        }
        let mut report = Report::new(&self.config, self.no_secrets);
        self.examine(&mut report);
        let written = if self.json { report.write_json(out) } else { report.write(out, err) };
        match written {
            Err(_) => Outcome::Unwritten,
            Ok(()) if report.is_valid() => Outcome::Valid,
            Ok(()) => Outcome::Faulty,
        }
    }

    fn examine(&self, report: &mut Report) {
        let loaded = if self.no_secrets {
            config::examine(&self.config)
        } else {
            config::load_files(&self.config)
        };
        match loaded {
            Ok(Examined { config, left_out, files }) => {
                (report.left_out, report.files) = (left_out, files);
                let Some(config) = config else { return };
                self.examine_machine(&config, report);
                report.warnings = warnings(&config);
                report.effective = Some(config.redacted_toml());
            }
            Err(Faults(faults)) => report.faults = faults.into_iter().map(Finding::from).collect(),
        }
    }

    /// Looks for reasons for which a start on this machine would fail, and for tokens that the
    /// upstream rejects.
    fn examine_machine(&self, config: &Config, report: &mut Report) {
        let mut problems = Vec::new();
        if let WriteStore::File(path) = &config.writes.store
            && !self.is_elsewhere("writes.store", path, report)
        {
            let verified = with_stored_writes(|each| FileStore::verify(path, each));
            problems.extend(verified.err().map(|fault| ("writes.store", fault)));
        }
        if let Some(path) = &config.cache.snapshot
            && !self.is_elsewhere("cache.snapshot", path, report)
        {
            let problem = folder_problem(path);
            problems.extend(problem.map(|error| {
                (
                    "cache.snapshot",
                    format!("{}: nothing can be written there: {error}", path.display()),
                )
            }));
        }
        let certificates = certificate_problems(config, Clock::system().now());
        problems.extend(certificates.filter_map(|(key, problem)| match problem {
            CertificateProblem::Refused(problem) => Some((key, problem)),
            CertificateProblem::EndsSoon(_) => None,
        }));
        if self.online {
            problems.extend(listen_problems(&config.listen));
        }
        let of_file = |(key, problem)| config.fault(key, problem).into();
        report.faults = problems.into_iter().map(of_file).collect();
        let level = LogLevel::from_environment(LogLevel::default()).err();
        report.faults.extend(level.map(|unknown| Finding::of_process(unknown.to_string())));
        if !self.online {
            return;
        }
        match checked_tokens(config) {
            Ok(tokens) => report.tokens = tokens,
            Err(fault) => report
                .faults
                .push(Finding::of_process(format!("the tokens cannot be checked: {fault}"))),
        }
        let is_unknown = |token: &TokenCheck| matches!(token.state, CheckedState::Unknown(_));
        if !report.tokens.is_empty() && report.tokens.iter().all(is_unknown) {
            let problem = "no token could be checked".to_owned();
            report.faults.push(config.fault("upstream.url", problem).into());
        }
    }

    /// Returns true if secrets are left out and this machine has no folder for `path`: the file
    /// belongs to the machine of the gateway.
    fn is_elsewhere(&self, key: &str, path: &Path, report: &mut Report) -> bool {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let is_elsewhere = self.no_secrets && folder.is_some_and(|folder| !folder.exists());
        if is_elsewhere {
            let what = format!("file {}", path.display());
            report.left_out.push(LeftOut { key: key.to_owned(), what });
        }
        is_elsewhere
    }
}

/// Asks the upstream about every token of the config.
fn checked_tokens(config: &Config) -> io::Result<Vec<TokenCheck>> {
    Ok(runtime(Some(NonZeroUsize::MIN))?.block_on(check_tokens(config.clone())))
}

/// Lists accepted values that are probably mistakes, on this machine above all.
fn warnings(config: &Config) -> Vec<Finding> {
    let warning = |key: &str, problem: String| Finding::from(config.fault(key, problem));
    let snapshot = config.cache.snapshot.as_deref();
    let unusable = snapshot.and_then(|path| obstacle(path, None).err());
    let unusable =
        unusable.map(|unusable| warning("cache.snapshot", format!("it is left alone: {unusable}")));
    let authorities = missing_authorities(&config.upstream);
    let authorities = authorities.map(|problem| warning("upstream.ca_file", problem.to_owned()));
    let now = Clock::system().now();
    let certificates = certificate_problems(config, now);
    let certificates = certificates.filter_map(|(key, problem)| match problem {
        CertificateProblem::EndsSoon(problem) => Some(warning(key, problem)),
        CertificateProblem::Refused(_) => None,
    });
    let of_config = config.warnings().into_iter().chain(config.key_warnings(now));
    let of_config = of_config.map(|found| warning(&found.key, found.problem));
    unusable.into_iter().chain(authorities).chain(certificates).chain(of_config).collect()
}
