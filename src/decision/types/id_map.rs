//! A map for keys that are counted upwards: leases and tickets.
//!
//! Keys of about the same age mostly end at about the same time. So the slots of the newest keys
//! lie in a row in key order: a lookup is one step, and the used part of the row stays in a core's
//! cache. Older keys that remain move to a hash map, so that one long-lived key does not lengthen
//! the row. Values fill slots that ended keys have left.

use std::collections::VecDeque;

use slab::Slab;

use super::HashMap;

/// The row holds at most `KEPT` times the keys in use and `KEPT_BESIDE` more. Ours: four bytes
/// each.
const KEPT: usize = 4;
const KEPT_BESIDE: usize = 256;
/// Slot of a key in the row that is not in use.
const NOWHERE: u32 = u32::MAX;

#[derive(Debug)]
pub struct IdMap<T> {
    values: Slab<T>,
    /// Slot of each key from `first` on.
    row: VecDeque<u32>,
    first: u64,
    others: HashMap<u64, u32>,
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        Self { values: Slab::new(), row: VecDeque::new(), first: 0, others: HashMap::default() }
    }
}

impl<T> IdMap<T> {
    pub fn insert(&mut self, key: u64, value: T) {
        self.remove(key);
        let place = u32::try_from(self.values.insert(value)).unwrap_or(NOWHERE);
        if self.row.is_empty() {
            self.first = key;
        }
        let most = KEPT * self.values.len() + KEPT_BESIDE;
        match key.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()) {
            Some(at) if at < self.row.len() => self.row[at] = place,
            Some(at) if at < most => {
                self.row.resize(at, NOWHERE);
                self.row.push_back(place);
            }
            Some(_) | None => {
                self.others.insert(key, place);
            }
        }
        while self.row.len() > most {
            let place = self.row.pop_front().filter(|place| *place != NOWHERE);
            self.others.extend(place.map(|place| (self.first, place)));
            self.first += 1;
        }
    }

    pub fn remove(&mut self, key: u64) -> Option<T> {
        let place = match self.in_row(key) {
            Some((at, place)) => {
                self.row[at] = NOWHERE;
                place
            }
            None if self.others.is_empty() => return None,
            None => self.others.remove(&key)?,
        };
        while self.row.pop_front_if(|place| *place == NOWHERE).is_some() {
            self.first += 1;
        }
        self.values.try_remove(place as usize)
    }

    pub fn get(&self, key: u64) -> Option<&T> {
        self.values.get(self.place(key)?)
    }

    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        self.values.get_mut(self.place(key)?)
    }

    pub fn contains(&self, key: u64) -> bool {
        self.place(key).is_some()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|(_, value)| value)
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Index in the row and slot of a key that the row holds.
    fn in_row(&self, key: u64) -> Option<(usize, u32)> {
        let at = usize::try_from(key.checked_sub(self.first)?).ok()?;
        self.row.get(at).filter(|place| **place != NOWHERE).map(|place| (at, *place))
    }

    fn place(&self, key: u64) -> Option<usize> {
        let place = match self.in_row(key) {
            Some((_, place)) => place,
            None if self.others.is_empty() => return None,
            None => *self.others.get(&key)?,
        };
        Some(place as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_lived_key_does_not_lengthen_the_row() {
        let mut id_map = IdMap::default();
        for key in 0..100_000 {
            id_map.insert(key, key);
            if key > 0 {
                assert_eq!(id_map.remove(key), Some(key));
            }
        }
        assert!(id_map.row.len() <= 2 * KEPT + KEPT_BESIDE && id_map.row.capacity() < 2_000);
        assert_eq!((id_map.get(0), id_map.len()), (Some(&0), 1));
    }

    proptest! {
        /// Compares with a `BTreeMap`: mostly the next key, now and then an older or a distant one.
        #[test]
        fn the_map_agrees_with_a_plain_map(steps in prop::collection::vec((0_u8..6, 0_u64..4_000), 1..600)) {
            let mut id_map = IdMap::default();
            let mut plain = std::collections::BTreeMap::new();
            let mut next = 1_000;
            for (step, number) in steps {
                let key = match step {
                    0 => number,
                    1 => next + number,
                    _ => { next += 1; next }
                };
                if step == 5 {
                    let oldest = plain.keys().nth(usize::try_from(number % 7).unwrap()).copied().unwrap_or(number);
                    prop_assert_eq!(id_map.remove(oldest), plain.remove(&oldest));
                } else {
                    id_map.insert(key, number);
                    plain.insert(key, number);
                }
                prop_assert_eq!((id_map.get(key), id_map.len()), (plain.get(&key), plain.len()));
                prop_assert_eq!(id_map.values().sum::<u64>(), plain.values().sum::<u64>());
            }
            prop_assert!(plain.iter().all(|(key, number)| id_map.get(*key) == Some(number)));
        }
    }
}
