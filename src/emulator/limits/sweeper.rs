//! Amortized removal of ended entries from maps that grow with every new caller, so that no request
//! pays for all callers.

use std::collections::BTreeMap;

/// The largest size of a map, as a multiple of its first sweep's size.
const GROWTH_MAX: usize = 16;

/// Sweeps once the map has doubled, which costs each new entry a constant share on average.
#[derive(Debug, Default)]
pub struct Sweeper<const FROM: usize> {
    next: usize,
}

impl<const FROM: usize> Sweeper<FROM> {
    /// Call before adding an entry. When too many are live, the last go: the anonymous accounts.
    pub fn sweep<K: Ord, V>(&mut self, map: &mut BTreeMap<K, V>, has_ended: impl Fn(&V) -> bool) {
        if map.len() < self.next.max(FROM) {
            return;
        }
        map.retain(|_, entry| !has_ended(entry));
        while map.len() > FROM * GROWTH_MAX / 2 {
            map.pop_last();
        }
        self.next = map.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Adds entries that never end. Returns how often an entry was visited, and the largest size.
    fn filled(entries: usize) -> (usize, usize) {
        let (visits, mut largest) = (Cell::new(0), 0);
        let (mut sweeper, mut map) = (Sweeper::<10>::default(), BTreeMap::new());
        for entry in 0..entries {
            sweeper.sweep(&mut map, |_: &usize| {
                visits.set(visits.get() + 1);
                false
            });
            map.insert(entry, entry);
            largest = largest.max(map.len());
        }
        (visits.get(), largest)
    }

    #[test]
    fn sweeping_is_amortized_and_bounds_the_map() {
        let (visits, largest) = filled(10_000);
        assert!(visits <= 3 * 10_000, "{visits}");
        assert_eq!(largest, 10 * GROWTH_MAX);
    }

    #[test]
    fn a_sweep_removes_only_ended_entries() {
        let mut map: BTreeMap<u32, u32> = (0..10).map(|entry| (entry, entry)).collect();
        Sweeper::<10>::default().sweep(&mut map, |entry| *entry < 7);
        assert_eq!(map.into_keys().collect::<Vec<_>>(), [7, 8, 9]);
    }
}
