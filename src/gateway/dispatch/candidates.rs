//! Lists of accounts, each content in one allocation: the decision core knows the requests of one
//! list by its address.
//!
//! Which accounts of a pool have a token of an accepted kind and reach what a path names does not
//! change while the config is in force, so it is worked out once for each pool, set of kinds and
//! kind of place, and looked up afterwards: a request costs the same whether its pool has three
//! accounts or ten thousand. What answers teach (`decision/rights`) sets some accounts apart from
//! such a list; those lists are kept too. Everything here is bounded and may be forgotten at any
//! time.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::config::{Config, Reach, Territory};
use crate::decision::AccountId;
use crate::decision::permissions::plan::AccountSet;
use crate::tokens::Wanted;

/// A list of accounts in ascending order.
pub type Accounts = Arc<[AccountId]>;

/// Locks that the lookups are spread over. Ours: more than the threads of a usual machine.
const SHARDS: usize = 16;
/// Lookups kept in a shard. Ours: a pool has a few dozen sets of kinds, and as many kinds of places
/// as the config's `reach` names.
const LOOKUPS_MAX: usize = 4_096;
/// Accounts in all lists together before those that nobody uses are dropped. Ours: 4 MiB, a hundred
/// lists of a pool of ten thousand.
const MEMBERS_MAX: usize = 1 << 20;
/// What a list counts beside its members: about its share of the table it is in.
const LIST_ITSELF: usize = 16;

/// What a path names, as far as the config's `reach` tells places apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Territories {
    owner: Named,
    repository: Named,
}

/// One of the names in the config's `reach`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Named {
    /// The path names none, or nothing in the config tells them apart.
    #[default]
    Nothing,
    /// A name that is in no `reach`.
    Other,
    /// The name of this number.
    Number(u32),
}

/// Whom a path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'p> {
    /// A repository.
    Repository {
        /// Whose.
        owner: &'p str,
        /// Its name.
        name: &'p str,
    },
    /// An owner as a whole.
    Owner(&'p str),
    /// Neither: within everyone's reach.
    Neither,
}

/// Seeded, because names come from paths; faster than the standard one, because each request looks
/// here.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// All lists.
pub struct Candidates {
    lists: Mutex<Lists>,
    able: [RwLock<HashMap<AbleKey, Option<Accounts>>>; SHARDS],
    apart: Mutex<Apart>,
    territories: HashMap<Box<str>, u32>,
}

/// A base list by its address (it is held as long as the gateway), what the endpoint takes, and
/// what tells places apart.
type AbleKey = (usize, Wanted, Territories);

/// Parts of lists, by the list and who is left out; with the list itself in the value its address
/// cannot be used again for another one.
#[derive(Default)]
struct Apart {
    parts: HashMap<(usize, Vec<AccountId>), (Accounts, Accounts)>,
    /// Accounts in all the keys together.
    members: usize,
}

#[derive(Default)]
struct Lists {
    all: HashSet<Accounts>,
    members: usize,
}

impl Candidates {
    /// With the names of every `reach` in the config.
    pub fn new(config: &Config) -> Self {
        let mut territories = HashMap::default();
        let reaches = config.accounts.iter().filter_map(|account| match &account.reach {
            Reach::Everything => None,
            Reach::Only(territories) => Some(territories),
        });
        for territory in reaches.flatten() {
            let number = u32::try_from(territories.len()).unwrap_or(u32::MAX);
            let name = match territory {
                Territory::Owner(owner) => owner.to_ascii_lowercase(),
                Territory::Repository { owner, name } => {
                    format!("{owner}/{name}").to_ascii_lowercase()
                }
            };
            territories.entry(name.into()).or_insert(number);
        }
        Self {
            lists: Mutex::default(),
            able: Default::default(),
            apart: Mutex::default(),
            territories,
        }
    }

    /// The one list with this content.
    pub fn list(&self, accounts: impl IntoIterator<Item = AccountId>) -> Accounts {
        let mut accounts: Vec<AccountId> = accounts.into_iter().collect();
        accounts.sort_unstable();
        accounts.dedup();
        let mut lists = self.lists.lock();
        if let Some(known) = lists.all.get(accounts.as_slice()) {
            return Arc::clone(known);
        }
        if lists.members + accounts.len() + LIST_ITSELF > MEMBERS_MAX {
            for shard in &self.able {
                shard.write().clear();
            }
            *self.apart.lock() = Apart::default();
            lists.all.retain(|list| Arc::strong_count(list) > 1);
            lists.members = lists.all.iter().map(|list| list.len() + LIST_ITSELF).sum();
        }
        let list: Accounts = accounts.into();
        lists.members += list.len() + LIST_ITSELF;
        lists.all.insert(Arc::clone(&list));
        list
    }

    /// What tells `place` apart from others. Free while no account has a `reach`.
    pub fn territories(&self, place: Place<'_>) -> Territories {
        if self.territories.is_empty() {
            return Territories::default();
        }
        let number = |name: String| {
            self.territories
                .get(name.to_ascii_lowercase().as_str())
                .map_or(Named::Other, |found| Named::Number(*found))
        };
        match place {
            Place::Repository { owner, name } => Territories {
                owner: number(owner.to_owned()),
                repository: number(format!("{owner}/{name}")),
            },
            Place::Owner(owner) => {
                Territories { owner: number(owner.to_owned()), repository: Named::Nothing }
            }
            Place::Neither => Territories::default(),
        }
    }

