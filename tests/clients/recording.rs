//! The recorded exchanges of npm `@octokit/fixtures`, as the expected results behind the gateway.
//!
//! They are installed with Octokit. The emulator reads the same files with its own code.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::driver::Library;
use super::install;

/// The host of the recorded API traffic.
pub const API: &str = "https://api.github.com";
/// The host of the recorded uploads.
pub const UPLOADS: &str = "https://uploads.github.com";

/// One recorded exchange.
#[derive(Debug, Deserialize)]
pub struct Exchange {
    pub method: String,
    /// Including the query.
    pub path: String,
    /// The request body; an empty text without one.
    pub body: Value,
    pub status: u16,
    /// The response body; a text unless it was JSON.
    pub response: Value,
    #[serde(rename = "rawHeaders")]
    headers: Vec<String>,
}

/// A recorded scenario: the exchanges of one script.
#[derive(Debug)]
pub struct Record {
    name: &'static str,
    exchanges: Vec<Exchange>,
}

/// The directory of all recorded scenarios.
pub fn directory() -> PathBuf {
    install::installed(Library::Octokit)
        .join("node_modules/@octokit/fixtures/scenarios/api.github.com")
}

impl Record {
    /// The scenario of this name.
    pub fn of(name: &'static str) -> Self {
        let file = directory().join(name).join("raw-fixture.json");
        let text =
            std::fs::read(&file).unwrap_or_else(|fault| panic!("{}: {fault}", file.display()));
        Self {
            name,
            exchanges: serde_json::from_slice(&text)
                .unwrap_or_else(|fault| panic!("{}: {fault}", file.display())),
        }
    }

    /// All exchanges in the order of the recording.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// The first exchange with this method and status.
    pub fn exchange(&self, method: &str, status: u16) -> &Exchange {
        let found = self.exchanges.iter().find(|exchange| {
            exchange.method == method && exchange.status == status && !exchange.prepares()
        });
        found.unwrap_or_else(|| panic!("{} has no {method} answered {status}", self.name))
    }

    /// Owner and name of the scenario's repository: the first path below `/repos`.
    pub fn repository(&self) -> (&str, &str) {
        let mut paths =
            self.exchanges.iter().filter_map(|exchange| exchange.path.strip_prefix("/repos/"));
        let mut segments = paths
            .next()
            .unwrap_or_else(|| panic!("{} names no repository", self.name))
            .split(['/', '?']);
        (segments.next().unwrap_or_default(), segments.next().unwrap_or_default())
    }
}

impl Exchange {
    /// True for the creation of the scenario's repository, which no test repeats.
    fn prepares(&self) -> bool {
        self.path.starts_with("/orgs/") && self.method == "post"
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.headers.chunks_exact(2);
        pairs.find(|pair| pair[0].eq_ignore_ascii_case(name)).map(|pair| pair[1].as_str())
    }
}
