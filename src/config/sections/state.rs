//! `[state]`: what several replicas of the gateway share, and the Redis that has it.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;

use super::tls::CaFile;
use crate::config::input::http_url::host_and_port;
use crate::config::input::reader::{Entry, Read, Reader};
use crate::config::input::scalars::duration_text;
use crate::config::input::secret::{KeyText, Secret};
use crate::config::printer::{Printer, inline, list, text};
use crate::config::sections::Durability;

/// Port of a Redis without one in its address.
const REDIS_PORT: u16 = 6379;
/// Port of a Sentinel without one in its address.
const SENTINEL_PORT: u16 = 26379;
/// Default. A Redis of the same network answers within a millisecond.
const OP_TIMEOUT: Duration = Duration::from_millis(50);
/// Default of the prefix of keys and channels.
const PREFIX: &str = "weir";
/// Keys of the user of the Sentinels.
const SENTINEL_USER: [&str; 2] = ["sentinel_username", "sentinel_password"];
/// Default, for a small deployment.
const REPLICAS_MAX: NonZeroU32 = NonZeroU32::new(3).unwrap();
/// More replicas would have parts of single units.
const REPLICAS_MOST: u32 = 100;

/// The section `[state]`.
#[derive(Clone, Debug)]
pub struct State {
    /// The Redis that the replicas share; `None`: the gateway is alone.
    pub redis: Option<Redis>,
    /// Key that makes stored answers and writes unreadable in Redis.
    pub encrypt_key: Option<Secret>,
    /// Previous key, which still opens what it has sealed.
    pub previous_encrypt_key: Option<Secret>,
    /// Most replicas at a time.
    pub replicas_max: NonZeroU32,
}

/// A Redis, or a server with its protocol.
#[derive(Clone, Debug)]
pub struct Redis {
    /// Addresses of its nodes, or of its Sentinels; never empty.
    pub urls: Vec<RedisUrl>,
    /// The arrangement of its nodes.
    pub topology: Topology,
    /// Name of the ACL user; `None`: the default user.
    pub username: Option<String>,
    /// Password of the user.
    pub password: Option<Secret>,
    /// Name of the ACL user of the Sentinels; `None`: their default user.
    pub sentinel_username: Option<String>,
    /// Password of the Sentinels.
    pub sentinel_password: Option<Secret>,
    /// Certificate authorities to trust with `rediss`, instead of the system's.
    pub ca_file: Option<CaFile>,
    /// The time that one operation may take.
    pub op_timeout: Duration,
    /// The beginning of all keys and channels.
    pub prefix: Arc<str>,
    /// The promise that it must keep of queued writes; `None`: it has none (`writes.store`).
    pub writes: Option<Durability>,
}

/// The arrangement of the nodes of a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One node.
    Single,
    /// A primary of this name, which Sentinels know.
    Sentinel(String),
    /// A cluster.
    Cluster,
}

/// An address such as `redis://redis.internal:6379/2`; `rediss` for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// True for `rediss`.
    pub is_tls: bool,
    /// A name in lower case, or an IP address without brackets.
    pub host: String,
    /// The port; `None`: that of the kind of server.
    port: Option<u16>,
    /// Number of the database.
    pub database: u16,
}

impl RedisUrl {
    /// The port, by default that of a Redis.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(REDIS_PORT)
    }

    /// The port, by default that of a Sentinel.
    pub fn sentinel_port(&self) -> u16 {
        self.port.unwrap_or(SENTINEL_PORT)
    }

    fn parse(written: &str) -> Result<Self, &'static str> {
        if written.contains(['#', '?']) {
            return Err("it has a query or a fragment");
        }
        let uri: Uri = written.parse().map_err(|_| "it cannot be read as one")?;
        let is_tls = match uri.scheme_str() {
            Some("redis") => false,
            Some("rediss") => true,
            _ => return Err("its scheme is neither redis nor rediss"),
        };
        let (host, port) = host_and_port(&uri)?;
        let database = match uri.path().trim_start_matches('/') {
            "" => 0,
            number => number.parse().map_err(|_| "its path is no number of a database")?,
        };
        Ok(Self { is_tls, host, port, database })
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_tls { "rediss://" } else { "redis://" })?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if self.database > 0 { write!(f, "/{}", self.database) } else { Ok(()) }
    }
}

