//! Fetches the keys of an issuer: two small GETs at most, bounded in time and size. Redirections
//! are not followed.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::time::timeout;

use crate::config::{FetchUrl, Issuer, Proxies, Upstream};
use crate::gateway::environment::Environment;
use crate::gateway::request::oidc::signing_keys::SigningKeys;
use crate::gateway::upstream::connect::{Connector, Stream, Target};
use crate::gateway::upstream::resolve::Resolver;

/// The longest fetch of keys, of both documents together. Chosen here: a request may wait for it.
pub const FETCH_TIME: Duration = Duration::from_secs(5);
/// The largest document. Chosen here: those of public issuers have less than 20 KiB.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// The way to the keys of one issuer.
pub struct Fetcher {
    connector: Connector,
    proxies: Proxies,
    name_servers: Vec<SocketAddr>,
    url: FetchUrl,
    /// The issuer that the document at the address must name; `None` if it has the keys.
    issuer: Option<Arc<str>>,
}

/// The part of a discovery document that is used (OIDC Discovery 1.0 §3).
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Fetcher {
    /// Fetches keys from where the document at this address says.
    pub fn discovering(config: &Issuer, url: FetchUrl, env: &Environment) -> Self {
        Self { issuer: Some(Arc::clone(&config.url)), ..Self::direct(config, url, env) }
    }

    /// True if the way to the keys is the same with these settings.
    pub fn is_same(&self, config: &Upstream) -> bool {
        self.proxies == config.proxies && self.name_servers == config.name_servers
    }

    /// Fetches keys from this address.
    pub fn direct(config: &Issuer, url: FetchUrl, env: &Environment) -> Self {
        let upstream = &env.config.upstream;
        let resolver = Arc::new(Resolver::new(env.clock.clone(), &upstream.name_servers));
        let connector = Connector::to_issuers(config.ca_file.as_ref(), resolver, FETCH_TIME);
        let (proxies, name_servers) = (upstream.proxies.clone(), upstream.name_servers.clone());
        Self { connector, proxies, name_servers, url, issuer: None }
    }

    pub async fn fetch(&self) -> Result<SigningKeys, String> {
        let fetched = timeout(FETCH_TIME, self.fetch_untimed()).await;
        fetched.unwrap_or_else(|_| Err("it takes too long".into()))
    }

    async fn fetch_untimed(&self) -> Result<SigningKeys, String> {
        let Some(issuer) = &self.issuer else {
            return SigningKeys::parse(&self.get(&self.url).await?);
        };
        let document = self.get(&self.url).await?;
        let document: Discovery = serde_json::from_slice(&document)
            .map_err(|_| format!("{} is no discovery document", self.url.target))?;
        // OIDC Discovery 1.0 §4.3.
        if document.issuer != **issuer {
            return Err("its discovery document is of another issuer".into());
        }
        let url = FetchUrl::parse(&document.jwks_uri)
            .map_err(|problem| format!("the address of its keys is of no use: {problem}"))?;
        SigningKeys::parse(&self.get(&url).await?)
    }

    async fn get(&self, url: &FetchUrl) -> Result<Bytes, String> {
        // This machine is none that a proxy leads to: its own would answer.
        let proxy = self.proxies.of(&url.base).filter(|_| !url.base.is_loopback());
        let target = Target::new(url.base.clone(), proxy.cloned());
        let opened = self.connector.open(&target).await?;
        exchange(opened.stream, url).await
    }
}

async fn exchange(stream: Stream, url: &FetchUrl) -> Result<Bytes, String> {
    let failed = |error: hyper::Error| error.to_string();
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(failed)?;
    let request = Request::get(url.target.as_str())
        .header(HOST, url.base.authority())
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("weir/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        if answer.status() != StatusCode::OK {
            return Err(format!("{} was answered with {}", url.target.path(), answer.status()));
        }
        let body = Limited::new(answer.into_body(), DOCUMENT_BYTES_MAX).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|error| error.to_string())
    };
    while_driven(connection, answer).await
}

/// Awaits an answer while its connection is driven, and also after that has ended.
async fn while_driven<T>(connection: impl Future, answer: impl Future<Output = T>) -> T {
    tokio::pin!(connection, answer);
    tokio::select! {
        answer = &mut answer => answer,
        _ = &mut connection => answer.await,
    }
}
