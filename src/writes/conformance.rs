//! The promises of every store of writes ([`Store`]), and a comparison with a plain model. Left
//! out: promises of durable stores (`file/tests`).

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::file::FileStore;
use super::memory::MemoryStore;
use super::redis::{Event, Place};
use super::{Change, Progress, SharedStore, Store, StoreError, Stored, WriteState};
use crate::cases::cases;
use crate::clock::Timestamp;
use crate::state::Replica;
use crate::state::conformance::{settings, state};
use crate::state::redis_server::RedisServer;

pub(super) fn block_on<T>(answer: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(answer)
}

pub(super) fn stored(request: impl Into<Vec<u8>>, progress: impl Into<Vec<u8>>) -> Stored {
    Stored { request: Bytes::from(request.into()), progress: Bytes::from(progress.into()) }
}

/// Opens a store in a file of this directory, and returns its writes.
pub(super) fn opened(directory: &TempDir) -> (FileStore, BTreeMap<u64, Stored>) {
    let mut found = BTreeMap::new();
    let store = FileStore::open(&directory.path().join("weir.redb"), |number, stored| {
        assert!(found.keys().all(|before| *before < number), "they are shown in order");
        found.insert(number, stored);
        Ok(())
    });
    (store.unwrap(), found)
}

/// Runs a check on every store.
fn each_store(check: impl Fn(&dyn Store)) {
    check(&MemoryStore::default());
    let directory = TempDir::new().unwrap();
    check(&opened(&directory).0);
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    check(&runtime.block_on(shared(&server, 1)));
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The writes of a replica with this number, once they can be added.
async fn shared(server: &RedisServer, number: u64) -> SharedStore {
    opened_in_redis(&Replica::begin(&settings(server, "writes"), number, Timestamp::EPOCH)).await
}

async fn opened_in_redis(replica: &Arc<Replica>) -> SharedStore {
    let store = SharedStore::begin(replica, Duration::from_hours(1));
    while !store.is_open() {
        tokio::task::yield_now().await;
    }
    store
}

#[test]
fn a_new_write_is_there_until_it_is_removed() {
    each_store(|store| {
        assert_eq!(block_on(store.load(7)), Ok(None));
        assert_eq!(block_on(store.apply(Change::Insert(7, stored("a", "queued")))), Ok(()));
        assert_eq!(block_on(store.load(7)), Ok(Some(stored("a", "queued"))));
        assert_eq!(block_on(store.apply(Change::Remove(vec![7, 8]))), Ok(()));
        assert_eq!(block_on(store.load(7)), Ok(None));
    });
}

#[test]
fn progress_leaves_the_request_as_it_is() {
    each_store(|store| {
        block_on(store.apply(Change::Insert(1, stored("a", "queued")))).unwrap();
        block_on(store.apply(Change::Progress(1, "sending".into()))).unwrap();
        assert_eq!(block_on(store.load(1)), Ok(Some(stored("a", "sending"))));
    });
}

#[test]
fn the_progress_of_an_unknown_write_is_ignored() {
    each_store(|store| {
        let ignored = block_on(store.apply(Change::Progress(1, "done".into())));
        assert!(matches!(ignored, Ok(()) | Err(StoreError::Elsewhere)), "{ignored:?}");
        assert_eq!(block_on(store.load(1)), Ok(None));
    });
}

#[test]
fn an_empty_text_is_a_text() {
    each_store(|store| {
        block_on(store.apply(Change::Insert(0, stored("", "")))).unwrap();
        assert_eq!(block_on(store.load(0)), Ok(Some(stored("", ""))));
    });
}

#[test]
fn a_body_of_the_largest_size_is_kept_whole() {
    let body = (0..10 * 1024 * 1024_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect::<Vec<_>>();
    each_store(|store| {
        block_on(store.apply(Change::Insert(u64::MAX - 1, stored(body.clone(), "queued"))))
            .unwrap();
        assert_eq!(block_on(store.load(u64::MAX - 1)), Ok(Some(stored(body.clone(), "queued"))));
    });
}

#[test]
fn changes_are_made_in_call_order_even_if_not_awaited() {
    each_store(|store| {
        drop(store.apply(Change::Insert(3, stored("a", "0"))));
        for progress in 1..499 {
            drop(store.apply(Change::Progress(3, progress.to_string().into())));
        }
        block_on(store.apply(Change::Progress(3, "499".into()))).unwrap();
        assert_eq!(block_on(store.load(3)), Ok(Some(stored("a", "499"))));
        drop(store.apply(Change::Progress(3, "500".into())));
        block_on(store.apply(Change::Remove(vec![3]))).unwrap();
        drop(store.apply(Change::Progress(3, "late".into())));
        assert_eq!(block_on(store.load(3)), Ok(None));
    });
}

#[test]
fn only_the_file_store_is_durable() {
    assert!(!MemoryStore::default().is_durable());
    assert!(opened(&TempDir::new().unwrap()).0.is_durable());
}

/// A queued write and its end.
fn progress(state: WriteState) -> Progress {
    Progress { state, ..Progress::queued(Timestamp::EPOCH, Timestamp::FAR_FUTURE) }
}

#[test]
fn a_replica_without_its_write_changes_nothing() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    runtime.block_on(async {
        let (first, second) = (shared(&server, 1).await, shared(&server, 2).await);
        let place = Place { lane: "ci:/repos/a/b".into(), ..Place::default() };
        let write = stored("request", progress(WriteState::Queued).encode());
        let number = first.next_number().unwrap();
        first.insert(number, &write, &place, None).await.unwrap();
        // It says that it is gone, and goes on all the same.
        first.end().await.unwrap();
        let mut events = second.events().unwrap();
        assert_eq!(events.recv().await, Some(Event::Adopted(vec![number])));
        assert_eq!(events.recv().await, Some(Event::Turn(number)));
        let sending = Change::Progress(number, progress(WriteState::Sending).encode());
        assert_eq!(first.apply(sending.clone()).await, Err(StoreError::Elsewhere));
        assert_eq!(second.apply(sending).await, Ok(()));
    });
}

#[test]
fn a_write_is_cancelled_until_it_is_sent() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    runtime.block_on(async {
        let (first, second) = (shared(&server, 1).await, shared(&server, 2).await);
        let ended = |before| Progress { state: WriteState::Cancelled, ..before };
        let write = stored("request", progress(WriteState::Queued).encode());
        let sending = progress(WriteState::Sending).encode();
        let [early, late] = [(); 2].map(|()| first.next_number().unwrap());
        for number in [early, late] {
            first.insert(number, &write, &Place::default(), None).await.unwrap();
        }
        assert_eq!(second.cancel(early, ended).await, Ok(()));
        let sent = first.apply(Change::Progress(early, sending.clone())).await;
        assert_eq!(sent, Err(StoreError::Elsewhere));
        assert_eq!(first.apply(Change::Progress(late, sending)).await, Ok(()));
        assert_eq!(second.cancel(late, ended).await, Err(StoreError::Elsewhere));
    });
}

