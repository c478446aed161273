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
    kept: HashMap<String, (Kept, Timestamp)>,
    listeners: Vec<mpsc::Sender<Heard>>,
}

impl MemoryHome {
    /// Returns an empty home, whose times are those of a clock.
    pub fn new(clock: Clock) -> Self {
        Self { clock, inner: Mutex::default() }
    }
}

enum Kept {
    /// With the time at which it was made.
    Thing(Bytes, Timestamp),
    /// Of this holder.
    Claim(String),
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
        let kept = &mut self.inner.lock().kept;
        kept.retain(|_, (_, until)| now < *until);
        match kept.get(key) {
            Some((Kept::Thing(thing, made_at), _)) if now.since(*made_at) <= age_max => {
                Ok(Found::Kept(thing.clone(), now.since(*made_at)))
            }
            Some((Kept::Claim(other), _)) if other != holder => Ok(Found::Busy),
            _ => {
                let claim = Kept::Claim(holder.to_owned());
                kept.insert(key.to_owned(), (claim, now + lifetime));
                Ok(Found::Claimed)
            }
        }
    }

    async fn keep(
        &self,
        key: &str,
        thing: Bytes,
        made_at: Instant,
        lifetime: Duration,
    ) -> Result<(), Away> {
        let now = self.clock.now();
        let thing = (Kept::Thing(thing, now - (timer_now() - made_at)), now + lifetime);
        self.inner.lock().kept.insert(key.to_owned(), thing);
        Ok(())
    }

    async fn give_up(&self, key: &str, holder: &str) -> Result<(), Away> {
        let is_own = |kept: &Kept| matches!(kept, Kept::Claim(other) if other == holder);
        let kept = &mut self.inner.lock().kept;
        if kept.get(key).is_some_and(|(kept, _)| is_own(kept)) {
            kept.remove(key);
        }
        Ok(())
    }

    fn away(&self) -> Option<String> {
        None
    }
}
