//! The seed world: constant for the same options and time, and always with the cases that tests
//! need.

mod content;
mod enterprise_cloud;
mod history;
mod hooks;
mod migrations;
pub mod options;
pub mod people;
mod properties;
mod teams;
pub mod tokens;

pub use self::content::SEEDED_BELOW;

use std::time::Duration;

use self::options::Options;
use crate::clock::Timestamp;
use crate::emulator::world::World;
use crate::random::Rng;

/// The private key of the seed's app. It was made for this file and opens only an emulator.
pub const APP_KEY: &str = include_str!("app_key.pem");
/// Likewise, of the app on the enterprise cloud.
pub const INITECH_APP_KEY: &str = include_str!("initech_app_key.pem");

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

pub fn world(options: &Options, now: Timestamp) -> World {
    let mut world = World::default();
    let mut dice = Rng::new(options.seed);
    people::add(&mut world, now);
    content::add(&mut world, options, &mut dice, now);
    teams::add(&mut world, now);
    enterprise_cloud::add(&mut world, now);
    hooks::add(&mut world, options, now);
    properties::add(&mut world, now);
    migrations::add(&mut world, now);
    tokens::add(&mut world, now);
    history::add(&mut world);
    world
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::world::Visibility;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn seeded(seed: u64) -> World {
        world(&Options { seed, ..Options::default() }, NOW)
    }

    #[test]
    fn the_same_seed_makes_the_same_world_and_another_one_does_not() {
        assert_eq!(
            format!("{:?}", seeded(7).repositories),
            format!("{:?}", seeded(7).repositories)
        );
        assert_ne!(
            format!("{:?}", seeded(7).repositories),
            format!("{:?}", seeded(8).repositories)
        );
    }

    #[test]
    fn the_seed_world_has_the_cases_that_tests_need() {
        let world = seeded(1);
        let widgets = world.repository_named("acme", "widgets").expect("the first repository");
        assert!(widgets.issues.len() > 60, "issues over more than one page");
        assert!(widgets.labels.len() > 30, "labels over more than one page");
        assert!(
            widgets.issues.get(&1).is_some_and(|issue| issue.comments.len() > 30),
            "comments over more than one page"
        );
        assert!(
            world
                .repositories
                .values()
                .any(|repository| repository.visibility == Visibility::Private)
        );
        let reasons: std::collections::BTreeSet<_> =
            world.threads.values().map(|thread| thread.reason).collect();
        assert!(reasons.len() >= 10, "threads of several reasons");
        let kinds: std::collections::BTreeSet<_> =
            world.tokens.iter().map(|token| token.kind).collect();
        assert_eq!(kinds.len(), 6, "every kind of token; basic is not one");
        assert_eq!(
            world.repository_named("acme", "cogs").map(|repository| repository.name.as_str()),
            Some("sprockets")
        );
        assert!(
            world
                .organization_by_login("acme")
                .is_some_and(|acme| acme.hooks.values().any(|hook| hook.deliveries.len() > 30))
        );
    }

    #[test]
    fn the_seed_world_has_no_future_timestamps() {
        let world = seeded(1);
        for repository in world.repositories.values() {
            assert!(repository.updated_at < NOW && repository.created_at <= repository.updated_at);
            assert!(repository.issues.values().all(|issue| issue.updated_at < NOW));
        }
        assert!(
            world.threads.values().all(|thread| thread.updated_at < NOW && thread.changed_at < NOW)
        );
    }
}
