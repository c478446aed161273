//! Client of the admin listener of a running gateway, for the operators' commands.
//!
//! The address and the admin token come from `[listen]` of the config. Only that section is read,
//! so that a command works where the upstream's credentials are absent. Each command has its own
//! request and output.

use std::error::Error as _;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::tls::AdminTlsArguments;
use super::{paint, visible};
use crate::admin::CHALLENGE;
use crate::cli::process::{BAD_CONFIG, CONFIG_VARIABLE, DEFAULT_CONFIG, FAILED, runtime};
use crate::config::{self, Faults, Secret};

/// Variable of the admin token when no config has one: the name in SPECIFICATION, "Configuration".
const TOKEN_VARIABLE: &str = "WEIR_ADMIN_TOKEN";
/// Scheme of an address with TLS.
const HTTPS: &str = "https://";
const HTTP: &str = "http://";
/// Timeout of the whole exchange. Our choice: an operator waits at a terminal; an answer takes
/// milliseconds.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest pause between two questions of `--watch`. Our choice: nobody reads faster.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Moves to the upper left corner and clears a terminal (ECMA-48 §8.3.21 and §8.3.39).
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Longest answer: 10,000 accounts with ten resources each take a fifth of it.
const ANSWER_BYTES_MAX: usize = 128 * 1024 * 1024;

#[derive(Args, Debug)]
pub struct GatewayOptions {
    #[command(flatten)]
    pub gateway: AdminArguments,
    /// Print the answer of the admin API as it is
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Ask again and again with this pause [default: 2s]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "2s",
          require_equals = true, value_parser = pause)]
    pub watch: Option<Duration>,
}

/// Parses a pause that is no busy loop.
fn pause(text: &str) -> Result<Duration, String> {
    let pause = config::parse_duration(text)?;
    if pause < PAUSE_MIN { Err(format!("at least {PAUSE_MIN:?}")) } else { Ok(pause) }
}

#[derive(Args, Clone, Debug)]
pub struct AdminArguments {
    /// The admin listener of the running gateway; by TLS as `https://ADDR`, never by TLS as
    /// `http://ADDR` [default: `admin` in the config's listen section]
    #[arg(long, value_name = "ADDR", value_parser = host_and_port)]
    admin: Option<String>,
    /// The config file, for the address and the admin token [default: weir.toml, if there is one]
    #[arg(long, env = CONFIG_VARIABLE, hide_env_values = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    tls: AdminTlsArguments,
}

/// An admin listener and its token.
#[derive(Debug)]
pub struct AdminApi {
    /// `host:port`.
    pub address: String,
    /// `None`: plain HTTP.
    tls: Option<Connector>,
    token: Option<SecretString>,
}

/// Makes TLS connections.
struct Connector {
    tls: TlsConnector,
    /// The operator has a certificate.
    has_certificate: bool,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// Reason for no answer, with advice.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}")]
    Config(Faults),
    #[error("where is the gateway? give --admin ADDR, or --config FILE with `admin` in [listen]")]
    NoAddress,
    #[error(
        "nothing answers at {address}: {problem}\nis the gateway running there, and does its config have `admin = \"{address}\"` in [listen]?"
    )]
    Unreachable { address: String, problem: io::Error },
    #[error("{0}")]
    Tls(String),
    #[error("{0} took the question and did not answer within {EXCHANGE_TIMEOUT:?}")]
    Timeout(String),
    /// The token is missing or wrong.
    #[error(
        "{address} does not accept {given}; it is `admin_token` in [listen] of its config: name that file with --config, or set {TOKEN_VARIABLE}"
    )]
    Unauthorized {
        address: String,
        /// The token that was sent, for people.
        given: &'static str,
    },
    /// A bad request, in the gateway's words.
    #[error("{0}")]
    Rejected(String),
    /// An action that this write does not permit, in the gateway's words.
    #[error("{message}")]
    NotDone {
        message: String,
        /// The write's state, if it has one.
        state: Option<String>,
    },
    /// The answer of a page about health, in the gateway's words.
    #[error("{address} is not ready: {reason}")]
    NotReady { address: String, reason: String },
    /// Another kind of server listens there.
    #[error("{address} is not the admin listener of a gateway: {problem}")]
    NotAdmin { address: String, problem: String },
}

