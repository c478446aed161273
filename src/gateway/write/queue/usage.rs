//! The store usage of each client's writes, finished ones that are still kept included.
//!
//! A write counts with its size at acceptance and at its end, without the small growth between.
//! Places in lanes are counted there.

use std::collections::HashMap;

/// The usage by client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    by_client: HashMap<u32, Held>,
    all: Held,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub writes: u64,
    pub bytes: u64,
}

impl Usage {
    pub fn add(&mut self, client: u32, bytes: u32) {
        for held in [&mut self.all, self.by_client.entry(client).or_default()] {
            held.writes += 1;
            held.bytes += u64::from(bytes);
        }
    }

    pub fn remove(&mut self, client: u32, bytes: u32) {
        let Some(own) = self.by_client.get_mut(&client) else { return };
        for held in [&mut self.all, &mut *own] {
            held.writes = held.writes.saturating_sub(1);
            held.bytes = held.bytes.saturating_sub(u64::from(bytes));
        }
        // Clients come and go.
        if own.writes == 0 {
            self.by_client.remove(&client);
        }
    }

    pub fn of(&self, client: u32) -> Held {
        self.by_client.get(&client).copied().unwrap_or_default()
    }

    pub fn all(&self) -> Held {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_held_by_nobody() {
        let mut usage = Usage::default();
        for (client, bytes) in [(1, 10), (1, 20), (2, 5)] {
            usage.add(client, bytes);
        }
        assert_eq!(
            (usage.of(1), usage.all()),
            (Held { writes: 2, bytes: 30 }, Held { writes: 3, bytes: 35 })
        );
        usage.remove(1, 20);
        usage.remove(1, 10);
        assert_eq!((usage.of(1), usage.of(2)), (Held::default(), Held { writes: 1, bytes: 5 }));
        usage.remove(2, 5);
        usage.remove(3, 5);
        assert_eq!(usage, Usage::default());
    }
}
