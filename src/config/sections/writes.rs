//! `[writes]`: the queue of writes.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::input::reader::{Choice, Entry, Read, Reader};
use crate::config::input::scalars::{Size, duration_text, size_text};
use crate::config::printer::{Printer, inline, text};
use crate::config::sections::State;

/// The service recommends a second between mutations (SPECIFICATION, "Limits in practice").
const SPACING: Duration = Duration::from_secs(1);
/// More for writes that send notifications, which the upstream limits sooner (SPECIFICATION,
/// "Configuration").
const NOTIFY_SPACING: Duration = Duration::from_secs(3);
/// Default (SPECIFICATION, "Configuration").
const MAX_ATTEMPTS: NonZeroU32 = NonZeroU32::new(8).unwrap();
/// Default (SPECIFICATION, "Configuration").
const MAX_BODY: Size = Size::mib(10);
/// Two of the largest files that the service takes.
const UPLOAD_SPACE: Size = Size::mib(4 * 1024);
/// Default (SPECIFICATION, "Configuration").
const RETENTION: Duration = Duration::from_hours(24);
/// Default (SPECIFICATION, "Configuration").
const QUEUE_MAX: NonZeroU32 = NonZeroU32::new(10_000).unwrap();

/// The section `[writes]`.
#[derive(Clone, Debug)]
pub struct Writes {
    /// Store of queued writes.
    pub store: WriteStore,
    /// The promise that the Redis of queued writes must keep.
    pub durability: Durability,
    /// Least time between two writes of one account; zero lets them run side by side.
    pub spacing: Duration,
    /// The same for two writes that trigger notifications.
    pub notify_spacing: Duration,
    /// Most attempts of one write.
    pub max_attempts: NonZeroU32,
    /// Bytes of the largest held or queued body; larger ones go through a temporary file.
    pub max_body: u64,
    /// Bytes of all uploads in temporary files together.
    pub upload_space: u64,
    /// Time for which a finished write can be looked up.
    pub retention: Duration,
    /// Most queued writes.
    pub queue_max: NonZeroU32,
}

/// Store of queued writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteStore {
    /// Memory: writes are lost when the gateway stops.
    Memory,
    /// A database file of one gateway.
    File(PathBuf),
    /// The Redis of all replicas.
    Redis,
}

/// The promise of a Redis that keeps queued writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It has each accepted write on its disk.
    Always,
    /// It may lose some when it crashes.
    BestEffort,
}

impl Writes {
    /// Reads the section. The Redis of queued writes is that of `state`.
    pub(crate) fn read(reader: &mut Reader<'_>, state: Option<&mut State>) -> Option<Self> {
        let store = reader.or("store", WriteStore::Memory);
        let durability = reader.or("durability", Durability::Always);
        if store == WriteStore::Redis
            && let Some(state) = state
        {
            let Some(redis) = &mut state.redis else {
                if reader.lacks_files() {
                    return None;
                }
                let accepted = "[state] redis beside it, or another store";
                return reader.refuse("store", "there is no Redis for it", accepted);
            };
            redis.writes = Some(durability);
        }
        Some(Self {
            store,
            durability,
            spacing: reader.or("spacing", SPACING),
            notify_spacing: reader.or("notify_spacing", NOTIFY_SPACING),
            max_attempts: reader.or("max_attempts", MAX_ATTEMPTS),
            max_body: reader.positive("max_body", MAX_BODY).0,
            upload_space: reader.positive("upload_space", UPLOAD_SPACE).0,
            retention: reader.positive("retention", RETENTION),
            queue_max: reader.or("queue_max", QUEUE_MAX),
        })
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        printer.section("writes");
        let store = match &self.store {
            WriteStore::Memory => text("memory"),
            WriteStore::File(path) => inline(&[("path", text(path.display()))]),
            WriteStore::Redis => text("redis"),
        };
        printer.set("store", store);
        if self.store == WriteStore::Redis {
            printer.set("durability", text(self.durability.name()));
        }
        printer.set("spacing", text(duration_text(self.spacing)));
        printer.set("notify_spacing", text(duration_text(self.notify_spacing)));
        printer.set("max_attempts", self.max_attempts);
        printer.set("max_body", text(size_text(self.max_body)));
        printer.set("upload_space", text(size_text(self.upload_space)));
        printer.set("retention", text(duration_text(self.retention)));
        printer.set("queue_max", self.queue_max);
    }
}

impl Read for WriteStore {
    fn accepted() -> String {
        "\"memory\", \"redis\" or { path = \"weir.redb\" }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        if entry.value.is_table() {
            return entry.table(|reader| reader.required("path").map(Self::File));
        }
        match entry.text::<Self>()? {
            "memory" => Some(Self::Memory),
            "redis" => Some(Self::Redis),
            // Not quoted: a Redis address with its password is a likely mistake.
            _ => entry.refuse("unknown value", Self::accepted()),
        }
    }
}

impl Choice for Durability {
    const ALL: &'static [(&'static str, Self)] =
        &[("always", Self::Always), ("best-effort", Self::BestEffort)];
}
