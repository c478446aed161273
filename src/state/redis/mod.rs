//! The home of real replicas: Redis, or a server with its protocol.
//!
//! Every operation concerns one key, so that it works in a cluster. A record is replaced only if it
//! is the one that was read: its text begins with a random id, which a writer changes. The time of
//! a record is that of the server, read with it.

mod check;
mod connection;
mod fault;
mod listening;
mod opening;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use redis::{Cmd, cmd};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::Instant;

use super::message::{Message, News};
use super::{Away, Found, Home};
use crate::clock::{Timestamp, timer_now};
use crate::config;
use crate::decision::fleet::{Answer, Record, ReplicaId, Report};

pub use check::{Examined, Unsuitable};
pub use connection::{Connection, SHORT_BYTES_MAX, time_for};

/// Attempts to replace a record that others replace at the same time. Each failed one means that
/// another replica has succeeded, so that a hundred replicas come to their end.
const ATTEMPTS: u32 = 128;
/// The time for which a look at the server's clock counts. Ours: clocks drift apart by less than a
/// millisecond meanwhile, and the server may be another one.
const CLOCK_KEPT: Duration = Duration::from_secs(5);
/// Length of the id before a record.
const ID_LEN: usize = 16;

/// Reads a record with the server's time, and with its run.
const READ: &str = "\
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
return {redis.call('GET', KEYS[1]), redis.call('TIME'), run or ''}";
/// Replaces a record if it is the one that was read, and the reading is not long ago. A server
/// without memory takes no `SET` as the first change, but as the second one.
const REPLACE: &str = "\
local held = redis.call('GET', KEYS[1])
if (held and string.sub(held, 1, #ARGV[1]) or '') ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
if math.abs(time[1] - ARGV[2]) > 2 then return 0 end
redis.call('PERSIST', KEYS[1])
redis.call('SET', KEYS[1], ARGV[3])
return 1";
/// A key has `T`, the time at which the thing was made, and the thing. Or it has a claim: `C`, its
/// end, the holder, a line feed, and such an older thing if there was one. Times have 16 digits.
const FIND_OR_CLAIM: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local own = ARGV[1] .. '\\n'
local whole = redis.call('GET', KEYS[1]) or ''
local held = whole
if string.sub(held, 1, 1) == 'C' then
  local line = string.find(held, '\\n', 18, true)
  if string.sub(held, 18, line) == own then return {0, '', 0} end
  if now < tonumber(string.sub(held, 2, 17)) then return {1, '', 0} end
  held = string.sub(held, line + 1)
end
if held ~= '' then
  local age = math.max(0, now - tonumber(string.sub(held, 2, 17)))
  local is_kept = age <= tonumber(ARGV[3])
  if is_kept and #held > tonumber(ARGV[4]) then return {3, tostring(#whole - #held + 17), age} end
  if is_kept then return {2, string.sub(held, 18), age} end
end
local lifetime = math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1]))
local claim = 'C' .. string.format('%016.0f', now + ARGV[2]) .. own .. held
redis.call('SET', KEYS[1], claim, 'PX', lifetime)
return {0, '', 0}";
/// Keeps a thing that was made at a time of the server's clock, and that had this age when it was
/// sent. In a cluster the time may be by the clock of another node, and the command may be late.
const KEEP: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local made = math.min(now - ARGV[4], tonumber(ARGV[2]))
redis.call('SET', KEYS[1], 'T' .. string.format('%016.0f', made) .. ARGV[1], 'PX', ARGV[3])
return 1";
const TIME: &str = "return redis.call('TIME')";
const GIVE_UP: &str = "\
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, 1) ~= 'C' then return 0 end
local line = string.find(held, '\\n', 18, true)
if string.sub(held, 18, line) ~= ARGV[1] .. '\\n' then return 0 end
if line == #held then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], string.sub(held, line + 1), 'KEEPTTL')
return 1";
/// The most bytes that such a long thing is given time for. Ours: twice the largest copy of an
/// answer.
const THING_BYTES_MAX: usize = 2 * 1024 * 1024;

