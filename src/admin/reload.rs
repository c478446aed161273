//! `POST /api/reload`: reads the config again (SPECIFICATION, "Admin listener").

use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Reply, not_made, pages};
use crate::config::Fault;
use crate::gateway::{Current, NotReloaded};

/// A reload that was applied.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReloadReport {
    pub message: String,
    /// Changed keys that keep their old values until the next start.
    pub at_next_start: Vec<String>,
}

#[derive(Serialize)]
struct ReloadError<'r> {
    message: &'r str,
    faults: Vec<FaultReport<'r>>,
}

#[derive(Serialize)]
struct FaultReport<'r> {
    file: &'r str,
    /// From 1; `null` for the file as a whole.
    line: Option<usize>,
    key: &'r str,
    problem: &'r str,
    /// Accepted values; `null` when they cannot be named.
    accepted: Option<&'r str>,
}

impl<'f> From<&'f Fault> for FaultReport<'f> {
    fn from(fault: &'f Fault) -> Self {
        let Fault { file, line, key, problem, accepted } = fault;
        Self { file, line: *line, key, problem, accepted: accepted.as_deref() }
    }
}

/// Reads the config again: 200 when it is in force, 422 with its faults when the old one stays.
pub async fn reload(current: Arc<Current>) -> Reply {
    let Ok(reloaded) = tokio::task::spawn_blocking(move || current.reload()).await else {
        return not_made();
    };
    match reloaded {
        Ok(reloaded) => {
            let message = if reloaded.at_next_start.is_empty() {
                "the config is in force"
            } else {
                "the config is in force, but for what takes effect at the next start"
            };
            let at_next_start =
                reloaded.at_next_start.iter().map(|key| (*key).to_owned()).collect();
            let report = ReloadReport { message: message.to_owned(), at_next_start };
            pages::json(StatusCode::OK, &report)
        }
        Err(NotReloaded::Faults(faults)) => {
            let message = "the config has faults; the old one stays in force";
            let faults = faults.iter().map(FaultReport::from).collect();
            pages::json(StatusCode::UNPROCESSABLE_ENTITY, &ReloadError { message, faults })
        }
        Err(busy @ NotReloaded::Busy) => {
            pages::error(StatusCode::SERVICE_UNAVAILABLE, &busy.to_string())
        }
        Err(NotReloaded::NoFile) => {
            pages::error(StatusCode::CONFLICT, "the config was not read from a file")
        }
    }
}
