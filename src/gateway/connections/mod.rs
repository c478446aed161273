//! The open connections of the listeners: their number, and the choice of those that make room.
//!
//! A connection needs a place before the next one is accepted. What is too much waits in the
//! system's backlog, and costs no memory here. Opening and closing a connection takes a lock for an
//! instant; a request takes none. Left out: the accept itself (`server/connection/accept.rs`).

mod addresses;
pub mod descriptors;
mod newcomers;
mod quiet;
pub mod slot;
mod victims;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use self::addresses::{Addresses, OfAddress};
use self::newcomers::Slots;
use self::quiet::Quiet;
use self::slot::{Listener, Slot, State, millis};
use self::victims::{Choice, RIPE_MS, SILENT_MS, Seen, choose};
use crate::clock::timer_now;
use crate::config::Listen;
use crate::telemetry::Metrics;

/// The share of all connections that one look chooses as idle or slow victims. Chosen here: a look
/// at 10,000 takes a millisecond, and 10,000 new ones a second need sixteen.
const VICTIMS_SHARE: usize = 16;
/// The time for which a choice holds. Chosen here: ages hardly change meanwhile, and a need of few
/// victims costs two looks a second.
const CHOICE_MS: u64 = 500;
/// Connections that are seen under one lock. Chosen here: it is held for some ten microseconds.
const SEEN_AT_ONCE: usize = 256;
/// Connections beyond the bound whose predecessors are evicted but have not ended yet. Chosen here:
/// a wait for each end would delay all that is behind it in the backlog.
const ENDING_MAX: u32 = 16;
/// The longest wait for the end of an evicted connection, which is a matter of microseconds.
const EVICTION_PATIENCE: Duration = Duration::from_millis(50);

/// The reasons of `weir_connections_ended_total`.
const EVICTED_NEW: &str = "evicted_new";
const EVICTED_IDLE: &str = "evicted_idle";
const EVICTED_SLOW: &str = "evicted_slow";
const PROXY_HEADER: &str = "proxy_header";
const PER_ADDRESS: &str = "connections_max_per_address";

/// The reason why no connection is accepted for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    Full,
    NoDescriptor,
}

impl Pause {
    const fn name(self) -> &'static str {
        match self {
            Self::Full => "connections_max",
            Self::NoDescriptor => "descriptors",
        }
    }
}

/// All open connections.
pub struct Connections {
    origin: Instant,
    metrics: Arc<Metrics>,
    /// The bound in force.
    max: AtomicU32,
    /// Zero: any number.
    max_per_address: AtomicU32,
    open: AtomicU32,
    slots: Mutex<Slots>,
    addresses: Arc<Addresses>,
    /// Notified at each end of a connection.
    ended: Notify,
    chosen: Mutex<Chosen>,
    logs: Logs,
}

/// The log lines about connections, each at its own pace.
struct Logs {
    full: Quiet,
    address: Quiet,
    flood: Quiet,
    proxy: Quiet,
}

/// The victims of the last look.
#[derive(Default)]
struct Chosen {
    at: u64,
    /// The next one last, each with the time that was seen.
    victims: Vec<(usize, u64)>,
}

/// The result of an attempt to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Evicted,
    /// Nothing may be ended for this time.
    Wait(Duration),
}

/// Guard: the place of one connection.
pub struct Place {
    connections: Arc<Connections>,
    key: usize,
    slot: Arc<Slot>,
    of_address: Option<OfAddress>,
}

impl Connections {
    /// The connections by the bounds of this config.
    pub fn new(listen: &Listen, metrics: &Arc<Metrics>) -> Arc<Self> {
        let origin = timer_now();
        let connections = Self {
            origin,
            metrics: Arc::clone(metrics),
            max: AtomicU32::new(0),
            max_per_address: AtomicU32::new(0),
            open: AtomicU32::new(0),
            slots: Mutex::default(),
            addresses: Arc::default(),
            ended: Notify::new(),
            chosen: Mutex::default(),
            logs: Logs {
                full: Quiet::new(origin),
                address: Quiet::new(origin),
                flood: Quiet::new(origin),
                proxy: Quiet::new(origin),
            },
        };
        connections.bound(listen);
        Arc::new(connections)
    }