/// See the module. Cheap to share.
pub struct RedisHome {
    connection: Arc<Connection>,
    /// For long things, which would hold up the rest.
    long: Arc<Connection>,
    prefix: Arc<str>,
    server_clock: Mutex<Option<ServerClock>>,
}

/// A time of the server's clock, which it had at the latest at this moment of this machine's.
#[derive(Clone, Copy)]
struct ServerClock {
    time: Timestamp,
    at: Instant,
}

impl ServerClock {
    /// The least that the server's clock shows now.
    fn now(self) -> Timestamp {
        self.time + (timer_now() - self.at)
    }
}

impl RedisHome {
    /// Begins to connect. Must run on a tokio runtime.
    pub fn begin(settings: &config::Redis) -> Self {
        let connection = Connection::begin(settings);
        let long = Connection::begin_second(settings, &connection);
        let prefix = Arc::clone(&settings.prefix);
        Self { connection, long, prefix, server_clock: Mutex::default() }
    }

    /// Connects once, and checks that the server is usable. Returns the time of its clock.
    pub async fn examine(settings: &config::Redis) -> Result<Timestamp, Examined> {
        Connection::examine(settings).await
    }

    /// The connection, for other things that replicas share.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// The connection for long commands and answers.
    pub fn long_connection(&self) -> Arc<Connection> {
        Arc::clone(&self.long)
    }

    /// Waits for a connection.
    #[cfg(test)]
    pub(crate) async fn connected(&self) {
        self.connection.opened_after(0).await;
    }

    fn key(&self, kind: &str, name: &str) -> String {
        format!("{}:{kind}:{name}", self.prefix)
    }

    async fn read(&self, key: &str) -> Result<(Option<Bytes>, Timestamp, String), Away> {
        let (text, time, run) = self.connection.run(&eval(READ, key)).await?;
        Ok((text, self.noted(time), run))
    }

    /// Notes a time that the server has just given.
    fn noted(&self, (seconds, micros): (u64, u64)) -> Timestamp {
        let time = Timestamp::from_millis(seconds * 1_000 + micros / 1_000);
        *self.server_clock.lock() = Some(ServerClock { time, at: timer_now() });
        time
    }

    /// The least that the server's clock shows now. Asks for it, if the last time is long ago.
    async fn server_time(&self) -> Result<Timestamp, Away> {
        let known = self.server_clock.lock().filter(|known| timer_now() - known.at < CLOCK_KEPT);
        if let Some(known) = known {
            return Ok(known.now());
        }
        let time = self.connection.run(&eval(TIME, &self.key("kept", ""))).await?;
        Ok(self.noted(time))
    }

    /// Changes a record; `change` may run several times. Returns how often it ran in vain.
    async fn change<T>(
        &self,
        account: &str,
        mut change: impl FnMut(Timestamp, &mut Record) -> T,
    ) -> Result<(T, u32), Away> {
        let key = self.key("account", account);
        for conflicts in 0..ATTEMPTS {
            let (text, now, run) = self.read(&key).await?;
            let before = text.as_deref().and_then(|text| text.get(..ID_LEN)).unwrap_or_default();
            let mut record = text.as_deref().and_then(decoded).unwrap_or_else(|| Record::new(now));
            record.kept_by(&run, now);
            let changed = change(now, &mut record);
            let replace = eval(REPLACE, &key)
                .arg(before)
                .arg(now.as_secs())
                .arg(encoded(&record)?)
                .to_owned();
            if self.connection.run::<u8>(&replace).await? == 1 {
                return Ok((changed, conflicts));
            }
        }
        Err(Away("other replicas replace the record all the time".to_owned()))
    }
}

/// Reads a record; `None` for one that this version cannot read, which then begins anew.
fn decoded(text: &[u8]) -> Option<Record> {
    serde_json::from_slice(text.get(ID_LEN..)?).ok()
}

