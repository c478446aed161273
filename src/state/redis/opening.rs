//! Opens connections to usable servers: one node, the primary that Sentinels name, a cluster.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::select_ok;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode,
    cmd,
};
use secrecy::ExposeSecret;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{sleep, timeout};

use super::check::{self, Examined, Unsuitable};
use super::fault::{away, is_forbidden};
use super::listening;
use crate::clock::Timestamp;
use crate::config::{self, CaFile, Durability, RedisUrl, Topology};
use crate::state::Away;

/// The longest wait for a connection with its greeting. Ours: TLS takes some round trips more than
/// an operation.
pub(super) const OPENED_WITHIN: Duration = Duration::from_secs(1);
/// The distance of questions to the Sentinels for the primary. Ours: it is left before the parts of
/// limits end that it keeps (`decision::fleet::HELD_FOR`).
const LOOKED_UP_EVERY: Duration = Duration::from_secs(3);

/// The longest wait for the answers of Sentinels, if there is one. Ours: half of the time for a
/// connection.
const ASKED_FOR: Duration = Duration::from_millis(500);

/// An open connection. Cheap to clone.
#[derive(Clone)]
pub(super) enum Wire {
    /// To one node.
    Node(MultiplexedConnection),
    /// To all nodes of a cluster.
    Cluster(ClusterConnection),
}

/// Opens connections to usable servers.
pub(super) struct Opener {
    way: Way,
    writes: Option<Durability>,
    prefix: Arc<str>,
}

/// The way to a server.
enum Way {
    Node(Box<Client>),
    /// By what most Sentinels say.
    Sentinels(Vec<AsyncMutex<SentinelClient>>),
    /// A cluster, with its nodes one by one for messages.
    Cluster(Box<ClusterClient>, Vec<Client>),
}

/// A connection that was just opened.
pub(super) struct Opened {
    pub wire: Wire,
    /// The primary that the Sentinels have named.
    pub primary: Option<String>,
}

impl Wire {
    pub async fn run<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Node(node) => command.query_async(node).await,
            Self::Cluster(cluster) => command.query_async(cluster).await,
        }
    }
}

impl Opener {
    /// `longest`: no command takes more time.
    pub fn new(settings: &config::Redis, longest: Duration) -> RedisResult<Self> {
        let nodes = || settings.urls.iter().map(|url| (url, url.port()));
        let way = match &settings.topology {
            Topology::Single => {
                let (url, port) = (&settings.urls[0], settings.urls[0].port());
                Way::Node(Box::new(client(settings, url, port)?))
            }
            Topology::Sentinel(primary) => {
                let addresses = settings.urls.iter().map(|url| address(url, url.sentinel_port()));
                let sentinels = addresses.map(|address| sentinel(settings, primary, address));
                let sentinels = sentinels.map(|client| client.map(AsyncMutex::new));
                Way::Sentinels(sentinels.collect::<RedisResult<_>>()?)
            }
            Topology::Cluster => {
                let clients = nodes().map(|(url, port)| client(settings, url, port));
                let clients = clients.collect::<RedisResult<Vec<_>>>()?;
                let infos = clients.iter().map(|client| client.get_connection_info().clone());
                // The others serve while one node does not answer.
                let mut builder = ClusterClient::builder(infos)
                    .connection_timeout(OPENED_WITHIN / 4)
                    .response_timeout(longest)
                    .retries(2);
                if let Some(file) = &settings.ca_file {
                    builder = builder.tls(TlsMode::Secure).certs(certificates(file));
                }
                Way::Cluster(Box::new(builder.build()?), clients)
            }
        };
        Ok(Self { way, writes: settings.writes, prefix: Arc::clone(&settings.prefix) })
    }

    /// Opens a connection to a usable server.
    pub async fn open(&self) -> Result<Opened, Examined> {
        let opened = timeout(OPENED_WITHIN, self.connect()).await;
        let Ok(opened) = opened else {
            return Err(Away("no connection within a second".to_owned()).into());
        };
        let opened = opened.map_err(|fault| away(&fault))?;
        let checked = timeout(OPENED_WITHIN, self.check(&opened.wire)).await;
        checked.map_err(|_| Away("no answer within a second".to_owned()))??;
        Ok(opened)
    }

    async fn check(&self, wire: &Wire) -> Result<(), Examined> {
        let is_in_cluster = matches!(wire, Wire::Cluster(_));
        check::check(self.one_node(wire).await?, self.writes, is_in_cluster).await?;
        let command = check::change_nothing(&self.prefix);
        let changed: RedisResult<u8> = wire.clone().run(&command).await;
        match changed {
            Ok(_) => Ok(()),
            Err(fault) if is_forbidden(&fault) => {
                let (prefix, fault) = (self.prefix.to_string(), fault.to_string());
                Err(Unsuitable::Forbidden { prefix, fault }.into())
            }
            // Its other nodes may take changes.
            Err(_) if is_in_cluster => Ok(()),
            Err(fault) => Err(away(&fault).into()),
        }
    }

    pub async fn time(&self, wire: &Wire) -> Result<Timestamp, Examined> {
        let mut node = self.one_node(wire).await?;
        let time: RedisResult<(u64, u64)> = cmd("TIME").query_async(&mut node).await;
        let (seconds, micros) = time.map_err(|fault| away(&fault))?;
        Ok(Timestamp::from_millis(seconds * 1000 + micros / 1000))
    }

