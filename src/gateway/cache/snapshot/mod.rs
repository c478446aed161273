//! Snapshots: what is stored and what is known of the budgets, in a file that outlasts the process
//! (SPECIFICATION D24).
//!
//! A snapshot is written beside the one before and replaces it at once. A file that is damaged, of
//! something else or of another version is neither used nor replaced. An answer that returns is
//! never served without a confirmation. Answers to queries, parts, errors, answers of clients' own
//! credentials, and what nothing can revalidate are left out. The copies that replicas share have
//! the same form (`far`).

mod answers;
pub mod far;
mod file;
mod names;

use std::fs::OpenOptions;
use std::io;
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Timestamp};
use crate::decision::SavedLedger;
use crate::decision::cache::key::Scope;
use crate::decision::cache::settling::{SECOND_RECHECK, Trust};
use crate::decision::{AccountId, Recovered};

use crate::gateway::address::path_of;
use crate::gateway::cache::invalidation::snapshot_mark::{Level, SnapshotMark};
use crate::gateway::cache::queries::is_query;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::cache::store::{Entry, Store};
use crate::gateway::random;

use answers::{Known, Restored};
use file::{FRAME_BYTES, Kind, SnapshotReader, SnapshotWriter};
use names::Names;

pub use file::{Identity, Unusable, obstacle};

/// The reason why no snapshot can be written in the folder of this path, if there is one.
pub fn folder_problem(path: &Path) -> Option<io::Error> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // An anonymous file, gone at once.
    tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).err()
}

/// The path of uploads in a key, whose changes have another path.
const UPLOADS: &str = "/api/uploads/";

/// The description of a file by itself. Names are those of [`Names`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    written_at: u64,
    salt: [u8; 32],
    upstream: String,
    scopes: Vec<String>,
    tokens: Vec<String>,
    /// The routes of the rules of the config, in their order.
    rules: Vec<String>,
    /// The latest change that invalidated anything.
    changed_at: Option<u64>,
    /// The upstream's number of the owner of accounts, by the numbers of their scopes.
    owners: Vec<(u32, u64)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    answers: u64,
}

/// The content of a snapshot that was written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    pub answers: u64,
    /// Of the file.
    pub bytes: u64,
    /// Stored answers that are not in it.
    pub left_out: u64,
}

/// The content of a snapshot that was read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    pub written_at: Timestamp,
    pub answers: u64,
    /// Of their bodies.
    pub body_bytes: u64,
    /// Answers of a view that the config lacks, or without a validator that the config can use.
    pub of_other_views: u64,
    /// Answers beyond `cache.max_size`.
    pub without_room: u64,
    /// Answers that were purged after the file was written.
    pub void: u64,
    /// True if the process before stopped in order.
    pub is_last: bool,
}

impl ReadCache {
    /// The path of the snapshot, and the time between two; `None` without the setting.
    pub fn snapshot_settings(&self) -> Option<(&Path, Duration)> {
        let cache = &self.env.config.cache;
        Some((cache.snapshot.as_deref()?, cache.snapshot_interval))
    }

    /// The clock of the intervals, and the mark of the snapshot.
    pub fn snapshot_sources(&self) -> (Clock, Arc<SnapshotMark>) {
        (self.env.clock.clone(), Arc::clone(&self.store.log.mark))
    }

    /// Shows the time of the latest snapshot to operators.
    pub fn snapshot_is_of(&self, time: Timestamp) {
        self.env.metrics.set_snapshot_time(time.as_secs());
    }

    pub fn is_draining(&self) -> bool {
        self.env.is_draining()
    }

    /// Writes a snapshot to `path`. `least` is its mark as long as nothing changes.
    pub fn write_snapshot(&self, path: &Path, least: Level) -> io::Result<Written> {
        let mut writer = SnapshotWriter::begin(path, least)?;
        let mark = &self.store.log.mark;
        mark.begin();
        match self.write_frames(&mut writer) {
            Ok(mut written) => {
                written.bytes = writer.finish(path, mark, least)?;
                Ok(written)
            }
            Err(error) => {
                writer.abandon();
                Err(error)
            }
        }
    }

    /// Writes what a successor begins with: answers, and the budgets as they are now.
    pub fn write_handover(&self, path: &Path) -> io::Result<Written> {
        let mut writer = SnapshotWriter::begin(path, Level::Unchanged)?;
        let mark = &self.store.log.mark;
        mark.begin_handover();
        match self.write_frames(&mut writer) {
            Ok(mut written) => {
                written.bytes = writer.finish_once(path, mark.level())?;
                Ok(written)
            }
            Err(error) => {
                writer.abandon();
                Err(error)
            }
        }
    }

