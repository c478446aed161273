//! `[state]`: state shared by replicas.

use std::num::NonZeroU32;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::config::input::reader::{Entry, Read, Reader};
use crate::config::input::scalars::duration_text;
use crate::config::printer::{Printer, inline, redacted, text};

/// Default (SPECIFICATION, "Configuration").
const OP_TIMEOUT: Duration = Duration::from_millis(50);
/// Default (SPECIFICATION, "Configuration").
pub(crate) const REPLICAS_MAX: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// The section `[state]`.
#[derive(Clone, Debug)]
pub struct State {
    /// Redis with the quota ledger; `None`: each gateway keeps its own.
    pub redis: Option<Redis>,
    /// Most replicas at once; sizes the local share while Redis is unreachable.
    pub replicas_max: NonZeroU32,
}

/// The Redis of `[state]`.
#[derive(Clone, Debug)]
pub struct Redis {
    /// Address; secret, because it may hold a password.
    pub url: SecretString,
    /// Timeout of one operation.
    pub op_timeout: Duration,
}

impl PartialEq for Redis {
    fn eq(&self, other: &Self) -> bool {
        self.url.expose_secret() == other.url.expose_secret() && self.op_timeout == other.op_timeout
    }
}

impl State {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let redis = reader.if_set("redis", Redis::read);
        let replicas_max = reader.or("replicas_max", REPLICAS_MAX);
        // A faulty Redis does not count as none, which would add a misleading fault elsewhere.
        Some(Self { redis: redis?, replicas_max })
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("state");
        let redis = |redis: &Redis| {
            let op_timeout = text(duration_text(redis.op_timeout));
            inline(&[("url", redacted()), ("op_timeout", op_timeout)])
        };
        printer.set_some("redis", self.redis.as_ref().map(redis));
        printer.set("replicas_max", self.replicas_max);
    }
}

impl Read for Redis {
    fn accepted() -> String {
        "{ url = \"redis://127.0.0.1:6379\", op_timeout = \"50ms\" }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.table(|reader| {
            let url = reader.required::<RedisUrl>("url").map(|url| url.0);
            let op_timeout = reader.positive("op_timeout", OP_TIMEOUT);
            Some(Self { url: url?, op_timeout })
        })
    }
}

/// Address of a Redis. Never quoted, because it may hold a password.
struct RedisUrl(SecretString);

impl Read for RedisUrl {
    fn accepted() -> String {
        "an address such as \"redis://127.0.0.1:6379\", or rediss:// for TLS".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let written = entry.text::<Self>()?;
        let rest = written.strip_prefix("redis://").or_else(|| written.strip_prefix("rediss://"));
        if rest.is_some_and(|rest| !rest.is_empty())
            && written.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Some(Self(written.into()));
        }
        entry.refuse("bad address", Self::accepted())
    }
}