    /// Takes over the bounds of a config. Open connections stay, also beyond a lower bound.
    pub fn bound(&self, listen: &Listen) {
        let max = listen.connections_max.min(descriptors::connections_max());
        self.max.store(max, Ordering::Relaxed);
        let per_address = listen.connections_max_per_address.map_or(0, std::num::NonZero::get);
        self.max_per_address.store(per_address, Ordering::Relaxed);
        // Those that wait may have room now.
        self.ended.notify_waiters();
    }

    /// Takes a place if one is free.
    pub fn try_place(self: &Arc<Self>, listener: Listener) -> Option<Place> {
        let max = self.max.load(Ordering::Relaxed);
        let one_more = |open| (open < max).then(|| open + 1);
        self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(self.filled(listener))
    }

    /// Takes a place beyond the bound: that of an evicted connection, or one for the backlog of a
    /// gateway that stops, which is bounded itself.
    pub fn extra_place(self: &Arc<Self>, listener: Listener) -> Place {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.filled(listener)
    }

    fn filled(self: &Arc<Self>, listener: Listener) -> Place {
        let slot = Arc::new(Slot::new(listener, self.origin, timer_now()));
        let key = self.slots.lock().insert(Arc::clone(&slot));
        Place { connections: Arc::clone(self), key, slot, of_address: None }
    }

    /// Takes a place for a connection that waits, and makes room for it if none is free.
    pub async fn place(self: &Arc<Self>, listener: Listener) -> Place {
        let mut is_counted = false;
        loop {
            let mut ended = pin!(self.ended.notified());
            // Registered before the look, so that no end is lost in between.
            ended.as_mut().enable();
            if let Some(place) = self.try_place(listener) {
                return place;
            }
            let room = self.evict();
            let max = self.max.load(Ordering::Relaxed).saturating_add(ENDING_MAX);
            if room == Room::Evicted && self.open.load(Ordering::Acquire) < max {
                return self.extra_place(listener);
            }
            self.wait(room, Pause::Full, &mut is_counted, ended).await;
        }
    }

    /// Waits until an accept may find a descriptor again. If a connection waits, another one is
    /// evicted and gives its own back.
    pub async fn await_descriptor(&self, has_waiting: bool) {
        if !has_waiting {
            return sleep(EVICTION_PATIENCE).await;
        }
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        self.wait(self.evict(), Pause::NoDescriptor, &mut false, ended).await;
    }

    /// Waits for the end of an evicted connection, or until one may be evicted.
    async fn wait(
        &self,
        room: Room,
        why: Pause,
        is_counted: &mut bool,
        ended: impl Future<Output = ()>,
    ) {
        let wait = match room {
            Room::Evicted => EVICTION_PATIENCE,
            Room::Wait(wait) => {
                if !std::mem::replace(is_counted, true) {
                    self.metrics.accept_paused(why.name());
                }
                wait
            }
        };
        // The end of another connection helps as well.
        let _ = timeout(wait, ended).await;
    }

    /// Ends a connection that may be ended.
    fn evict(&self) -> Room {
        let now = timer_now();
        let at = millis(self.origin, now);
        while let Some(slot) = self.ripe_newcomer(at) {
            if self.try_end(&slot, now) {
                return Room::Evicted;
            }
        }
        let mut chosen = self.chosen.lock();
        if at >= chosen.at + CHOICE_MS {
            chosen.victims.clear();
        }
        let mut has_looked = false;
        loop {
            let Some((key, since)) = chosen.victims.pop() else {
                if std::mem::replace(&mut has_looked, true) {
                    // All of them became busy in this instant.
                    return Room::Wait(Duration::from_millis(1));
                }
                let count = self.open.load(Ordering::Relaxed) as usize / VICTIMS_SHARE + 1;
                match choose(self.seen().into_iter(), at, count) {
                    Choice::Victims(victims) => *chosen = Chosen { at, victims },
                    Choice::Wait(wait) => return Room::Wait(Duration::from_millis(wait)),
                }
                continue;
            };
            let slot = self.slots.lock().open.get(key).map(Arc::clone);
            // Another request came and ended meanwhile, or another connection has its place.
            let Some(slot) = slot.filter(|slot| slot.since() == since) else { continue };
            if self.try_end(&slot, now) {
                return Room::Evicted;
            }
        }
    }

    fn ripe_newcomer(&self, at: u64) -> Option<Arc<Slot>> {
        self.slots.lock().take_ripe(at)
    }

