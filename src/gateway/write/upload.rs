//! Streams a write with a body too large to hold, once (SPECIFICATION, "Configuration").
//!
//! There is no second attempt, because the body is gone after the first, and the client is
//! informed. The rest equals other writes.

use std::time::Duration;

use pingora::protocols::http::ServerSession;
use tracing::Instrument;

use crate::decision::LimitKind;

use crate::gateway::dispatch::answer::UpstreamAnswer;
use crate::gateway::dispatch::attempt::{Prepared, Unanswered, UnsettledAnswer};
use crate::gateway::dispatch::attempt_ends::UNFIT;
use crate::gateway::dispatch::job::{Job, Unconditional};
use crate::gateway::dispatch::permissions::AccountChoice;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::error::GatewayError;
use crate::gateway::request::body::{BegunBody, BodyFault};
use crate::gateway::upstream::fetch::{Exchange, FetchError, Reuse, Sending};
use crate::gateway::write::turns::Turn;
use crate::gateway::write::writes::{InvalidationGuard, Writes};

/// A slower upload on average is ended, because it occupies its account's only write slot. Chosen
/// here: a tenth of a slow mobile line.
const UPLOAD_BYTES_PER_SECOND_MIN: u64 = 8 * 1024;

impl Writes {
    /// Streams the session's body and leaves the lane at the end.
    pub async fn upload(
        &self,
        session: &mut ServerSession,
        mut turn: Turn,
        job: &Job,
        request_progress: &RequestProgress,
        body: BegunBody,
    ) -> Result<UpstreamAnswer, GatewayError> {
        self.wait_for_turn(&mut turn, job, request_progress).await?;
        let _invalidation = InvalidationGuard { cache: &self.cache, job, request_progress };
        match self.upload_once(session, job, request_progress, body).await {
            Ok(answer) => {
                self.cache.invalidate_named(job, &answer);
                // A repetition cannot resolve the outcome for any method, because the body is gone.
                if answer.status.is_server_error() && !job.is_read() {
                    Err(GatewayError::OutcomeUnknown)
                } else {
                    Ok(answer)
                }
            }
            Err(Stopped::Client(error)) => Err(error),
            Err(Stopped::Upstream(unanswered)) => {
                Err(self.not_repeated(job, request_progress, unanswered))
            }
        }
    }

    async fn upload_once(
        &self,
        session: &mut ServerSession,
        job: &Job,
        request_progress: &RequestProgress,
        body: BegunBody,
    ) -> Result<UpstreamAnswer, Stopped> {
        let prepared = self
            .dispatcher
            .prepare(job, &AccountChoice::All, request_progress, &Unconditional)
            .await
            .map_err(Stopped::Upstream)?;
        let span = prepared.span.clone();
        let exchange = self.exchange(session, job, request_progress, &prepared, body);
        let (result, stopped) = match exchange.instrument(span).await {
            Ok(answered) => (Ok(answered), None),
            Err(Stopped::Upstream(Unanswered::Failed(error))) => (Err(error), None),
            // The upstream will not execute a partial request; the ledger counts it anyway.
            Err(stopped) => {
                (Err(FetchError::Lost("the client's body broke off".into())), Some(stopped))
            }
        };
        let finished = self.dispatcher.finish(job, request_progress, prepared, result);
        stopped.map_or_else(|| finished.map_err(Stopped::Upstream), Err)
    }

    async fn exchange(
        &self,
        session: &mut ServerSession,
        job: &Job,
        request_progress: &RequestProgress,
        prepared: &Prepared<'_>,
        body: BegunBody,
    ) -> Result<UnsettledAnswer, Stopped> {
        let mut exchange = self.dispatcher.send(prepared, request_progress, Reuse::Never).await?;
        if self.pass_on(session, job, &mut exchange, body).await? == Sending::GoesOn {
            exchange.finish_streamed(job.interims.as_deref()).await?;
        }
        Ok(UnsettledAnswer::read(exchange, job.hold_max, 0).await?)
    }

    /// Passes the body on at the pace of the slower side, until the upstream answers.
    async fn pass_on(
        &self,
        session: &mut ServerSession,
        job: &Job,
        exchange: &mut Exchange,
        body: BegunBody,
    ) -> Result<Sending, Stopped> {
        let began = self.env.clock.now();
        let pause_max = self.env.config.listen.body_timeout;
        let mut received = 0;
        let BegunBody { first, mut reader } = body;
        let mut next = Some(first);
        while let Some(piece) = next {
            received += piece.len() as u64;
            if exchange.send_body(&piece, job.interims.as_deref()).await? == Sending::Answered {
                return Ok(Sending::Answered);
            }
            if self.env.clock.now().since(began)
                > pause_max + Duration::from_secs(received / UPLOAD_BYTES_PER_SECOND_MIN)
            {
                return Err(Stopped::Client(GatewayError::BodyTimeout));
            }
            next = reader.next(session).await.map_err(|fault| match fault {
                BodyFault::Timeout => Stopped::Client(GatewayError::BodyTimeout),
                BodyFault::Broken | BodyFault::NoRoom => Stopped::Client(GatewayError::BrokenBody),
            })?;
        }
        Ok(Sending::GoesOn)
    }

    fn not_repeated(
        &self,
        job: &Job,
        request_progress: &RequestProgress,
        unanswered: Unanswered,
    ) -> GatewayError {
        match unanswered {
            Unanswered::Denied(denied) => self.dispatcher.limited(&job.route, &denied),
            Unanswered::Limited(limit) => {
                let until = self.dispatcher.closed_until(&limit);
                self.dispatcher.limited_until(&job.route, LimitKind::Cooldown, until)
            }
            Unanswered::NoToken(Some(lack)) => GatewayError::TokenUnavailable(lack),
            Unanswered::NoToken(None) | Unanswered::TokenRejected => GatewayError::TokensRejected,
            Unanswered::CredentialUnfit => GatewayError::NoToken(UNFIT.into()),
            Unanswered::Failed(error) => {
                request_progress.failed(&error);
                if request_progress.was_sent() {
                    GatewayError::OutcomeUnknown
                } else {
                    GatewayError::Unreachable
                }
            }
        }
    }
}

enum Stopped {
    Client(GatewayError),
    Upstream(Unanswered),
}

impl From<FetchError> for Stopped {
    fn from(error: FetchError) -> Self {
        Self::Upstream(Unanswered::Failed(error))
    }
}