impl Fault {
    /// Returns the exit code (SPECIFICATION, "Commands").
    pub fn code(&self) -> u8 {
        if matches!(self, Self::Config(_) | Self::NoAddress | Self::Tls(_) | Self::Rejected(_)) {
            BAD_CONFIG
        } else {
            FAILED
        }
    }
}

impl AdminArguments {
    /// Returns the config that the arguments name.
    pub fn named_config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Runs `request` against the gateway, prints its output, and returns the exit code
    /// (SPECIFICATION, "Commands").
    pub fn run(
        self,
        command: &str,
        question: impl AsyncFnOnce(&AdminApi) -> Result<String, Fault>,
    ) -> ExitCode {
        let output = self.resolve().and_then(|api| {
            let runtime = runtime(Some(std::num::NonZeroUsize::MIN));
            let runtime = runtime.map_err(|problem| api.unreachable(problem))?;
            runtime.block_on(question(&api))
        });
        match output {
            Ok(text) if paint::print(&text).is_ok() => ExitCode::SUCCESS,
            // A closed pager is no success, because the output is incomplete.
            Ok(_) => FAILED.into(),
            Err(fault) => {
                eprintln!("{command}: {fault}");
                fault.code().into()
            }
        }
    }

    /// The same every `watch` until the process is ended, if it is set. A terminal shows the latest
    /// output alone. A gateway that does not answer is asked again.
    pub fn run_watched(
        self,
        command: &str,
        watch: WatchOptions,
        question: &impl AsyncFn(&AdminApi) -> Result<String, Fault>,
    ) -> ExitCode {
        let Some(pause) = watch.watch else {
            return self.run(command, async |api| question(api).await);
        };
        let clear = if io::stdout().is_terminal() { CLEAR } else { "" };
        self.run(command, async |api| {
            loop {
                let text = question(api).await.unwrap_or_else(|fault| format!("{fault}\n"));
                let written = io::stdout().write_all(clear.as_bytes());
                // Nobody reads any more.
                if written.and_then(|()| paint::print(&(text + "\n"))).is_err() {
                    return Ok(String::new());
                }
                tokio::time::sleep(pause).await;
            }
        })
    }

    /// Determines the address and the token.
    fn resolve(self) -> Result<AdminApi, Fault> {
        let environment = std::env::var(TOKEN_VARIABLE).ok();
        self.resolve_in(Path::new(DEFAULT_CONFIG), environment)
    }

    fn resolve_in(
        self,
        default_config: &Path,
        environment: Option<String>,
    ) -> Result<AdminApi, Fault> {
        let is_named = self.config.is_some();
        let file =
            self.config.or_else(|| default_config.exists().then(|| default_config.to_owned()));
        let listen =
            file.map(|file| config::load_listen(&file)).transpose().map_err(Fault::Config)?;
        let admin = listen.as_ref().and_then(|listen| listen.admin);
        let configured = admin.map(|admin| reachable(admin).to_string());
        let given = self.admin.as_deref().map(without_scheme);
        let is_other = given.as_ref().is_some_and(|(given, _)| configured.as_ref() != Some(given));
        // A file that merely lies here is not about another gateway, which must not get its token.
        let listen = listen.filter(|_| is_named || !is_other);
        let (settings, token) =
            listen.map_or((None, None), |listen| (listen.admin_tls, listen.admin_token));
        let (address, by_url) =
            given.or(configured.map(|address| (address, None))).ok_or(Fault::NoAddress)?;
        // An address without a scheme is that of the config's listener.
        let is_tls = by_url.unwrap_or_else(|| settings.is_some() || self.tls.are_given());
        let connector = is_tls.then(|| self.tls.connector(settings.as_ref())).transpose();
        let tls = connector.map_err(Fault::Tls)?;
        let has_certificate = self.tls.has_certificate();
        let tls = tls.map(|tls| Connector { tls, has_certificate });
        let environment = environment.filter(|token| !token.is_empty()).map(SecretString::from);
        let token = token.map(Secret::into_value);
        let token = if is_other { environment.or(token) } else { token.or(environment) };
        Ok(AdminApi { address, tls, token })
    }
}

impl AdminApi {
    /// Returns the answer to `GET path`, if it is one of an admin listener.
    pub async fn get(&self, path: &str) -> Result<Bytes, Fault> {
        self.request(Method::GET, path, Bytes::new()).await
    }

