//! Executes queued writes, one task each, and records their outcomes (SPECIFICATION D7).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use tokio::sync::mpsc;

use crate::clock::Timestamp;
use crate::decision::LimitKind;
use crate::decision::writes::run::{FinishedRun, Next, RunEnd};
use crate::state::TOUCH;
use crate::writes::record::{Reason, Response, Unreadable};
use crate::writes::{Progress, Stored, Write, WriteId, WriteState};

use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::dispatch::job::Journal as _;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::environment::Environment;
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers::{remove_digests, to_client};
use crate::gateway::http::interim::Interims;
use crate::gateway::http::media_type::is_json;
use crate::gateway::url_rewrite::map::blank_secrets;
use crate::gateway::write::queue::journal::QueueJournal;
use crate::gateway::write::queue::live::{Live, WriteGroup};
use crate::gateway::write::queue::write_queue::{Queue, STORE_PAUSE};
use crate::gateway::write::writes::Writes;
use crate::telemetry::LogText;
use crate::telemetry::spans::TraceSpan;
use crate::tokens::{Cause, Lack};

/// Guard: a slot among the running writes.
struct RunningSlot {
    queue: Arc<Queue>,
    group: WriteGroup,
}

impl Drop for RunningSlot {
    fn drop(&mut self) {
        self.queue.dispatch.lock().ended(&self.group);
        self.queue.startable.notify_one();
    }
}

impl Queue {
    /// Starts writes as they become ready, for the life of the gateway.
    pub(in crate::gateway::write) async fn run(
        self: Arc<Self>,
        current: impl Fn() -> Option<Arc<Writes>> + Send + 'static,
        mut called: mpsc::UnboundedReceiver<u64>,
    ) {
        loop {
            tokio::select! {
                number = called.recv() => {
                    let Some(number) = number else { return };
                    let inner = &mut *self.inner.lock();
                    if let Some(live) = inner.live.get_mut(&number) {
                        live.run.is_called = true;
                    }
                    self.start_if_due(inner, number);
                }
                () = self.startable.notified() => {}
            }
            let Some(writes) = current() else { return };
            self.start_all(&writes);
        }
    }

    fn start_all(self: &Arc<Self>, writes: &Arc<Writes>) {
        let inner = &mut *self.inner.lock();
        // Loaded under the lock, so that a reload sees every write that starts with the old config.
        loop {
            let Some((group, number)) = self.dispatch.lock().take_next() else { return };
            let Some(live) = inner
                .live
                .get_mut(&number)
                .filter(|live| !live.is_ending() && live.run.task.is_none())
            else {
                self.dispatch.lock().ended(&group);
                continue;
            };
            live.waiters.waiter.get_or_insert_default();
            self.end_turn_wait(live);
            let slot = RunningSlot { queue: Arc::clone(self), group: live.group.clone() };
            let journal = QueueJournal::new(self, &writes.env.active, number, live);
            let (writes, queue) = (Arc::clone(writes), Arc::clone(self));
            let task = tokio::spawn(async move {
                // Held to the end of the task, an abort included.
                let _slot = slot;
                queue.execute(&writes, number, Arc::new(journal)).await;
            });
            live.run.task = Some(task.abort_handle());
        }
    }

    async fn execute(self: &Arc<Self>, writes: &Writes, number: u64, journal: Arc<QueueJournal>) {
        let outcome = match self.read(number).await {
            Some(Ok(write)) => writes.execute(&write, &journal, self, number).await,
            Some(Err(reason)) => RunOutcome::Ended(Ended::because(WriteState::Failed, reason)),
            None => RunOutcome::Stopped,
        };
        let ended = match outcome {
            RunOutcome::Ended(ended) => ended,
            RunOutcome::Paused(until) => return self.pause(number, journal.run(), until),
            RunOutcome::Stopped => return,
        };
        if ended.error.as_ref().is_some_and(|error| self.give_up_synchronous(number, error)) {
            return;
        }
        let now = self.clock.now();
        let kept = {
            let inner = &mut *self.inner.lock();
            let live = inner.live.get(&number).filter(|live| live.run.number == journal.run());
            let Some(live) = live else { return };
            let Ended { state, response, reason, .. } = ended;
            let progress =
                Progress { state, finished: Some(now), response, reason, ..live.progress.clone() };
            log_end(&writes.env, number, live, &progress, now);
            self.end(inner, number, progress)
        };
        if let Some(kept) = kept {
            // It fails only with the runtime.
            let _ = kept.await;
        }
    }