/// Its data began long before: nobody may still have to add writes again.
const LONG_AGO: &str = "SET writes:{writes}:born 1";

#[test]
fn a_write_is_stored_with_its_first_attempt() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    server.run(LONG_AGO);
    runtime.block_on(async {
        let (first, second) = (shared(&server, 1).await, shared(&server, 2).await);
        let ended = |before| Progress { state: WriteState::Cancelled, ..before };
        let place = Place { lane: "ci:/repos/a/b".into(), ..Place::default() };
        let queued = progress(WriteState::Queued);
        let write = stored("request", queued.encode());
        let sending = queued.sending().encode();
        let [head, behind] = [(); 2].map(|()| first.next_number().unwrap());
        for number in [head, behind] {
            first.insert(number, &write, &place, Some(sending.clone())).await.unwrap();
        }
        let [ahead, waiting] = [head, behind].map(|number| second.load(number));
        assert_eq!(ahead.await, Ok(Some(stored("request", sending.clone()))));
        assert_eq!(waiting.await, Ok(Some(write)));
        assert_eq!(second.cancel(head, ended).await, Err(StoreError::Elsewhere));
        let changes = server.info("cmdstat_hset");
        first.apply(Change::Progress(head, sending.clone())).await.unwrap();
        assert_eq!(server.info("cmdstat_hset"), changes);
        first.apply(Change::Progress(behind, sending)).await.unwrap();
        assert_ne!(server.info("cmdstat_hset"), changes);
    });
}