    /// Returns the answer to `POST path` with this body.
    pub async fn post(&self, path: &str, body: &serde_json::Value) -> Result<Bytes, Fault> {
        self.request(Method::POST, path, body.to_string().into()).await
    }

    /// Formats an answer: with `json` as it is, else by `format`. It is parsed in both cases,
    /// because the next program in a pipe must get what it expects.
    pub fn printed<T: DeserializeOwned>(
        &self,
        body: &[u8],
        json: bool,
        mismatch: &str,
        format: impl FnOnce(&T) -> String,
    ) -> Result<String, Fault> {
        let answer: T = self.read(body, mismatch)?;
        Ok(if json { String::from_utf8_lossy(body).into_owned() + "\n" } else { format(&answer) })
    }

    /// Parses an answer.
    pub fn read<T: DeserializeOwned>(&self, body: &[u8], mismatch: &str) -> Result<T, Fault> {
        serde_json::from_slice(body).map_err(|_| self.not_admin(&mismatch))
    }

    async fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Fault> {
        timeout(EXCHANGE_TIMEOUT, self.exchange(method, path, body))
            .await
            .unwrap_or_else(|_| Err(Fault::Timeout(self.address.clone())))
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Fault> {
        let stream = TcpStream::connect(&self.address).await;
        let stream = stream.map_err(|problem| self.unreachable(problem))?;
        let Some(Connector { tls: connector, .. }) = &self.tls else {
            return self.exchange_over(stream, method, path, body).await;
        };
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|fault| self.not_admin(&fault))?;
        let secured = connector.connect(name, stream).await;
        let stream = secured.map_err(|problem| self.not_admin(&problem))?;
        self.exchange_over(stream, method, path, body).await
    }

    async fn exchange_over<T>(
        &self,
        stream: T,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, Fault>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|fault| self.not_http(&fault))?;
        tokio::spawn(connection);
        let mut request =
            Request::builder().method(&method).uri(path).header(header::HOST, &self.address);
        if let Some(token) = &self.token {
            let problem = "the admin token has characters that a header cannot hold";
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()))
                .map_err(|_| self.not_admin(&problem))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        if method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|fault| self.not_admin(&fault))?;
        let answer = sender.send_request(request).await.map_err(|fault| self.not_http(&fault))?;
        let status = answer.status();
        let unexpected = || self.not_admin(&format!("it answers {status} to {method} {path}"));
        match status {
            StatusCode::UNAUTHORIZED if is_of_admin(answer.headers()) => {
                return Err(self.unauthorized());
            }
            // Of the last three, answers about a write or a reload have a body of their own.
            StatusCode::OK
            | StatusCode::FORBIDDEN
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::NOT_FOUND
            | StatusCode::CONFLICT
            | StatusCode::SERVICE_UNAVAILABLE => {}
            _ => return Err(unexpected()),
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map(Collected::to_bytes).map_err(|fault| self.not_admin(&fault))?;
        match status {
            StatusCode::OK => Ok(body),
            StatusCode::UNPROCESSABLE_ENTITY => Err(Fault::Rejected(message_of(&body))),
            StatusCode::FORBIDDEN => Err(self.forbidden(&body).unwrap_or_else(unexpected)),
            StatusCode::SERVICE_UNAVAILABLE if matches!(path, "/healthz" | "/readyz") => {
                Err(self.not_ready(&body))
            }
            _ => Err(not_done(path, &body).unwrap_or_else(unexpected)),
        }
    }

    pub fn not_admin(&self, problem: &dyn std::fmt::Display) -> Fault {
        Fault::NotAdmin { address: self.address.clone(), problem: problem.to_string() }
    }

    /// Names the failure of an exchange in the system's words, or in ours.
    fn not_http(&self, fault: &hyper::Error) -> Fault {
        let of_system = fault.source().and_then(|source| source.downcast_ref::<io::Error>());
        let has_no_certificate =
            self.tls.as_ref().is_some_and(|connector| !connector.has_certificate);
        match of_system {
            // The alert may come before the end of the connection is seen.
            Some(error) if has_no_certificate && demands_certificate(error) => {
                self.not_admin(&"it demands a certificate: give --admin-cert and --admin-key")
            }
            Some(error) => self.not_admin(error),
            None if fault.is_parse() => self.not_admin(&"its answer is not HTTP"),
            None if has_no_certificate => self.not_admin(
                &"it closed the connection without an answer; if it demands a certificate, give --admin-cert and --admin-key",
            ),
            None => self.not_admin(&"it closed the connection without an answer"),
        }
    }

    fn not_ready(&self, body: &[u8]) -> Fault {
        let text = String::from_utf8_lossy(body);
        let lines: Vec<_> = text.lines().map(visible).collect();
        Fault::NotReady { address: self.address.clone(), reason: lines.join("\n") }
    }

    fn unreachable(&self, problem: io::Error) -> Fault {
        Fault::Unreachable { address: self.address.clone(), problem }
    }

    /// Parses the refusal of this host; `None` for any other body.
    fn forbidden(&self, body: &[u8]) -> Option<Fault> {
        let error: serde_json::Value = serde_json::from_slice(body).ok()?;
        Some(Fault::Rejected(format!("{}: {}", self.address, error.get("message")?.as_str()?)))
    }

    fn unauthorized(&self) -> Fault {
        let given = if self.token.is_some() {
            "this admin token"
        } else {
            "a question without an admin token"
        };
        Fault::Unauthorized { address: self.address.clone(), given }
    }
}

