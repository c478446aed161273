//! A ranking: the accounts of one candidate list, ordered by what one of their budgets has left. It
//! finds the best of ten thousand accounts, and moves a changed one, in a few steps.
//!
//! It is a tree over the places of the list. Each node sums up the accounts below it: the best open
//! account, the nearest end of a closure, the next change by time alone, and the sums for views.
//! `candidates` keeps it up to date.

use std::collections::BinaryHeap;

use crate::clock::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Availability {
    /// Rank among the open accounts ([`crate::decision::quota::account_choice::Offer::rank`]); 0
    /// when closed.
    pub rank: u32,
    /// End of its closure; the epoch when an event ends it.
    pub until: Timestamp,
    /// Time at which it changes without an event.
    pub wake: Timestamp,
    /// Its part in the views of the list.
    pub sums: Sums,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    pub limit: u64,
    pub free: u64,
    pub reset: Timestamp,
}

impl Sums {
    pub const NONE: Self = Self { limit: 0, free: 0, reset: Timestamp::FAR_FUTURE };

    pub fn and(self, other: Self) -> Self {
        Self {
            limit: self.limit + other.limit,
            free: self.free + other.free,
            reset: self.reset.min(other.reset),
        }
    }
}

impl Availability {
    pub const NONE: Self = Self {
        rank: 0,
        until: Timestamp::FAR_FUTURE,
        wake: Timestamp::FAR_FUTURE,
        sums: Sums::NONE,
    };

    fn node(self, place: usize) -> Node {
        let ends = Ends { until: self.until, wake: self.wake, reset: self.sums.reset };
        Node { best: Best::new(self.rank, place), ends }
    }
}

/// Best open account below a node: its rank, and the first place among equals. An absent account is
/// the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Best(u64);

impl Best {
    const NONE: Self = Self(0);

    fn new(rank: u32, place: usize) -> Self {
        let place = u32::MAX - u32::try_from(place).unwrap_or(u32::MAX);
        if rank == 0 { Self::NONE } else { Self(u64::from(rank) << 32 | u64::from(place)) }
    }