/// Faults do not quote the address, because it may hold a password.
impl Read for RedisUrl {
    fn accepted() -> String {
        "an address such as \"redis://redis.internal:6379\" or \"rediss://redis.internal:6379/2\""
            .to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let written = entry.text::<Self>()?;
        Self::parse(written)
            .or_else(|problem| {
                let problem = format!("bad address of a Redis: {problem}");
                entry.refuse(problem, Self::accepted()).ok_or(())
            })
            .ok()
    }
}

/// Equal as they are written; a password may have changed at its place.
impl PartialEq for Redis {
    fn eq(&self, other: &Self) -> bool {
        self.printed() == other.printed()
    }
}

impl State {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let redis = reader.optional::<Redis>("redis");
        // A faulty one is no absent one.
        let is_faulty = redis.is_none() && reader.is_set("redis");
        let replicas_max = reader.or("replicas_max", REPLICAS_MAX);
        if replicas_max.get() > REPLICAS_MOST {
            let accepted = format!("1 to {REPLICAS_MOST}");
            return reader.refuse("replicas_max", "out of bounds", accepted);
        }
        let encrypt_key = reader.optional::<KeyText>("encrypt_key").map(|KeyText(key)| key);
        let previous = reader.optional::<KeyText>("previous_encrypt_key").map(|KeyText(key)| key);
        if !reader.is_set("encrypt_key") && reader.is_set("previous_encrypt_key") {
            let accepted = "both, or encrypt_key alone";
            return reader.refuse("previous_encrypt_key", "without encrypt_key", accepted);
        }
        (!is_faulty).then_some(Self {
            redis,
            encrypt_key,
            previous_encrypt_key: previous,
            replicas_max,
        })
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        let Some(redis) = &self.redis else { return };
        printer.section("state");
        printer.set("redis", redis.printed());
        printer.set_some("encrypt_key", self.encrypt_key.as_ref().map(Secret::printed));
        let previous = self.previous_encrypt_key.as_ref();
        printer.set_some("previous_encrypt_key", previous.map(Secret::printed));
        printer.set("replicas_max", self.replicas_max);
    }
}

impl Read for Redis {
    fn accepted() -> String {
        "an address such as \"redis://redis.internal:6379\", or { url = \"rediss://…\", … }"
            .to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        if !entry.value.is_table() {
            return entry.text::<Self>().and_then(|_| RedisUrl::read(entry)).map(Self::at);
        }
        entry.table(|reader| {
            let urls = reader.entry("url").map_or_else(
                || reader.refuse("url", "missing", RedisUrl::accepted()),
                |entry| {
                    if entry.value.is_array() {
                        Vec::read(&entry)
                    } else {
                        RedisUrl::read(&entry).map(|url| vec![url])
                    }
                },
            );
            let sentinel = reader.optional::<Arc<str>>("sentinel");
            let is_cluster = reader.or("cluster", false);
            let (username, password) = user(reader, ["username", "password"])?;
            let sentinel_user = user(reader, SENTINEL_USER)?;
            let set = SENTINEL_USER.into_iter().find(|key| reader.is_set(key));
            if let Some(key) = set.filter(|_| sentinel.is_none()) {
                return reader.refuse(key, "without sentinel", "sentinel = \"NAME\" beside it");
            }
            let (sentinel_username, sentinel_password) = sentinel_user;
            let ca_file = reader.optional("ca_file");
            let op_timeout = reader.positive("op_timeout", OP_TIMEOUT);
            let prefix = reader.or::<Arc<str>>("prefix", PREFIX.into());
            let topology = match (sentinel, is_cluster) {
                (Some(_), true) => {
                    let accepted = "sentinel or cluster";
                    return reader.refuse("cluster", "beside sentinel", accepted);
                }
                (Some(primary), false) => Topology::Sentinel(primary.to_string()),
                (None, true) => Topology::Cluster,
                (None, false) => Topology::Single,
            };
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
            if prefix.is_empty() || !prefix.bytes().all(is_plain) {
                let accepted = "letters, digits and -_.: only";
                return reader.refuse("prefix", "unusable as the beginning of keys", accepted);
            }
            let urls = urls?;
            Self::check(reader, &urls, &topology, ca_file.is_some())?;
            Some(Self {
                urls,
                topology,
                username,
                password,
                sentinel_username,
                sentinel_password,
                ca_file,
                op_timeout,
                prefix,
                writes: None,
            })
        })
    }
}