    /// Ends a connection to make room. False: it may not be ended any more.
    fn try_end(&self, slot: &Slot, now: Instant) -> bool {
        let reason = match slot.is_known() {
            false => EVICTED_NEW,
            true if slot.requests() == 0 => EVICTED_IDLE,
            true => EVICTED_SLOW,
        };
        let is_evicted = slot.evict();
        if is_evicted {
            self.metrics.connection_ended(reason);
            if let Some(connections) = self.logs.full.event(now) {
                let max = self.max.load(Ordering::Relaxed);
                tracing::warn!(connections, max, "connections were ended to make room");
            }
        }
        is_evicted
    }

    /// Looks at all connections, some at a time: the lock delays their ends and begins.
    fn seen(&self) -> Vec<Seen<usize>> {
        let mut seen = Vec::with_capacity(self.open.load(Ordering::Relaxed) as usize);
        let mut next = 0;
        loop {
            let slots = self.slots.lock();
            if next >= slots.open.capacity() {
                return seen;
            }
            let some =
                (next..next + SEEN_AT_ONCE).filter_map(|key| Some((key, slots.open.get(key)?)));
            seen.extend(some.map(|(key, slot)| Seen {
                key,
                is_busy: !slot.may_end(),
                is_slow: slot.requests() > 0,
                is_known: slot.is_known(),
                ripe_after: if slot.has_sent() { RIPE_MS } else { SILENT_MS },
                since: slot.since(),
                head_at: slot.head_at(),
            }));
            next += SEEN_AT_ONCE;
        }
    }

    /// Counts and logs a connection that ended for its HTTP/2 frames. `reason` comes from a closed
    /// set.
    pub fn flooded(&self, reason: &'static str, client_address: Option<IpAddr>) {
        self.metrics.connection_ended(reason);
        if let Some(connections) = self.logs.flood.event(timer_now()) {
            let client_address = client_address.map(tracing::field::display);
            tracing::warn!(
                reason,
                client_address,
                connections,
                "an HTTP/2 connection was ended for a flood of frames"
            );
        }
    }

    /// Counts and logs a connection of a trusted proxy that ended without the header of the PROXY
    /// protocol.
    pub fn without_proxy_header(&self, proxy: Option<IpAddr>) {
        self.metrics.connection_ended(PROXY_HEADER);
        if let Some(connections) = self.logs.proxy.event(timer_now()) {
            let proxy = proxy.map(tracing::field::display);
            tracing::warn!(
                proxy,
                connections,
                "a connection of a trusted proxy has no header of the PROXY protocol"
            );
        }
    }

    /// Open connections by listener and state.
    pub fn figures(&self) -> impl Iterator<Item = (Listener, State, u64)> {
        let mut counts = [[0_u64; State::ALL.len()]; Listener::ALL.len()];
        for (_, slot) in &self.slots.lock().open {
            counts[slot.listener as usize][slot.state() as usize] += 1;
        }
        Listener::ALL.into_iter().flat_map(move |listener| {
            let count = move |state| (listener, state, counts[listener as usize][state as usize]);
            State::ALL.map(count)
        })
    }
}

impl Place {
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Notes that the connection was accepted.
    pub fn accepted(&self) {
        self.connections.metrics.connection_accepted(self.slot.listener.name());
    }

    /// Counts the connection for its client's address. False: the address has as many as it may
    /// have, and this one ends.
    pub fn is_of(&mut self, address: IpAddr) -> bool {
        let connections = &self.connections;
        let max = match connections.max_per_address.load(Ordering::Relaxed) {
            // Counted all the same, in case a reload bounds them.
            0 => u32::MAX,
            max => max,
        };
        self.of_address = connections.addresses.count(address, max);
        if self.of_address.is_none() {
            connections.metrics.connection_ended(PER_ADDRESS);
            if let Some(refused) = connections.logs.address.event(timer_now()) {
                tracing::warn!(
                    client_address = %address,
                    max,
                    refused,
                    "an address has too many connections"
                );
            }
        }
        self.of_address.is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let connections = &self.connections;
        let mut slots = connections.slots.lock();
        // A place belongs to one guard.
        drop(slots.open.try_remove(self.key));
        drop(slots);
        connections.open.fetch_sub(1, Ordering::AcqRel);
        connections.ended.notify_waiters();
    }
}