#[test]
fn an_attempt_that_does_not_begin_is_taken_back() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    server.run(LONG_AGO);
    runtime.block_on(async {
        let (first, second) = (shared(&server, 1).await, shared(&server, 2).await);
        let ended = |before| Progress { state: WriteState::Cancelled, ..before };
        let queued = progress(WriteState::Queued);
        let write = stored("request", queued.encode());
        let sending = queued.sending().encode();
        let insert = |lane: &str| {
            let place = Place { lane: lane.into(), ..Place::default() };
            let number = first.next_number().unwrap();
            let inserted = first.insert(number, &write, &place, Some(sending.clone()));
            async move { inserted.await.map(|()| number).unwrap() }
        };
        let late = insert("ci:late").await;
        while second.load(late).await.unwrap().unwrap() != write {}
        first.apply(Change::Progress(late, sending.clone())).await.unwrap();
        assert_eq!(second.load(late).await.unwrap().unwrap().progress, sending);
        let cancelled = insert("ci:cancelled").await;
        assert_eq!(first.cancel(cancelled, ended).await, Ok(()));
        let elsewhere = insert("ci:elsewhere").await;
        server.run(&format!("HSET writes:{{writes}}:write:{elsewhere:016x} owner another"));
        let left = insert("ci:left").await;
        assert_eq!(first.end().await, Ok(()), "a write that another replica has holds up nothing");
        assert_eq!(second.load(left).await.unwrap().unwrap(), write);
        assert_eq!(server.run("SISMEMBER writes:{writes}:left 0000000000000001"), ":1");
    });
}

#[test]
fn a_large_write_is_not_awaited_from_a_server_that_hangs() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    runtime.block_on(async {
        let mut settings = settings(&server, "writes");
        settings.op_timeout = Duration::from_millis(100);
        let replica = Replica::begin(&settings, 1, Timestamp::EPOCH);
        let store = opened_in_redis(&replica).await;
        store.apply(Change::Insert(7, stored("request", "queued"))).await.unwrap();
        server.freeze();
        let loaded = timeout(Duration::from_secs(4), store.load(7)).await;
        server.thaw();
        assert!(matches!(loaded, Ok(Err(StoreError::Failed(_)))), "{loaded:?}");
    });
}

#[test]
fn a_promised_write_stays_when_its_client_leaves() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    runtime.block_on(async {
        let (first, second) = (shared(&server, 1).await, shared(&server, 2).await);
        let place = Place { key: "ci:key".into(), meaning: [7; 32], ..Place::default() };
        let write = stored("request", progress(WriteState::Queued).encode());
        let number = first.next_number().unwrap();
        first.insert(number, &write, &place, None).await.unwrap();
        let other = second.next_number().unwrap();
        let found = second.insert(other, &write, &place, None).await;
        assert_eq!(found, Err(StoreError::Keyed { number, meaning: [7; 32] }));
        first.apply(Change::Remove(vec![number])).await.unwrap();
        let mut events = first.events().unwrap();
        while events.recv().await != Some(Event::Adopted(vec![number])) {}
        let (kept, is_promised) = first.load_adopted(number).await.unwrap().unwrap();
        assert_eq!((kept, is_promised), (write, true));
    });
}