    fn rank(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn place(self) -> Option<usize> {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
        let place = (u32::MAX - self.0 as u32) as usize;
        (self != Self::NONE).then_some(place)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    until: Timestamp,
    wake: Timestamp,
    reset: Timestamp,
}

impl Ends {
    const NEVER: Self = Self {
        until: Timestamp::FAR_FUTURE,
        wake: Timestamp::FAR_FUTURE,
        reset: Timestamp::FAR_FUTURE,
    };

    fn and(self, other: Self) -> Self {
        Self {
            until: self.until.min(other.until),
            wake: self.wake.min(other.wake),
            reset: self.reset.min(other.reset),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    best: Best,
    ends: Ends,
}

/// Children of a node. Ours: four halve the levels of a binary tree and with them the cache misses.
/// Four are summed up as fast as they are loaded.
const CHILDREN: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Family {
    best: [Best; CHILDREN],
    ends: [Ends; CHILDREN],
}

impl Family {
    const NONE: Self = Self { best: [Best::NONE; CHILDREN], ends: [Ends::NEVER; CHILDREN] };

    fn best(&self) -> Best {
        let [one, two, three, four] = self.best;
        one.max(two).max(three.max(four))
    }

    fn ends(&self) -> Ends {
        let [one, two, three, four] = self.ends;
        one.and(two).and(three.and(four))
    }
}

/// The tree. Family 0 holds the root's children. The child `c` of family `f` is node `4f + c`, and
/// its own children are family `4f + c + 1`. The leaves are the last level. The root is separate: a
/// list of one account, of which there may be one for each account, has nothing else.
#[derive(Debug)]
pub struct Ranking {
    root: Node,
    families: Vec<Family>,
    first_leaf: usize,
    /// Limit and free units of each account, and their sums. A single account needs only the sums.
    units: Vec<[u64; 2]>,
    all_units: [u64; 2],
}

impl Ranking {
    pub fn new(accounts: impl ExactSizeIterator<Item = Availability>) -> Self {
        let (mut leaves, mut nodes) = (1, 0);
        while leaves < accounts.len() {
            leaves *= CHILDREN;
            nodes += leaves;
        }
        let families = vec![Family::NONE; nodes / CHILDREN];
        let root = Availability::NONE.node(0);
        let mut new = Self {
            root,
            families,
            first_leaf: nodes.saturating_sub(leaves),
            units: Vec::new(),
            all_units: [0; 2],
        };
        let is_one = accounts.len() == 1;
        for (place, availability) in accounts.enumerate() {
            let units = [availability.sums.limit, availability.sums.free];
            new.all_units = [0, 1].map(|kind| new.all_units[kind] + units[kind]);
            new.put(new.first_leaf + place, availability.node(place));
            if !is_one {
                new.units.push(units);
            }
        }
        for family in (0..new.families.len()).rev() {
            let node =
                Node { best: new.families[family].best(), ends: new.families[family].ends() };
            match family.checked_sub(1) {
                Some(at) => new.put(at, node),
                None => new.root = node,
            }
        }
        new
    }

    fn put(&mut self, at: usize, Node { best, ends }: Node) {
        match self.families.get_mut(at / CHILDREN) {
            Some(family) => (family.best[at % CHILDREN], family.ends[at % CHILDREN]) = (best, ends),
            None => self.root = Node { best, ends },
        }
    }

    pub fn set(&mut self, place: usize, availability: Availability) {
        let units = [availability.sums.limit, availability.sums.free];
        let before = match self.units.get_mut(place) {
            Some(before) => std::mem::replace(before, units),
            None if place == 0 => self.all_units,
            None => return,
        };
        self.all_units = [0, 1].map(|kind| self.all_units[kind] - before[kind] + units[kind]);
        let Node { best, ends } = availability.node(place);
        if self.families.is_empty() {
            self.root = Node { best, ends };
        } else {
            self.set_ends(self.first_leaf + place, ends);
            self.set_best(self.first_leaf + place, best);
        }
    }

    /// Both updates go up while something changes: most closures are nowhere the first to end.
    fn set_ends(&mut self, mut at: usize, mut ends: Ends) {
        while std::mem::replace(&mut self.families[at / CHILDREN].ends[at % CHILDREN], ends) != ends
        {
            ends = self.families[at / CHILDREN].ends();
            if at < CHILDREN {
                self.root.ends = ends;
                return;
            }
            at = at / CHILDREN - 1;
        }
    }

    fn set_best(&mut self, mut at: usize, mut best: Best) {
        while std::mem::replace(&mut self.families[at / CHILDREN].best[at % CHILDREN], best) != best
        {
            best = self.families[at / CHILDREN].best();
            if at < CHILDREN {
                self.root.best = best;
                return;
            }
            at = at / CHILDREN - 1;
        }
    }

    pub fn all(&self) -> Availability {
        let Node { best, ends: Ends { until, wake, reset } } = self.root;
        let [limit, free] = self.all_units;
        Availability { rank: best.rank(), until, wake, sums: Sums { limit, free, reset } }
    }

    pub fn rank_of(&self, place: usize) -> u32 {
        let leaf = self.first_leaf + place;
        self.families
            .get(leaf / CHILDREN)
            .map_or(self.root.best, |family| family.best[leaf % CHILDREN])
            .rank()
    }

    /// Place of the best open account, the first among equals.
    pub fn best(&self) -> Option<usize> {
        self.root.best.place()
    }

    /// Place of the account with the nearest end of closure, the first among equals.
    pub fn nearest(&self) -> Option<usize> {
        (self.root.ends.until < Timestamp::FAR_FUTURE).then(|| self.descend(|ends| ends.until))
    }

    /// Place of an account whose state is outdated.
    pub fn due(&self, now: Timestamp) -> Option<usize> {
        let wake = self.root.ends.wake;
        (wake <= now && wake < Timestamp::FAR_FUTURE).then(|| self.descend(|ends| ends.wake))
    }

    pub fn best_first(&self) -> BestFirst<'_> {
        let mut best_first = BestFirst { ranking: self, frontier: BinaryHeap::new() };
        match self.families.first() {
            Some(family) => best_first.open(0, family),
            None => best_first
                .frontier
                .extend((self.root.best != Best::NONE).then_some((self.root.best, 0))),
        }
        best_first
    }

    /// Leaf with the least key, the first among equals. A node's key is the least of its
    /// children's.
    fn descend(&self, key: impl Fn(&Ends) -> Timestamp) -> usize {
        let (mut family, mut at) = (0, 0);
        while let Some(Family { ends, .. }) = self.families.get(family) {
            let mut least = 0;
            for child in 1..CHILDREN {
                least = if key(&ends[child]) < key(&ends[least]) { child } else { least };
            }
            at = CHILDREN * family + least;
            family = at + 1;
        }
        at - self.first_leaf
    }
}

pub struct BestFirst<'r> {
    ranking: &'r Ranking,
    /// Nodes by their best account. Among equals the first place comes first, and no other node is
    /// opened before.
    frontier: BinaryHeap<(Best, usize)>,
}

impl BestFirst<'_> {
    fn open(&mut self, number: usize, family: &Family) {
        let children = (CHILDREN * number..).zip(family.best);
        self.frontier
            .extend(children.filter(|(_, best)| *best != Best::NONE).map(|(at, best)| (best, at)));
    }
}

impl Iterator for BestFirst<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some((best, at)) = self.frontier.pop() {
            match self.ranking.families.get(at + 1) {
                Some(family) => self.open(at + 1, family),
                None => return best.place(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    fn availability(rank: u32, until: u64) -> Availability {
        let at = Timestamp::from_secs(until);
        Availability {
            rank,
            until: at,
            wake: at,
            sums: Sums { limit: 1, free: u64::from(rank), reset: at },
        }
    }

    #[test]
    fn an_empty_list_has_no_best_account() {
        let ranking = Ranking::new(std::iter::empty());
        assert_eq!(
            (ranking.best(), ranking.nearest(), ranking.due(Timestamp::from_secs(9))),
            (None, None, None)
        );
        assert_eq!(ranking.best_first().count(), 0);
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_a_full_scan(
            first in prop::collection::vec((0_u32..6, 0_u64..9), 1..40),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..6, 0_u64..9), 0..60),
        ) {
            let mut plain: Vec<Availability> = first.into_iter().map(|(rank, until)| availability(rank, until)).collect();
            let mut ranking = Ranking::new(plain.iter().copied());
            for (index, rank, until) in changes {
                let place = index.index(plain.len());
                plain[place] = availability(rank, until);
                ranking.set(place, plain[place]);
            }
            let mut open: Vec<usize> = (0..plain.len()).filter(|place| plain[*place].rank > 0).collect();
            open.sort_by_key(|place| (Reverse(plain[*place].rank), *place));
            prop_assert_eq!(ranking.best(), open.first().copied());
            prop_assert_eq!(ranking.best_first().collect::<Vec<_>>(), open);
            prop_assert_eq!(ranking.nearest(), (0..plain.len()).min_by_key(|place| plain[*place].until));
            prop_assert_eq!(ranking.all().sums, plain.iter().fold(Sums::NONE, |sums, one| sums.and(one.sums)));
            prop_assert_eq!(ranking.due(Timestamp::from_secs(3)).is_some(), plain.iter().any(|one| one.wake <= Timestamp::from_secs(3)));
        }
    }
}
