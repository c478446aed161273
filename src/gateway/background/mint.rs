//! Mints installation tokens (SPECIFICATION, "Apps") by ordinary requests of the app's account.
//!
//! `tokens/` decides when a mint is due, and handles its result. This file sends and reads. A token
//! goes from the answer's body into a sensitive header value and nowhere else.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use secrecy::SecretString;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::Timestamp;
use crate::decision::{LimitDenied, Until};
use crate::gateway::dispatch::answer::{Answer, AnswerBody, said};
use crate::gateway::dispatch::job::{Job, PATIENCE, Unconditional};
use crate::gateway::dispatch::{
    attempt::Unanswered, dispatcher::Dispatcher, permissions::Whom, progress::RequestProgress,
    route::MINT,
};
use crate::gateway::environment::Environment;
use crate::gateway::random::unit_random;
use crate::gateway::upstream::fetch::Reuse;
use crate::tokens::{MintFailure, Minting};

/// The largest answer. Chosen here: it lists the permissions and perhaps some repositories.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Attempts of one mint: the second is for a JWT signed anew by the upstream's clock.
const ATTEMPTS_MAX: u32 = 2;
/// A client index outside the config, with the default share and priority.
const NO_CLIENT: u32 = u32::MAX;

#[derive(Deserialize)]
struct Minted {
    token: String,
    expires_at: String,
}

/// Mints due tokens under the current config while the gateway lives.
pub async fn keep_minting(current: impl Fn() -> Option<Arc<Dispatcher>> + Send) {
    loop {
        let (tokens, clock) = {
            let Some(dispatcher) = current() else { return };
            let clock = dispatcher.env().clock.clone();
            for minting in dispatcher.tokens().begin_due(clock.now()) {
                let minter = Minter { dispatcher: Arc::clone(&dispatcher) };
                tokio::spawn(async move { minter.mint(minting).await });
            }
            (Arc::clone(dispatcher.tokens()), clock)
        };
        // Subscribed before the check, so that no change is missed in between.
        let changed = tokens.due_changed();
        let now = clock.now();
        match tokens.next_due(now) {
            Some(at) => tokio::select! {
                () = changed => {}
                () = clock.reach(at.max(now + Duration::from_millis(1))) => {}
            },
            None => changed.await,
        }
    }
}

/// Mints tokens through the same admission as every request.
struct Minter {
    dispatcher: Arc<Dispatcher>,
}

impl Minter {
    fn env(&self) -> &Environment {
        self.dispatcher.env()
    }

    async fn mint(&self, minting: Minting) {
        let id = minting.installation().id;
        let result = tokio::select! {
            result = self.mint_once(&minting) => result,
            // The dropped request counts as spent.
            () = self.env().wait_until(self.env().clock.now() + self.mint_time_max()) => Err(MintFailure::Passing("the upstream did not come to an end with its answer".into())),
        };
        let now = self.env().clock.now();
        let result = result.and_then(|answer| read(&answer));
        let failure = match result {
            Ok((secret, expires)) => {
                match self.dispatcher.tokens().minted(minting, &secret, expires, now, unit_random())
                {
                    Ok(()) => {
                        return tracing::info!(
                            installation = id,
                            "an installation token was minted"
                        );
                    }
                    Err(problem) => problem.to_owned(),
                }
            }
            Err(failure) => {
                let problem = match &failure {
                    MintFailure::Passing(problem)
                    | MintFailure::Refused(problem)
                    | MintFailure::Later(_, problem) => problem.clone(),
                };
                minting.failed(now, failure, unit_random());
                problem
            }
        };
        tracing::warn!(
            installation = id,
            problem = failure,
            "no installation token could be minted"
        );
    }

    /// Longer than an upstream within its timeouts needs. Without it, an upstream that trickles its
    /// answer would block the installation for good.
    fn mint_time_max(&self) -> Duration {
        let upstream = &self.env().config.upstream;
        // Two waits per attempt: the head and the body.
        PATIENCE + (upstream.connect_timeout + upstream.response_timeout * 2) * ATTEMPTS_MAX
    }