#[test]
fn a_new_write_comes_behind_one_that_was_added_again() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    runtime.block_on(async {
        let (first, second) = (shared(&server, 1).await, shared(&server, 2).await);
        let place = Place { lane: "ci:/repos/a/b".into(), ..Place::default() };
        let queued = progress(WriteState::Queued).encode();
        // The server's clock is set back with its loss.
        server.run("SET writes:{writes}:places 8000000000000000");
        let (early, late) = (first.next_number().unwrap(), second.next_number().unwrap());
        first.insert(early, &stored("early", queued.clone()), &place, None).await.unwrap();
        server.run("FLUSHALL");
        assert_eq!(first.apply(Change::Progress(early, queued.clone())).await, Ok(()));
        let mut events = second.events().unwrap();
        second.insert(late, &stored("late", queued), &place, None).await.unwrap();
        // No turn comes as long as others may add theirs.
        while second.has_just_lost() {
            tokio::task::yield_now().await;
        }
        renewal_of(&server, 2).await;
        renewal_of(&server, 2).await;
        while let Ok(event) = events.try_recv() {
            assert_ne!(event, Event::Turn(late));
        }
        let done = Change::Progress(early, progress(WriteState::Done).encode());
        assert_eq!(first.apply(done).await, Ok(()));
        while events.recv().await != Some(Event::Turn(late)) {}
    });
}

#[test]
fn a_write_that_was_removed_is_not_added_late() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    runtime.block_on(async {
        let store = shared(&server, 1).await;
        let write = stored("request", "queued");
        server.freeze();
        let late = store.apply(Change::Insert(7, write));
        let removed = store.apply(Change::Remove(vec![7]));
        server.thaw();
        let _ = (late.await, removed.await);
        assert_eq!(store.load(7).await, Ok(None));
    });
}

#[test]
fn numbers_stay_apart_when_redis_has_lost_everything() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    runtime.block_on(async {
        let first = shared(&server, 1).await;
        let begun = time_of(&server);
        server.run("FLUSHALL");
        // Ranges are as far apart as the times at which they were reserved.
        while time_of(&server) < begun + Duration::from_millis(128) {}
        let second = shared(&server, 2).await;
        let (one, other) = (first.next_number().unwrap(), second.next_number().unwrap());
        assert!(other > one + 1_000_000, "{one} and {other}");
    });
}

fn time_of(server: &RedisServer) -> Duration {
    let script = "EVAL \"local t = redis.call('TIME') return t[1] * 1000000 + t[2]\" 0";
    Duration::from_micros(server.run(script).trim_start_matches(':').parse().unwrap())
}

#[test]
fn a_number_that_another_write_has_is_refused() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    runtime.block_on(async {
        let (first, second) = (shared(&server, 1).await, shared(&server, 2).await);
        let (one, other) = (stored("one", "queued"), stored("other", "queued"));
        assert_eq!(first.apply(Change::Insert(7, one.clone())).await, Ok(()));
        assert_eq!(first.apply(Change::Insert(7, one.clone())).await, Ok(()), "it is the same");
        let refused = second.apply(Change::Insert(7, other)).await;
        assert!(matches!(refused, Err(StoreError::Failed(_))), "{refused:?}");
        assert_eq!(second.load(7).await, Ok(Some(one)));
    });
}

#[test]
fn writes_that_cannot_be_read_are_left_to_others() {
    let (runtime, server) = (runtime(), RedisServer::start(&[]));
    runtime.block_on(async {
        let replica = |number, key: &str| {
            let replica = Replica::begin(&settings(&server, "writes"), number, Timestamp::EPOCH);
            let keys = format!("encrypt_key = {{ value = \"{key}\" }}");
            replica.use_keys_of(&state(&server, "writes", &keys));
            replica
        };
        let (key, wrong_key) = ("k".repeat(32), "w".repeat(32));
        let (dead, wrong, right) = (replica(1, &key), replica(2, &wrong_key), replica(3, &key));
        let store = |replica| SharedStore::begin(replica, Duration::from_hours(1));
        let (first, second) = (store(&dead), store(&wrong));
        while !first.is_open() || !second.is_open() {
            tokio::task::yield_now().await;
        }
        let number = first.next_number().unwrap();
        let write = stored("request", progress(WriteState::Queued).encode());
        first.insert(number, &write, &Place::default(), None).await.unwrap();
        first.end().await.unwrap();
        let mut events = second.events().unwrap();
        // It could have taken the write at each of these.
        for _ in 0..2 {
            renewal_of(&server, 2).await;
        }
        assert!(events.try_recv().is_err());
        let third = store(&right);
        let mut events = third.events().unwrap();
        while events.recv().await != Some(Event::Adopted(vec![number])) {}
        let (read, _) = third.load_adopted(number).await.unwrap().unwrap();
        assert_eq!(read, write);
    });
}

