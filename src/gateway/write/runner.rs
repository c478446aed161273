//! Queued writes brought on their way: one task for each that is under way, and the truth about how
//! it ended (DESIGN D7).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::clock::Timestamp;
use crate::decision::LimitKind;
use crate::decision::retry::Patience;
use crate::writes::record::{Reason, Response, Unreadable};
use crate::writes::{Progress, Write, WriteId, WriteState};

use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::dispatch::journal::Journal as _;
use crate::gateway::environment::Environment;
use crate::gateway::error::GatewayError;
use crate::gateway::write::kept_response::kept_response;
use crate::gateway::write::queue::journal::QueueJournal;
use crate::gateway::write::queue::live::Inner;
use crate::gateway::write::queue::live::{Class, Live};
use crate::gateway::write::queue::write_queue::{Queue, STORE_PAUSE};
use crate::gateway::write::writes::Writes;
use crate::tokens::{Cause, Lack};

/// The shortest way back to the queue. Ours: what cannot be done now is not asked for all the time.
const REST_MIN: Duration = Duration::from_secs(1);
/// How long it rests while no token of its account is accepted. Ours: a token that was refused is
/// tried again after minutes, another one may be given at any time.
const TOKEN_REST: Duration = Duration::from_secs(30);

/// A place among those under way, until it is dropped.
struct Place {
    queue: Arc<Queue>,
    class: Class,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.dispatch.lock().ended(&self.class);
        self.queue.startable.notify_one();
    }
}

impl Queue {
    /// Starts what may start, as long as the gateway lives.
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

    /// A write that is kept, and whose turn it is, may be brought on its way.
    pub(in crate::gateway::write) fn start_if_due(&self, inner: &mut Inner, number: u64) {
        let Some(live) = inner.live.get_mut(&number) else { return };
        if live.run.is_called && live.is_kept && !live.is_ending() && live.run.task.is_none() {
            if !self.dispatch.lock().ready(&live.class, number) {
                live.is_behind(self.clock.now());
            }
            self.startable.notify_one();
        }
    }

    fn start_all(self: &Arc<Self>, writes: &Arc<Writes>) {
        let inner = &mut *self.inner.lock();
        // Looked for under the lock: what begins by an earlier config is seen by whoever puts
        // another one in force.
        loop {
            let Some((class, number)) = self.dispatch.lock().take_next() else { return };
            let Some(live) = inner
                .live
                .get_mut(&number)
                .filter(|live| !live.is_ending() && live.run.task.is_none())
            else {
                self.dispatch.lock().ended(&class);
                continue;
            };
            live.waiters.waiter.get_or_insert_default();
            self.turn_is_over(live);
            let place = Place { queue: Arc::clone(self), class: live.class.clone() };
            let journal = QueueJournal::new(self, &writes.env.active, number, live);
            let (writes, queue) = (Arc::clone(writes), Arc::clone(self));
            let task = tokio::spawn(async move {
                // To the end of the task, also when it is aborted.
                let _place = place;
                queue.carry_out(&writes, number, Arc::new(journal)).await;
            });
            live.run.task = Some(task.abort_handle());
        }
    }

    async fn carry_out(self: &Arc<Self>, writes: &Writes, number: u64, journal: Arc<QueueJournal>) {
        let came = match self.read(number).await {
            Some(Ok(write)) => writes.carry_out(&write, &journal, self, number).await,
            Some(Err(reason)) => Came::ToEnd(Ended {
                state: WriteState::Failed,
                response: None,
                reason: Some(Box::new(reason)),
                refused: None,
            }),
            None => Came::Away,
        };
        let ended = match came {
            Came::ToEnd(ended) => ended,
            Came::ToRest(until) => return self.rest(number, journal.run(), until),
            Came::Away => return,
        };
        if let Some(refused) = ended.refused
            && self.give_up_attended(number, &refused)
        {
            return;
        }
        let now = self.clock.now();
        let kept = {
            let inner = &mut *self.inner.lock();
            let Some(live) =
                inner.live.get(&number).filter(|live| live.run.number == journal.run())
            else {
                return;
            };
            let Ended { state, response, reason, .. } = ended;
            let progress =
                Progress { state, finished: Some(now), response, reason, ..live.progress.clone() };
            log_end(&writes.env, number, live, &progress, now);
            self.end(inner, number, progress)
        };
        if let Some(kept) = kept {
            // It cannot fail but with the runtime.
            let _ = kept.await;
        }
    }