    /// Those of `base` for which `is_able` holds, which must depend on nothing but the account,
    /// `wanted` and `territories`; `None` when there are none.
    pub fn able(
        &self,
        base: &Accounts,
        wanted: Wanted,
        territories: Territories,
        is_able: impl Fn(AccountId) -> bool,
    ) -> Option<Accounts> {
        let key = (address(base), wanted, territories);
        let shard = &self.able[shard_of(&key)];
        if let Some(known) = shard.read().get(&key) {
            return known.clone();
        }
        let able: Vec<AccountId> =
            base.iter().copied().filter(|account| is_able(*account)).collect();
        let able = (!able.is_empty()).then(|| self.list(able));
        let mut lookups = shard.write();
        if lookups.len() >= LOOKUPS_MAX {
            lookups.clear();
        }
        lookups.insert(key, able.clone());
        able
    }

    /// A part of `base`.
    pub fn part(&self, base: &Accounts, who: AccountSet) -> Accounts {
        let out = match who {
            AccountSet::AllBut(out) if out.is_empty() => return Arc::clone(base),
            AccountSet::Only(accounts) => return self.list(accounts),
            AccountSet::AllBut(out) => out,
        };
        let key = (address(base), out);
        if let Some((_, part)) = self.apart.lock().parts.get(&key) {
            return Arc::clone(part);
        }
        let (out, members) = (&key.1, key.1.len());
        let part =
            self.list(base.iter().copied().filter(|account| out.binary_search(account).is_err()));
        let mut apart = self.apart.lock();
        if apart.parts.len() >= LOOKUPS_MAX || apart.members + members > MEMBERS_MAX {
            *apart = Apart::default();
        }
        if apart.parts.insert(key, (Arc::clone(base), Arc::clone(&part))).is_none() {
            apart.members += members;
        }
        part
    }
}

fn address(list: &Accounts) -> usize {
    list.as_ptr().addr()
}

fn shard_of(key: &AbleKey) -> usize {
    usize::try_from(foldhash::fast::FixedState::default().hash_one(key) % SHARDS as u64)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::api::{Dialect, Table};
    use crate::config::fixture;

    fn candidates(reach: &str) -> Candidates {
        let text = fixture::text(
            "[upstream]
url = \"http://127.0.0.1:9\"
",
        )
        .replace(
            "kind = \"user\"",
            &format!(
                "kind = \"user\"
{reach}"
            ),
        );
        Candidates::new(&fixture::parsed(&text))
    }

    fn ids(numbers: impl IntoIterator<Item = u32>) -> Vec<AccountId> {
        numbers.into_iter().map(AccountId).collect()
    }

    fn wanted() -> Wanted {
        Wanted::by(Table::embedded(Dialect::Service).classify(&http::Method::GET, "/meta").endpoint)
    }

    #[test]
    fn equal_lists_share_one_allocation_however_they_came_about() {
        let candidates = candidates("");
        let pool = candidates.list(ids(0..10));
        let even = candidates.list(ids([8, 6, 4, 2, 0]));
        let able = candidates
            .able(&pool, wanted(), Territories::default(), |account| account.0 % 2 == 0)
            .unwrap();
        let part = candidates.part(&pool, AccountSet::AllBut(ids([1, 3, 5, 7, 9])));
        assert!(Arc::ptr_eq(&even, &able) && Arc::ptr_eq(&even, &part));
        assert!(Arc::ptr_eq(&pool, &candidates.part(&pool, AccountSet::AllBut(Vec::new()))));
        assert!(Arc::ptr_eq(
            &even,
            &candidates.part(&pool, AccountSet::Only(ids([0, 2, 4, 6, 8])))
        ));
    }

    #[test]
    fn an_account_is_looked_at_once_for_a_pool_of_ten_thousand() {
        let candidates = candidates("");
        let pool = candidates.list(ids(0..10_000));
        let looked = Cell::new(0_u32);
        for _ in 0..1_000 {
            let able = candidates.able(&pool, wanted(), Territories::default(), |_| {
                looked.set(looked.get() + 1);
                true
            });
            assert!(able.is_some_and(|able| Arc::ptr_eq(&able, &pool)));
        }
        assert_eq!(looked.get(), 10_000);
    }

    #[test]
    fn places_are_told_apart_only_as_far_as_reach_does() {
        let widgets = Place::Repository { owner: "acme", name: "widgets" };
        assert_eq!(candidates("").territories(widgets), Territories::default());
        let candidates = candidates("reach = [\"acme\", \"corp/tools\"]");
        let of = |owner, name| candidates.territories(Place::Repository { owner, name });
        assert_eq!(of("acme", "widgets"), of("ACME", "gadgets"));
        assert_eq!(of("corp", "x"), of("other", "y"));
        assert_ne!(of("corp", "tools"), of("corp", "x"));
        assert_ne!(
            candidates.territories(Place::Owner("acme")),
            candidates.territories(Place::Owner("corp"))
        );
    }

    #[test]
    fn what_sets_lists_apart_does_not_pile_up_either() {
        let candidates = candidates("");
        let pool = candidates.list(ids(0..10_000));
        for with_usable_token in 0..1_000 {
            drop(candidates.part(
                &pool,
                AccountSet::AllBut(ids(
                    (0..10_000).filter(|account| *account != with_usable_token),
                )),
            ));
        }
        let apart = candidates.apart.lock();
        let all = apart.parts.keys().map(|(_, out)| out.len()).sum::<usize>();
        assert!(all <= MEMBERS_MAX && all == apart.members);
    }

    #[test]
    fn lists_that_nobody_uses_do_not_pile_up() {
        let candidates = candidates("");
        let pool = candidates.list(ids(0..10_000));
        for out in 0..1_000 {
            drop(candidates.part(&pool, AccountSet::AllBut(ids([out]))));
        }
        let lists = candidates.lists.lock();
        assert!(
            lists.members <= MEMBERS_MAX
                && lists.all.iter().map(|list| list.len() + LIST_ITSELF).sum::<usize>()
                    == lists.members
        );
    }
}
