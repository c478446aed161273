//! A home in memory, for replicas in one process.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::message::{Heard, Message, News};
use super::{Away, Found, Home};
use crate::clock::{Clock, Timestamp, timer_now};
use crate::decision::fleet::{Answer, Record, ReplicaId, Report};

/// Messages that wait for a listener; one with more of them hears nothing more.
const HEARD_MAX: usize = 10_000;

/// See the module.
pub struct MemoryHome {
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    records: HashMap<String, Record>,
    kept: HashMap<String, Kept>,
    /// The holders of claims, with the ends of these.
    claims: HashMap<String, (String, Timestamp)>,
    listeners: Vec<mpsc::Sender<Heard>>,
}

impl MemoryHome {
    /// Returns an empty home, whose times are those of a clock.
    pub fn new(clock: Clock) -> Self {
        Self { clock, inner: Mutex::default() }
    }
}

struct Kept {
    thing: Bytes,
    made_at: Timestamp,
    until: Timestamp,
}

#[async_trait]
impl Home for MemoryHome {
    async fn sync(
        &self,
        account: &str,
        id: ReplicaId,
        report: &Report,
    ) -> Result<(Option<Answer>, u32), Away> {
        let now = self.clock.now();
        let records = &mut self.inner.lock().records;
        let record = records.entry(account.to_owned()).or_insert_with(|| Record::new(now));
        Ok((record.sync(now, id, report), 0))
    }

    async fn leave(&self, account: &str, id: ReplicaId) -> Result<(), Away> {
        if let Some(record) = self.inner.lock().records.get_mut(account) {
            record.leave(self.clock.now(), id);
        }
        Ok(())
    }

    async fn record(&self, account: &str) -> Result<(Option<Record>, Timestamp), Away> {
        Ok((self.inner.lock().records.get(account).cloned(), self.clock.now()))
    }

    async fn publish(&self, message: &Message) -> Result<(), Away> {
        let heard = Heard::Message(message.clone());
        self.inner.lock().listeners.retain(|listener| listener.try_send(heard.clone()).is_ok());
        Ok(())
    }

    fn listen(&self) -> News {
        let (sender, receiver) = mpsc::channel(HEARD_MAX);
        let _ = sender.try_send(Heard::Gap);
        self.inner.lock().listeners.push(sender);
        News(receiver)
    }

    async fn find_or_claim(
        &self,
        key: &str,
        holder: &str,
        lifetime: Duration,
        age_max: Duration,
    ) -> Result<Found, Away> {
        let now = self.clock.now();
        let Inner { kept, claims, .. } = &mut *self.inner.lock();
        kept.retain(|_, thing| now < thing.until);
        claims.retain(|_, (_, until)| now < *until);
        let claimed_by = claims.get(key).map(|(holder, _)| holder);
        if let Some(other) = claimed_by {
            return Ok(if other == holder { Found::Claimed } else { Found::Busy });
        }
        if let Some(thing) = kept.get(key).filter(|thing| now.since(thing.made_at) <= age_max) {
            return Ok(Found::Kept(thing.thing.clone(), now.since(thing.made_at)));
        }
        claims.insert(key.to_owned(), (holder.to_owned(), now + lifetime));
        Ok(Found::Claimed)
    }

    async fn keep(
        &self,
        key: &str,
        thing: Bytes,
        made_at: Instant,
        lifetime: Duration,
    ) -> Result<(), Away> {
        let now = self.clock.now();
        let made_at = now - (timer_now() - made_at);
        let mut inner = self.inner.lock();
        inner.claims.remove(key);
        inner.kept.insert(key.to_owned(), Kept { thing, made_at, until: now + lifetime });
        Ok(())
    }

    async fn give_up(&self, key: &str, holder: &str) -> Result<(), Away> {
        let claims = &mut self.inner.lock().claims;
        if claims.get(key).is_some_and(|(other, _)| other == holder) {
            claims.remove(key);
        }
        Ok(())
    }

    fn away(&self) -> Option<String> {
        None
    }
}
