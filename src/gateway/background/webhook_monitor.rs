//! Webhooks whose deliveries are looked through beside the requests: a lost one is asked for again,
//! and what a webhook tells of may be served for longer.
//!
//! Whether one can be relied upon is decided in `webhooks/watch.rs`; here are only the asking, as
//! requests of lowest priority through the same admission as any other, and the look-up of what
//! covers a stored answer.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, header};
use parking_lot::RwLock;

use crate::api::events_of;
use crate::clock::Timestamp;
use crate::config::{Config, Hook, Reach};
use crate::decision::ClientId;
use crate::webhooks::listing::{Listed, Terms};
use crate::webhooks::watch::{Check, Findings, Watch};

use crate::gateway::Gateway;
use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::dispatch::job::Unconditional;
use crate::gateway::dispatch::progress::Effort;
use crate::gateway::reload::Current;

/// The largest answer that is read. Ours: a hundred deliveries in a list take a twentieth of it.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Pages of a hundred deliveries that are read in one check. Ours: more than a thousand in a minute
/// are not looked through, and nothing from before them is covered.
const PAGES_MAX: usize = 10;

/// The webhooks of the config, and what each rule of the cache needs to be told of.
#[derive(Default)]
pub struct Hooks {
    watched: Vec<Watched>,
    needs: Vec<Need>,
    /// How many checks have ended, well or not.
    checks: AtomicU64,
}

struct Watched {
    reach: Reach,
    watch: RwLock<Watch>,
}

/// Of a rule with a `webhook_ttl`; the others need nothing and have no events.
#[derive(Default)]
struct Need {
    ttl: Option<Duration>,
    events: Vec<&'static str>,
    /// Whether a webhook of the repository is not told of all of them.
    of_owner: bool,
}

impl Hooks {
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

/// Checks each webhook of the config for as long as that is in force.
pub fn keep_checking_all(gateway: &Arc<Gateway>, current: &Weak<Current>) {
    for place in 0..gateway.hooks.watched.len() {
        tokio::spawn(keep_checking(gateway, Weak::clone(current), place));
    }
}

fn keep_checking(
    gateway: &Arc<Gateway>,
    current: Weak<Current>,
    place: usize,
) -> impl Future<Output = ()> + Send + 'static {
    // Weak: this task must not be what keeps an abandoned gateway.
    let (clock, gateway) = (gateway.clock.clone(), Arc::downgrade(gateway));
    async move {
        loop {
            let in_force = |gateway: &Arc<Gateway>| {
                current.upgrade().is_some_and(|current| current.is(gateway))
            };
            let Some(strong) = gateway.upgrade().filter(in_force) else { return };
            let Some(rest) = strong.check_hook(place).await else { return };
            drop(strong);
            clock.reach(clock.now() + rest).await;
        }
    }
}

impl Gateway {
    /// How many checks of webhooks have ended, well or not.
    pub fn hook_checks(&self) -> u64 {
        self.hooks.checks.load(Ordering::Acquire)
    }

    /// Looks one webhook through, and says how long to rest.
    async fn check_hook(self: &Arc<Self>, place: usize) -> Option<Duration> {
        let hook = self.config.webhooks.as_ref()?.hooks.get(place)?;
        let (watched, receiver) = (self.hooks.watched.get(place)?, self.webhooks.as_ref()?);
        match self.read_hook(hook, watched).await {
            Ok(check) => {
                let findings =
                    watched.watch.write().checked(check, |guid| receiver.has_received(guid));
                self.tell(hook, &findings);
            }
            Err(problem) => {
                tracing::warn!(hook = %hook.at, problem, "a webhook's deliveries could not be looked through")
            }
        }
        let due = watched.watch.write().take_due(self.clock.now());
        for id in due {
            let target = format!("{}/deliveries/{id}/attempts", hook.at);
            // Whatever becomes of it is seen by whether the delivery arrives.
            if let Err(problem) = self.ask(hook, Method::POST, target).await {
                tracing::warn!(hook = %hook.at, delivery = id, problem, "a missed delivery could not be asked for again");
            }
        }
        let rest = watched.watch.read().rest();
        self.hooks.checks.fetch_add(1, Ordering::Release);
        Some(rest)
    }

    fn tell(&self, hook: &Hook, findings: &Findings) {
        for event in &findings.missed {
            self.metrics.webhook(event, "missed");
        }
        let Findings { missed, recovered, given_up } = findings;
        if !missed.is_empty() {
            tracing::warn!(hook = %hook.at, missed = missed.len(), "deliveries of a webhook did not arrive and are asked for again");
        }
        if *given_up > 0 {
            tracing::warn!(hook = %hook.at, given_up, "missed deliveries do not arrive; what was stored before is confirmed");
        }
        if *recovered > 0 {
            tracing::info!(hook = %hook.at, recovered, "deliveries of a webhook that had not arrived are there");
        }
    }

    async fn read_hook(self: &Arc<Self>, hook: &Hook, watched: &Watched) -> Result<Check, String> {
        let began_at = self.clock.now();
        let (_, body) = self.ask(hook, Method::GET, hook.terms_at().to_owned()).await?;
        let terms = Terms::read(&body).ok_or("its settings cannot be read")?;
        let mut check =
            Check { began_at, ended_at: began_at, terms, deliveries: Vec::new(), complete: false };
        let mut target = format!("{}/deliveries?per_page=100", hook.at);
        for _ in 0..PAGES_MAX {
            let (next, body) = self.ask(hook, Method::GET, target).await?;
            check
                .deliveries
                .extend(Listed::read_page(&body).ok_or("its deliveries cannot be read")?);
            let goes_back_enough = watched.watch.read().goes_back_enough(&check.deliveries);
            match next {
                Some(next) if !goes_back_enough => target = next,
                _ => {
                    check.complete = true;
                    break;
                }
            }
        }
        check.ended_at = self.clock.now();
        Ok(check)
    }

    /// One request for a webhook: the next page of the answer, where it names one, and its body;
    /// else what is wrong.
    async fn ask(
        self: &Arc<Self>,
        hook: &Hook,
        method: Method,
        target: String,
    ) -> Result<(Option<String>, Bytes), String> {
        let payer = self.config.account_id(hook.account);
        let job = self.own_job(method, target, payer, ClientId::BACKGROUND.0, ANSWER_BYTES_MAX);
        let answer = self
            .perform(&job, &Effort::default(), &Unconditional)
            .await
            .map_err(|refused| refused.reason().to_owned())?;
        if !answer.status.is_success() {
            return Err(format!("the upstream answered {}", answer.status));
        }
        let next = self.next_page(&answer);
        match answer.body {
            AnswerBody::Whole(body) => Ok((next, body)),
            AnswerBody::Large { .. } => Err("the answer is too large".into()),
        }
    }

    fn next_page(&self, answer: &Answer) -> Option<String> {
        let links = answer.headers.get(header::LINK)?.to_str().ok()?;
        let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
        let reference = next.trim_start().strip_prefix('<')?.split('>').next()?;
        self.urls.own_path(reference).map(str::to_owned)
    }
}