fn encoded(record: &Record) -> Result<Vec<u8>, Away> {
    let mut text = random_id().into_bytes();
    serde_json::to_writer(&mut text, record).map_err(|fault| Away(fault.to_string()))?;
    Ok(text)
}

/// Returns 64 random bits in hex.
fn random_id() -> String {
    let mut bytes = [0; 8];
    // Without random numbers the time in the record still differs.
    let _ = SystemRandom::new().fill(&mut bytes);
    format!("{:016x}", u64::from_ne_bytes(bytes))
}

fn eval(script: &'static str, key: &str) -> Cmd {
    // In full: the server forgets scripts when it is restarted, or asked to.
    let mut command = cmd("EVAL");
    command.arg(script).arg(1).arg(key);
    command
}

#[async_trait]
impl Home for RedisHome {
    async fn sync(
        &self,
        account: &str,
        id: ReplicaId,
        report: &Report,
    ) -> Result<(Option<Answer>, u32), Away> {
        self.change(account, |now, record| record.sync(now, id, report)).await
    }

    async fn leave(&self, account: &str, id: ReplicaId) -> Result<(), Away> {
        self.change(account, |now, record| record.leave(now, id)).await.map(|_| ())
    }

    async fn record(&self, account: &str) -> Result<(Option<Record>, Timestamp), Away> {
        let (text, now, _) = self.read(&self.key("account", account)).await?;
        Ok((text.as_deref().and_then(decoded), now))
    }

    async fn publish(&self, message: &Message) -> Result<(), Away> {
        let text = serde_json::to_vec(message).map_err(|fault| Away(fault.to_string()))?;
        let channel = listening::channel(&self.prefix);
        self.connection.run::<()>(cmd("PUBLISH").arg(channel).arg(text)).await
    }

    fn listen(&self) -> News {
        listening::begin(&self.connection, &self.prefix)
    }

    async fn find_or_claim(
        &self,
        key: &str,
        holder: &str,
        lifetime: Duration,
        age_max: Duration,
    ) -> Result<Found, Away> {
        let key = self.key("kept", key);
        let mut find = eval(FIND_OR_CLAIM, &key);
        find.arg(holder).arg(millis(lifetime)).arg(millis(age_max)).arg(SHORT_BYTES_MAX);
        let (what, thing, age): (u8, Bytes, u64) = self.connection.run(&find).await?;
        Ok(match what {
            0 => Found::Claimed,
            1 => Found::Busy,
            2 => Found::Kept(thing, Duration::from_millis(age)),
            _ => {
                // A newer thing counts as older than it is, and a claim is none that can be read.
                let get = cmd("GETRANGE").arg(key).arg(&*thing).arg(-1).to_owned();
                let thing = self.long.run_slow(time_for(THING_BYTES_MAX), &get).await?;
                Found::Kept(thing, Duration::from_millis(age))
            }
        })
    }

    async fn keep(
        &self,
        key: &str,
        thing: Bytes,
        made_at: Instant,
        lifetime: Duration,
    ) -> Result<(), Away> {
        if !self.connection.has_room_for_copies() || !self.long.has_room_for_copies() {
            return Err(Away("Redis has no memory for copies".to_owned()));
        }
        // By the clock before the command leaves, which may be late.
        let now = self.server_time().await?;
        let age = millis(timer_now() - made_at);
        let made = now.as_millis().saturating_sub(age);
        let mut keep = eval(KEEP, &self.key("kept", key));
        keep.arg(&*thing).arg(made).arg(millis(lifetime)).arg(age);
        if thing.len() > SHORT_BYTES_MAX {
            return self.long.run_slow(time_for(thing.len()), &keep).await;
        }
        self.connection.run(&keep).await
    }

    async fn give_up(&self, key: &str, holder: &str) -> Result<(), Away> {
        self.connection.run(eval(GIVE_UP, &self.key("kept", key)).arg(holder)).await
    }

    fn away(&self) -> Option<String> {
        self.connection.away()
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}