    async fn mint_once(&self, minting: &Minting) -> Result<Answer, MintFailure> {
        let job = self
            .mint_job(minting)
            .ok_or_else(|| MintFailure::Passing("the app cannot sign".into()))?;
        let progress = RequestProgress::default();
        for _ in 0..ATTEMPTS_MAX {
            return match self
                .dispatcher
                .attempt(&job, &Whom::Anyone, &progress, &Unconditional, Reuse::Never)
                .await
            {
                Ok(answer) => Ok(answer),
                Err(Unanswered::TokenRejected) => continue,
                Err(Unanswered::Denied(refusal)) => Err(self.not_admitted(&refusal)),
                Err(Unanswered::Failed(error)) => Err(MintFailure::Passing(error.to_string())),
                Err(Unanswered::Limited(_)) => {
                    Err(MintFailure::Passing("the upstream refused it for a limit".into()))
                }
                Err(Unanswered::NoToken(_) | Unanswered::CredentialUnfit) => break,
            };
        }
        Err(MintFailure::Later(
            self.env().clock.now(),
            "the upstream does not accept the app's key".into(),
        ))
    }

    fn not_admitted(&self, refusal: &LimitDenied) -> MintFailure {
        let at = if let Until::Time(at) = refusal.until { at } else { self.env().clock.now() };
        MintFailure::Later(
            at,
            format!("the app's own budget or limits are spent ({})", refusal.limit.name()),
        )
    }

    /// Not spaced: otherwise a thousand installations would take a quarter of an hour to start.
    fn mint_job(&self, minting: &Minting) -> Option<Job> {
        let target = MINT.replace("{installation_id}", &minting.installation().id.to_string());
        let minter = self.dispatcher.tokens().minter(minting)?;
        Some(self.dispatcher.own_job(Method::POST, target, minter, NO_CLIENT, ANSWER_BYTES_MAX))
    }
}

/// Parses the token and its expiry, by the upstream's clock.
fn read(answer: &Answer) -> Result<(SecretString, Timestamp), MintFailure> {
    let AnswerBody::Whole(body) = &answer.body else {
        return Err(MintFailure::Passing("the answer is too large".into()));
    };
    if answer.status.is_server_error() {
        return Err(MintFailure::Passing(said(answer.status, body)));
    }
    if !answer.status.is_success() {
        return Err(MintFailure::Refused(said(answer.status, body)));
    }
    // The message does not quote the body, which may hold the token.
    let minted: Minted = serde_json::from_slice(body).map_err(|_| {
        MintFailure::Passing("the answer has no token with an expires_at that can be read".into())
    })?;
    let secret = SecretString::from(minted.token);
    let expires = OffsetDateTime::parse(&minted.expires_at, &Rfc3339)
        .ok()
        .and_then(|at| u64::try_from(at.unix_timestamp()).ok());
    let expires =
        expires.ok_or_else(|| MintFailure::Passing("the answer's expires_at is no time".into()))?;
    Ok((secret, Timestamp::from_secs(expires)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use secrecy::ExposeSecret;

    use super::*;
    use crate::decision::AccountId;
    use crate::decision::permissions::denial_confidence::DenialConfidence;
    use crate::tokens::TokenId;

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::new(),
            body: AnswerBody::Whole(Bytes::copy_from_slice(body.as_bytes())),
            account: AccountId(0),
            token: TokenId(0),
            requested_at: Timestamp::EPOCH,
            verdict: DenialConfidence::Final,
        }
    }

    #[test]
    fn a_minted_token_is_read_with_its_end() {
        for end in ["2027-01-15T09:00:00Z", "2027-01-15T10:00:00+01:00"] {
            let body =
                format!("{{\"token\":\"s3cret\",\"expires_at\":\"{end}\",\"permissions\":{{}}}}");
            let Ok((secret, expires)) = read(&answer(201, &body)) else { panic!("{end}") };
            assert_eq!(
                (secret.expose_secret(), expires),
                ("s3cret", Timestamp::from_secs(1_800_003_600))
            );
        }
    }

    #[test]
    fn an_answer_without_a_token_or_an_end_is_a_failure_that_quotes_nothing() {
        for body in [
            "",
            "s3cret",
            "{\"token\":\"s3cret\"}",
            "{\"expires_at\":\"2027-01-15T09:00:00Z\"}",
            "{\"token\":\"s3cret\",\"expires_at\":\"soon\"}",
            "{\"token\":\"s3cret\",\"expires_at\":\"1960-01-15T09:00:00Z\"}",
            "{\"token\":[\"s3cret\"],\"expires_at\":1}",
        ] {
            let Err(MintFailure::Passing(problem)) = read(&answer(201, body)) else {
                panic!("taken: {body}")
            };
            assert!(problem.contains("expires_at") && !problem.contains("s3cret"), "{problem}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_upstreams_words() {
        let refused = read(&answer(404, "{\"message\":\"Not Found\"}")).map(drop);
        assert_eq!(refused, Err(MintFailure::Refused("404 Not Found".into())));
        assert_eq!(read(&answer(502, "<html>")).map(drop), Err(MintFailure::Passing("502".into())));
    }
}