    /// The config has changed: whatever is not on its way to the upstream is begun anew by the one
    /// in force, which may have no place for it; what is, when it comes back and is to be tried
    /// again.
    pub fn reevaluate(&self) {
        let inner = &mut *self.inner.lock();
        let under_way = |live: &Live| live.run.is_called && live.is_kept && !live.is_ending();
        let numbers: Vec<u64> = inner
            .live
            .iter()
            .filter(|(_, live)| under_way(live))
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            self.restart_off_wire(inner, number);
        }
    }

    /// Begins a write anew as soon as it is not on the wire.
    pub(in crate::gateway::write) fn restart_off_wire(&self, inner: &mut Inner, number: u64) {
        match inner.live.get_mut(&number) {
            Some(live) if live.run.on_wire.is_some() => live.run.is_overtaken = true,
            _ => self.restart(inner, number),
        }
    }

    /// Ends a write's run, whatever it is about to do, and has another one begin.
    pub(in crate::gateway::write) fn restart(&self, inner: &mut Inner, number: u64) {
        let Some(live) = inner.live.get_mut(&number) else { return };
        live.run.is_overtaken = false;
        if let Some(running) = live.run.task.take() {
            // It may be about to send this very moment, and finds that its run is over.
            live.run.number += 1;
            running.abort();
        }
        self.start_if_due(inner, number);
    }

    /// A write is tried again at this time; until then others have its place.
    fn rest(self: &Arc<Self>, number: u64, run: u32, until: Timestamp) {
        match self.inner.lock().live.get_mut(&number) {
            Some(live) if live.run.number == run => live.run.task = None,
            // It was begun anew, or is no more.
            _ => return,
        }
        let queue = Arc::clone(self);
        tokio::spawn(async move {
            queue.clock.reach(until).await;
            queue.start_if_due(&mut queue.inner.lock(), number);
        });
    }

    /// What the store has of a write. Asked until it answers; `None` when the write is no more, or
    /// the gateway ends.
    async fn read(&self, number: u64) -> Option<Result<Write, Reason>> {
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

/// How far a write has come.
enum Came {
    /// To its end.
    ToEnd(Ended),
    /// It is to be tried again, not before this time.
    ToRest(Timestamp),
    /// It was taken back, or the gateway ends.
    Away,
}

/// How a write ended.
struct Ended {
    state: WriteState,
    response: Option<Box<Response>>,
    reason: Option<Box<Reason>>,
    /// The gateway's own word, where nothing was executed.
    refused: Option<GatewayError>,
}

impl Writes {
    /// Brings a write to its end, if it can be.
    async fn carry_out(
        &self,
        write: &Write,
        journal: &Arc<QueueJournal>,
        queue: &Queue,
        number: u64,
    ) -> Came {
        let Some(progress) = queue.inner.lock().live.get(&number).map(|live| live.progress.clone())
        else {
            return Came::Away;
        };
        let (request_progress, span, interims) = {
            let inner = queue.inner.lock();
            let waiter = inner.live.get(&number).and_then(|live| live.waiters.waiter.as_deref());
            waiter
                .map(|waiter| {
                    (waiter.request_progress.clone(), waiter.span.clone(), waiter.interims.clone())
                })
                .unwrap_or_default()
        };
        let (mut job, priced) = match self.queued_job(write, progress.deadline, journal.clone()) {
            Ok(job) => job,
            Err(refused) => return Came::ToEnd(Ended::refused(&refused, progress.may_have_run)),
        };
        // It was told so before, perhaps in an earlier process.
        if progress.not_before > self.env.clock.now() {
            return Came::ToRest(progress.not_before);
        }
        job.span = span.unwrap_or_else(tracing::Span::none);
        job.interims = interims;
        if queue.is_durable() {
            // A store in memory has counted it all along.
            job.memory = queue.carried.room(write.body.len()).await;
        }
        let attempts_before = progress.attempts;
        let (answered, may_have_run) = loop {
            let answered = self.carry(&job, &request_progress).await;
            let progress = {
                let inner = queue.inner.lock();
                let Some(live) = inner.live.get(&number).filter(|live| !live.is_ending()) else {
                    return Came::Away;
                };
                if self.env.is_draining()
                    && live.waiters.attended.is_none()
                    && matches!(answered, Err(GatewayError::ClientGone))
                {
                    return Came::Away;
                }
                if live.waiters.attended == Some(0) && live.progress.state == WriteState::Queued {
                    return Came::ToEnd(Ended::refused(&GatewayError::ClientGone, false));
                }
                live.progress.clone()
            };
            let now = self.env.clock.now();
            let soon = now + REST_MIN;
            let may_rest = journal.patience() == Patience::Queued && soon < progress.deadline;
            match answered {
                // Somebody has taken it over since who need not wait.
                Err(GatewayError::Limited { .. }) if progress.deadline > job.deadline => {
                    job.deadline = progress.deadline
                }
                // The line before the books is full, which is no reason to give up what was
                // accepted.
                Err(GatewayError::Limited { limit: LimitKind::QueueFull, until, .. })
                    if may_rest =>
                {
                    return Came::ToRest(until.max(soon));
                }
                // No token could carry it, and it is not the one that was refused with the last of
                // them (DESIGN D7): one may come, or be good again.
                Err(GatewayError::TokensRejected)
                    if may_rest && progress.attempts == attempts_before =>
                {
                    return Came::ToRest(now + TOKEN_REST);
                }
                Err(GatewayError::TokenUnavailable(Lack {
                    cause: Cause::Passing, until, ..
                })) if may_rest => {
                    return Came::ToRest(until.unwrap_or(soon).max(soon));
                }
                // It has failed and is to be tried again later, or the store would not have it:
                // nothing was sent since.
                Err(GatewayError::ClientGone) => {
                    return Came::ToRest(progress.not_before.max(soon));
                }
                answered => break (answered, progress.may_have_run),
            }
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(refused) => {
                return Came::ToEnd(
                    Ended::refused(&refused, may_have_run)
                        .after(request_progress.figures(self.env.clock.now()).error),
                );
            }
        };
        if let (Some(operation), AnswerBody::Whole(body)) = (priced, &answer.body) {
            self.router.observe_price(operation, body);
        }
        Came::ToEnd(self.ended_by(answer, may_have_run))
    }

    /// What an answer says about whether the write was executed.
    fn ended_by(&self, answer: Answer, may_have_run: bool) -> Ended {
        let status = answer.status;
        let (state, reason) = if status.is_success() {
            (WriteState::Done, None)
        } else if status.is_server_error() || may_have_run {
            let earlier = if status.is_server_error() {
                ""
            } else {
                "an earlier attempt may have been executed, and at the last one "
            };
            (
                WriteState::Unknown,
                Some(Box::new(outcome_unknown(&format!(
                    "{earlier}the upstream answered {}",
                    status.as_u16()
                )))),
            )
        } else {
            (WriteState::Failed, None)
        };
        Ended {
            state,
            response: Some(Box::new(kept_response(&self.env, answer))),
            reason,
            refused: None,
        }
    }
}

impl Ended {
    /// `may_have_run`: an earlier attempt may have been executed.
    fn refused(refused: &GatewayError, may_have_run: bool) -> Self {
        let state = if may_have_run || matches!(refused, GatewayError::OutcomeUnknown) {
            WriteState::Unknown
        } else {
            WriteState::Failed
        };
        let told = (state == WriteState::Failed).then(|| refused.clone());
        Self { state, response: None, reason: Some(Box::new(refused.as_reason())), refused: told }
    }

    /// With what went wrong last, where its outcome is unknown.
    fn after(self, error: Option<String>) -> Self {
        match error {
            Some(error) if self.state == WriteState::Unknown => {
                Self { reason: Some(Box::new(outcome_unknown(&error))), ..self }
            }
            _ => self,
        }
    }
}

/// What is known of a write of which nobody knows whether it was executed.
fn outcome_unknown(known: &str) -> Reason {
    let Reason { word, status, .. } = GatewayError::OutcomeUnknown.as_reason();
    let message = format!(
        "It is unknown whether this write was executed: {known}. Look before you send it again."
    );
    Reason { word, message, status }
}

/// The store had something of this number that is no write.
fn unreadable(fault: &Unreadable) -> Reason {
    Reason {
        word: "unreadable".into(),
        message: format!("What was kept of it cannot be read: {fault}."),
        status: 500,
    }
}

/// What nobody knows is for an operator to look into.
fn log_end(env: &Environment, number: u64, live: &Live, progress: &Progress, now: Timestamp) {
    let client = env
        .config
        .clients
        .get(live.class.client as usize)
        .map(|client| &*client.name)
        .unwrap_or_default();
    let id = WriteId { number, salt: live.salt };
    let took_ms = u64::try_from(now.since(live.accepted).as_millis()).unwrap_or(u64::MAX);
    let status = progress.response.as_ref().map(|response| response.status.as_u16());
    let reason = progress.reason.as_ref().map(|reason| &*reason.word);
    let (state, attempts) = (progress.state.name(), progress.attempts);
    if progress.state == WriteState::Unknown {
        tracing::warn!(write = %id, client, state, status, reason, attempts, took_ms, "it is not known whether a queued write was executed");
    } else {
        tracing::info!(write = %id, client, state, status, reason, attempts, took_ms, "a queued write has ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ResourceName;
    use crate::clock::Clock;
    use crate::telemetry::Metrics;
    use crate::writes::memory::MemoryStore;

    /// As happens to a task that is begun, under the queue's lock, when the runtime is about to
    /// end: it is dropped at once.
    #[test]
    fn a_place_can_be_given_back_while_the_queue_is_looked_through() {
        let queue = Queue::new(
            Arc::new(MemoryStore::with_room(1_000)),
            Clock::system(),
            Duration::ZERO,
            Arc::new(Metrics::new()),
        );
        let class = Class { client: 0, content: true, resource: ResourceName::core() };
        assert!(queue.dispatch.lock().ready(&class, 1));
        let place = Place { queue: Arc::clone(&queue), class };
        let looked_through = queue.inner.lock();
        let (told, given_back) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(place);
            told.send(())
        });
        given_back.recv_timeout(Duration::from_secs(10)).expect("it waits for the lock");
        drop(looked_through);
    }
}
