//! The open connections of each client address. An address of IPv6 counts as its network of 64
//! bits, which one customer of a provider has for himself.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The addresses with open connections, so as many at most.
#[derive(Default)]
pub struct Addresses(Mutex<HashMap<Key, u32>>);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    V4(u32),
    V6Network(u64),
}

/// Guard: one connection of an address.
pub struct OfAddress {
    addresses: Arc<Addresses>,
    key: Key,
}

impl Addresses {
    /// Counts a connection. `None`: the address has `max` already.
    pub fn count(self: &Arc<Self>, address: IpAddr, max: u32) -> Option<OfAddress> {
        let key = Key::of(address);
        let mut open = self.0.lock();
        let connections = open.entry(key).or_default();
        // The entry of a refused connection is never new, because `max` is not zero.
        (*connections < max).then(|| {
            *connections += 1;
            OfAddress { addresses: Arc::clone(self), key }
        })
    }
}

impl Key {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => {
                let [network @ .., _, _, _, _] = address.segments();
                Self::V6Network(network.iter().fold(0, |all, part| all << 16 | u64::from(*part)))
            }
        }
    }
}

impl Drop for OfAddress {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.addresses.0.lock().entry(self.key) {
            match entry.get() {
                0 | 1 => drop(entry.remove()),
                _ => *entry.get_mut() -= 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_at_most_its_connections_until_one_ends() {
        let addresses = Arc::<Addresses>::default();
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        let held: Vec<_> = (0..3).map(|_| addresses.count(one, 3)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(addresses.count(one, 3).is_none());
        assert!(addresses.count(other, 3).is_some());
        drop(held);
        assert!(addresses.count(one, 3).is_some());
        assert!(addresses.0.lock().is_empty(), "nothing stays of an address without connections");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let addresses = Arc::<Addresses>::default();
        let count = |text: &str| addresses.count(text.parse().unwrap(), 1);
        let _held = count("2001:db8:1:2::1").unwrap();
        assert!(count("2001:db8:1:2:ffff::").is_none());
        assert!(count("2001:db8:1:3::1").is_some());
        let _mapped = count("::ffff:192.0.2.1").unwrap();
        assert!(count("192.0.2.1").is_none());
    }
}