    /// A node that stands for all, because they are set up alike.
    async fn one_node(&self, wire: &Wire) -> Result<MultiplexedConnection, Away> {
        match (wire, &self.way) {
            (Wire::Node(node), _) => Ok(node.clone()),
            (Wire::Cluster(_), Way::Cluster(_, nodes)) => {
                let opened = nodes.iter().map(Client::get_multiplexed_async_connection);
                first_of(opened).await.map_err(|fault| away(&fault))
            }
            (Wire::Cluster(_), _) => Err(away(&no_node())),
        }
    }

    /// Checks that the user may listen and send. Nobody hears the message, which has a channel of
    /// its own.
    pub async fn check_messages(&self, mut wire: Wire) -> Result<(), Examined> {
        let prefix = &self.prefix;
        let channel = listening::channel(prefix);
        let mut messages = self.open_for_messages().await.map_err(|fault| away(&fault))?;
        let heard = messages.subscribe(&channel).await;
        let publish = cmd("PUBLISH").arg(format!("{prefix}:check")).arg("").to_owned();
        let sent: RedisResult<u64> = wire.run(&publish).await;
        match heard.and(sent) {
            Ok(_) => Ok(()),
            Err(fault) if is_forbidden(&fault) => {
                let (prefix, fault) = (prefix.to_string(), fault.to_string());
                Err(Unsuitable::Muted { channel, prefix, fault }.into())
            }
            Err(fault) => Err(away(&fault).into()),
        }
    }

    async fn connect(&self) -> RedisResult<Opened> {
        // Each command has a time of its own.
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(OPENED_WITHIN))
            .set_response_timeout(None);
        let (client, primary) = match &self.way {
            Way::Node(client) => (Client::clone(client), None),
            Way::Sentinels(sentinels) => {
                let client = find_primary(sentinels).await?.0;
                let primary = client.get_connection_info().addr().to_string();
                (client, Some(primary))
            }
            Way::Cluster(client, _) => {
                let wire = Wire::Cluster(client.get_async_connection().await?);
                return Ok(Opened { wire, primary: None });
            }
        };
        let node = client.get_multiplexed_async_connection_with_config(&options).await?;
        Ok(Opened { wire: Wire::Node(node), primary })
    }

    /// Waits until the Sentinels name another primary than this one. The old one may go on to
    /// answer where only they have lost it.
    pub async fn has_moved(&self, primary: Option<String>) {
        let (Way::Sentinels(sentinels), Some(primary)) = (&self.way, primary) else {
            return std::future::pending().await;
        };
        loop {
            sleep(LOOKED_UP_EVERY).await;
            let found = timeout(OPENED_WITHIN, find_primary(sentinels)).await;
            if let Ok(Ok((client, true))) = found
                && client.get_connection_info().addr().to_string() != primary
            {
                return;
            }
        }
    }

    pub async fn open_for_messages(&self) -> RedisResult<PubSub> {
        match &self.way {
            Way::Node(client) => client.get_async_pubsub().await,
            Way::Sentinels(sentinels) => find_primary(sentinels).await?.0.get_async_pubsub().await,
            // Any node has the messages of all.
            Way::Cluster(_, nodes) => first_of(nodes.iter().map(Client::get_async_pubsub)).await,
        }
    }
}

/// Asks all Sentinels at once, because one that is lost may take long to say nothing. Takes the
/// primary that most of them name: a split may leave one with an old primary. True: they are most
/// of those that may still answer.
async fn find_primary(sentinels: &[AsyncMutex<SentinelClient>]) -> RedisResult<(Client, bool)> {
    let asked = sentinels.iter().map(|sentinel| async {
        let mut sentinel = sentinel.lock().await;
        sentinel.async_get_client().await
    });
    let mut answers: FuturesUnordered<_> = asked.collect();
    let (mut named, mut voters) = (Vec::<(Client, usize)>::new(), sentinels.len());
    let mut fault = no_node();
    let ended = sleep(ASKED_FOR);
    let mut ended = std::pin::pin!(ended);
    loop {
        let answer = tokio::select! {
            answer = answers.next() => answer,
            () = &mut ended, if !named.is_empty() => None,
        };
        match answer {
            Some(Ok(client)) => {
                let address = |client: &Client| client.get_connection_info().addr().to_string();
                let known = named.iter_mut().find(|(known, _)| address(known) == address(&client));
                match known {
                    Some((_, count)) => *count += 1,
                    None => named.push((client, 1)),
                }
            }
            Some(Err(why)) => (fault, voters) = (why, voters - 1),
            None => break,
        }
        if let Some(place) = named.iter().position(|(_, count)| 2 * count > voters) {
            return Ok((named.swap_remove(place).0, true));
        }
    }
    // The first of those that as many have named.
    named.reverse();
    let most = named.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(client, _)| (client, false)).ok_or(fault)
}

/// The first success of several attempts at once.
async fn first_of<T>(
    attempts: impl Iterator<Item = impl Future<Output = RedisResult<T>>>,
) -> RedisResult<T> {
    let attempts: Vec<_> = attempts.map(Box::pin).collect();
    if attempts.is_empty() {
        return Err(no_node());
    }
    select_ok(attempts).await.map(|(first, _)| first)
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
    address: ConnectionAddr,
) -> RedisResult<SentinelClient> {
    let url = &settings.urls[0];
    let mut builder =
        SentinelClientBuilder::new(vec![address], primary, SentinelServerType::Master)?
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
