//! Uploads: writes with a body too large to hold in memory (SPECIFICATION, "Configuration"; D7).
//!
//! The whole body goes to an anonymous temporary file first, at the pace of its client. Only then
//! does the write join its lane and take its account's place among the spaced writes, so that a
//! slow client holds up nobody. The file is sent at full speed, and again only after a 401 that is
//! its token's. The rest equals other writes.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tracing::Instrument;

use crate::decision::LimitKind;
use crate::decision::scheduler::shared_capacity::Holder;

use crate::gateway::dispatch::answer::UpstreamAnswer;
use crate::gateway::dispatch::attempt::{Prepared, Unanswered, UnsettledAnswer};
use crate::gateway::dispatch::attempt_ends::UNFIT;
use crate::gateway::dispatch::job::{Job, Unconditional};
use crate::gateway::dispatch::permissions::AccountChoice;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::error::GatewayError;
use crate::gateway::request::body::{BegunBody, BodyFault, HeldBody};
use crate::gateway::session::Session;
use crate::gateway::shared_space::{Share, SharedSpace};
use crate::gateway::spool::file::Spool;
use crate::gateway::upstream::fetch::{Exchange, FetchError, Reuse, Sending};
use crate::gateway::write::turns::{Performed, Turn};
use crate::gateway::write::writes::{InvalidationGuard, Writes};

/// Bytes of a body that wait in memory for one write to its file. Chosen here: a slow client then
/// causes few writes.
const BUFFER_BYTES: usize = 128 * 1024;

/// A whole body in a file.
pub struct SpooledBody {
    spool: Arc<Spool>,
    bytes: u64,
    /// Its share of the space for uploads, kept as long as the file.
    space: Share,
}

/// The reason why a body is not in its file.
#[derive(Debug)]
pub enum NotSpooled {
    Body(BodyFault),
    /// The file cannot be written.
    File(io::Error),
}

impl SpooledBody {
    /// Reads a body to its end, at the pace of its client.
    pub async fn receive(
        session: &mut Session,
        BegunBody { first: HeldBody { bytes: first, mut memory }, mut reader }: BegunBody,
        space: &Arc<SharedSpace>,
        holder: Holder,
    ) -> Result<Self, NotSpooled> {
        let mut body = Self { spool: Spool::of_upload(), bytes: 0, space: space.share(holder) };
        body.append(first).await?;
        memory.shrink(0);
        let mut buffer = BytesMut::new();
        while let Some(piece) = reader.next(session).await.map_err(NotSpooled::Body)? {
            buffer.extend_from_slice(&piece);
            if !memory.grow(buffer.len() as u64) {
                return Err(NotSpooled::Body(BodyFault::NoRoom));
            }
            if buffer.len() >= BUFFER_BYTES {
                body.append(buffer.split().freeze()).await?;
                memory.shrink(0);
            }
        }
        body.append(buffer.freeze()).await?;
        Ok(body)
    }

    pub fn len(&self) -> u64 {
        self.bytes
    }

    async fn append(&mut self, piece: Bytes) -> Result<(), NotSpooled> {
        let end = self.bytes + piece.len() as u64;
        if !self.space.grow(end) {
            return Err(NotSpooled::Body(BodyFault::NoRoom));
        }
        if !piece.is_empty() {
            self.spool.write(self.bytes, vec![piece]).await.map_err(NotSpooled::File)?;
        }
        self.bytes = end;
        Ok(())
    }
}

