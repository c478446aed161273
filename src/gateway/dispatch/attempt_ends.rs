//! The ends of attempts: in the terms of `decision`, and as the gateway errors that clients see.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{ResourceName, UpstreamLimit, UpstreamLimitKind};
use crate::clock::Timestamp;
use crate::decision::attempts::{Ended, Failed};
use crate::decision::breaker::Outage;
use crate::decision::{AccountId, ClientId, LimitDenied, LimitKind, Shadowed, Until, WriteSpacing};
use crate::gateway::dispatch::admission::Lease;
use crate::gateway::dispatch::attempt::{Unanswered, UnsettledAnswer};
use crate::gateway::dispatch::breaker::CircuitBreaker;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::progress::{Happened, Hold, RequestProgress};
use crate::gateway::dispatch::route::Route;
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers::upstream_request_id;
use crate::gateway::upstream::fetch::{FetchError, Reuse};
use crate::telemetry::{LogText, Spent};

/// Further credentials for a read if another kind is wanted. Chosen here: the number of kinds.
const UNFIT_MAX: usize = 3;

/// The end of an upstream limit that names none (SPECIFICATION, "Limits in practice").
const COOLDOWN: Duration = Duration::from_secs(60);

/// The pause before a retry where only an event can end a limit. Chosen here: events are frequent.
const EVENT_PAUSE: Duration = Duration::from_secs(1);

/// The reason given after a 401 that was not the token's fault.
pub const UNFIT: &str = "the upstream wants another kind of credential for it";

impl Dispatcher {
    /// Counts what an attempt has spent, or may have spent.
    pub(super) fn count_spent(
        &self,
        job: &Job,
        progress: &RequestProgress,
        account: AccountId,
        resource: &ResourceName,
        units: u32,
    ) {
        progress.spent(units);
        let client = self.env.config.clients.get(job.client as usize);
        self.env.metrics.spent(&Spent {
            client: client.map(|client| &client.name),
            account: self.env.account_name(account),
            resource: resource.as_str(),
            endpoint: &job.route.endpoint.template,
            units,
            points: job.route.points,
        });
    }

    /// An attempt without an answer in the terms of `decision`.
    pub(super) fn ended(&self, job: &Job, unanswered: &Unanswered, reuse: Reuse) -> Ended {
        match unanswered {
            Unanswered::TokenRejected | Unanswered::TokenSuspected(_) => Ended::TokenRejected,
            Unanswered::TokenCleared => Ended::TokenCleared,
            Unanswered::CredentialUnfit => {
                Ended::CredentialUnfit { others: self.others_of(job, UNFIT_MAX) }
            }
            Unanswered::Limited(limit) => Ended::Limited { until: self.closed_until(limit) },
            Unanswered::Failed(FetchError::Stale(_)) if reuse == Reuse::Idle => {
                Ended::StaleConnection
            }
            Unanswered::Failed(
                FetchError::Connect(_) | FetchError::TooLate | FetchError::Unsendable(_),
            ) => Ended::NotSent,
            Unanswered::Failed(FetchError::Lost(_) | FetchError::Stale(_)) => Ended::Lost,
            Unanswered::Failed(FetchError::Timeout) => Ended::TimedOut,
            Unanswered::Failed(FetchError::Undecodable(_)) => Ended::Undecodable,
            Unanswered::Failed(FetchError::Down) => Ended::UpstreamDown,
            Unanswered::Failed(FetchError::Cancelled)
            | Unanswered::Denied(_)
            | Unanswered::NoToken(_) => Ended::Cancelled,
        }
    }

    pub(super) fn error_of(
        &self,
        job: &Job,
        failed: Failed,
        last: Option<Unanswered>,
    ) -> GatewayError {
        match failed {
            Failed::TokensRejected => GatewayError::TokensRejected,
            Failed::Unfit => GatewayError::NoToken(UNFIT.into()),
            Failed::Limited => self.limited_now(job),
            Failed::NotNow => GatewayError::ClientGone,
            Failed::Unreachable => GatewayError::Unreachable,
            Failed::UpstreamDown => self.upstream_down(job),
            Failed::OutcomeUnknown => GatewayError::OutcomeUnknown,
            Failed::TimedOut => GatewayError::UpstreamTimeout,
            Failed::Undecodable => match last {
                Some(Unanswered::Failed(FetchError::Undecodable(reason))) => {
                    GatewayError::Undecodable(reason.to_string())
                }
                _ => GatewayError::UpstreamFailed,
            },
            Failed::Lost => GatewayError::UpstreamFailed,
        }
    }

    pub fn breaker(&self, job: &Job) -> &Arc<CircuitBreaker> {
        self.breakers.of(job.request.service)
    }

    /// The error of a request that meets an open circuit breaker.
    pub fn upstream_down(&self, job: &Job) -> GatewayError {
        GatewayError::UpstreamDown(self.breaker(job).outage().unwrap_or(Outage::Silent))
    }

    /// Returns when the request may be sent. A client gets the error of an open circuit breaker at
    /// once; a queued write waits for its end.
    pub(super) async fn while_down(&self, job: &Job) -> Result<(), GatewayError> {
        let breaker = self.breaker(job);
        if breaker.outage().is_none() {
            return Ok(());
        }
        if job.is_queued() {
            tokio::select! {
                () = breaker.closed() => return Ok(()),
                () = self.env.wait_until(job.deadline) => {}
            }
        }
        Err(self.upstream_down(job))
    }

