//! The connection to Redis: opened in the background, shared by all operations, opened anew when it
//! fails.
//!
//! An operation never waits for a connection. It takes the present one, or fails at once. So a
//! Redis that is away costs a request nothing.

use std::fmt::Write as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parking_lot::{Mutex, RwLock};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult, RetryMethod, TlsCertificates,
    TlsMode, cmd,
};
use secrecy::ExposeSecret;
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::check::{self, Unsuitable};
use super::listening;
use crate::clock::{Timestamp, timer_now};
use crate::config::{self, CaFile, Durability, RedisUrl, Topology};
use crate::state::Away;

/// The longest wait for a connection with its greeting. Ours: TLS takes some round trips more than
/// an operation.
const OPENED_WITHIN: Duration = Duration::from_secs(1);
/// The distance of attempts to connect, which doubles up to the second value. Ours: a Redis that
/// returns is noticed within a second.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The time for which a Redis without memory counts as away after its last refusal.
const FULL_FOR: Duration = Duration::from_secs(1);

/// See the module.
pub struct Connection {
    /// `None`: the settings are of no use.
    opener: Option<Opener>,
    op_timeout: Duration,
    writes: Option<Durability>,
    state: RwLock<State>,
    /// The last refusal of a change, because memory is full.
    full: Mutex<Option<(Instant, Arc<str>)>>,
    /// An operation has failed so that the connection is of no use, or all has ended.
    spoilt: Arc<Notify>,
    /// The number of connections opened so far; 0 before the first.
    opened: watch::Sender<u64>,
}

enum State {
    Open(Wire, u64),
    Away(Arc<str>),
}

/// An open connection. Cheap to clone.
#[derive(Clone)]
pub(super) enum Wire {
    /// To one node.
    Node(MultiplexedConnection),
    /// To all nodes of a cluster.
    Cluster(ClusterConnection),
}

/// Opens connections.
enum Opener {
    Node(Box<Client>),
    Sentinel(Box<AsyncMutex<SentinelClient>>),
    /// A cluster, with its nodes one by one for messages.
    Cluster(Box<ClusterClient>, Vec<Client>),
}

impl Connection {
    /// Begins to connect. Must run on a tokio runtime.
    pub fn begin(settings: &config::Redis) -> Arc<Self> {
        let (opener, reason) = match Opener::new(settings) {
            Ok(opener) => (Some(opener), "not connected yet".into()),
            Err(fault) => (None, fault.to_string().into()),
        };
        let connection = Arc::new(Self {
            opener,
            op_timeout: settings.op_timeout,
            writes: settings.writes,
            full: Mutex::default(),
            state: RwLock::new(State::Away(reason)),
            spoilt: Arc::default(),
            opened: watch::channel(0).0,
        });
        tokio::spawn(keep_open(Arc::downgrade(&connection)));
        connection
    }

    /// Connects once, and checks that the server is usable. Returns the time of its clock.
    pub async fn examine(settings: &config::Redis) -> Result<Timestamp, Examined> {
        let opener = Opener::new(settings).map_err(|fault| Examined::Away(away(&fault)))?;
        let wire = opener.open(settings.op_timeout, settings.writes).await?;
        let checked = timeout(OPENED_WITHIN, async {
            opener.check_messages(wire.clone(), &settings.prefix).await?;
            opener.time(&wire).await
        });
        checked.await.map_err(|_| Away("no answer within a second".to_owned()))?
    }

    /// Runs a command.
    pub async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Away> {
        let (mut wire, number) = match &*self.state.read() {
            State::Open(wire, number) => (wire.clone(), *number),
            State::Away(reason) => return Err(Away(reason.to_string())),
        };
        let ran = timeout(self.op_timeout, async {
            match &mut wire {
                Wire::Node(node) => command.query_async(node).await,
                Wire::Cluster(cluster) => command.query_async(cluster).await,
            }
        });
        match ran.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(fault)) => {
                if is_spoiling(&fault) {
                    self.spoil(number, &fault.to_string());
                } else if fault.code() == Some("OOM") {
                    *self.full.lock() = Some((timer_now(), fault.to_string().into()));
                }
                Err(away(&fault))
            }
            Err(_) => {
                let reason = format!("no answer within {} ms", self.op_timeout.as_millis());
                self.spoil(number, &reason);
                Err(Away(reason))
            }
        }
    }

    /// Returns the reason for which there is no connection.
    pub fn away(&self) -> Option<String> {
        match &*self.state.read() {
            State::Open(..) => {
                let full = self.full.lock().clone();
                let (_, reason) = full.filter(|(at, _)| timer_now() - *at < FULL_FOR)?;
                Some(reason.to_string())
            }
            State::Away(reason) => Some(reason.to_string()),
        }
    }

    /// Waits for a connection with another number than this one; `None` when all has ended.
    #[cfg(test)]
    pub async fn opened_after(&self, number: u64) -> Option<u64> {
        let mut opened = self.opened.subscribe();
        let opened = opened.wait_for(|opened| *opened != number).await;
        opened.ok().map(|opened| *opened)
    }

    /// Opens a connection for messages.
    pub async fn open_for_messages(&self) -> Result<PubSub, Away> {
        let Some(opener) = &self.opener else {
            return Err(Away(self.away().unwrap_or_default()));
        };
        match timeout(OPENED_WITHIN, opener.open_for_messages()).await {
            Ok(pubsub) => pubsub.map_err(|fault| away(&fault)),
            Err(_) => Err(Away("no connection for messages within a second".to_owned())),
        }
    }

    fn spoil(&self, number: u64, reason: &str) {
        let mut state = self.state.write();
        if matches!(&*state, State::Open(_, open) if *open == number) {
            *state = State::Away(reason.into());
            self.spoilt.notify_one();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.spoilt.notify_one();
    }
}