    /// Reads the snapshot of a predecessor that still lives, and removes it.
    pub fn read_handover(&self, path: &Path) -> Result<Option<Read>, Unusable> {
        let read = self.read_from(path, true);
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(path = %path.display(), %error, "the snapshot of a predecessor stays");
        }
        read
    }

    /// True if answers were invalidated since the latest snapshot, or handover,.
    pub fn has_changed(&self) -> bool {
        self.store.log.mark.level() > Level::Unchanged
    }

    /// Makes every stored answer be confirmed before it is served.
    pub fn confirm_all(&self) {
        self.store.log.changed_below("/", self.env.clock.now());
    }

    fn write_frames(&self, writer: &mut SnapshotWriter) -> io::Result<Written> {
        let mut written = Written::default();
        let salt = random::secret();
        let config = &self.env.config;
        let names = Names::of(config, self.dispatcher.tokens(), self.env.mode, &salt);
        let scopes = names.scope_numbers();
        let tokens = names.token_numbers();
        let log = &self.store.log;
        let number_of = |id: &AccountId| scopes.get(&Scope::Account(id.0)).copied();
        let owners = self.owners.lock().clone().into_iter();
        let owners = owners.filter_map(|(id, owner)| Some((number_of(&id)?, owner))).collect();
        let head = Head {
            written_at: self.env.clock.now().as_millis(),
            salt,
            upstream: names.upstream,
            scopes: names.scopes.into_iter().map(|(_, name)| name).collect(),
            tokens: names.tokens.into_iter().map(|(_, name)| name).collect(),
            rules: config.cache.rules.iter().map(|rule| rule.route.to_string()).collect(),
            changed_at: log.latest().map(Timestamp::as_millis),
            owners,
        };
        writer.frame(Kind::Head, &serde_json::to_vec(&head)?)?;
        let mut plain = Vec::with_capacity(FRAME_BYTES);
        let mut in_frame = 0;
        for (key, entry) in self.store.entries() {
            let scope = |scope| scopes.get(&scope).copied();
            let token = |token| tokens.get(&token).copied();
            let path = path_of(key.path_and_query());
            let may_return = self.may_return(&key, &entry, path);
            let changed_at = log
                .last_change(path, entry.requested_at())
                .filter(|at| Trust::after(Some(*at), entry.requested_at()) != Trust::Settled);
            if may_return && answers::push(&mut plain, &key, &entry, changed_at, scope, token) {
                in_frame += 1;
            } else {
                written.left_out += 1;
            }
            if plain.len() >= FRAME_BYTES {
                written.answers += flush(writer, &mut plain, &mut in_frame)?;
            }
        }
        written.answers += flush(writer, &mut plain, &mut in_frame)?;
        let ledger = self.dispatcher.saved_ledger();
        writer.frame(Kind::Ledger, &serde_json::to_vec(&ledger)?)?;
        let end = End { answers: written.answers };
        writer.frame(Kind::End, &serde_json::to_vec(&end)?)?;
        Ok(written)
    }

    /// False for an answer that a file must not bring back.
    fn may_return(
        &self,
        key: &crate::decision::cache::key::CacheKey,
        entry: &Entry,
        path: &str,
    ) -> bool {
        let is_kept_for_views = matches!(key.scope(), Scope::Pool(_) | Scope::Account(_));
        is_kept_for_views
            && !is_query(path)
            && !path.starts_with(UPLOADS)
            && !self.store.is_purged(path, entry.requested_at())
            // A revalidation would prove nothing, and a new process could not know it.
            && !self.may_hide_next(key, entry)
    }

    /// Reads a snapshot, and takes over what belongs to this config. Nothing of a file that is
    /// unusable is taken over. `Ok(None)`: there is none.
    pub fn read_snapshot(&self, path: &Path) -> Result<Option<Read>, Unusable> {
        self.read_from(path, false)
    }

    /// `is_handover`: they are of this moment, and no snapshot of this process.
    fn read_from(&self, path: &Path, is_handover: bool) -> Result<Option<Read>, Unusable> {
        let Some(mut reader) = SnapshotReader::open(path)? else { return Ok(None) };
        let level = reader.level;
        let now = self.env.clock.now();
        let mut plain = Vec::new();
        if reader.next(&mut plain)? != Kind::Head {
            return Err(Unusable::Damaged("it does not begin with its head"));
        }
        let head: Head = parsed(&plain)?;
        let names =
            Names::of(&self.env.config, self.dispatcher.tokens(), self.env.mode, &head.salt);
        if head.upstream != names.upstream {
            return Err(Unusable::OtherUpstream);
        }
        let mut read = Read {
            written_at: Timestamp::from_millis(head.written_at),
            answers: 0,
            body_bytes: 0,
            of_other_views: 0,
            without_room: 0,
            void: 0,
            is_last: level == Level::Last,
        };
        let (answers, ledger) = self.read_frames(&mut reader, &head, &names, now, &mut read)?;
        // From here on the file is known to be whole.
        if level != Level::Void {
            self.take_over(answers, &head, &names, level, now);
        }
        if is_handover {
            read.is_last = true;
        } else {
            // The file must not serve twice as the last one.
            let file = OpenOptions::new().read(true).write(true).open(path);
            let is_marked = file.and_then(|file| self.store.log.mark.resume(file, level)).is_ok();
            read.is_last &= is_marked;
        }
        // A clock that was set back makes no sense of the ends of windows.
        if let Some(ledger) = ledger.filter(|_| read.written_at <= now) {
            let recovered = if read.is_last { Recovered::Last } else { Recovered::Earlier };
            self.dispatcher.restore_ledger(&ledger, recovered);
        }
        Ok(Some(read))
    }

    fn read_frames(
        &self,
        reader: &mut SnapshotReader,
        head: &Head,
        names: &Names,
        now: Timestamp,
        read: &mut Read,
    ) -> Result<(Vec<Restored>, Option<SavedLedger>), Unusable> {
        let scopes = places(&head.scopes, &names.scopes);
        let tokens = places(&head.tokens, &names.tokens);
        let rules = self.rules_of(&head.rules);
        let known = Known {
            mode: self.env.mode,
            urls: &self.env.urls,
            shared_lines: &self.store.shared_lines,
            scopes: &scopes,
            tokens: &tokens,
            rules: &rules,
            restarted_at: now,
        };
        let is_void = reader.level == Level::Void;
        let (mut answers, mut ledger, mut plain) = (Vec::new(), None, Vec::new());
        let (mut bytes, mut total) = (0, 0);
        loop {
            match reader.next(&mut plain)? {
                Kind::Head => return Err(Unusable::Damaged("it has two heads")),
                Kind::Ledger => ledger = Some(parsed(&plain)?),
                Kind::End => {
                    let end: End = parsed(&plain)?;
                    let is_whole = end.answers == total;
                    return is_whole
                        .then_some((answers, ledger))
                        .ok_or(Unusable::Damaged("answers are missing"));
                }
                Kind::Answers => {
                    let mut text = &plain[..];
                    while !text.is_empty() {
                        total += 1;
                        let taken = answers::take(&mut text, &known);
                        let damaged = |()| Unusable::Damaged("an answer cannot be read");
                        let Some(restored) = taken.map_err(damaged)? else {
                            read.of_other_views += 1;
                            continue;
                        };
                        bytes += Store::bytes_of(&restored.key, &restored.entry);
                        if is_void {
                            read.void += 1;
                        } else if bytes > self.env.config.cache.max_size {
                            read.without_room += 1;
                        } else {
                            read.answers += 1;
                            read.body_bytes += restored.entry.body.text().len() as u64;
                            answers.push(restored);
                        }
                    }
                }
            }
        }
    }

    /// Takes over the answers of a whole file, with what is known of changes.
    fn take_over(
        &self,
        answers: Vec<Restored>,
        head: &Head,
        names: &Names,
        level: Level,
        now: Timestamp,
    ) {
        let log = &self.store.log;
        self.store.restarted_at(now);
        let before = Timestamp::from_millis(now.as_millis().saturating_sub(1));
        if level == Level::Changed {
            // Nobody knows what it was.
            log.changed_below("/", before);
        } else if let Some(changed_at) = head.changed_at.map(Timestamp::from_millis)
            && changed_at + SECOND_RECHECK > now
        {
            log.assume(changed_at.min(before), now);
        }
        for Restored { key, entry, changed_at } in answers {
            if let Some(changed_at) = changed_at {
                log.changed(path_of(key.path_and_query()), changed_at.min(before));
            }
            self.store.restore(key, entry);
        }
        let scopes = places(&head.scopes, &names.scopes);
        let scope = |number: u32| scopes.get(usize::try_from(number).ok()?).copied().flatten();
        for (number, owner) in &head.owners {
            if let Some(Scope::Account(account)) = scope(*number) {
                self.owners.lock().entry(AccountId(account)).or_insert(*owner);
            }
        }
    }

    /// The rules of the config by the numbers that the file gives them.
    fn rules_of(&self, routes: &[String]) -> Vec<Option<NonZeroU16>> {
        let rules = &self.env.config.cache.rules;
        let watches = |route: &String| {
            let mut all = (1..).zip(rules);
            let (number, _) =
                all.find(|(_, rule)| *rule.route == **route && rule.webhook_ttl.is_some())?;
            NonZeroU16::new(number)
        };
        routes.iter().map(watches).collect()
    }
}

/// Ends a frame of answers. Returns the number of those in the file.
fn flush(writer: &mut SnapshotWriter, plain: &mut Vec<u8>, in_frame: &mut u64) -> io::Result<u64> {
    let answers = std::mem::take(in_frame);
    if answers == 0 {
        return Ok(0);
    }
    let is_kept = writer.frame(Kind::Answers, plain)?;
    plain.clear();
    plain.shrink_to(FRAME_BYTES);
    Ok(if is_kept { answers } else { 0 })
}

/// The meaning of a file's names here, in their order.
fn places<T: Copy>(of_file: &[String], own: &[(T, String)]) -> Vec<Option<T>> {
    let own: std::collections::HashMap<&str, T> =
        own.iter().map(|(thing, name)| (name.as_str(), *thing)).collect();
    of_file.iter().map(|name| own.get(name.as_str()).copied()).collect()
}

fn parsed<T: serde::de::DeserializeOwned>(plain: &[u8]) -> Result<T, Unusable> {
    serde_json::from_slice(plain).map_err(|_| Unusable::Damaged("a text cannot be read"))
}
