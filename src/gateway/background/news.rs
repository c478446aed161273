//! Messages between the replicas: that they are there, which accounts the upstream refuses, and
//! what has changed.
//!
//! A change is noted by all before the client that made it has its answer. A replica that has not
//! heard itself for a second serves nothing without the upstream, because it may have missed a
//! change. Nobody waits for such a one any longer. The same holds while another replica is silent:
//! it may have made a change that nobody has heard of.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::clock::{Timestamp, timer_now};
use crate::decision::fleet::ReplicaId;
use crate::gateway::background::findings::{read, shared};
use crate::gateway::cache::invalidation::purge::Prefix;
use crate::gateway::cache::read_cache::ReadCache;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::request::webhooks::Webhooks;
use crate::state::{
    Change, Closed, Content, Delivered, Heard, Message, Replica, SharedFinding, TOUCH,
};
use crate::webhooks::Mark;

/// The distance of the messages that this replica is there.
const HERE_EVERY: Duration = Duration::from_millis(250);
/// The longest wait for the others to note a change. One that has not heard it by then relies on
/// nothing that it has heard.
const NOTED_WITHIN: Duration = TOUCH.saturating_add(Duration::from_millis(250));
/// The distance of attempts to say what has changed.
const PAUSE: Duration = Duration::from_millis(50);
/// Messages of its own that a replica may not have heard yet.
const UNHEARD_MAX: usize = 16;

/// The parts of the gateway that the others' news concern.
pub struct Concerned {
    pub cache: Arc<ReadCache>,
    pub webhooks: Arc<Webhooks>,
    pub dispatcher: Arc<Dispatcher>,
}

/// Says that this replica is there, and hears the others, while `current` returns something.
/// `forget_forms` forgets the compressed forms of stored answers.
pub async fn keep_hearing(
    replica: Arc<Replica>,
    current: impl Fn() -> Option<Concerned> + Send,
    forget_forms: impl Fn() + Send,
    limited: mpsc::Sender<Closed>,
) {
    let mut news = replica.home().listen();
    let mut ticks = interval(HERE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0;
    // Numbers and times of the messages of this replica that it has not heard yet.
    let mut unheard = VecDeque::<(u64, Timestamp)>::new();
    loop {
        let heard = tokio::select! {
            heard = news.next() => heard,
            _ = ticks.tick() => {
                let Some(concerned) = current() else { return };
                // Replicas that hear of it rely on having heard of its changes.
                if replica.changes.are_stuck() || replica.has_left() {
                    continue;
                }
                let findings = findings_of(&replica, &concerned);
                number += 1;
                unheard.truncate(UNHEARD_MAX - 1);
                unheard.push_front((number, concerned.cache.now()));
                // Not awaited: what the others say must not wait for it.
                tokio::spawn(say(Arc::clone(&replica), number, findings));
                continue;
            }
        };
        let (Some(heard), Some(concerned)) = (heard, current()) else { return };
        let cache = &concerned.cache;
        match heard {
            Heard::Gap => {
                unheard.clear();
                // Anything may have changed meanwhile.
                cache.store().log.changed_below("/", cache.now());
            }
            Heard::Message(Message { from, content }) => {
                let is_own = from == replica.id();
                match content {
                    Content::Here(heard) => {
                        hear_of(&replica, cache, from);
                        let sent = unheard.iter().find(|(sent, _)| is_own && *sent == heard);
                        if let Some((_, sent_at)) = sent {
                            replica.touch(*sent_at);
                        }
                    }
                    Content::Gone => {
                        replica.peers.left(from);
                        replica.look_for_silence(cache.now());
                    }
                    Content::Limited(closed) if !is_own => _ = limited.try_send(closed),
                    Content::Changed(number, _) if is_own => {
                        replica.peers.noted(from, number);
                    }
                    Content::Changed(number, changes) => {
                        note(&concerned, changes, &forget_forms);
                        let replica = Arc::clone(&replica);
                        let noted = Content::Noted(from, number);
                        tokio::spawn(async move { replica.tell(noted).await });
                    }
                    Content::Noted(of, number) if of == replica.id() => {
                        replica.peers.noted(from, number);
                    }
                    Content::Write(news) if !is_own => _ = replica.write_news.send(news),
                    Content::Learned(findings) if !is_own => learn(&replica, &concerned, findings),
                    Content::Copied(name) if !is_own => cache.store().far.has_newer(name),
                    Content::Limited(_)
                    | Content::Copied(_)
                    | Content::Noted(..)
                    | Content::Write(_)
                    | Content::Learned(_) => {}
                }
            }
        }
    }
}

/// Says that this replica is there, and what it has learned.
async fn say(replica: Arc<Replica>, number: u64, findings: Vec<SharedFinding>) {
    let is_said = replica.tell(Content::Here(number)).await.is_ok();
    if is_said && !findings.is_empty() {
        let _ = replica.tell(Content::Learned(findings)).await;
    }
}

/// Notes that a replica is there.
fn hear_of(replica: &Replica, cache: &ReadCache, id: ReplicaId) {
    if replica.peers.heard(id, timer_now()) {
        // A silent one, now forgotten, may have changed anything.
        cache.store().log.changed_below("/", cache.now());
    }
    replica.look_for_silence(cache.now());
}

/// Learns what another replica has learned.
fn learn(replica: &Replica, concerned: &Concerned, findings: Vec<SharedFinding>) {
    let names = concerned.cache.far_names(replica);
    for finding in findings {
        if let Some(finding) = read(finding, &names, &concerned.dispatcher) {
            concerned.dispatcher.learn(finding);
        }
    }
}

/// The findings of this replica since the last time, for the others.
fn findings_of(replica: &Replica, concerned: &Concerned) -> Vec<SharedFinding> {
    let findings = concerned.dispatcher.take_findings();
    if findings.is_empty() {
        return Vec::new();
    }
    let names = concerned.cache.far_names(replica);
    findings.into_iter().filter_map(|finding| shared(finding, &names)).collect()
}

/// Notes changes that another replica has noted.
fn note(concerned: &Concerned, changes: Vec<Change>, forget_forms: &impl Fn()) {
    let (store, now) = (concerned.cache.store(), concerned.cache.now());
    for change in changes {
        match change {
            Change::Exactly(path) => store.log.changed(&path, now),
            Change::Below(path) => store.log.changed_below(&path, now),
            Change::Purged(prefix) => {
                if let Some(prefix) = Prefix::new(&prefix) {
                    store.purge(&prefix, now);
                    forget_forms();
                }
            }
            Change::Delivered(Delivered { guid, event, signature }) => {
                if let Some(receiver) = concerned.webhooks.receiver() {
                    receiver.note(&Mark { guid, event }, &signature.into(), now);
                }
            }
        }
    }
}

/// Says what has changed here, until all have noted it.
pub async fn keep_telling(replica: Arc<Replica>) {
    let mut number = 1;
    loop {
        let (mut changes, mut count) = replica.changes.next().await;
        // Never given up, though the client that made the change gets its answer at last.
        while replica.tell(Content::Changed(number, changes.clone())).await.is_err() {
            replica.changes.set_stuck(true);
            sleep(PAUSE).await;
            count = replica.changes.add_to(&mut changes);
            // The others may have noted the first ones.
            number += 1;
        }
        replica.changes.set_stuck(false);
        let noted = replica.peers.all_noted(replica.id(), number, timer_now);
        let _ = timeout(NOTED_WITHIN, noted).await;
        replica.changes.noted(count);
        number += 1;
    }
}