/// Reads a name with its password. A password alone is that of the default user.
fn user(
    reader: &mut Reader<'_>,
    [name, password]: [&'static str; 2],
) -> Option<(Option<String>, Option<Secret>)> {
    let username = reader.optional::<Arc<str>>(name).map(|name| name.to_string());
    let secret = reader.optional(password);
    if username.is_some() && !reader.is_set(password) {
        return reader.refuse(name, "without password", format!("both, or {password} alone"));
    }
    Some((username, secret))
}

impl Redis {
    fn check(
        reader: &Reader<'_>,
        urls: &[RedisUrl],
        topology: &Topology,
        has_ca_file: bool,
    ) -> Option<()> {
        let Some(first) = urls.first() else {
            return reader.refuse("url", "no address", "at least one");
        };
        let is_single = *topology == Topology::Single;
        if is_single && urls.len() > 1 {
            let accepted = "one address, or several with cluster = true or sentinel = \"NAME\"";
            return reader.refuse("url", "several addresses of one node", accepted);
        }
        if urls.iter().any(|url| url.is_tls != first.is_tls || url.database != first.database) {
            let accepted = "the same scheme and database in all";
            return reader.refuse("url", "addresses of different kinds", accepted);
        }
        if *topology == Topology::Cluster && first.database > 0 {
            return reader.refuse("url", "a cluster has one database", "no number of a database");
        }
        if has_ca_file && !first.is_tls {
            return reader.refuse("ca_file", "without TLS", "ca_file beside a rediss address");
        }
        Some(())
    }

    /// One node with all defaults.
    fn at(url: RedisUrl) -> Self {
        Self {
            urls: vec![url],
            topology: Topology::Single,
            username: None,
            password: None,
            sentinel_username: None,
            sentinel_password: None,
            ca_file: None,
            op_timeout: OP_TIMEOUT,
            prefix: PREFIX.into(),
            writes: None,
        }
    }

    fn printed(&self) -> String {
        let urls = match self.urls.as_slice() {
            [url] => text(url),
            urls => list(urls.iter().map(text)),
        };
        let mut fields = vec![("url", urls)];
        match &self.topology {
            Topology::Single => {}
            Topology::Sentinel(primary) => fields.push(("sentinel", text(primary))),
            Topology::Cluster => fields.push(("cluster", true.to_string())),
        }
        for (key, name) in
            [("username", &self.username), ("sentinel_username", &self.sentinel_username)]
        {
            fields.extend(name.as_ref().map(|name| (key, text(name))));
        }
        for (key, password) in
            [("password", &self.password), ("sentinel_password", &self.sentinel_password)]
        {
            fields.extend(password.as_ref().map(|password| (key, password.printed())));
        }
        if let Some(ca_file) = &self.ca_file {
            fields.push(("ca_file", text(ca_file.path().display())));
        }
        fields.push(("op_timeout", text(duration_text(self.op_timeout))));
        fields.push(("prefix", text(&self.prefix)));
        inline(&fields)
    }
}