/// Waits until a replica with this number renews its lease.
async fn renewal_of(server: &RedisServer, number: u64) {
    let left = || {
        let key = format!("writes:{{writes}}:alive:{number:016x}");
        let left = server.run(&format!("EVAL \"return redis.call('PTTL', '{key}')\" 0"));
        left.trim_start_matches(':').parse::<i64>().unwrap()
    };
    let mut before = left();
    loop {
        tokio::task::yield_now().await;
        let now = left();
        if now > before {
            return;
        }
        before = now;
    }
}

/// One operation on a store.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Insert(u64, usize),
    Progress(u64, usize),
    Remove(Vec<u64>),
    /// The process restarts, if the store survives that.
    Reopen,
}

impl Step {
    pub(super) fn change(&self, salt: usize) -> Option<Change> {
        let text = |len: usize| {
            (0..len).map(|at| u8::try_from((at * 7 + salt) % 251).unwrap()).collect::<Vec<_>>()
        };
        Some(match self {
            Self::Insert(number, len) => {
                Change::Insert(*number, stored(text(*len), format!("queued {salt}")))
            }
            Self::Progress(number, len) => Change::Progress(*number, text(*len).into()),
            Self::Remove(numbers) => Change::Remove(numbers.clone()),
            Self::Reopen => return None,
        })
    }
}

/// Makes the same change in a plain map.
pub(super) fn model(kept: &mut BTreeMap<u64, Stored>, change: &Change) {
    match change.clone() {
        Change::Insert(number, stored) => drop(kept.insert(number, stored)),
        Change::Progress(number, progress) => {
            if let Some(stored) = kept.get_mut(&number) {
                stored.progress = progress;
            }
        }
        Change::Remove(numbers) => kept.retain(|number, _| !numbers.contains(number)),
    }
}

pub(super) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..12_u64, prop_oneof![4 => 0..2_000_usize, 1 => 2_000..60_000_usize]).prop_map(|(number, len)| Step::Insert(number, len)),
        6 => (0..12_u64, 0..3_000_usize).prop_map(|(number, len)| Step::Progress(number, len)),
        3 => prop::collection::vec(0..12_u64, 0..4).prop_map(Step::Remove),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(24), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_store_behaves_like_a_plain_map(steps in steps(60)) {
        let directory = TempDir::new().unwrap();
        let (memory, mut file) = (MemoryStore::default(), Some(opened(&directory).0));
        let mut expected = BTreeMap::new();
        let mut highest = None;
        for (salt, step) in steps.iter().enumerate() {
            if let Some(change) = step.change(salt) {
                model(&mut expected, &change);
                if let Change::Insert(number, _) = &change {
                    highest = highest.max(Some(*number));
                }
                drop(memory.apply(change.clone()));
                drop(file.as_ref().unwrap().apply(change));
                continue;
            }
            drop(file.take());
            let (store, found) = opened(&directory);
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(store.first_number(), highest.map_or(0, |number| number + 1));
            file = Some(store);
        }
        for number in 0..12 {
            let wanted = Ok(expected.get(&number).cloned());
            prop_assert_eq!(&block_on(memory.load(number)), &wanted);
            prop_assert_eq!(&block_on(file.as_ref().unwrap().load(number)), &wanted);
        }
    }
}
