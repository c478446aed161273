//! The accounts of one list of candidates, ordered by what one of their budgets has left: the best of ten thousand is found, and one changed, in a few steps.
//!
//! A tree over the places of the list; each node sums up the accounts below it: the fullest that is open, the nearest end of a closure, the next time at
//! which something changes by itself, and the sums that views show. It remembers what it was told; who tells it, and when, is in `candidates`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::Timestamp;

/// How an account stands towards one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Its rank among the open ones ([`super::super::account_choice::Offer::rank`]); 0: closed.
    pub(super) rank: u32,
    /// When its closure ends, if it is closed; the epoch when an event ends it.
    pub(super) until: Timestamp,
    /// When it is to be looked at again because time alone changes it.
    pub(super) wake: Timestamp,
    /// What it adds to the views of the list.
    pub(super) sums: Sums,
}

/// What a view shows of several accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) limit: u64,
    /// Units that can still be admitted.
    pub(super) free: u64,
    /// The earliest reset known.
    pub(super) reset: Timestamp,
}

impl Sums {
    pub(super) const NONE: Self = Self { limit: 0, free: 0, reset: Timestamp::FAR_FUTURE };

    pub(super) fn and(self, other: Self) -> Self {
        Self { limit: self.limit + other.limit, free: self.free + other.free, reset: self.reset.min(other.reset) }
    }
}

impl Standing {
    /// No account at all.
    pub(super) const NOBODY: Self = Self { rank: 0, until: Timestamp::FAR_FUTURE, wake: Timestamp::FAR_FUTURE, sums: Sums::NONE };

    fn node(self) -> Node {
        Node { rank: self.rank, until: self.until, wake: self.wake, reset: self.sums.reset }
    }
}

/// What the best below a node is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    rank: u32,
    until: Timestamp,
    wake: Timestamp,
    reset: Timestamp,
}

impl Node {
    fn and(self, other: Self) -> Self {
        Self {
            rank: self.rank.max(other.rank),
            until: self.until.min(other.until),
            wake: self.wake.min(other.wake),
            reset: self.reset.min(other.reset),
        }
    }
}

/// Children of a node. Ours: half as many levels as with two are half as many places in memory to go to, and four are summed up as fast as they come from there.
const CHILDREN: usize = 4;

/// The tree. Node 0 is the root, node `n` has the children `4n + 1` to `4n + 4`, the leaves are the last level. The root is kept by itself: of a list of one account,
/// as there may be one for each, it is all there is.
#[derive(Debug)]
pub(super) struct Ranking {
    root: Node,
    /// All nodes but the root: node `n` is at `n - 1`.
    below: Vec<Node>,
    /// How many leaves there are, and the number of the first.
    leaves: usize,
    first_leaf: usize,
    /// What each account adds to the sums: limit and free units, and both of all. Of one account the latter is enough.
    units: Vec<[u64; 2]>,
    all_units: [u64; 2],
}

impl Ranking {
    /// Over the accounts in the order of their list.
    pub(super) fn new(standings: impl ExactSizeIterator<Item = Standing>) -> Self {
        let (mut leaves, mut first_leaf) = (1, 0);
        while leaves < standings.len() {
            first_leaf += leaves;
            leaves *= CHILDREN;
        }
        let nobody = Standing::NOBODY.node();
        let mut new =
            Self { root: nobody, below: vec![nobody; first_leaf + leaves - 1], leaves, first_leaf, units: Vec::new(), all_units: [0; 2] };
        let is_one = standings.len() == 1;
        for (place, standing) in standings.enumerate() {
            let units = [standing.sums.limit, standing.sums.free];
            new.all_units = [0, 1].map(|kind| new.all_units[kind] + units[kind]);
            *new.node_mut(first_leaf + place) = standing.node();
            if !is_one {
                new.units.push(units);
            }
        }
        for node in (0..first_leaf).rev() {
            *new.node_mut(node) = new.sum_below(node);
        }
        new
    }

    /// The account at `place` stands otherwise now.
    pub(super) fn set(&mut self, place: usize, standing: Standing) {
        let units = [standing.sums.limit, standing.sums.free];
        let before = match self.units.get_mut(place) {
            Some(before) => std::mem::replace(before, units),
            None if place == 0 => self.all_units,
            None => return,
        };
        self.all_units = [0, 1].map(|kind| self.all_units[kind] - before[kind] + units[kind]);
        let mut node = self.first_leaf + place;
        let mut changed = standing.node();
        loop {
            let before = std::mem::replace(self.node_mut(node), changed);
            if before == changed || node == 0 {
                return;
            }
            node = (node - 1) / CHILDREN;
            changed = self.sum_below(node);
        }
    }