/// Keeps a connection open for as long as somebody has it.
async fn keep_open(connection: Weak<Connection>) {
    let mut pause = PAUSE;
    let mut number = 0;
    loop {
        let Some(this) = connection.upgrade() else { return };
        let Some(opener) = &this.opener else { return };
        match opener.open(this.op_timeout, this.writes).await {
            Ok(wire) => {
                (number, pause) = (number + 1, PAUSE);
                *this.state.write() = State::Open(wire, number);
                this.opened.send_replace(number);
                let spoilt = Arc::clone(&this.spoilt);
                drop(this);
                spoilt.notified().await;
            }
            Err(fault) => {
                let reason = fault.to_string();
                if let Examined::Unsuitable(_) = fault {
                    // Once: it stays as it is until an operator changes it.
                    let is_new = this.away().is_none_or(|before| before != reason);
                    if is_new {
                        tracing::error!(problem = reason, "Redis cannot be used");
                    }
                }
                *this.state.write() = State::Away(reason.into());
                drop(this);
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// The reason for which a connection could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Examined {
    /// There is none.
    #[error(transparent)]
    Away(#[from] Away),
    /// The server is not set up for shared state.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
}

impl Opener {
    fn new(settings: &config::Redis) -> RedisResult<Self> {
        let nodes = || settings.urls.iter().map(|url| (url, url.port()));
        match &settings.topology {
            Topology::Single => {
                let (url, port) = (&settings.urls[0], settings.urls[0].port());
                Ok(Self::Node(Box::new(client(settings, url, port)?)))
            }
            Topology::Sentinel(primary) => {
                let sentinels =
                    settings.urls.iter().map(|url| address(url, url.sentinel_port())).collect();
                sentinel(settings, primary, sentinels).map(|it| Self::Sentinel(Box::new(it.into())))
            }
            Topology::Cluster => {
                let clients = nodes().map(|(url, port)| client(settings, url, port));
                let clients = clients.collect::<RedisResult<Vec<_>>>()?;
                let infos = clients.iter().map(|client| client.get_connection_info().clone());
                let mut builder = ClusterClient::builder(infos)
                    .connection_timeout(OPENED_WITHIN)
                    .response_timeout(settings.op_timeout)
                    .retries(2);
                if let Some(file) = &settings.ca_file {
                    builder = builder.tls(TlsMode::Secure).certs(certificates(file));
                }
                Ok(Self::Cluster(Box::new(builder.build()?), clients))
            }
        }
    }

    /// Opens a connection to a usable server.
    async fn open(
        &self,
        op_timeout: Duration,
        writes: Option<Durability>,
    ) -> Result<Wire, Examined> {
        let opened = timeout(OPENED_WITHIN, self.connect(op_timeout)).await;
        let Ok(opened) = opened else {
            return Err(Away("no connection within a second".to_owned()).into());
        };
        let wire = opened.map_err(|fault| away(&fault))?;
        let checked = timeout(OPENED_WITHIN, self.check(&wire, writes)).await;
        checked.map_err(|_| Away("no answer within a second".to_owned()))??;
        Ok(wire)
    }

    async fn check(&self, wire: &Wire, writes: Option<Durability>) -> Result<(), Examined> {
        check::check(self.one_node(wire).await?, writes).await
    }

    async fn time(&self, wire: &Wire) -> Result<Timestamp, Examined> {
        let mut node = self.one_node(wire).await?;
        let time: RedisResult<(u64, u64)> = cmd("TIME").query_async(&mut node).await;
        let (seconds, micros) = time.map_err(|fault| away(&fault))?;
        Ok(Timestamp::from_millis(seconds * 1000 + micros / 1000))
    }

    /// A node that stands for all, because they are set up alike.
    async fn one_node(&self, wire: &Wire) -> Result<MultiplexedConnection, Away> {
        match (wire, self) {
            (Wire::Node(node), _) => Ok(node.clone()),
            (Wire::Cluster(_), Self::Cluster(_, nodes)) => first_of(nodes).await,
            (Wire::Cluster(_), _) => Err(away(&no_node())),
        }
    }

    /// Checks that the user may listen and send. Nobody hears the message, which has a channel of
    /// its own.
    async fn check_messages(&self, wire: Wire, prefix: &str) -> Result<(), Examined> {
        let channel = listening::channel(prefix);
        let mut messages = self.open_for_messages().await.map_err(|fault| away(&fault))?;
        let heard = messages.subscribe(&channel).await;
        let publish = cmd("PUBLISH").arg(format!("{prefix}:check")).arg("").to_owned();
        let sent: RedisResult<u64> = match wire {
            Wire::Node(mut node) => publish.query_async(&mut node).await,
            Wire::Cluster(mut cluster) => publish.query_async(&mut cluster).await,
        };
        match heard.and(sent) {
            Ok(_) => Ok(()),
            Err(fault) if fault.code() == Some("NOPERM") => {
                let (prefix, fault) = (prefix.to_owned(), fault.to_string());
                Err(Unsuitable::Muted { channel, prefix, fault }.into())
            }
            Err(fault) => Err(away(&fault).into()),
        }
    }

    async fn connect(&self, op_timeout: Duration) -> RedisResult<Wire> {
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(OPENED_WITHIN))
            .set_response_timeout(Some(op_timeout.max(OPENED_WITHIN)));
        match self {
            Self::Node(client) => {
                client.get_multiplexed_async_connection_with_config(&options).await.map(Wire::Node)
            }
            Self::Sentinel(sentinel) => {
                let client = find_primary(sentinel).await?;
                client.get_multiplexed_async_connection_with_config(&options).await.map(Wire::Node)
            }
            Self::Cluster(client, _) => client.get_async_connection().await.map(Wire::Cluster),
        }
    }

    async fn open_for_messages(&self) -> RedisResult<PubSub> {
        match self {
            Self::Node(client) => client.get_async_pubsub().await,
            Self::Sentinel(sentinel) => find_primary(sentinel).await?.get_async_pubsub().await,
            // Any node has the messages of all.
            Self::Cluster(_, nodes) => {
                for node in nodes {
                    if let Ok(opened) = node.get_async_pubsub().await {
                        return Ok(opened);
                    }
                }
                Err(no_node())
            }
        }
    }
}

async fn find_primary(sentinel: &AsyncMutex<SentinelClient>) -> RedisResult<Client> {
    sentinel.lock().await.async_get_client().await
}

async fn first_of(nodes: &[Client]) -> Result<MultiplexedConnection, Away> {
    for node in nodes {
        if let Ok(opened) = node.get_multiplexed_async_connection().await {
            return Ok(opened);
        }
    }
    Err(away(&no_node()))
}

fn no_node() -> RedisError {
    (redis::ErrorKind::Io, "no node of the cluster can be reached").into()
}

fn client(settings: &config::Redis, url: &RedisUrl, port: u16) -> RedisResult<Client> {
    let mut redis = RedisConnectionInfo::default().set_db(i64::from(url.database));
    if let Some(username) = &settings.username {
        redis = redis.set_username(username);
    }
    if let Some(password) = &settings.password {
        redis = redis.set_password(password.expose_secret());
    }
    let info: ConnectionInfo = address(url, port).into_connection_info()?;
    let info = info.set_redis_settings(redis);
    match &settings.ca_file {
        Some(file) => Client::build_with_tls(info, certificates(file)),
        None => Client::open(info),
    }
}

fn sentinel(
    settings: &config::Redis,
    primary: &str,
    sentinels: Vec<ConnectionAddr>,
) -> RedisResult<SentinelClient> {
    let url = &settings.urls[0];
    let mut builder = SentinelClientBuilder::new(sentinels, primary, SentinelServerType::Master)?
        .set_client_to_redis_db(i64::from(url.database));
    if url.is_tls {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_tls_mode(TlsMode::Secure);
    }
    if let Some(username) = &settings.username {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = &settings.password {
        builder = builder.set_client_to_redis_password(password.expose_secret());
    }
    if let Some(username) = &settings.sentinel_username {
        builder = builder.set_client_to_sentinel_username(username);
    }
    if let Some(password) = &settings.sentinel_password {
        builder = builder.set_client_to_sentinel_password(password.expose_secret());
    }
    if let Some(file) = &settings.ca_file {
        builder = builder
            .set_client_to_redis_certificates(certificates(file))
            .set_client_to_sentinel_certificates(certificates(file));
    }
    builder.build()
}

fn address(url: &RedisUrl, port: u16) -> ConnectionAddr {
    let host = url.host.clone();
    if url.is_tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

fn certificates(file: &CaFile) -> TlsCertificates {
    let mut pem = String::new();
    for certificate in file.certificates() {
        let body = BASE64_STANDARD.encode(certificate);
        // Writing to a string cannot fail.
        let _ = write!(pem, "-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    }
    TlsCertificates { client_tls: None, root_cert: Some(pem.into_bytes()) }
}

/// True if no operation of this connection will succeed again, or of another server than this one.
fn is_spoiling(fault: &RedisError) -> bool {
    let is_elsewhere =
        matches!(fault.code(), Some("READONLY" | "MASTERDOWN" | "LOADING" | "NOAUTH" | "NOPERM"));
    fault.is_io_error()
        || fault.is_unrecoverable_error()
        || is_elsewhere
        || matches!(fault.retry_method(), RetryMethod::Reconnect)
}

fn away(fault: &RedisError) -> Away {
    Away(fault.to_string())
}
