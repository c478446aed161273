//! The webhook monitor: finds lost deliveries and requests them again, and extends lifetimes of
//! answers that a healthy webhook covers.
//!
//! `webhooks/watch/mod.rs` judges the health of a webhook. This file sends its requests, with the
//! lowest priority through ordinary admission, and looks up the coverage of stored answers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, header};

use crate::config::Hook;
use crate::decision::ClientId;
use crate::gateway::cache::webhook_coverage::{Watched, WebhookCoverage};
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::dispatch::{
    dispatcher::Dispatcher, job::Unconditional, progress::RequestProgress,
};
use crate::gateway::environment::Environment;
use crate::gateway::request::webhooks::Webhooks;
use crate::state::Found;
use crate::webhooks::{Check, Findings, HookSettings, ListedDelivery};

/// The largest answer. Chosen here: a list of a hundred deliveries takes a twentieth of it.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Pages of a hundred deliveries per check. Chosen here: more than a thousand in a minute are not
/// checked, and nothing before them is covered.
const PAGES_MAX: usize = 10;

/// The time in which no other replica asks for the same redelivery. Chosen here: less than the
/// distance of two requests for it (`webhooks/watch/mod.rs`).
const ASKED_FOR: Duration = Duration::from_mins(4);

pub struct WebhookMonitor {
    env: Arc<Environment>,
    dispatcher: Arc<Dispatcher>,
    coverage: Arc<WebhookCoverage>,
    webhooks: Arc<Webhooks>,
}

/// Begins to check every webhook of a config, for as long as that config is in force.
pub fn keep_checking_all(
    monitor: &Arc<WebhookMonitor>,
    in_force: &(impl Fn(&Arc<WebhookMonitor>) -> bool + Clone + Send + 'static),
) {
    for index in 0..monitor.coverage.watched.len() {
        tokio::spawn(keep_checking(monitor, in_force.clone(), index));
    }
}

fn keep_checking(
    monitor: &Arc<WebhookMonitor>,
    in_force: impl Fn(&Arc<WebhookMonitor>) -> bool + Send + 'static,
    index: usize,
) -> impl Future<Output = ()> + Send + 'static {
    let (clock, monitor) = (monitor.env.clock.clone(), Arc::downgrade(monitor));
    async move {
        loop {
            let Some(strong) = monitor.upgrade().filter(&in_force) else { return };
            let Some(rest) = strong.check_hook(index).await else { return };
            drop(strong);
            clock.reach(clock.now() + rest).await;
        }
    }
}

impl WebhookMonitor {
    pub fn new(
        env: &Arc<Environment>,
        dispatcher: &Arc<Dispatcher>,
        coverage: &Arc<WebhookCoverage>,
        webhooks: &Arc<Webhooks>,
    ) -> Arc<Self> {
        Arc::new(Self {
            env: Arc::clone(env),
            dispatcher: Arc::clone(dispatcher),
            coverage: Arc::clone(coverage),
            webhooks: Arc::clone(webhooks),
        })
    }

    pub fn checks(&self) -> u64 {
        self.coverage.checks.load(Ordering::Acquire)
    }

    async fn check_hook(&self, index: usize) -> Option<Duration> {
        let hook = self.env.config.webhooks.as_ref()?.hooks.get(index)?;
        let (watched, receiver) = (self.coverage.watched.get(index)?, self.webhooks.receiver()?);
        match self.read_hook(hook, watched).await {
            Ok(check) => {
                let arrived = |guid: &str, event: &str| receiver.has_received(guid, event);
                let findings = watched.watch.write().checked(check, arrived);
                self.report(hook, &findings);
            }
            Err(problem) => {
                tracing::warn!(hook = %hook.at, problem, "a webhook's deliveries could not be looked through");
                watched.watch.write().check_failed(self.env.clock.now(), problem);
            }
        }
        let due = watched.watch.write().take_due(self.env.clock.now());
        for id in due {
            if !self.may_ask_for(id).await {
                continue;
            }
            let target = format!("{}/deliveries/{id}/attempts", hook.at);
            // The result shows itself when the delivery arrives.
            if let Err(problem) = self.request(hook, Method::POST, target).await {
                tracing::warn!(hook = %hook.at, delivery = id, problem, "a missed delivery could not be asked for again");
            }
        }
        let rest = watched.watch.read().pause();
        self.coverage.checks.fetch_add(1, Ordering::Release);
        Some(rest)
    }

    /// True unless another replica has asked for this redelivery.
    async fn may_ask_for(&self, id: u64) -> bool {
        let Some(replica) = &self.env.replica else { return true };
        let (key, holder) = (format!("redelivery:{id}"), format!("{:016x}", replica.id().0));
        let home = replica.home();
        let found = home.find_or_claim(&key, &holder, ASKED_FOR, Duration::MAX).await;
        found != Ok(Found::Busy)
    }

    fn report(&self, hook: &Hook, findings: &Findings) {
        for event in &findings.missed {
            self.env.metrics.webhook(event, "missed");
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

    async fn read_hook(&self, hook: &Hook, watched: &Watched) -> Result<Check, String> {
        let began_at = self.env.clock.now();
        let (_, body) = self.request(hook, Method::GET, hook.settings_path().to_owned()).await?;
        let settings = HookSettings::read(&body).ok_or("its settings cannot be read")?;
        let mut check = Check {
            began_at,
            ended_at: began_at,
            settings,
            deliveries: Vec::new(),
            complete: false,
        };
        let mut target = format!("{}/deliveries?per_page=100", hook.at);
        for _ in 0..PAGES_MAX {
            let (next, body) = self.request(hook, Method::GET, target).await?;
            check
                .deliveries
                .extend(ListedDelivery::read_page(&body).ok_or("its deliveries cannot be read")?);
            let goes_back_enough = watched.watch.read().goes_back_enough(&check.deliveries);
            match next {
                Some(next) if !goes_back_enough => target = next,
                _ => {
                    check.complete = true;
                    break;
                }
            }
        }
        check.ended_at = self.env.clock.now();
        Ok(check)
    }

    /// Sends one request about a webhook. Returns the next page, if any, and the body.
    async fn request(
        &self,
        hook: &Hook,
        method: Method,
        target: String,
    ) -> Result<(Option<String>, Bytes), String> {
        let payer = self.env.config.account_id(hook.account);
        let job = self.dispatcher.own_job(
            method,
            target,
            payer,
            ClientId::BACKGROUND.0,
            ANSWER_BYTES_MAX,
        );
        let answer = self
            .dispatcher
            .perform(&job, &RequestProgress::default(), &Unconditional)
            .await
            .map_err(|refused| refused.reason().to_owned())?;
        if !answer.status.is_success() {
            return Err(format!("the upstream answered {}", answer.status));
        }
        let next = self.next_page(&answer);
        match answer.body {
            AnswerBody::Whole(body) => Ok((next, body)),
            AnswerBody::SharedBody { .. } => Err("the answer is too large".into()),
        }
    }

    fn next_page(&self, answer: &UpstreamAnswer) -> Option<String> {
        let links = answer.headers.get(header::LINK)?.to_str().ok()?;
        let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
        let reference = next.trim_start().strip_prefix('<')?.split('>').next()?;
        self.env.urls.own_path(reference).map(str::to_owned)
    }
}