    /// All accounts together.
    pub(super) fn all(&self) -> Standing {
        let Node { rank, until, wake, reset } = self.root;
        let [limit, free] = self.all_units;
        Standing { rank, until, wake, sums: Sums { limit, free, reset } }
    }

    /// The rank of the account at `place`.
    pub(super) fn rank_of(&self, place: usize) -> u32 {
        match self.first_leaf + place {
            0 => self.root.rank,
            leaf => self.below[leaf - 1].rank,
        }
    }

    fn node_mut(&mut self, node: usize) -> &mut Node {
        if node == 0 { &mut self.root } else { &mut self.below[node - 1] }
    }

    /// The children of a node that is no leaf.
    fn children(&self, node: usize) -> &[Node] {
        &self.below[CHILDREN * node..][..CHILDREN]
    }

    fn sum_below(&self, node: usize) -> Node {
        self.children(node).iter().fold(Standing::NOBODY.node(), |sum, child| sum.and(*child))
    }

    /// The place of the best open account, the first of equals.
    pub(super) fn best(&self) -> Option<usize> {
        (self.root.rank > 0).then(|| self.descend(|node| Reverse(node.rank)))
    }

    /// The place of the account whose closure ends first, the first of equals.
    pub(super) fn nearest(&self) -> Option<usize> {
        (self.root.until < Timestamp::FAR_FUTURE).then(|| self.descend(|node| node.until))
    }

    /// A place that is due to be looked at.
    pub(super) fn due(&self, now: Timestamp) -> Option<usize> {
        let wake = self.root.wake;
        (wake <= now && wake < Timestamp::FAR_FUTURE).then(|| self.descend(|node| node.wake))
    }

    /// The open accounts from the best to the worst.
    pub(super) fn best_first(&self) -> BestFirst<'_> {
        let mut frontier = BinaryHeap::new();
        frontier.extend((self.root.rank > 0).then_some((self.root.rank, Reverse(0), 0, self.leaves)));
        BestFirst { ranking: self, frontier }
    }

    /// The leaf with the least key, which each node's own key is the least of; the first of equals.
    fn descend<K: Ord>(&self, key: impl Fn(&Node) -> K) -> usize {
        let mut node = 0;
        while node < self.first_leaf {
            let children = self.children(node);
            let mut least = 0;
            for child in 1..CHILDREN {
                least = if key(&children[child]) < key(&children[least]) { child } else { least };
            }
            node = CHILDREN * node + 1 + least;
        }
        node - self.first_leaf
    }
}

/// See [`Ranking::best_first`].
pub(super) struct BestFirst<'r> {
    ranking: &'r Ranking,
    /// The best rank below a node, the first place below it, the node, how many places are below it: of equals the first places come first, and no other is
    /// opened before.
    frontier: BinaryHeap<(u32, Reverse<usize>, usize, usize)>,
}

impl Iterator for BestFirst<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some((_, Reverse(first), node, places)) = self.frontier.pop() {
            if node >= self.ranking.first_leaf {
                return Some(first);
            }
            let part = places / CHILDREN;
            for (child, below) in self.ranking.children(node).iter().enumerate().filter(|(_, below)| below.rank > 0) {
                self.frontier.push((below.rank, Reverse(first + child * part), CHILDREN * node + 1 + child, part));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn standing(rank: u32, until: u64) -> Standing {
        let at = Timestamp::from_secs(until);
        Standing { rank, until: at, wake: at, sums: Sums { limit: 1, free: u64::from(rank), reset: at } }
    }

    #[test]
    fn an_empty_list_has_nobody() {
        let ranking = Ranking::new(std::iter::empty());
        assert_eq!((ranking.best(), ranking.nearest(), ranking.due(Timestamp::from_secs(9))), (None, None, None));
        assert_eq!(ranking.best_first().count(), 0);
    }

    proptest! {
        #[test]
        fn it_finds_what_a_look_at_all_of_them_finds(
            first in prop::collection::vec((0_u32..6, 0_u64..9), 1..40),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..6, 0_u64..9), 0..60),
        ) {
            let mut plain: Vec<Standing> = first.into_iter().map(|(rank, until)| standing(rank, until)).collect();
            let mut ranking = Ranking::new(plain.iter().copied());
            for (index, rank, until) in changes {
                let place = index.index(plain.len());
                plain[place] = standing(rank, until);
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
