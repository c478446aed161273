//! Interned account lists: the decision core identifies a list by its address.
//!
//! The accounts of a pool that suit an endpoint and reach a path stay the same under one config.
//! They are computed once per pool, token kinds and kind of path, and then looked up, so a request
//! costs the same for three accounts or ten thousand. Partial lists from recorded permissions are
//! interned too. All caches are bounded and may be dropped at any time.

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

/// Locks of the lookups. Chosen here: more than the threads of a usual machine.
const SHARDS: usize = 16;
/// Lookups in a shard. Chosen here: a pool has a few dozen sets of token kinds, and the config's
/// `reach` names as many kinds of paths.
const LOOKUPS_MAX: usize = 4_096;
/// Accounts in all lists before unused lists are dropped. Chosen here: 4 MiB.
const MEMBERS_MAX: usize = 1 << 20;
/// Overhead of a list in units of accounts: about its share of the table.
const LIST_ITSELF: usize = 16;

/// The parts of a path that the config's `reach` distinguishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Territories {
    owner: Named,
    repository: Named,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Named {
    /// The path has none, or the config distinguishes none.
    #[default]
    Nothing,
    /// A name that is in no `reach`.
    Other,
    Number(u32),
}

/// The subject of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathSubject<'p> {
    Repository {
        owner: &'p str,
        name: &'p str,
    },
    /// An owner as a whole.
    Owner(&'p str),
    /// Neither: within the reach of every account.
    Neither,
}

/// Seeded, because names come from paths; fast, because each request uses it.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

pub struct Candidates {
    lists: Mutex<Lists>,
    able: [RwLock<HashMap<AbleKey, Option<Accounts>>>; SHARDS],
    partial: Mutex<PartialLists>,
    territories: HashMap<Box<str>, u32>,
}

/// The address of an interned base list, the endpoint's requirements, and the reach key.
type AbleKey = (usize, Wanted, Territories);

/// Partial lists by base list and excluded accounts. The value keeps the base list alive.
#[derive(Default)]
struct PartialLists {
    parts: HashMap<(usize, Vec<AccountId>), (Accounts, Accounts)>,
    members: usize,
}

#[derive(Default)]
struct Lists {
    all: HashSet<Accounts>,
    members: usize,
}

impl Candidates {
    /// Indexes the names of every `reach` in the config.
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
            partial: Mutex::default(),
            territories,
        }
    }

    /// Returns the interned list with this content.
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
            *self.partial.lock() = PartialLists::default();
            lists.all.retain(|list| Arc::strong_count(list) > 1);
            lists.members = lists.all.iter().map(|list| list.len() + LIST_ITSELF).sum();
        }
        let list: Accounts = accounts.into();
        lists.members += list.len() + LIST_ITSELF;
        lists.all.insert(Arc::clone(&list));
        list
    }

    /// The reach key of `subject`. Costs nothing while no account has a `reach`.
    pub fn territories(&self, subject: PathSubject<'_>) -> Territories {
        if self.territories.is_empty() {
            return Territories::default();
        }
        let number = |name: String| {
            self.territories
                .get(name.to_ascii_lowercase().as_str())
                .map_or(Named::Other, |found| Named::Number(*found))
        };
        match subject {
            PathSubject::Repository { owner, name } => Territories {
                owner: number(owner.to_owned()),
                repository: number(format!("{owner}/{name}")),
            },
            PathSubject::Owner(owner) => {
                Territories { owner: number(owner.to_owned()), repository: Named::Nothing }
            }
            PathSubject::Neither => Territories::default(),
        }
    }

    /// Filters `base` by `is_able`, which must depend only on the account, `wanted` and
    /// `territories`. `None` if no account remains.
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

    pub fn part(&self, base: &Accounts, included: AccountSet) -> Accounts {
        let out = match included {
            AccountSet::AllBut(out) if out.is_empty() => return Arc::clone(base),
            AccountSet::Only(accounts) => return self.list(accounts),
            AccountSet::AllBut(out) => out,
        };
        let key = (address(base), out);
        if let Some((_, part)) = self.partial.lock().parts.get(&key) {
            return Arc::clone(part);
        }
        let (out, members) = (&key.1, key.1.len());
        let part =
            self.list(base.iter().copied().filter(|account| out.binary_search(account).is_err()));
        let mut partial = self.partial.lock();
        if partial.parts.len() >= LOOKUPS_MAX || partial.members + members > MEMBERS_MAX {
            *partial = PartialLists::default();
        }
        if partial.parts.insert(key, (Arc::clone(base), Arc::clone(&part))).is_none() {
            partial.members += members;
        }
        part
    }
}

/// The lists of accounts that requests choose from, by one config.
pub struct AccountLists {
    pub candidates: Candidates,
    pools: Vec<Accounts>,
    alone: Vec<Accounts>,
}

impl AccountLists {
    pub fn new(config: &Config) -> Self {
        let candidates = Candidates::new(config);
        let pools = config.pools.iter().map(|pool| {
            candidates.list(pool.accounts.iter().map(|account| config.account_id(*account)))
        });
        let pools = pools.collect();
        // Dynamic accounts included.
        let accounts_max = config.accounts.len() + config.account_layout.dynamic as usize;
        let alone = (0..accounts_max)
            .map(|number| candidates.list([AccountId(u32::try_from(number).unwrap_or(u32::MAX))]))
            .collect();
        Self { candidates, pools, alone }
    }

    /// The accounts of a pool; none when there is no such pool.
    pub fn pool(&self, pool: usize) -> Accounts {
        self.pools.get(pool).map(Arc::clone).unwrap_or_default()
    }

    pub fn alone(&self, account: AccountId) -> Accounts {
        self.alone.get(account.0 as usize).map(Arc::clone).unwrap_or_default()
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
    fn equal_lists_share_one_allocation() {
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
    fn an_account_is_checked_once_for_a_pool_of_ten_thousand() {
        let candidates = candidates("");
        let pool = candidates.list(ids(0..10_000));
        let checked = Cell::new(0_u32);
        for _ in 0..1_000 {
            let able = candidates.able(&pool, wanted(), Territories::default(), |_| {
                checked.set(checked.get() + 1);
                true
            });
            assert!(able.is_some_and(|able| Arc::ptr_eq(&able, &pool)));
        }
        assert_eq!(checked.get(), 10_000);
    }

    #[test]
    fn paths_are_distinguished_only_as_far_as_reach_does() {
        let widgets = PathSubject::Repository { owner: "acme", name: "widgets" };
        assert_eq!(candidates("").territories(widgets), Territories::default());
        let candidates = candidates("reach = [\"acme\", \"corp/tools\"]");
        let of = |owner, name| candidates.territories(PathSubject::Repository { owner, name });
        assert_eq!(of("acme", "widgets"), of("ACME", "gadgets"));
        assert_eq!(of("corp", "x"), of("other", "y"));
        assert_ne!(of("corp", "tools"), of("corp", "x"));
        assert_ne!(
            candidates.territories(PathSubject::Owner("acme")),
            candidates.territories(PathSubject::Owner("corp"))
        );
    }

    #[test]
    fn the_keys_of_partial_lists_do_not_accumulate() {
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
        let partial = candidates.partial.lock();
        let all = partial.parts.keys().map(|(_, out)| out.len()).sum::<usize>();
        assert!(all <= MEMBERS_MAX && all == partial.members);
    }

    #[test]
    fn unused_lists_do_not_accumulate() {
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
