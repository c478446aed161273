//! The result of a check: as lines for people, or as a JSON object for programs.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use crate::config::{Fault, LeftOut};
use crate::gateway::{CheckedState, TokenCheck};

/// A fault or a warning.
#[derive(Serialize)]
pub struct Finding {
    /// File of the config; `None` for a fault of the process.
    file: Option<String>,
    line: Option<usize>,
    key: Option<String>,
    problem: String,
    accepted: Option<String>,
    /// The same for people.
    #[serde(skip)]
    text: String,
}

impl Finding {
    /// Creates a problem that the file is no reason for.
    pub fn of_process(problem: String) -> Self {
        let text = problem.clone();
        Self { file: None, line: None, key: None, problem, accepted: None, text }
    }
}

impl From<Fault> for Finding {
    fn from(fault: Fault) -> Self {
        let text = fault.to_string();
        let Fault { file, line, key, problem, accepted } = fault;
        let key = Some(key).filter(|key| !key.is_empty());
        Self { file: Some(file), line, key, problem, accepted, text }
    }
}

/// The result of a check.
pub struct Report {
    file: PathBuf,
    without_secrets: bool,
    pub faults: Vec<Finding>,
    pub warnings: Vec<Finding>,
    pub left_out: Vec<LeftOut>,
    pub tokens: Vec<TokenCheck>,
    /// The config file and those that it includes.
    pub files: Vec<String>,
    /// The effective config as TOML, without secrets; `None` if the file has faults, or depends on
    /// variables that are not set.
    pub effective: Option<String>,
}

impl Report {
    /// Creates the empty report about `file`.
    pub fn new(file: &Path, without_secrets: bool) -> Self {
        Self {
            file: file.to_owned(),
            without_secrets,
            faults: Vec::new(),
            warnings: Vec::new(),
            left_out: Vec::new(),
            tokens: Vec::new(),
            files: Vec::new(),
            effective: None,
        }
    }

    /// Returns true if a start with the config would succeed, as far as was checked.
    pub fn is_valid(&self) -> bool {
        let is_rejected = |token: &TokenCheck| matches!(token.state, CheckedState::Rejected(_));
        self.faults.is_empty() && !self.tokens.iter().any(is_rejected)
    }

    /// Writes the effective config to `out` and everything else to `err`. Of a faulty config only
    /// its faults are written, and the tokens.
    pub fn write(&self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
        if !self.is_valid() {
            for fault in &self.faults {
                writeln!(err, "{}", fault.text)?;
            }
            return self.write_tokens(err);
        }
        out.write_all(self.effective.as_deref().unwrap_or_default().as_bytes())?;
        out.flush()?;
        let file = self.file.display();
        if self.without_secrets {
            writeln!(err, "note: {file}: checked without secrets")?;
        }
        for LeftOut { key, what } in &self.left_out {
            writeln!(err, "note: {file}: {key}: not checked: {what}")?;
        }
        if self.effective.is_none() {
            writeln!(err, "note: {file}: no effective config: a variable is not set here")?;
        }
        self.write_tokens(err)?;
        for warning in &self.warnings {
            writeln!(err, "warning: {}", warning.text)?;
        }
        Ok(())
    }

    fn write_tokens(&self, err: &mut dyn Write) -> io::Result<()> {
        let file = self.file.display();
        for TokenCheck { account, token, state } in &self.tokens {
            let named = format!("{file}: token {token} of account {account}");
            match state {
                CheckedState::Accepted => writeln!(err, "{named}: accepted by the upstream"),
                CheckedState::Rejected(said) => {
                    writeln!(err, "{named}: the upstream rejects it: {said}")
                }
                CheckedState::Unknown(reason) => {
                    writeln!(err, "warning: {named}: it could not be checked: {reason}")
                }
            }?;
        }
        Ok(())
    }

    /// Writes the object that SPECIFICATION, "Commands", describes.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let effective: Option<Value> = match &self.effective {
            Some(text) => Some(toml::from_str(text).map_err(io::Error::other)?),
            None => None,
        };
        let left_out = |one: &LeftOut| json!({ "key": one.key, "what": one.what });
        let object = json!({
            "status": if self.is_valid() { "valid" } else { "faulty" },
            "file": self.file.display().to_string(),
            "files": self.files.iter().filter(|_| self.is_valid()).collect::<Vec<_>>(),
            "secrets": if self.without_secrets { "left_out" } else { "read" },
            "faults": self.faults,
            "warnings": self.warnings,
            "left_out": self.left_out.iter().map(left_out).collect::<Vec<_>>(),
            "tokens": self.tokens.iter().map(token).collect::<Vec<_>>(),
            "config": effective.filter(|_| self.is_valid()),
        });
        serde_json::to_writer_pretty(&mut *out, &object)?;
        writeln!(out)?;
        out.flush()
    }
}

fn token(check: &TokenCheck) -> Value {
    let (state, reason) = match &check.state {
        CheckedState::Accepted => ("accepted", None),
        CheckedState::Rejected(said) => ("rejected", Some(said)),
        CheckedState::Unknown(reason) => ("unknown", Some(reason)),
    };
    json!({ "account": &*check.account, "token": check.token, "state": state, "reason": reason })
}