    /// Restarts all running writes under a new config, which may not allow them. A write on the
    /// wire is restarted only if it comes back for a retry.
    pub fn reevaluate(&self) {
        let inner = &mut *self.inner.lock();
        let under_way = |live: &Live| live.run.is_called && live.is_kept && !live.is_ending();
        let running = inner.live.iter().filter(|(_, live)| under_way(live));
        let numbers: Vec<u64> = running.map(|(number, _)| *number).collect();
        for number in numbers {
            self.restart_off_wire(inner, number);
        }
    }

    /// Pauses a write until this time and frees its slot.
    fn pause(self: &Arc<Self>, number: u64, run: u32, until: Timestamp) {
        match self.inner.lock().live.get_mut(&number) {
            Some(live) if live.run.number == run => live.run.task = None,
            // It was restarted or is gone.
            _ => return,
        }
        let queue = Arc::clone(self);
        tokio::spawn(async move {
            queue.clock.reach(until).await;
            queue.start_if_due(&mut queue.inner.lock(), number);
        });
    }

    /// Loads a write and retries until the store answers; `None` if it is gone.
    async fn read(&self, number: u64) -> Option<Result<Write, Reason>> {
        let copied = self.store.shared().and_then(|shared| shared.copied(number));
        if let Some(Stored { request, .. }) = copied {
            return Some(Write::decode(&request).map_err(|fault| unreadable(&fault)));
        }
        loop {
            match self.store.load(number).await {
                Ok(stored) => {
                    return stored.map(|stored| {
                        Write::decode(&stored.request).map_err(|fault| unreadable(&fault))
                    });
                }
                Err(fault) => {
                    tracing::error!(write = number, error = %fault, "a queued write could not be read, and is tried again");
                    self.clock.reach(self.clock.now() + STORE_PAUSE).await;
                }
            }
        }
    }
}

enum RunOutcome {
    Ended(Ended),
    /// It pauses until this time.
    Paused(Timestamp),
    /// It was cancelled, or the gateway shuts down.
    Stopped,
}

struct Ended {
    state: WriteState,
    response: Option<Box<Response>>,
    reason: Option<Box<Reason>>,
    /// Of a write that was not executed.
    error: Option<GatewayError>,
}

impl Writes {
    /// Runs a write to its outcome, if possible.
    async fn execute(
        &self,
        write: &Write,
        journal: &Arc<QueueJournal>,
        queue: &Queue,
        number: u64,
    ) -> RunOutcome {
        let Some((progress, (request_progress, span, interims))) = queue
            .inner
            .lock()
            .live
            .get(&number)
            .map(|live| (live.progress.clone(), waiter_of(live)))
        else {
            return RunOutcome::Stopped;
        };
        let mut job = match self.queued_job(write, progress.deadline, journal.clone()) {
            Ok(job) => job,
            Err(error) => {
                let state =
                    if progress.may_have_run { WriteState::Unknown } else { WriteState::Failed };
                return RunOutcome::Ended(Ended::failed(state, error));
            }
        };
        // An earlier attempt, perhaps of an earlier process, set this time.
        if progress.not_before > self.env.clock.now() {
            return RunOutcome::Paused(progress.not_before);
        }
        job.span = span.unwrap_or_else(TraceSpan::none);
        job.interims = interims;
        // An in-memory store counts the body already.
        let is_uncounted = queue.is_durable();
        let _memory = if is_uncounted { queue.carry(write.body.len()).await } else { None };
        let attempts_before = progress.attempts;
        loop {
            let now = self.env.clock.now();
            if self.cache.is_out_of_touch(now) {
                // The other replicas could not hear of it.
                return RunOutcome::Paused(now + TOUCH);
            }
            let answered = self.perform_in_turn(&job, &request_progress).await;
            let progress = match self.progress_after(queue, number, &answered) {
                Ok(progress) => progress,
                Err(outcome) => return outcome,
            };
            let run = FinishedRun {
                patience: journal.terms().patience,
                tried_until: job.deadline,
                deadline: progress.deadline,
                not_before: progress.not_before,
                was_sent: progress.attempts != attempts_before,
                may_have_run: progress.may_have_run,
            };
            let state = match run.next(end_of(&answered), self.env.clock.now()) {
                // An asynchronous request has adopted it since.
                Next::RunAgain => {
                    job.deadline = progress.deadline;
                    continue;
                }
                Next::Pause(until) => return RunOutcome::Paused(until),
                Next::Done => WriteState::Done,
                Next::Failed => WriteState::Failed,
                Next::Unknown => WriteState::Unknown,
            };
            return RunOutcome::Ended(match answered {
                Ok(answer) => Ended::answered(state, &self.env, answer),
                Err(error) => Ended::failed(state, error)
                    .after(request_progress.figures(self.env.clock.moment()).error),
            });
        }
    }

