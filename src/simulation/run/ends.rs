//! The end of a request: an answer, another attempt, or a failure.

use std::time::Duration;

use http::StatusCode;

use super::exchanges::UpstreamResponse;
use super::jobs::{Job, Waiter};
use super::{Event, READS, Run};
use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::decision::cache::arrived::Arrived;
use crate::decision::cache::freshness::Stored;
use crate::decision::retry::{Failure, Next, Patience, Policy};
use crate::simulation::Unplayable;
use crate::simulation::report::ClientReport;
use crate::simulation::store::Answer;

impl Run<'_> {
    /// Handles an answer other than a limit.
    pub(super) fn answer(
        &mut self,
        id: u64,
        account: AccountId,
        answer: &UpstreamResponse,
        sent_at: Timestamp,
    ) -> Result<(), Unplayable> {
        if answer.status.is_server_error() {
            return self.failed(id, Failure::Upstream5xx);
        }
        let token = Some(self.plan.rules.owner(account));
        let is_confirmed = answer.status == StatusCode::NOT_MODIFIED;
        let job = self.jobs.get(&id);
        if let Some((replica, key)) = job.and_then(|job| Some((job.replica, job.key.clone()?))) {
            let store = &mut self.replicas[replica].store;
            if is_confirmed {
                if let Some(stored) = store.get_mut(&key) {
                    stored.stored.revalidate(self.now, &answer.headers, token, None);
                    stored.requested_at = stored.requested_at.max(sent_at);
                }
            } else {
                let (status, mode, at) = (answer.status, self.plan.freshness, self.now);
                let headers = &answer.headers;
                if (Arrived { status, headers, at, mode }).is_storable() {
                    let stored = Stored::new(mode, at, status, headers, token, None);
                    store.put(&key, Answer { stored, requested_at: sent_at });
                }
            }
        }
        let Some(job) = self.close(id) else { return Ok(()) };
        if let (Some(key), Some((requested, answered))) = (&job.key, answer.versions) {
            if !is_confirmed && answer.status != StatusCode::OK {
                let problem = format!("{} was answered with {}", job.path, answer.status);
                return Err(Unplayable(problem));
            }
            let shown = self.replicas[job.replica].shown.entry(key.clone()).or_default();
            if !is_confirmed {
                *shown = (*shown).max(answered);
            }
            self.report.tally.stale +=
                if *shown < requested { job.waiters.len() as u64 } else { 0 };
        }
        for (place, waiter) in job.waiters.iter().enumerate() {
            self.count(waiter.client, |report| {
                report.collapsed += u64::from(place > 0);
                report.not_modified += u64::from(place == 0 && is_confirmed);
            });
            self.served(*waiter, job.away);
        }
        Ok(())
    }

    /// Handles an upstream limit.
    pub(super) fn limited(&mut self, id: u64) -> Result<(), Unplayable> {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(()) };
        if job.is_read() {
            // Each limit closes an account or a budget, so that a read tries the next account.
            job.attempt -= 1;
            job.refusals += 1;
            if job.refusals <= job.route.candidates.len() {
                return self.admit(id);
            }
            self.end(id, |report| report.failed += 1);
            return Ok(());
        }
        self.failed(id, Failure::UpstreamLimit { until: self.now })
    }

    /// Handles a failed attempt.
    pub(super) fn failed(&mut self, id: u64, failure: Failure) -> Result<(), Unplayable> {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        let policy = if job.is_read() {
            READS
        } else {
            Policy { max_attempts: self.plan.write_attempts, patience: Patience::Waiting }
        };
        let (attempt, deadline) = (job.attempt, job.deadline);
        match policy.next(self.now, &job.method, attempt, failure, self.jitter.unit()) {
            Next::Retry { not_before } if not_before <= deadline => {
                if not_before <= self.now {
                    return self.admit(id);
                }
                self.event_queue.put(not_before, Event::Retries(id));
            }
            Next::RetryElsewhere => return self.admit(id),
            Next::Unknown => self.end(id, |report| report.unknown += 1),
            _ => self.end(id, |report| report.failed += 1),
        }
        Ok(())
    }

    /// Ends a job without an answer; `add` counts it for each client that waits.
    pub(super) fn end(&mut self, id: u64, add: impl Fn(&mut ClientReport)) {
        let Some(job) = self.close(id) else { return };
        for waiter in job.waiters {
            self.count(waiter.client, &add);
            self.answered(waiter);
        }
    }

    pub(super) fn served(&mut self, waiter: Waiter, away: Duration) {
        let held = self.now.since(waiter.requested_at).saturating_sub(away);
        self.count(waiter.client, |report| {
            report.served += 1;
            report.waits.add(u64::try_from(held.as_millis()).unwrap_or(u64::MAX));
        });
        self.answered(waiter);
    }

    /// Gives a bot its answer or error.
    pub(super) fn answered(&mut self, waiter: Waiter) {
        let Some(place) = waiter.bot else { return };
        let Some(bot) = self.bots.get_mut(place) else { return };
        bot.pending = bot.pending.saturating_sub(1);
        if let Some(at) = bot.again(self.now) {
            self.event_queue.put(at.max(self.now + Duration::from_millis(1)), Event::Wakes(place));
        }
    }

    /// Removes a job; the next write of its lane continues.
    pub(super) fn close(&mut self, id: u64) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        let own = &mut self.replicas[job.replica];
        if let Some(key) = &job.key {
            own.fetching.remove(key);
        }
        if let Some(ticket) = job.lane {
            own.by_lane.remove(&ticket);
            let next = own.lanes.leave(ticket);
            if let Some(next) = next.and_then(|next| own.by_lane.get(&next)) {
                self.event_queue.put(self.now, Event::Retries(*next));
            }
        }
        Some(job)
    }
}
