//! The connection to Redis: opened in the background, shared by all operations, opened anew when it
//! fails.
//!
//! An operation never waits for a connection. It takes the present one, or fails at once. So a
//! Redis that is away costs a request nothing.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
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
/// The longest time of a long command. Ours: 32 MiB at 32 megabits a second.
const LONGEST: Duration = Duration::from_secs(10);

/// The time for which a Redis counts as full after its last refusal. Ours: a copy or a write a
/// minute tries again.
const FULL_FOR: Duration = Duration::from_mins(1);

/// See the module.
pub struct Connection {
    /// `None`: the settings are of no use.
    opener: Option<Opener>,
    op_timeout: Duration,
    writes: Option<Durability>,
    /// The openings of another connection to the same server, which finds faults earlier and says
    /// what is wrong.
    first: Option<watch::Receiver<u64>>,
    state: RwLock<State>,
    /// The last refusal of a change, because memory is full.
    full_at: Mutex<Option<Instant>>,
    /// The memory that is left is for queued writes.
    is_short: AtomicBool,
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
        Self::begin_one(settings, None)
    }

    /// The same for long commands and answers, which would hold up short ones. It is opened anew
    /// whenever the first one is.
    pub fn begin_second(settings: &config::Redis, first: &Self) -> Arc<Self> {
        Self::begin_one(settings, Some(first.opened.subscribe()))
    }

    fn begin_one(settings: &config::Redis, first: Option<watch::Receiver<u64>>) -> Arc<Self> {
        let longest = if first.is_some() { LONGEST } else { settings.op_timeout };
        let (opener, reason) = match Opener::new(settings, longest) {
            Ok(opener) => (Some(opener), "not connected yet".into()),
            Err(fault) => (None, fault.to_string().into()),
        };
        let connection = Arc::new(Self {
            opener,
            op_timeout: settings.op_timeout,
            writes: settings.writes,
            first,
            full_at: Mutex::default(),
            is_short: AtomicBool::new(false),
            state: RwLock::new(State::Away(reason)),
            spoilt: Arc::default(),
            opened: watch::channel(0).0,
        });
        tokio::spawn(keep_open(Arc::downgrade(&connection)));
        connection
    }

    /// Connects once, and checks that the server is usable. Returns the time of its clock.
    pub async fn examine(settings: &config::Redis) -> Result<Timestamp, Examined> {
        let opener =
            Opener::new(settings, OPENED_WITHIN).map_err(|fault| Examined::Away(away(&fault)))?;
        let wire = opener.open(settings.writes).await?;
        let checked = timeout(OPENED_WITHIN, async {
            opener.check_messages(wire.clone(), &settings.prefix).await?;
            opener.time(&wire).await
        });
        checked.await.map_err(|_| Away("no answer within a second".to_owned()))?
    }

    /// Runs a command.
    pub async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Away> {
        self.run_within(self.op_timeout, command).await
    }

    /// Runs a command with such a long argument or answer that it may take so much more time. It
    /// may run twice: the connection may turn out to be of no use.
    pub async fn run_long<T: FromRedisValue>(
        &self,
        more: Duration,
        command: &Cmd,
    ) -> Result<T, Away> {
        let begun = timer_now();
        let mut opened = self.opened.subscribe();
        if self.away().is_none() {
            opened.borrow_and_update();
            let ran = self.run_within(self.op_timeout + more, command).await;
            if ran.is_ok() || self.away().is_none() || timer_now() - begun > self.op_timeout {
                return ran;
            }
        }
        // It fails by itself, if it is not opened in time.
        let _ = timeout(OPENED_WITHIN, opened.changed()).await;
        self.run_within(self.op_timeout + more, command).await
    }

    async fn run_within<T: FromRedisValue>(
        &self,
        time: Duration,
        command: &Cmd,
    ) -> Result<T, Away> {
        let (mut wire, number) = match &*self.state.read() {
            State::Open(wire, number) => (wire.clone(), *number),
            State::Away(reason) => return Err(Away(reason.to_string())),
        };
        let ran = timeout(time, async {
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
                    self.refused_for_room(&fault);
                }
                Err(away(&fault))
            }
            Err(_) => {
                let reason = format!("no answer within {} ms", time.as_millis());
                self.spoil(number, &reason);
                Err(Away(reason))
            }
        }
    }

    /// Returns the reason for which there is no connection.
    pub fn away(&self) -> Option<String> {
        match &*self.state.read() {
            State::Open(..) => None,
            State::Away(reason) => Some(reason.to_string()),
        }
    }

    /// True if the server has memory for copies: none of them was refused just now, and queued
    /// writes do not need the rest.
    pub fn has_room_for_copies(&self) -> bool {
        let is_full = self.full_at.lock().is_some_and(|at| timer_now() - at < FULL_FOR);
        !is_full && !self.is_short.load(Ordering::Relaxed)
    }

    /// Leaves the memory that is left to queued writes, or not.
    pub fn set_short(&self, is_short: bool) {
        if is_short && !self.is_short.swap(is_short, Ordering::Relaxed) {
            tracing::warn!(
                "Redis keeps no further copies of answers: queued writes need its memory"
            );
        }
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    fn refused_for_room(&self, fault: &RedisError) {
        let now = timer_now();
        let before = self.full_at.lock().replace(now);
        if before.is_none_or(|before| now - before > FULL_FOR) {
            tracing::warn!(error = %fault, "Redis has no memory left: it takes no copies of answers and no new queued writes");
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
    let mut first = connection.upgrade().and_then(|this| this.first.clone());
    loop {
        if let Some(first) = &mut first {
            // Opened before the first one, it would be opened anew at once.
            let opened = first.wait_for(|opened| *opened > 0).await;
            if opened.is_err() {
                return;
            }
        }
        let Some(this) = connection.upgrade() else { return };
        let Some(opener) = &this.opener else { return };
        match opener.open(this.writes).await {
            Ok(wire) => {
                (number, pause) = (number + 1, PAUSE);
                *this.state.write() = State::Open(wire, number);
                this.opened.send_replace(number);
                let spoilt = Arc::clone(&this.spoilt);
                drop(this);
                tokio::select! {
                    () = spoilt.notified() => continue,
                    () = opened_anew(&mut first) => {}
                }
                let Some(this) = connection.upgrade() else { return };
                *this.state.write() = State::Away("it is opened anew".into());
            }
            Err(fault) => {
                let reason = fault.to_string();
                if let Examined::Unsuitable(_) = fault {
                    // Once: it stays as it is until an operator changes it.
                    let is_new = this.away().is_none_or(|before| before != reason);
                    if is_new && this.first.is_none() {
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

/// Waits until the first connection is opened anew, if there is one.
async fn opened_anew(first: &mut Option<watch::Receiver<u64>>) {
    let Some(first) = first else { return std::future::pending().await };
    if first.changed().await.is_err() {
        std::future::pending::<()>().await;
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
    /// `longest`: no command takes more time.
    fn new(settings: &config::Redis, longest: Duration) -> RedisResult<Self> {
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
                    .response_timeout(longest)
                    .retries(2);
                if let Some(file) = &settings.ca_file {
                    builder = builder.tls(TlsMode::Secure).certs(certificates(file));
                }
                Ok(Self::Cluster(Box::new(builder.build()?), clients))
            }
        }
    }

    /// Opens a connection to a usable server.
    async fn open(&self, writes: Option<Durability>) -> Result<Wire, Examined> {
        let opened = timeout(OPENED_WITHIN, self.connect()).await;
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

    async fn connect(&self) -> RedisResult<Wire> {
        // Each command has a time of its own.
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(OPENED_WITHIN))
            .set_response_timeout(None);
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
