//! Checks of a Redis at each new connection: what it must be to keep shared state.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, InfoDict, RedisResult, Role, cmd};

use crate::config::Durability;
use crate::state::Away;

/// The oldest version with everything that is used here.
const OLDEST: (u16, u16) = (6, 2);

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

/// A server that cannot keep shared state, with the reason and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// Its version is too old.
    #[error("the server has version {0}, but 6.2 is the oldest that will do")]
    Old(String),
    /// It removes keys when its memory is full.
    #[error(
        "maxmemory-policy is \"{0}\", which removes shared state when memory runs out: set \"noeviction\" or \"volatile-lru\""
    )]
    Evicting(String),
    /// It removes keys with a lifetime when its memory is full, as queued writes have them.
    #[error(
        "maxmemory-policy is \"{0}\", which removes leases of queued writes when memory runs out: writes.store = \"redis\" needs \"noeviction\""
    )]
    EvictingWrites(String),
    /// It may lose queued writes when it crashes, or does not say whether it may.
    #[error(
        "{0}: writes.store = \"redis\" needs appendonly yes and appendfsync always, unless writes.durability is \"best-effort\""
    )]
    Forgetful(String),
    /// Its user may not change what the replicas share.
    #[error(
        "the user may not change keys by scripts ({fault}): its rights must have ~{prefix}:* for keys and the commands that the specification names"
    )]
    Forbidden {
        /// The beginning of all keys and channels.
        prefix: String,
        /// The server's words.
        fault: String,
    },
    /// Its user may not use the messages of replicas.
    #[error(
        "the user may not use the channel of messages {channel} ({fault}): its rights must have ~{prefix}:* for keys and &{prefix}:* for channels"
    )]
    Muted {
        /// The channel.
        channel: String,
        /// The beginning of all keys and channels.
        prefix: String,
        /// The server's words.
        fault: String,
    },
}

/// A script that needs the right to change a key, and a server that takes changes. It changes
/// nothing, and needs no memory.
const CHANGE_NOTHING: &str = "redis.call('PERSIST', KEYS[1]) return 1";

/// The command for it.
pub(super) fn change_nothing(prefix: &str) -> Cmd {
    cmd("EVAL").arg(CHANGE_NOTHING).arg(1).arg(format!("{prefix}:check")).to_owned()
}

/// Checks the version, the role and the memory policy. With queued writes it checks the log on disk
/// too. A node of a cluster may have any role, because the others have the rest.
pub(super) async fn check(
    mut node: MultiplexedConnection,
    writes: Option<Durability>,
    is_in_cluster: bool,
) -> Result<(), Examined> {
    let info: InfoDict = cmd("INFO").arg("server").query_async(&mut node).await.map_err(away)?;
    // Valkey says here which version of Redis it is compatible with.
    let version: String = info.get("redis_version").unwrap_or_default();
    if parsed(&version).is_some_and(|version| version < OLDEST) {
        return Err(Unsuitable::Old(version).into());
    }
    let role: RedisResult<Role> = cmd("ROLE").query_async(&mut node).await;
    if matches!(role, Ok(Role::Replica { .. })) && !is_in_cluster {
        return Err(Away("the server is a read-only replica of another".to_owned()).into());
    }
    // An ACL user may lack the right to ask for settings, as with hosted servers.
    let policy = match setting(&mut node, "maxmemory-policy").await? {
        Some(policy) => policy,
        None => reported_policy(&mut node).await.map_err(away)?,
    };
    if policy.starts_with("allkeys-") {
        return Err(Unsuitable::Evicting(policy).into());
    }
    if writes.is_some() && policy.starts_with("volatile-") {
        return Err(Unsuitable::EvictingWrites(policy).into());
    }
    let wanted = [("appendonly", "yes"), ("appendfsync", "always")];
    for (name, wanted) in wanted.into_iter().filter(|_| writes == Some(Durability::Always)) {
        let fault = match setting(&mut node, name).await? {
            Some(value) if value == wanted => continue,
            Some(value) => format!("{name} is \"{value}\""),
            None => format!("the server does not say what {name} is"),
        };
        return Err(Unsuitable::Forgetful(fault).into());
    }
    Ok(())
}

/// Asks for a setting; `None`: the server does not say.
async fn setting(node: &mut MultiplexedConnection, name: &str) -> Result<Option<String>, Examined> {
    let asked: RedisResult<Vec<String>> =
        cmd("CONFIG").arg("GET").arg(name).query_async(node).await;
    match asked {
        Ok(answer) => Ok(answer.into_iter().nth(1)),
        Err(fault) if fault.is_io_error() => Err(away(fault).into()),
        Err(_) => Ok(None),
    }
}

/// The memory policy by the server's figures, which more users may read.
async fn reported_policy(node: &mut MultiplexedConnection) -> RedisResult<String> {
    let memory: InfoDict = cmd("INFO").arg("memory").query_async(node).await?;
    Ok(memory.get("maxmemory_policy").unwrap_or_default())
}

fn parsed(version: &str) -> Option<(u16, u16)> {
    let mut numbers = version.split('.').map(str::parse::<u16>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn away(fault: redis::RedisError) -> Away {
    Away(fault.to_string())
}
