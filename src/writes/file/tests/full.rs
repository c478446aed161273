//! A full or failing disk: accepted writes stay, new ones are refused, and the store
//! recovers with the disk.

use super::TestDisk;
use crate::writes::conformance::{block_on, stored};
use crate::writes::file::worker::RESERVE_BYTES;
use crate::writes::{Change, Store, StoreError};

/// Inserts until there is no room, and returns the number of accepted writes.
fn fill(store: &dyn Store, from: u64) -> u64 {
    (from..from + 10_000)
        .find(|number| {
            match block_on(store.apply(Change::Insert(*number, stored(vec![7; 3000], "queued")))) {
                Ok(()) => false,
                Err(StoreError::Full(_)) => true,
                Err(error) => panic!("{error}"),
            }
        })
        .expect("it fills up")
}

#[test]
fn a_full_disk_refuses_new_writes_and_loses_none() {
    let disk = TestDisk::blank();
    disk.0.lock().blocks_max = Some(600);
    let (store, _) = disk.open().unwrap();
    let refused = fill(&store, 0);
    assert!(refused > 100, "{refused}");
    for number in 0..refused {
        assert!(block_on(store.load(number)).unwrap().is_some(), "write {number} is there");
    }
    // A refused client may come again: its write must not be there, now or after a start.
    assert_eq!(block_on(store.load(refused)), Ok(None));
    let killed = TestDisk::with(&disk.bytes()).open().unwrap().1;
    assert!(killed.keys().copied().eq(0..refused));
}

#[test]
fn forgetting_writes_makes_room_on_a_full_disk() {
    let disk = TestDisk::blank();
    disk.0.lock().blocks_max = Some(600);
    let (store, _) = disk.open().unwrap();
    let refused = fill(&store, 0);
    assert_eq!(block_on(store.apply(Change::Progress(1, "done".into()))), Ok(()));
    assert_eq!(block_on(store.apply(Change::Remove((0..refused / 2).collect()))), Ok(()));
    assert_eq!(
        block_on(store.apply(Change::Insert(refused + 1, stored("again", "queued")))),
        Ok(())
    );
    assert_eq!(block_on(store.load(refused + 1)), Ok(Some(stored("again", "queued"))));
}

#[test]
fn a_full_store_continues_when_there_is_room_again() {
    let disk = TestDisk::blank();
    disk.0.lock().blocks_max = Some(400);
    let (store, _) = disk.open().unwrap();
    let refused = fill(&store, 0);
    disk.0.lock().blocks_max = None;
    assert_eq!(block_on(store.apply(Change::Insert(refused, stored("a", "queued")))), Ok(()));
    drop(store);
    assert!(disk.open().unwrap().1.keys().copied().eq(0..=refused));
}

#[test]
fn a_nearly_full_disk_is_reserved_for_stored_writes() {
    let disk = TestDisk::blank();
    let (store, _) = disk.open().unwrap();
    disk.0.lock().room = Some(RESERVE_BYTES + 10_000);
    assert_eq!(block_on(store.apply(Change::Insert(0, stored(vec![1; 4000], "queued")))), Ok(()));
    disk.0.lock().room = Some(RESERVE_BYTES + 1_000);
    let refused = block_on(store.apply(Change::Insert(1, stored(vec![1; 4000], "queued"))));
    assert!(
        matches!(&refused, Err(StoreError::Full(why)) if why.contains("8 MiB are free")),
        "{refused:?}"
    );
    assert_eq!(block_on(store.apply(Change::Progress(0, vec![2; 20_000].into()))), Ok(()));
    assert_eq!(block_on(store.apply(Change::Remove(vec![0]))), Ok(()));
}

