//! A bounded map by hash, of two generations: when the young one is full, the old one is dropped.

use std::collections::HashMap;

#[derive(Default)]
pub struct Generations<V> {
    pub(super) young: HashMap<u64, V>,
    pub(super) old: HashMap<u64, V>,
}

impl<V: Copy + Default> Generations<V> {
    pub fn get(&self, key: u64) -> V {
        self.young.get(&key).or_else(|| self.old.get(&key)).copied().unwrap_or_default()
    }

    /// Returns the value to change, in a young generation of at most `max` values, and the values
    /// that are dropped for it.
    pub fn entry(&mut self, key: u64, max: usize) -> (&mut V, impl Iterator<Item = V> + use<V>) {
        let is_full = self.young.len() >= max && !self.young.contains_key(&key);
        let before = self.get(key);
        let dropped = if is_full {
            std::mem::replace(&mut self.old, std::mem::take(&mut self.young))
        } else {
            HashMap::new()
        };
        (self.young.entry(key).or_insert(before), dropped.into_values())
    }
}