    /// The progress of a write after a run of attempts, unless the write has ended or stopped.
    fn progress_after(
        &self,
        queue: &Queue,
        number: u64,
        answered: &Result<UpstreamAnswer, GatewayError>,
    ) -> Result<Progress, RunOutcome> {
        let inner = queue.inner.lock();
        let live =
            inner.live.get(&number).filter(|live| !live.is_ending()).ok_or(RunOutcome::Stopped)?;
        let sync_waiters = live.waiters.synchronous;
        let was_stopped = matches!(answered, Err(GatewayError::ClientGone));
        if was_stopped && sync_waiters.is_none() && self.env.is_draining() {
            return Err(RunOutcome::Stopped);
        }
        if sync_waiters == Some(0) && live.progress.state == WriteState::Queued {
            let ended = Ended::failed(WriteState::Failed, GatewayError::ClientGone);
            return Err(RunOutcome::Ended(ended));
        }
        Ok(live.progress.clone())
    }
}

/// The result of a run in the terms of `decision`.
fn end_of(answered: &Result<UpstreamAnswer, GatewayError>) -> RunEnd {
    match answered {
        Ok(answer) => RunEnd::Answered(answer.status),
        Err(GatewayError::Limited { limit, until, .. }) => {
            let queue_full_until = (*limit == LimitKind::QueueFull).then_some(*until);
            RunEnd::Limited { queue_full_until }
        }
        // The write waited for answers to other requests, and was not sent.
        Err(GatewayError::UpstreamTimeout) => RunEnd::Limited { queue_full_until: None },
        Err(GatewayError::TokensRejected) => RunEnd::TokensRejected,
        Err(GatewayError::TokenUnavailable(Lack { cause: Cause::Passing, until, .. })) => {
            RunEnd::TokenUnavailable { until: *until }
        }
        Err(GatewayError::UpstreamDown(_)) => RunEnd::UpstreamDown,
        Err(GatewayError::ClientGone) => RunEnd::NotNow,
        Err(GatewayError::OutcomeUnknown) => RunEnd::OutcomeUnknown,
        Err(_) => RunEnd::Failed,
    }
}

/// The progress, the span and the interim answers of a write's waiter.
fn waiter_of(live: &Live) -> (RequestProgress, Option<TraceSpan>, Option<Arc<Interims>>) {
    let waiter = live.waiters.waiter.as_deref();
    waiter
        .map(|waiter| {
            (waiter.request_progress.clone(), waiter.span.clone(), waiter.interims.clone())
        })
        .unwrap_or_default()
}

impl Ended {
    fn because(state: WriteState, reason: Reason) -> Self {
        Self { state, response: None, reason: Some(Box::new(reason)), error: None }
    }

    fn answered(state: WriteState, env: &Environment, answer: UpstreamAnswer) -> Self {
        let reason = (state == WriteState::Unknown).then(|| {
            let earlier = if answer.status.is_server_error() {
                ""
            } else {
                "an earlier attempt may have been executed, and at the last one "
            };
            let status = answer.status.as_u16();
            Box::new(outcome_unknown(&format!("{earlier}the upstream answered {status}")))
        });
        Self { state, response: Some(Box::new(kept_response(env, answer))), reason, error: None }
    }

    fn failed(state: WriteState, error: GatewayError) -> Self {
        let ended = Self::because(state, error.as_reason());
        Self { error: (state == WriteState::Failed).then_some(error), ..ended }
    }