/// Returns the `message` of an error, or a substitute, with the faults of a config below it.
fn message_of(body: &[u8]) -> String {
    let error: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = error.as_ref().and_then(|error| error.get("message")?.as_str());
    let mut text =
        message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    let faults = error.as_ref().and_then(|error| error.get("faults")?.as_array());
    for fault in faults.into_iter().flatten() {
        text.push('\n');
        text.push_str(&fault_line(fault));
    }
    text
}

/// A fault of a config as `weir check` shows it.
fn fault_line(fault: &serde_json::Value) -> String {
    let text = |key: &str| fault.get(key).and_then(serde_json::Value::as_str).map(visible);
    let line = fault.get("line").and_then(serde_json::Value::as_u64);
    let fault = config::Fault {
        file: text("file").unwrap_or_default(),
        line: line.and_then(|line| usize::try_from(line).ok()),
        key: text("key").unwrap_or_default(),
        problem: text("problem").unwrap_or_default(),
        accepted: text("accepted"),
    };
    fault.to_string()
}

/// Parses the refusal of an operator action; `None` for any other body.
fn not_done(path: &str, body: &[u8]) -> Option<Fault> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    let text = |key: &str| answer.get(key)?.as_str().map(str::to_owned);
    // Another server may have a message too.
    let is_ours = ["write", "request", "replicas"].iter().any(|key| answer.get(key).is_some());
    if path != "/api/reload" && !is_ours {
        return None;
    }
    Some(Fault::NotDone { message: text("message")?, state: text("state") })
}

/// Returns true for the alert of a server that demands a certificate (RFC 8446 §6.2).
fn demands_certificate(error: &io::Error) -> bool {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let alert = rustls::AlertDescription::CertificateRequired;
    of_tls.is_some_and(|of_tls| *of_tls == rustls::Error::AlertReceived(alert))
}

/// Returns true if a 401 comes from an admin listener.
fn is_of_admin(headers: &http::HeaderMap) -> bool {
    headers.get(header::WWW_AUTHENTICATE).is_some_and(|value| value == CHALLENGE)
}

/// Returns an address to connect to: "every address" becomes loopback.
fn reachable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

/// Splits an address, and says if its scheme is that of TLS; `None`: it has no scheme.
fn without_scheme(admin: &str) -> (String, Option<bool>) {
    let schemes = [(HTTPS, true), (HTTP, false)];
    let found = schemes.iter().find_map(|(scheme, tls)| Some((admin.strip_prefix(scheme)?, *tls)));
    found.map_or((admin.to_owned(), None), |(address, tls)| (address.to_owned(), Some(tls)))
}