#[test]
fn a_failed_disk_is_retried_with_the_next_change() {
    let disk = TestDisk::blank();
    let (store, _) = disk.open().unwrap();
    block_on(store.apply(Change::Insert(0, stored("a", "queued")))).unwrap();
    disk.0.lock().syncs_fail = true;
    for number in 1..4 {
        assert!(matches!(
            block_on(store.apply(Change::Insert(number, stored("b", "queued")))),
            Err(StoreError::Failed(_))
        ));
        assert!(matches!(
            block_on(store.apply(Change::Progress(0, "sending".into()))),
            Err(StoreError::Failed(_))
        ));
    }
    disk.0.lock().syncs_fail = false;
    assert_eq!(block_on(store.apply(Change::Progress(0, "done".into()))), Ok(()));
    assert_eq!(block_on(store.apply(Change::Insert(4, stored("c", "queued")))), Ok(()));
    drop(store);
    // Failed writes are absent: their clients were refused, and may have sent them again.
    let (_, found) = disk.open().unwrap();
    assert!(found.keys().copied().eq([0, 4]), "{:?}", found.keys());
    assert_eq!(found[&0], stored("a", "done"));
}

#[test]
fn a_failed_write_is_absent_even_if_it_reached_the_disk() {
    for syncs in 0..2 {
        let disk = TestDisk::blank();
        let (store, _) = disk.open().unwrap();
        disk.0.lock().syncs_before_one_fails = Some(syncs);
        assert!(matches!(
            block_on(store.apply(Change::Insert(1, stored("a", "queued")))),
            Err(StoreError::Failed(_))
        ));
        assert_eq!(block_on(store.load(1)), Ok(None), "sync {syncs} failed");
        assert!(TestDisk::with(&disk.bytes()).open().unwrap().1.is_empty(), "sync {syncs} failed");
    }
}

#[test]
fn the_whole_file_is_rewritten_after_a_failed_sync() {
    let disk = TestDisk::blank();
    let (store, _) = disk.open().unwrap();
    block_on(store.apply(Change::Insert(0, stored(vec![9; 5000], "queued")))).unwrap();
    disk.0.lock().syncs_fail = true;
    assert!(block_on(store.apply(Change::Progress(0, "sending".into()))).is_err());
    disk.0.lock().syncs_fail = false;
    let len = disk.bytes().len() as u64;
    disk.0.lock().done.clear();
    block_on(store.apply(Change::Progress(0, "done".into()))).unwrap();
    let written = disk
        .0
        .lock()
        .done
        .iter()
        .map_while(|done| {
            if let super::Done::Write(at, data) = done {
                Some((*at, data.len() as u64))
            } else {
                None
            }
        })
        .collect::<Vec<_>>();
    let end = written.iter().try_fold(0, |end, (at, bytes)| (*at == end).then_some(end + bytes));
    assert_eq!(end, Some(len), "all of the file, from its beginning to its end: {written:?}");
}

#[test]
fn a_sector_that_cannot_be_read_loses_nothing_else() {
    let disk = TestDisk::blank();
    let (store, _) = disk.open().unwrap();
    for number in 0..2_000 {
        drop(store.apply(Change::Insert(number, stored(vec![3; 4000], "queued"))));
    }
    block_on(store.load(0)).unwrap();
    disk.0.lock().reads_fail = true;
    assert!((0..2_000).any(|number| block_on(store.load(number)).is_err()));
    disk.0.lock().reads_fail = false;
    assert_eq!(block_on(store.load(1)), Ok(Some(stored(vec![3; 4000], "queued"))));
}

#[test]
fn the_queue_of_a_slow_disk_is_bounded() {
    let disk = TestDisk::blank();
    let (store, _) = disk.open().unwrap();
    // The disk accepts nothing while this lock is held.
    let contents = disk.0.lock();
    let mut accepted = Vec::new();
    let refused = (0..)
        .map(|number| store.apply(Change::Insert(number, stored(vec![0; 100_000], "queued"))))
        .find_map(|mut answer| {
            let refused = futures_util::FutureExt::now_or_never(&mut answer);
            accepted.push(answer);
            refused
        });
    assert!(matches!(refused, Some(Err(StoreError::Full(_)))), "{refused:?}");
    assert!((600..900).contains(&accepted.len()), "{}", accepted.len());
    let progress = store.apply(Change::Progress(0, "sending".into()));
    drop(contents);
    accepted.pop();
    assert!(accepted.into_iter().all(|answer| block_on(answer).is_ok()));
    assert_eq!(block_on(progress), Ok(()));
}
