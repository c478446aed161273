//! The driver: runs a scenario in a client library and returns its report.
//!
//! A scenario is a sequence of the library's own calls. Each library has it under the same name,
//! with the same arguments and results. The tests state the expected results.

use std::io::Write;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use super::install;
use super::setup::TRUSTING;

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The npm package `octokit`.
    Octokit,
    /// The Python package `PyGithub`.
    PyGithub,
}

/// A client library with its base URL and key, and no other setting.
#[derive(Clone, Debug)]
pub struct Client {
    pub library: Library,
    /// Without a final slash, which Octokit alone keeps.
    pub base_url: String,
    pub key: String,
}

/// The results of a scenario and its network traffic.
#[derive(Debug, Deserialize)]
pub struct Report {
    values: Option<Value>,
    error: Option<Value>,
    /// `host:port` of every connection.
    pub contacted: Vec<String>,
    /// Every request, including followed redirects and retries.
    pub exchanges: Vec<Exchange>,
    /// `url` and `*_url` of all JSON responses, without `html_url`.
    pub addresses: Vec<String>,
}

/// A request and the head of its response.
#[derive(Debug, Deserialize)]
pub struct Exchange {
    pub method: String,
    /// Absolute.
    pub url: String,
    /// `None` without a response.
    pub status: Option<u16>,
    pub link: Option<String>,
    pub location: Option<String>,
}

impl Client {
    /// Plays a scenario and returns its values, after the checks that hold in every scenario.
    pub fn plays(&self, scenario: &str, arguments: &Value) -> (Value, Report) {
        let report = self.report(scenario, arguments);
        assert!(
            report.error.is_none(),
            "{:?}, {scenario}: {}\n{report:#?}",
            self.library,
            report.error.clone().unwrap_or_default()
        );
        report.assert_nothing_leads_past(&self.base_url);
        let values = report.values.clone().expect("a scenario without an error has values");
        (values, report)
    }

    /// Plays a scenario that ends in an error of the library, and returns the error.
    pub fn fails(&self, scenario: &str, arguments: &Value) -> Value {
        let report = self.report(scenario, arguments);
        report.assert_nothing_leads_past(&self.base_url);
        report.error.unwrap_or_else(|| {
            panic!("{:?}, {scenario}: no error but {:?}", self.library, report.values)
        })
    }

    fn report(&self, scenario: &str, arguments: &Value) -> Report {
        let directory = install::installed(self.library);
        let plan = json!({ "base_url": self.base_url, "key": self.key, "scenario": scenario, "arguments": arguments });
        let mut child = Command::new(install::interpreter(self.library, &directory))
            .arg(install::script(self.library, &directory))
            // A proxy of the machine would be a second peer.
            .env("NO_PROXY", "*")
            .env("no_proxy", "*")
            .envs(TRUSTING)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the driver starts");
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(plan.to_string().as_bytes())
            .expect("the driver reads its plan");
        let output = child.wait_with_output().expect("the driver ends");
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&stdout).unwrap_or_else(|fault| {
            panic!("{:?}, {scenario}, {}: {fault}\n{stdout}\n{stderr}", self.library, output.status)
        })
    }
}

impl Report {
    /// Asserts that every request went to the gateway, and that no URL in a response leads past it.
    fn assert_nothing_leads_past(&self, base_url: &str) {
        let (scheme, rest) = base_url.split_once("://").expect("a URL");
        let gateway = rest.split('/').next().unwrap_or_default();
        assert_eq!(self.contacted, [gateway], "the client contacted others than the gateway");
        let root = format!("{scheme}://{gateway}");
        for Exchange { url, link, .. } in &self.exchanges {
            assert!(url.starts_with(&root), "{url} is not the gateway's");
            for target in link.iter().flat_map(|link| link.split('<').skip(1)) {
                assert!(target.starts_with(base_url), "Link leads past the gateway: {target}");
            }
        }
        for address in &self.addresses {
            let apis = [
                "http://127.0.0.1",
                "https://127.0.0.1",
                "https://api.github.com",
                "https://uploads.github.com",
            ];
            let is_api = apis.iter().any(|api| address.starts_with(api));
            assert!(
                !is_api || address.starts_with(&root),
                "an answer leads past the gateway: {address}"
            );
        }
    }

    /// `METHOD path?query STATUS` of every exchange, in order.
    pub fn wire(&self) -> Vec<String> {
        let path =
            |url: &str| url.splitn(4, '/').nth(3).map_or("/".to_owned(), |rest| format!("/{rest}"));
        self.exchanges
            .iter()
            .map(|one| format!("{} {} {}", one.method, path(&one.url), one.status.unwrap_or(0)))
            .collect()
    }
}
