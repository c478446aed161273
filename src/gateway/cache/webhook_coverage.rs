//! The routes that webhooks cover: while a webhook is healthy, a stored answer needs no
//! revalidation.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::RwLock;

use crate::api::events_of;
use crate::clock::Timestamp;
use crate::config::{Config, Reach};
use crate::webhooks::Watch;

#[derive(Default)]
pub struct WebhookCoverage {
    pub watched: Vec<Watched>,
    needs: Vec<Option<Need>>,
    /// The number of finished checks, failed ones included.
    pub checks: AtomicU64,
}

pub struct Watched {
    pub reach: Reach,
    pub watch: RwLock<Watch>,
}

/// The needs of a rule with a `webhook_ttl`.
struct Need {
    ttl: Duration,
    events: Vec<&'static str>,
    /// True if a repository's webhook does not deliver all of them.
    of_owner: bool,
}

impl WebhookCoverage {
    pub fn new(config: &Config) -> Self {
        let hooks = config.webhooks.iter().flat_map(|webhooks| &webhooks.hooks);
        let watched = hooks.map(|hook| Watched {
            reach: hook.reach.clone(),
            watch: RwLock::new(Watch::new(hook.check_every)),
        });
        let need = |rule: &crate::config::CacheRule| {
            let ttl = rule.webhook_ttl?;
            let (events, of_owner): (_, Vec<bool>) = events_of(&rule.route).unzip();
            Some(Need { ttl, events, of_owner: of_owner.contains(&true) })
        };
        Self {
            watched: watched.collect(),
            needs: config.cache.rules.iter().map(need).collect(),
            checks: AtomicU64::new(0),
        }
    }

    /// The lifetime of an answer to `path`; `None` if no webhook covers it since `requested_at`.
    pub fn ttl(
        &self,
        rule: usize,
        path: &str,
        requested_at: Timestamp,
        now: Timestamp,
    ) -> Option<Duration> {
        let need = self.needs.get(rule)?.as_ref()?;
        let mut segments = path.split('/').skip(1);
        let (kind, owner, name) = (segments.next()?, segments.next()?, segments.next());
        let covers = |watched: &&Watched| {
            let is_within = match (kind, name) {
                ("repos", Some(name)) => watched.reach.covers_repository(owner, name),
                ("orgs", _) => watched.reach.covers_owner(owner),
                _ => false,
            };
            is_within
                && (!need.of_owner || watched.reach.covers_owner(owner))
                && watched.watch.read().covers(&need.events, requested_at, now)
        };
        self.watched.iter().find(covers).map(|_| need.ttl)
    }
}