fn host_and_port(text: &str) -> Result<String, String> {
    match without_scheme(text).0.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err("not a host and a port, such as 127.0.0.1:9090".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(
        admin: Option<&str>,
        config: Option<&str>,
        environment: Option<&str>,
    ) -> Result<AdminApi, Fault> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.toml");
        if let Some(text) = config {
            std::fs::write(&file, text).unwrap();
        }
        let admin = admin.map(str::to_owned);
        let arguments = AdminArguments { admin, config: None, tls: AdminTlsArguments::default() };
        arguments.resolve_in(&file, environment.map(str::to_owned))
    }

    fn token(api: &AdminApi) -> Option<&str> {
        api.token.as_ref().map(ExposeSecret::expose_secret)
    }

    const CONFIG: &str = r#"
        [listen]
        admin = "0.0.0.0:9191"
        admin_token = { value = "sesame" }
        [[tokens]]
        account = "bot"
        kind = "classic"
        secret = { env = "NOT_SET_WHERE_AN_OPERATOR_TYPES" }
    "#;

    #[test]
    fn an_incomplete_config_provides_address_and_token() {
        let api = resolved(None, Some(CONFIG), Some("other")).unwrap();
        assert_eq!((api.address.as_str(), token(&api)), ("127.0.0.1:9191", Some("sesame")));
    }

    #[test]
    fn a_given_address_does_not_get_the_token_of_another_gateway() {
        let api = resolved(Some("[::1]:9"), Some(CONFIG), None).unwrap();
        assert_eq!((api.address.as_str(), token(&api)), ("[::1]:9", None));
        let own = resolved(Some("127.0.0.1:9191"), Some(CONFIG), Some("other")).unwrap();
        assert_eq!(token(&own), Some("sesame"), "the address of the file");
        let other = resolved(Some("[::1]:9"), Some(CONFIG), Some("other")).unwrap();
        assert_eq!(token(&other), Some("other"));
    }

    #[test]
    fn a_named_config_is_about_the_given_address() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("named.toml");
        std::fs::write(&file, CONFIG).unwrap();
        let named = |environment: Option<&str>| {
            let (admin, tls) = (Some("[::1]:9".to_owned()), AdminTlsArguments::default());
            let arguments = AdminArguments { admin, config: Some(file.clone()), tls };
            arguments.resolve_in(Path::new("none.toml"), environment.map(str::to_owned)).unwrap()
        };
        assert_eq!(token(&named(None)), Some("sesame"));
        assert_eq!(token(&named(Some("other"))), Some("other"), "it comes with the address");
    }

    #[test]
    fn the_scheme_of_an_address_decides_about_tls() {
        // Certificates that cannot be read: those of the gateway that runs are older.
        let config = CONFIG.replace(
            "[[tokens]]",
            "admin_tls = { cert = \"gone.pem\", key = \"gone.key\", client_ca = \"gone.ca\" }\n[[tokens]]",
        );
        for (admin, is_tls) in [
            (None, true),
            (Some("127.0.0.1:9191"), true),
            (Some("http://127.0.0.1:9191"), false),
            (Some("https://127.0.0.1:9191"), true),
        ] {
            let api = resolved(admin, Some(&config), None).unwrap();
            assert_eq!((api.tls.is_some(), token(&api)), (is_tls, Some("sesame")));
        }
    }

    #[test]
    fn the_environment_provides_the_token_without_a_config() {
        let api = resolved(Some("weir.internal:9090"), None, Some("sesame")).unwrap();
        assert_eq!((api.address.as_str(), token(&api)), ("weir.internal:9090", Some("sesame")));
        assert_eq!(token(&resolved(Some("weir.internal:9090"), None, Some("")).unwrap()), None);
    }

    #[test]
    fn a_missing_address_or_a_bad_config_is_bad_usage() {
        for (config, message) in [
            (None, "--admin ADDR"),
            (Some("[upstream]\n"), "--admin ADDR"),
            (Some("[listen]\nadmin = 3"), "listen.admin"),
        ] {
            let fault = resolved(None, config, None).unwrap_err();
            assert_eq!(fault.code(), BAD_CONFIG);
            assert!(fault.to_string().contains(message), "{fault}");
        }
    }

    #[test]
    fn an_address_without_a_port_is_bad_usage() {
        for text in ["127.0.0.1", ":9090", "host:port", "host:70000", ""] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_output_about_the_api_shows_its_token() {
        let api = resolved(None, Some(CONFIG), None).unwrap();
        assert!(!format!("{api:?} {}", api.unauthorized()).contains("sesame"));
    }
}