    /// Waits until the other replicas can hear of a write; false: its time is over.
    pub(super) async fn while_unheard(&self, job: &Job) -> bool {
        let now = || self.env.clock.now();
        match &self.env.replica {
            Some(replica) if !job.is_read() && replica.is_out_of_touch(now()) => tokio::select! {
                () = replica.in_touch(now) => true,
                () = self.env.wait_until(job.deadline) => false,
            },
            _ => true,
        }
    }

    /// The error of a denied wait for an upstream that seems to be down. Another event than its
    /// answers would not have ended the wait.
    pub fn denied(&self, job: &Job, denied: &LimitDenied) -> GatewayError {
        if self.breaker(job).is_probe_late()
            && denied.until == Until::Event
            && job.journal.is_none()
        {
            return self.upstream_down(job);
        }
        self.limited(job.client_route(), denied)
    }

    /// Reports an upstream limit.
    pub(super) fn note_limit(&self, job: &Job, account: AccountId, limit: &UpstreamLimit) {
        let (account, name) = (self.env.account_name(account), limit_name(limit));
        self.env.metrics.limited(account, name);
        tracing::warn!(account, limit = name, endpoint = %job.route.endpoint.template, "the upstream refused a request for a limit");
    }

    /// Adds the end of an exchange to the story of its request.
    pub(super) fn note_end(
        &self,
        progress: &RequestProgress,
        took: Duration,
        result: &Result<UnsettledAnswer, FetchError>,
    ) {
        let happened = match result {
            Ok(answer) => {
                let id = upstream_request_id(answer.headers()).map(LogText::request_id);
                Happened::Answered(answer.status(), took, id)
            }
            Err(error) => Happened::Failed(error.to_string(), took),
        };
        progress.note(self.env.clock.moment(), happened);
    }

    /// Counts a request that a limit in shadow mode would have denied or held.
    pub(super) fn count_shadowed(&self, job: &Job, progress: &RequestProgress, lease: &Lease) {
        if let Some(Shadowed { limit, is_denial }) = lease.shadowed() {
            let client = self.env.config.clients.get(job.client as usize);
            let client = client.map(|client| &client.name);
            self.env.metrics.shadowed(client, limit.name(), is_denial);
            progress.shadowed(limit);
        }
    }

    /// The gateway error for a limit denial, with the client's view. An upstream without answers is
    /// no limit.
    pub fn limited(
        &self,
        (client, route): (ClientId, &Route),
        denied: &LimitDenied,
    ) -> GatewayError {
        if denied.is_unanswered {
            return GatewayError::UpstreamTimeout;
        }
        let until = match denied.until {
            Until::Time(at) => at,
            // An event without a known time will decide, probably soon.
            Until::Event => self.env.clock.now() + EVENT_PAUSE,
        };
        // A write before it has to end, and those that wait follow at their distances.
        let until = if denied.limit == LimitKind::Spacing {
            let accounts = denied.account.as_ref().map_or(&*route.view, slice::from_ref);
            until.max(self.admissions.next_turn(accounts, route.spacing))
        } else {
            until
        };
        let resource = denied.resource.clone();
        let view = self.admissions.view(Some(client), &route.view, &resource).0;
        GatewayError::Limited { limit: denied.limit, until, resource, view }
    }

    /// The denial of a request that has waited in vain since then, held by a limit at last.
    pub fn denied_by(
        &self,
        limit: LimitKind,
        hold: Hold,
        (client, route): (ClientId, &Route),
        since: Timestamp,
    ) -> LimitDenied {
        self.admissions.with_ledger(|ledger, now| {
            let resource = ledger.resource_for(route.endpoint.id, &route.endpoint.resource);
            let (account, until) = (hold.account, hold.until);
            let mut denied = LimitDenied { limit, account, resource, until, is_unanswered: false };
            denied.is_unanswered =
                ledger.is_unanswered(now, since, &denied, &route.candidates, client, route.spacing);
            denied
        })
    }

    /// The distance of this write from the account's others.
    pub fn distance(&self, route: &Route) -> Duration {
        let writes = &self.env.config.writes;
        match route.spacing {
            WriteSpacing::None => Duration::ZERO,
            WriteSpacing::Plain => writes.spacing,
            WriteSpacing::Notifies => writes.spacing.max(writes.notify_spacing),
        }
    }

    /// The error of a limit of the endpoint's budget that ends at this time.
    pub fn limited_until(
        &self,
        (client, route): (ClientId, &Route),
        limit: LimitKind,
        until: Timestamp,
    ) -> GatewayError {
        let resource = route.endpoint.resource.clone();
        let until = Until::Time(until);
        self.limited(
            (client, route),
            &LimitDenied { limit, account: None, resource, until, is_unanswered: false },
        )
    }

    /// The end of an upstream limit as it names it (SPECIFICATION, "Limits in practice").
    pub fn closed_until(&self, limit: &UpstreamLimit) -> Timestamp {
        self.env.clock.now() + limit.retry_after.unwrap_or(COOLDOWN)
    }

    /// The error after the last attempt met an upstream limit.
    pub fn limited_now(&self, job: &Job) -> GatewayError {
        self.limited_until(job.client_route(), LimitKind::Cooldown, self.env.clock.now() + COOLDOWN)
    }
}

fn limit_name(limit: &UpstreamLimit) -> &'static str {
    match limit.kind {
        UpstreamLimitKind::Primary => "primary",
        UpstreamLimitKind::Secondary => "secondary",
    }
}