    /// Adds the last error to an unknown outcome.
    fn after(self, error: Option<String>) -> Self {
        match error {
            Some(error) if self.state == WriteState::Unknown => {
                Self::because(self.state, outcome_unknown(&error))
            }
            _ => self,
        }
    }
}

/// The stored form of a queued write's answer: without credentials, with the upstream's URLs.
fn kept_response(env: &Environment, answer: UpstreamAnswer) -> Response {
    let mut headers = to_client(&answer.headers, env.mode);
    let body = match answer.body {
        AnswerBody::Whole(bytes) if is_json(&answer.headers) => {
            let blanked = blank_secrets(bytes.clone());
            if blanked != bytes {
                remove_digests(&mut headers);
            }
            Some(blanked)
        }
        AnswerBody::Whole(bytes) => Some(bytes),
        AnswerBody::SharedBody { .. } => {
            for name in [header::CONTENT_ENCODING, header::ETAG, header::CONTENT_RANGE] {
                headers.remove(name);
            }
            remove_digests(&mut headers);
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json; charset=utf-8"),
            );
            Some(Bytes::from_static(br#"{"message":"The upstream's answer was longer than this gateway keeps (cache.max_object)."}"#))
        }
    };
    Response { status: answer.status, headers, body }
}

fn outcome_unknown(known: &str) -> Reason {
    let Reason { word, status, .. } = GatewayError::OutcomeUnknown.as_reason();
    let message = format!(
        "It is unknown whether this write was executed: {known}. Look before you send it again."
    );
    Reason { word, message, status }
}

fn unreadable(fault: &Unreadable) -> Reason {
    Reason {
        word: "unreadable".into(),
        message: format!("What was kept of it cannot be read: {fault}."),
        status: 500,
    }
}

/// An unknown outcome is a warning, because an operator must look into it.
fn log_end(env: &Environment, number: u64, live: &Live, progress: &Progress, now: Timestamp) {
    let client = env
        .config
        .clients
        .get(live.group.client as usize)
        .map(|client| &*client.name)
        .unwrap_or_default();
    let id = WriteId { number, salt: live.salt };
    let took_ms = u64::try_from(now.since(live.accepted).as_millis()).unwrap_or(u64::MAX);
    let status = progress.response.as_ref().map(|response| response.status.as_u16());
    let reason = progress.reason.as_ref().map(|reason| &*reason.word);
    let (state, attempts) = (progress.state.name(), progress.attempts);
    let waiter = live.waiters.waiter.as_deref();
    let figures = waiter.map(|waiter| waiter.request_progress.figures(env.clock.moment()));
    let account = figures.as_ref().and_then(|figures| figures.account);
    let account = account.map(|account| env.account_name(account));
    let upstream_request_id =
        figures.as_ref().and_then(|figures| figures.upstream_request_id.as_ref());
    let upstream_request_id = upstream_request_id.map(LogText::as_str);
    if progress.state == WriteState::Unknown {
        tracing::warn!(write = %id, client, state, status, reason, attempts, took_ms, account, upstream_request_id, "it is not known whether a queued write was executed");
    } else {
        tracing::info!(write = %id, client, state, status, reason, attempts, took_ms, account, upstream_request_id, "a queued write has ended");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::ResourceName;
    use crate::clock::Clock;
    use crate::telemetry::Metrics;
    use crate::writes::memory::MemoryStore;

    /// A task that starts under the queue's lock while the runtime ends is dropped at once.
    #[test]
    fn a_running_slot_can_be_freed_while_the_queue_is_locked() {
        let queue = Queue::new(
            Arc::new(MemoryStore::with_room(1_000)),
            Clock::system(),
            Duration::ZERO,
            Arc::new(Metrics::new()),
        );
        let group = WriteGroup { client: 0, content: true, resource: ResourceName::core() };
        assert!(queue.dispatch.lock().ready(&group, 1));
        let slot = RunningSlot { queue: Arc::clone(&queue), group };
        let locked = queue.inner.lock();
        let (done, returned) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(slot);
            done.send(())
        });
        returned.recv_timeout(Duration::from_secs(10)).expect("it waits for the lock");
        drop(locked);
    }
}
