//! A cache bounded by the bytes of its values, in `moka`.

pub mod hot;

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use moka::Equivalent;
use moka::notification::RemovalCause;
use moka::sync::Cache;

/// Bytes of new values after which a cache evicts. Chosen here: little beside any cache.
const UNSETTLED_BYTES_MAX: u64 = 1024 * 1024;

/// A cache bounded by the bytes of its values. It keeps what is asked for often, rather than what
/// is large and seldom used.
pub struct BoundedCache<K, V> {
    kept: Cache<K, V, RandomState>,
    weigh: fn(&K, &V) -> usize,
    /// Bytes that were added since it evicted.
    unsettled: AtomicU64,
}

impl<K, V> BoundedCache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Creates a cache of at most `bytes_max`. `on_gone` is called for each value that leaves it,
    /// with the cause.
    pub fn new(
        bytes_max: u64,
        weigh: fn(&K, &V) -> usize,
        on_gone: impl Fn(&V, RemovalCause) + Send + Sync + 'static,
    ) -> Self {
        let kept = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(move |key, value| u32::try_from(weigh(key, value)).unwrap_or(u32::MAX))
            .eviction_listener(move |_, value, cause| on_gone(&value, cause))
            .build_with_hasher(RandomState::default());
        Self { kept, weigh, unsettled: AtomicU64::new(0) }
    }

    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        self.kept.get(key)
    }

    /// Keeps a value in place of the one before.
    pub fn insert(&self, key: K, value: V) {
        let bytes = (self.weigh)(&key, &value) as u64;
        self.kept.insert(key, value);
        // New values wait for their rating, and would exceed the bound by hundreds of bodies.
        if self.unsettled.fetch_add(bytes, Ordering::Relaxed) + bytes >= UNSETTLED_BYTES_MAX {
            self.settle();
        }
    }

    pub fn remove(&self, key: &K) -> Option<V> {
        self.kept.remove(key)
    }

    /// Removes all values that `is_covered` selects. Returns their number and their bytes.
    pub fn remove_if(&self, is_covered: impl Fn(&K) -> bool) -> (u64, u64) {
        let covered: Vec<_> =
            self.kept.iter().map(|(key, _)| key).filter(|key| is_covered(key)).collect();
        let removed = covered.iter().filter_map(|key| {
            let value = self.kept.remove(&**key)?;
            Some((self.weigh)(key, &value) as u64)
        });
        let removed = removed.fold((0, 0), |(values, sum), bytes| (values + 1, sum + bytes));
        self.settle();
        removed
    }

    pub fn each(&self, mut show: impl FnMut(&K, u64)) {
        for (key, value) in &self.kept {
            show(&key, (self.weigh)(&key, &value) as u64);
        }
    }

    /// Iterates over what is kept, without a lock for longer than a few keys take.
    pub fn iter(&self) -> impl Iterator<Item = (Arc<K>, V)> {
        self.kept.iter()
    }

    /// The number of values and their bytes.
    pub fn size(&self) -> (u64, u64) {
        self.settle();
        (self.kept.entry_count(), self.kept.weighted_size())
    }

    /// Rates the new values, and evicts what exceeds the bound.
    fn settle(&self) {
        self.unsettled.store(0, Ordering::Relaxed);
        self.kept.run_pending_tasks();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const MIB: usize = 1024 * 1024;

    /// A value of one MiB that counts itself.
    struct Large(Arc<AtomicUsize>);

    impl Large {
        fn new(live: &Arc<AtomicUsize>) -> Arc<Self> {
            live.fetch_add(1, Ordering::Relaxed);
            Arc::new(Self(Arc::clone(live)))
        }
    }

    impl Drop for Large {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Threads that use any such cache at the moment delay the release of removed values.
    fn releases(cache: &BoundedCache<u32, Arc<Large>>, live: &AtomicUsize, left: usize) -> bool {
        (0..100_000).any(|_| {
            cache.size();
            std::thread::yield_now();
            live.load(Ordering::Relaxed) <= left
        })
    }

    #[test]
    fn evicted_values_leave_the_memory() {
        let live = Arc::new(AtomicUsize::new(0));
        let cache = BoundedCache::new(16 * MIB as u64, |_: &u32, _: &Arc<Large>| MIB, |_, _| {});
        for key in 0..1_000 {
            cache.insert(key, Large::new(&live));
        }
        assert!(cache.size().1 <= 16 * MIB as u64);
        assert!(releases(&cache, &live, 16), "{live:?} MiB");
    }

    #[test]
    fn replaced_values_leave_the_memory() {
        let live = Arc::new(AtomicUsize::new(0));
        let cache = BoundedCache::new(16 * MIB as u64, |_: &u32, _: &Arc<Large>| MIB, |_, _| {});
        for _ in 0..1_000 {
            cache.insert(1, Large::new(&live));
        }
        assert!(releases(&cache, &live, 1), "{live:?} MiB");
    }

    #[test]
    fn a_value_in_frequent_use_outlasts_a_scan() {
        let cache = BoundedCache::new(100, |_: &u32, _: &u32| 1, |_, _| {});
        for round in 0..20_u32 {
            for hot in 0..10 {
                if cache.get(&hot).is_none() {
                    cache.insert(hot, hot);
                }
            }
            for cold in 0..50 {
                cache.insert(1_000 + round * 50 + cold, 0);
            }
            cache.size();
        }
        assert!((0..10).all(|hot| cache.get(&hot).is_some()));
    }
}