impl Writes {
    /// Sends a spooled body, and leaves the lane at the end. Run it as a task of its own, like
    /// [`Writes::write`].
    pub async fn upload(
        self: Arc<Self>,
        mut turn: Turn,
        job: Job,
        request_progress: RequestProgress,
        body: SpooledBody,
    ) -> Result<UpstreamAnswer, GatewayError> {
        self.wait_for_turn(&mut turn, &job, &request_progress).await?;
        self.in_touch(&job).await?;
        let answer = {
            let mut invalidation = InvalidationGuard::new(&self.cache, &job, &request_progress);
            let now = || self.env.clock.now();
            let performed =
                self.turns.perform(job.client, &job.route.lane, &request_progress, now());
            let mut answered = self.upload_once(&job, &request_progress, &body, &performed).await;
            // A 401 executes nothing, and the file still has the whole body.
            if let Err(Unanswered::TokenRejected | Unanswered::TokenCleared) = answered {
                answered = self.upload_once(&job, &request_progress, &body, &performed).await;
            }
            drop(body);
            match answered {
                Ok(answer) => {
                    performed.answered(now());
                    invalidation.answered(&answer);
                    invalidation.named(self.cache.invalidate_named(&job, &answer));
                    // A repetition cannot resolve the outcome for any method: there is none.
                    let is_plain = self.cache.is_plain();
                    if answer.status.is_server_error() && !job.is_read() && !is_plain {
                        Err(GatewayError::OutcomeUnknown)
                    } else {
                        Ok(answer)
                    }
                }
                Err(unanswered) => {
                    let error = self.not_repeated(&job, &request_progress, unanswered);
                    self.note_loss(&performed, &request_progress);
                    Err(error)
                }
            }
        };
        drop(turn);
        self.cache.all_noted().await;
        answer
    }

    async fn upload_once(
        &self,
        job: &Job,
        request_progress: &RequestProgress,
        body: &SpooledBody,
        performed: &Performed,
    ) -> Result<UpstreamAnswer, Unanswered> {
        let prepared = self
            .dispatcher
            .prepare(job, &AccountChoice::All, request_progress, &Unconditional)
            .await?;
        let span = prepared.span.as_tracing().clone();
        let exchange = self.exchange(job, request_progress, &prepared, body, performed);
        let result = exchange.instrument(span).await;
        let finished = self.dispatcher.finish(job, request_progress, prepared, result);
        self.dispatcher.cleared_of_suspicion(job, request_progress, finished).await
    }

    async fn exchange(
        &self,
        job: &Job,
        request_progress: &RequestProgress,
        prepared: &Prepared<'_>,
        body: &SpooledBody,
        performed: &Performed,
    ) -> Result<UnsettledAnswer, FetchError> {
        let mut exchange = self.dispatcher.send(prepared, request_progress, Reuse::Never).await?;
        let taken = || {
            prepared.body_taken();
            performed.answered(self.env.clock.now());
        };
        if pass_on(job, &mut exchange, body, taken).await? == Sending::GoesOn {
            exchange.finish_streamed(job.interims.as_deref()).await?;
        }
        UnsettledAnswer::read(exchange, job.hold_max, 0, None).await
    }

    fn not_repeated(
        &self,
        job: &Job,
        request_progress: &RequestProgress,
        unanswered: Unanswered,
    ) -> GatewayError {
        match unanswered {
            Unanswered::Denied(denied) => self.dispatcher.limited(job.client_route(), &denied),
            Unanswered::Limited(limit) => {
                let until = self.dispatcher.closed_until(&limit);
                self.dispatcher.limited_until(job.client_route(), LimitKind::Cooldown, until)
            }
            Unanswered::NoToken(Some(lack)) => GatewayError::TokenUnavailable(lack),
            Unanswered::NoToken(None)
            | Unanswered::TokenRejected
            | Unanswered::TokenSuspected(_)
            | Unanswered::TokenCleared => GatewayError::TokensRejected,
            Unanswered::CredentialUnfit => GatewayError::NoToken(UNFIT.into()),
            Unanswered::Failed(error) => {
                request_progress.failed(&error);
                // An earlier attempt was answered, with a 401.
                if error.may_have_run() {
                    GatewayError::OutcomeUnknown
                } else if matches!(error, FetchError::Down) {
                    self.dispatcher.upstream_down(job)
                } else {
                    GatewayError::Unreachable
                }
            }
        }
    }
}

/// Sends the body until its end, or until the upstream answers.
async fn pass_on(
    job: &Job,
    exchange: &mut Exchange,
    body: &SpooledBody,
    taken: impl Fn(),
) -> Result<Sending, FetchError> {
    let mut sent = 0;
    while sent < body.bytes {
        // The upstream will not execute a partial request; the ledger counts it anyway.
        let piece = body.spool.read(sent..body.bytes).await.map_err(|error| {
            FetchError::Lost(format!("the upload's temporary file cannot be read: {error}"))
        })?;
        sent += piece.len() as u64;
        if exchange.send_body(&piece, job.interims.as_deref()).await? == Sending::Answered {
            return Ok(Sending::Answered);
        }
        taken();
    }
    Ok(Sending::GoesOn)
}
