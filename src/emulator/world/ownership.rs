//! An index of repositories by owner, so that listing and counting one owner's need no full scan.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use super::World;
use super::notifications::thread::{Thread, Topic};
use super::organizations::people::Owner;
use super::repositories::repository::{Repository, Visibility};
use crate::clock::Timestamp;

#[derive(Debug, Default)]
struct OwnedRepositories {
    all: BTreeSet<u64>,
    public: u64,
}

#[derive(Debug, Default)]
pub struct Ownership(HashMap<Owner, OwnedRepositories>);

impl Ownership {
    pub fn add(&mut self, repository: &Repository) {
        let owned = self.0.entry(repository.owner).or_default();
        owned.all.insert(repository.id);
        owned.public += u64::from(repository.visibility == Visibility::Public);
    }

    pub fn remove(&mut self, repository: &Repository) {
        let Some(owned) = self.0.get_mut(&repository.owner) else { return };
        if owned.all.remove(&repository.id) && repository.visibility == Visibility::Public {
            owned.public = owned.public.saturating_sub(1);
        }
    }

    pub fn count(&self, owner: Owner) -> u64 {
        self.0.get(&owner).map_or(0, |owned| owned.all.len() as u64)
    }
}

impl World {
    pub fn repositories_of(&self, owner: Owner) -> impl Iterator<Item = &Repository> {
        let ids = self.ownership.0.get(&owner).map(|owned| &owned.all);
        // A full scan is faster than look-ups when one owner has most repositories.
        let walks = ids.is_some_and(|ids| ids.len() > self.repositories.len() / 4);
        let (walked, looked_up) =
            if walks { (Some(self.repositories.values()), None) } else { (None, ids) };
        let walked =
            walked.into_iter().flatten().filter(move |repository| repository.owner == owner);
        walked.chain(looked_up.into_iter().flatten().filter_map(|id| self.repositories.get(id)))
    }

    pub fn public_repositories(&self, owner: Owner) -> u64 {
        let count = self.ownership.0.get(&owner).map_or(0, |owned| owned.public);
        let is_counted = |repository: &&Repository| {
            repository.owner == owner && repository.visibility == Visibility::Public
        };
        debug_assert_eq!(
            count,
            self.repositories.values().filter(is_counted).count() as u64,
            "repositories change hands and visibility by `add_repository` and `set_visibility` alone"
        );
        count
    }

    pub fn set_visibility(&mut self, id: u64, visibility: Visibility) {
        if let Some(repository) = self.repositories.get_mut(&id) {
            self.ownership.remove(repository);
            repository.visibility = visibility;
            self.ownership.add(repository);
        }
    }

    /// The public data includes the number of public repositories.
    pub fn owner_changed(&mut self, owner: Owner, now: Timestamp) {
        let updated_at = match owner {
            Owner::User(id) => self.users.get_mut(&id).map(|user| &mut user.updated_at),
            Owner::Organization(id) => {
                self.organizations.get_mut(&id).map(|organization| &mut organization.updated_at)
            }
        };
        if let Some(updated_at) = updated_at {
            *updated_at = now.max(*updated_at);
        }
    }

    /// Lists the threads of a user, in arbitrary order.
    pub fn threads_of(&self, user: u64) -> impl Iterator<Item = &Thread> {
        debug_assert_eq!(
            self.threads.values().filter(|thread| thread.user == user).count(),
            self.thread_of.range(keys_of(user)).count(),
            "every thread is in `thread_of`"
        );
        self.thread_of.range(keys_of(user)).filter_map(|(_, id)| self.threads.get(id))
    }
}

/// The first and the last topic in sort order are the bounds.
fn keys_of(user: u64) -> RangeInclusive<(u64, u64, Topic)> {
    (user, 0, Topic::Numbered(0))..=(user, u64::MAX, Topic::FeatureRequest(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;

    #[test]
    fn repository_counts_follow_changes_of_visibility() {
        let mut world = seed::world(
            &Options { repositories: 100, ..Options::default() },
            Timestamp::from_secs(1_800_000_000),
        );
        let acme = world.owner("acme").expect("an organisation");
        let (all, public) = (world.repositories_of(acme).count(), world.public_repositories(acme));
        assert_eq!(world.ownership.count(acme), all as u64);
        let widgets = world
            .repository_named("acme", "widgets")
            .map(|repository| repository.id)
            .expect("a repository");
        for _ in 0..2 {
            world.set_visibility(widgets, Visibility::Private);
            assert_eq!(world.public_repositories(acme), public - 1);
        }
        world.set_visibility(widgets, Visibility::Public);
        assert_eq!(
            (world.repositories_of(acme).count(), world.public_repositories(acme)),
            (all, public)
        );
    }
}
