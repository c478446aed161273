//! The store of the generic resource: collections by address, objects by their key in a collection.
//!
//! It knows no routes. Each collection and the total are bounded in number and bytes; beyond that
//! the store is full.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::{Map, Value};

use crate::clock::Timestamp;

/// Sizes are those of keys and fields as JSON; only the total includes the addresses.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    item_bytes: usize,
    collection_items: usize,
    collection_bytes: usize,
    /// Totals; each collection counts as one more object.
    items: usize,
    bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            item_bytes: 256 * 1024,
            // A test needs no longer list.
            collection_items: 1_000,
            collection_bytes: 4 * 1024 * 1024,
            items: 100_000,
            bytes: 64 * 1024 * 1024,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoredItem {
    /// Never reused for another object.
    pub id: u64,
    pub fields: Map<String, Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl StoredItem {
    pub fn new(id: u64, fields: Map<String, Value>, at: Timestamp) -> Self {
        Self { id, fields, created_at: at, updated_at: at }
    }

    /// Serializing strings cannot fail; the fallback is too large to store.
    fn bytes(&self, name: &str) -> usize {
        serde_json::to_vec(&self.fields)
            .map_or(usize::MAX, |text| text.len().saturating_add(name.len()))
    }
}

#[derive(Debug, Default)]
pub struct Collection {
    items: BTreeMap<String, StoredItem>,
    bytes: usize,
    changed_at: Option<Timestamp>,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    #[default]
    Empty,
    /// Initial objects would reappear if the collection were dropped, so it stays even when empty.
    Seeded,
}

impl Collection {
    pub fn get(&self, name: &str) -> Option<&StoredItem> {
        self.items.get(name)
    }

    /// Lists keys and objects, oldest first.
    pub fn in_order(&self) -> Vec<(&str, &StoredItem)> {
        let mut items: Vec<_> =
            self.items.iter().map(|(name, item)| (name.as_str(), item)).collect();
        items.sort_by_key(|(_, item)| (item.created_at, item.id));
        items
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageFull;

/// All collections. An address is a path without a trailing slash.
#[derive(Debug, Default)]
pub struct Collections {
    by_address: BTreeMap<String, Collection>,
    items: usize,
    bytes: usize,
    /// The last time that a dropped collection became empty.
    emptied_at: Option<Timestamp>,
    bounds: Bounds,
}

impl Collections {
    pub fn collection(&self, address: &str) -> Option<&Collection> {
        self.by_address.get(address)
    }

    /// A dropped collection gets the last time that any was dropped, as a safe upper bound.
    pub fn changed_at(&self, address: &str) -> Option<Timestamp> {
        self.collection(address).map_or(self.emptied_at, |collection| collection.changed_at)
    }

    /// Stores the initial objects of a collection; fails when there is no room for all.
    pub fn store_initial(
        &mut self,
        address: &str,
        items: Vec<(String, StoredItem)>,
    ) -> Result<(), StorageFull> {
        for (name, item) in items {
            self.put(address, &name, item)?;
            self.by_address
                .entry(address.to_owned())
                .and_modify(|collection| collection.origin = Origin::Seeded);
        }
        Ok(())
    }

    /// Replaces a former object of that key. Without room it changes nothing.
    pub fn put(&mut self, address: &str, name: &str, item: StoredItem) -> Result<(), StorageFull> {
        let bytes = item.bytes(name);
        let Bounds { item_bytes, collection_items, collection_bytes, items, bytes: all_bytes_max } =
            self.bounds;
        // Every larger size fits nowhere; the cap keeps the sums small.
        let size = bytes.min(item_bytes + 1);
        let known = self.by_address.get(address);
        let before =
            known.and_then(|collection| collection.items.get(name)).map(|item| item.bytes(name));
        let (there, there_bytes) =
            known.map_or((0, 0), |collection| (collection.items.len(), collection.bytes));
        let grown_by = usize::from(before.is_none());
        let there_bytes = (there_bytes + size).saturating_sub(before.unwrap_or(0));
        let address_bytes = if known.is_none() { address.len() } else { 0 };
        let all_bytes = (self.bytes + address_bytes + size).saturating_sub(before.unwrap_or(0));
        let fits = bytes <= item_bytes
            && there + grown_by <= collection_items
            && there_bytes <= collection_bytes
            && self.items + self.by_address.len() + grown_by < items
            && all_bytes <= all_bytes_max;
        if !fits {
            return Err(StorageFull);
        }
        self.items += grown_by;
        self.bytes = all_bytes;
        let collection = self.by_address.entry(address.to_owned()).or_default();
        collection.bytes = there_bytes;
        collection.changed_at = Some(item.updated_at);
        collection.items.insert(name.to_owned(), item);
        Ok(())
    }

    /// Removes an object, and everything at addresses below it.
    pub fn take(&mut self, address: &str, name: &str, now: Timestamp) -> Option<StoredItem> {
        let collection = self.by_address.get_mut(address)?;
        let item = collection.items.remove(name)?;
        collection.bytes = collection.bytes.saturating_sub(item.bytes(name));
        collection.changed_at = Some(now);
        let is_over = collection.items.is_empty() && collection.origin == Origin::Empty;
        self.items -= 1;
        self.bytes = self.bytes.saturating_sub(item.bytes(name));
        self.clear_below(&format!("{address}/{name}"));
        if is_over {
            self.emptied_at = self.emptied_at.max(Some(now));
            self.remove(address);
        }
        Some(item)
    }

    /// Drops the collection of this address and all below it.
    pub fn clear_below(&mut self, address: &str) {
        let inside = format!("{address}/");
        let below =
            self.by_address.range::<str, _>((Bound::Included(inside.as_str()), Bound::Unbounded));
        let mut gone: Vec<String> =
            below.map(|(key, _)| key.clone()).take_while(|key| key.starts_with(&inside)).collect();
        gone.push(address.to_owned());
        for key in gone {
            self.remove(&key);
        }
    }

    fn remove(&mut self, address: &str) {
        if let Some(collection) = self.by_address.remove(address) {
            self.items -= collection.items.len();
            self.bytes = self.bytes.saturating_sub(collection.bytes + address.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn item(id: u64, text: &str) -> StoredItem {
        let fields = json!({ "text": text }).as_object().cloned().unwrap_or_default();
        StoredItem { id, fields, created_at: NOW, updated_at: NOW }
    }

    fn counted(collections: &Collections) -> (usize, usize) {
        let all = || collections.by_address.iter();
        let bytes = |collection: &Collection| {
            collection.items.iter().map(|(name, item)| item.bytes(name)).sum::<usize>()
        };
        (
            all().map(|(_, collection)| collection.items.len()).sum(),
            all().map(|(address, collection)| address.len() + bytes(collection)).sum(),
        )
    }

    #[test]
    fn an_emptied_collection_is_dropped_unless_it_was_seeded() {
        let mut collections = Collections::default();
        collections.put("a", "1", item(1, "x")).expect("there is room");
        collections
            .store_initial("b", vec![("1".to_owned(), item(1, "x"))])
            .expect("there is room");
        for address in ["a", "b"] {
            assert!(collections.take(address, "1", NOW).is_some());
        }
        assert!(collections.collection("a").is_none() && collections.collection("b").is_some());
        assert_eq!((collections.items, collections.bytes), (0, "b".len()));
        assert_eq!(
            (collections.changed_at("a"), collections.changed_at("b")),
            (Some(NOW), Some(NOW))
        );
    }

    #[test]
    fn removing_an_item_removes_everything_below_it() {
        let mut collections = Collections::default();
        for (address, name) in [
            ("a", "1"),
            ("a", "12"),
            ("a/1/b", "2"),
            ("a/1/b/2/c", "3"),
            ("a/12/b", "4"),
            ("ab", "5"),
        ] {
            collections.put(address, name, item(1, "x")).expect("there is room");
        }
        assert!(collections.take("a", "1", NOW).is_some());
        assert_eq!(collections.take("a", "1", NOW), None);
        assert!(
            collections.collection("a/1/b").is_none()
                && collections.collection("a/1/b/2/c").is_none()
        );
        assert!(
            collections.collection("a/12/b").is_some() && collections.collection("ab").is_some()
        );
        assert_eq!(counted(&collections), (collections.items, collections.bytes));
    }

    #[test]
    fn an_item_of_a_full_collection_can_still_change() {
        let mut collections = Collections::default();
        for id in 0..1_000 {
            collections.put("a", &id.to_string(), item(id, "x")).expect("there is room");
        }
        assert_eq!(collections.put("a", "one-more", item(1, "x")), Err(StorageFull));
        collections.put("a", "5", item(5, "longer than before")).expect("it was there");
        collections.put("b", "1", item(1, "x")).expect("another collection");
        assert_eq!(counted(&collections), (collections.items, collections.bytes));
    }

    #[test]
    fn bytes_and_items_are_bounded_per_collection_and_in_total() {
        let bounds = Bounds {
            item_bytes: 64,
            collection_items: 50,
            collection_bytes: 200,
            items: 100,
            bytes: 1_000,
        };
        let mut collections = Collections { bounds, ..Collections::default() };
        assert_eq!(collections.put("a", "1", item(1, &"x".repeat(64))), Err(StorageFull));
        let large = "x".repeat(38);
        let kept = (0..10)
            .filter(|id| collections.put("a", &id.to_string(), item(*id, &large)).is_ok())
            .count();
        assert_eq!(kept, 4, "four of 50 bytes");
        for collection in 0..10 {
            for id in 0..10 {
                let _ =
                    collections.put(&format!("s{collection}"), &id.to_string(), item(id, &large));
            }
        }
        assert!((950..=1_000).contains(&collections.bytes), "{}", collections.bytes);
        assert_eq!(counted(&collections), (collections.items, collections.bytes));
        let mut small = Collections { bounds, ..Collections::default() };
        let kept =
            (0..200).filter(|id| small.put(&format!("s{id}"), "1", item(*id, "")).is_ok()).count();
        assert_eq!(
            (kept, small.bytes),
            (
                50,
                50 * r#"1{"text":""}"#.len()
                    + (0..50).map(|id| format!("s{id}").len()).sum::<usize>()
            ),
            "a shelf counts as a thing"
        );
    }
}
