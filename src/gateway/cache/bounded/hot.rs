//! The values that a thread reads most, beside the cache that has all of them.
//!
//! A read of `moka` records itself and follows pointers through memory. A hundred nanoseconds, or
//! several with many values, are noticeable in a hit.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// Most copies of a thread. Chosen here: thousands of values rarely meet, and 64 KiB are little if
/// they are fewer.
const COPIES: usize = 8192;
/// Copies of all threads, if there are many. Chosen here: 25 MiB, whatever the machine.
const COPIES_OF_ALL: usize = 8 * COPIES;
/// Counters of changes. Chosen here: a change seldom outdates the copies of other keys.
const COUNTERS: usize = 1024;
/// Reads that a copy answers before the cache learns that its value is in use. Chosen here: its
/// rating remains far above that of values which are read once.
const READS: u8 = 16;

/// References to the values that each thread reads most. They keep no removed value in memory.
pub struct HotValues<K, T> {
    hasher: RandomState,
    /// One for each of as many threads as run at once, so that they do not wait for each other.
    tables: Box<[Mutex<Table<K, T>>]>,
    /// Of each table.
    copies: usize,
    /// Changes of the keys with this hash. A copy from before a change is outdated.
    changes: Box<[AtomicU64]>,
}

/// The place of a counter of changes.
#[derive(Clone, Copy)]
pub struct Counter(usize);

/// Empty until the first read.
type Table<K, T> = Vec<Option<Box<HotValue<K, T>>>>;

struct HotValue<K, T> {
    key: K,
    value: Weak<T>,
    /// The count of changes when it was looked up.
    change: u64,
    /// Reads that it still answers. Reads of other keys in its place shorten its life too.
    reads_left: u8,
}

impl<K: Hash + Eq + Clone, T> HotValues<K, T> {
    pub fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            hasher: RandomState::default(),
            tables: (0..threads).map(|_| Mutex::default()).collect(),
            copies: (COPIES_OF_ALL / threads).clamp(1, COPIES),
            changes: (0..COUNTERS).map(|_| AtomicU64::default()).collect(),
        }
    }

    /// Returns the value of a key, from `look_up` if this thread has no copy of it.
    pub fn get(&self, key: &K, look_up: impl FnOnce() -> Option<Arc<T>>) -> Option<Arc<T>> {
        let hash = self.hash(key);
        // Before the value: a change in between outdates the copy.
        let change = self.changes[hash % COUNTERS].load(Ordering::Acquire);
        let table = &self.tables[thread_number() % self.tables.len()];
        let place = hash / COUNTERS % self.copies;
        if let Some(Some(hot)) = table.lock().get_mut(place)
            && hot.change == change
            && hot.reads_left > 0
            && hot.key == *key
            && let Some(value) = hot.value.upgrade()
        {
            hot.reads_left -= 1;
            return Some(value);
        }
        let value = look_up()?;
        let mut table = table.lock();
        if table.is_empty() {
            table.resize_with(self.copies, || None);
        }
        match &mut table[place] {
            Some(hot) if hot.key == *key => {
                (hot.value, hot.change) = (Arc::downgrade(&value), change);
                hot.reads_left = READS;
            }
            Some(hot) if hot.reads_left > 0 => hot.reads_left -= 1,
            other => {
                let (key, value) = (key.clone(), Arc::downgrade(&value));
                *other = Some(Box::new(HotValue { key, value, change, reads_left: READS }));
            }
        }
        Some(value)
    }

    /// The counter of a key's changes.
    pub fn counter_of(&self, key: &K) -> Counter {
        Counter(self.hash(key) % COUNTERS)
    }

    /// Outdates the copies of a key. Call it after the change.
    pub fn changed(&self, counter: Counter) {
        self.changes[counter.0].fetch_add(1, Ordering::AcqRel);
    }

    /// Outdates all copies. Call it after the change.
    pub fn all_changed(&self) {
        for change in &self.changes {
            change.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits of it will do")]
    fn hash(&self, key: &K) -> usize {
        self.hasher.hash_one(key) as usize
    }
}

/// Numbers the threads of the process.
fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot() -> HotValues<u64, u64> {
        HotValues::new()
    }

    #[test]
    fn a_copy_answers_some_reads_and_then_the_cache_is_asked() {
        let (hot, value) = (hot(), Arc::new(7));
        let mut asked = 0;
        for _ in 0..=2 * READS {
            let got = hot.get(&1, || {
                asked += 1;
                Some(Arc::clone(&value))
            });
            assert_eq!(got.as_deref(), Some(&7));
        }
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_changed_or_removed_value_is_looked_up_again() {
        let (hot, first, second) = (hot(), Arc::new(1), Arc::new(2));
        hot.get(&1, || Some(Arc::clone(&first)));
        hot.changed(hot.counter_of(&1));
        assert_eq!(hot.get(&1, || Some(Arc::clone(&second))).as_deref(), Some(&2));
        hot.all_changed();
        assert_eq!(hot.get(&1, || None), None);
        hot.get(&1, || Some(Arc::clone(&first)));
        assert_eq!(Arc::strong_count(&first), 1, "a copy keeps no value");
        drop(first);
        assert_eq!(hot.get(&1, || None), None);
    }

    #[test]
    fn keys_in_one_place_are_never_mistaken_for_each_other() {
        let hot = hot();
        let values: Vec<_> = (0..4 * COPIES as u64).map(Arc::new).collect();
        for _ in 0..2 {
            for value in &values {
                let got = hot.get(value, || Some(Arc::clone(value)));
                assert_eq!(got.as_ref(), Some(value));
            }
        }
    }

    #[test]
    fn a_read_after_a_change_never_shows_the_value_before() {
        const CHANGES: u64 = 20_000;
        let (hot, current) = (hot(), Mutex::new(Arc::new(0)));
        let completed = AtomicU64::new(0);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while completed.load(Ordering::Acquire) < CHANGES {
                        let least = completed.load(Ordering::Acquire);
                        let got = hot.get(&1, || Some(Arc::clone(&current.lock())));
                        assert!(got.is_some_and(|value| *value >= least));
                    }
                });
            }
            threads.spawn(|| {
                for change in 1..=CHANGES {
                    *current.lock() = Arc::new(change);
                    hot.changed(hot.counter_of(&1));
                    completed.store(change, Ordering::Release);
                }
            });
        });
    }
}
