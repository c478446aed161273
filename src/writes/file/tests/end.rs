//! After an end of any kind, everything that was acknowledged is there.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::FileStore;
use super::{Done, TestDisk};
use crate::cases::cases;
use crate::writes::conformance::{Step, block_on, model, opened, steps, stored};
use crate::writes::{Change, Store, Stored};

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

#[test]
fn a_killed_gateway_finds_every_acknowledged_change() {
    let directory = TempDir::new().unwrap();
    let (store, _) = opened(&directory);
    let copy = directory.path().join("copy.redb");
    let mut expected = BTreeMap::new();
    for salt in 0..60 {
        let number = salt as u64 % 7;
        let step = [
            Step::Insert(number, salt * 300),
            Step::Progress(number, salt),
            Step::Remove(vec![number]),
        ][salt % 3]
            .clone();
        let change = step.change(salt).unwrap();
        model(&mut expected, &change);
        block_on(store.apply(change)).unwrap();
        // The bytes in the file now are those that a SIGKILL leaves.
        fs::copy(directory.path().join("weir.redb"), &copy).unwrap();
        let mut found = BTreeMap::new();
        let again = FileStore::open(&copy, |number, stored| {
            found.insert(number, stored);
            Ok(())
        });
        drop(again.unwrap());
        assert_eq!(found, expected, "after change {salt}");
    }
}

#[test]
fn every_submitted_change_is_kept_at_an_orderly_end() {
    let directory = TempDir::new().unwrap();
    let (store, _) = opened(&directory);
    for number in 0..300 {
        drop(store.apply(Change::Insert(number, stored("a", "queued"))));
    }
    drop(store);
    assert_eq!(opened(&directory).1.len(), 300);
}

#[test]
fn a_number_is_not_used_again_when_its_write_is_forgotten() {
    let directory = TempDir::new().unwrap();
    let (store, _) = opened(&directory);
    assert_eq!(store.first_number(), 0);
    block_on(store.apply(Change::Insert(41, stored("a", "queued")))).unwrap();
    block_on(store.apply(Change::Remove(vec![41]))).unwrap();
    drop(store);
    assert_eq!(opened(&directory).0.first_number(), 42);
}

#[test]
fn a_file_is_as_large_as_its_most_writes_at_once() {
    let directory = TempDir::new().unwrap();
    let (store, _) = opened(&directory);
    let size = || fs::metadata(directory.path().join("weir.redb")).unwrap().len();
    let mut most = 0;
    for round in 0..30_u64 {
        let numbers = (round * 200..(round + 1) * 200).collect::<Vec<_>>();
        for number in &numbers {
            drop(store.apply(Change::Insert(*number, stored(vec![1; 4000], "queued"))));
        }
        for number in &numbers {
            drop(store.apply(Change::Progress(*number, vec![2; 2000].into())));
        }
        block_on(store.apply(Change::Remove(numbers))).unwrap();
        most = most.max(size());
    }
    // 200 writes of 6 KB at a time are 1.2 MB; all of them together are 36 MB. The machine decides
    // how many share a commit, and so how many pages are copied.
    assert!(most < 9_000_000, "{most} bytes");
}

/// Returns the disk after a power failure: everything synced, and any part of the rest.
fn after_power_loss(before: &[u8], done: &[Done], mut chance: impl FnMut() -> bool) -> Vec<u8> {
    let synced = done.iter().rposition(|done| matches!(done, Done::Sync)).map_or(0, |at| at + 1);
    let disk = TestDisk::with(before);
    let contents = &mut *disk.0.lock();
    for (at, done) in done.iter().enumerate() {
        match done {
            Done::Write(offset, data) => {
                for (sector, part) in data.chunks(SECTOR_BYTES).enumerate() {
                    if at < synced || chance() {
                        contents.write(offset + (sector * SECTOR_BYTES) as u64, part).unwrap();
                    }
                }
            }
            Done::SetLen(len) if at < synced || chance() => contents.set_len(*len),
            Done::SetLen(_) | Done::Sync => {}
        }
    }
    contents.bytes.clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(40), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_power_may_fail_at_any_moment(
        steps in steps(25),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 12),
    ) {
        let disk = TestDisk::blank();
        let before = disk.bytes();
        disk.0.lock().done.clear();
        let mut store = Some(disk.open().unwrap().0);
        // The contents after each change, and the operations done at its acknowledgement.
        let mut states: Vec<(usize, BTreeMap<u64, Stored>)> = vec![(0, BTreeMap::new())];
        for (salt, step) in steps.iter().enumerate() {
            let Some(change) = step.change(salt) else {
                drop(store.take());
                store = Some(disk.open().unwrap().0);
                continue;
            };
            block_on(store.as_ref().unwrap().apply(change.clone())).unwrap();
            let mut next = states.last().unwrap().1.clone();
            model(&mut next, &change);
            states.push((disk.0.lock().done.len(), next));
        }
        drop(store);
        let done = disk.0.lock().done.clone();
        for (cut, seed) in cuts {
            let cut = cut.index(done.len() + 1);
            let mut random = seed | 1;
            let image = after_power_loss(&before, &done[..cut], || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                random >> 63 == 0
            });
            let (_, found) = TestDisk::with(&image).open().unwrap_or_else(|fault| panic!("after {cut} of {}: {fault}", done.len()));
            let acknowledged = states.iter().rposition(|(at, _)| *at <= cut).unwrap();
            let possible = &states[acknowledged..states.len().min(acknowledged + 2)];
            prop_assert!(possible.iter().any(|(_, state)| *state == found), "after {} of {}: a change that was acknowledged is missing", cut, done.len());
        }
    }
}
