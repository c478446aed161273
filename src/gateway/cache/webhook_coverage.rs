//! The routes that webhooks cover: while a webhook is healthy, a stored answer needs no revalidation.

use crate::api::events_of;
use crate::clock::Timestamp;
use crate::config::{Config, Reach};
use crate::webhooks::Watch;
use parking_lot::RwLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The webhooks of the config, and what each rule of the cache needs to be told of.
#[derive(Default)]
pub struct WebhookCoverage {
    pub watched: Vec<Watched>,
    needs: Vec<Need>,
    /// How many checks have ended, well or not.
    pub checks: AtomicU64,
}

pub struct Watched {
    pub reach: Reach,
    pub watch: RwLock<Watch>,
}

/// Of a rule with a `webhook_ttl`; the others need nothing and have no events.
#[derive(Default)]
struct Need {
    ttl: Option<Duration>,
    events: Vec<&'static str>,
    /// Whether a webhook of the repository is not told of all of them.
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
            let Some(ttl) = rule.webhook_ttl else { return Need::default() };
            let events: Vec<_> = events_of(&rule.route).collect();
            Need {
                ttl: Some(ttl),
                of_owner: events.iter().any(|(_, of_owner)| *of_owner),
                events: events.into_iter().map(|(event, _)| event).collect(),
            }
        };
        Self {
            watched: watched.collect(),
            needs: config.cache.rules.iter().map(need).collect(),
            checks: AtomicU64::new(0),
        }
    }

    /// How long an answer of this rule to `path` is good at `now`, when its request left at
    /// `requested_at`; `None` where no webhook would have told of a change.
    pub fn ttl(
        &self,
        rule: usize,
        path: &str,
        requested_at: Timestamp,
        now: Timestamp,
    ) -> Option<Duration> {
        let need = self.needs.get(rule)?;
        let ttl = need.ttl?;
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
        self.watched.iter().find(covers).map(|_| ttl)
    }
}
