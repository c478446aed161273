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
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer, status_and_message};
use crate::gateway::dispatch::job::{Job, PATIENCE, Unconditional};
use crate::gateway::dispatch::{
    attempt::Unanswered, dispatcher::Dispatcher, permissions::AccountChoice,
    progress::RequestProgress, route::MINT,
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
        let (tokens, clock, now) = {
            let Some(dispatcher) = current() else { return };
            let clock = dispatcher.env().clock.clone();
            // One time for the whole round: what falls due during it is seen at once.
            let now = clock.now();
            for minting in dispatcher.tokens().begin_due(now) {
                let dispatcher = Arc::clone(&dispatcher);
                tokio::spawn(async move { mint(&dispatcher, minting).await });
            }
            (Arc::clone(dispatcher.tokens()), clock, now)
        };
        // Subscribed before the check, so that no change is missed in between.
        let changed = tokens.due_changed();
        match tokens.next_due(now) {
            Some(at) => tokio::select! {
                () = changed => {}
                () = clock.reach(at.max(now + Duration::from_millis(1))) => {}
            },
            None => changed.await,
        }
    }
}

pub(super) async fn mint(dispatcher: &Dispatcher, minting: Minting) {
    let (env, tokens) = (dispatcher.env(), dispatcher.tokens());
    let id = minting.installation().id;
    let result = tokio::select! {
        result = mint_once(dispatcher, &minting) => result.and_then(|answer| read(&answer)),
        // The dropped request counts as spent.
        () = env.wait_until(env.clock.now() + mint_time_max(env)) => Err(MintFailure::Passing("the upstream did not come to an end with its answer".into())),
    };
    let now = env.clock.now();
    let minted = match result {
        Ok((secret, expires)) => {
            tokens.minted(minting, &secret, expires, now, unit_random()).map_err(str::to_owned)
        }
        Err(failure) => {
            let problem = match &failure {
                MintFailure::Passing(problem)
                | MintFailure::Refused(problem)
                | MintFailure::Later(_, problem) => problem.clone(),
            };
            minting.failed(now, failure, unit_random());
            Err(problem)
        }
    };
    match minted {
        Ok(()) => tracing::info!(installation = id, "an installation token was minted"),
        Err(problem) => {
            tracing::warn!(installation = id, problem, "no installation token could be minted");
        }
    }
}

/// Longer than an upstream within its timeouts needs. Without it, an upstream that trickles its
/// answer would block the installation for good.
fn mint_time_max(env: &Environment) -> Duration {
    let upstream = &env.config.upstream;
    // Two waits per attempt: the head and the body.
    PATIENCE + (upstream.connect_timeout + upstream.response_timeout * 2) * ATTEMPTS_MAX
}

async fn mint_once(
    dispatcher: &Dispatcher,
    minting: &Minting,
) -> Result<UpstreamAnswer, MintFailure> {
    let passing = |problem: &str| MintFailure::Passing(problem.into());
    let clock = &dispatcher.env().clock;
    let job = mint_job(dispatcher, minting).ok_or_else(|| passing("the app cannot sign"))?;
    let progress = RequestProgress::default();
    for _ in 0..ATTEMPTS_MAX {
        let attempt =
            dispatcher.attempt(&job, &AccountChoice::All, &progress, &Unconditional, Reuse::Never);
        return match attempt.await {
            Ok(answer) => Ok(answer),
            Err(
                Unanswered::TokenRejected
                | Unanswered::TokenSuspected(_)
                | Unanswered::TokenCleared,
            ) => continue,
            Err(Unanswered::Denied(LimitDenied { until, limit, .. })) => {
                let at = if let Until::Time(at) = until { at } else { clock.now() };
                let problem =
                    format!("the app's own budget or limits are spent ({})", limit.name());
                Err(MintFailure::Later(at, problem))
            }
            Err(Unanswered::Failed(error)) => Err(passing(&error.to_string())),
            Err(Unanswered::Limited(_)) => Err(passing("the upstream refused it for a limit")),
            Err(Unanswered::NoToken(_) | Unanswered::CredentialUnfit) => break,
        };
    }
    Err(MintFailure::Later(clock.now(), "the upstream does not accept the app's key".into()))
}

/// Not spaced: otherwise a thousand installations would take a quarter of an hour to start.
fn mint_job(dispatcher: &Dispatcher, minting: &Minting) -> Option<Job> {
    let target = MINT.replace("{installation_id}", &minting.installation().id.to_string());
    let minter = dispatcher.tokens().minter(minting)?;
    Some(dispatcher.own_job(Method::POST, target, minter, NO_CLIENT, ANSWER_BYTES_MAX))
}

/// Parses the token and its expiry, by the upstream's clock.
fn read(answer: &UpstreamAnswer) -> Result<(SecretString, Timestamp), MintFailure> {
    let AnswerBody::Whole(body) = &answer.body else {
        return Err(MintFailure::Passing("the answer is too large".into()));
    };
    if answer.status.is_server_error() {
        return Err(MintFailure::Passing(status_and_message(answer.status, body)));
    }
    if !answer.status.is_success() {
        return Err(MintFailure::Refused(status_and_message(answer.status, body)));
    }
    // The message does not quote the body, which may hold the token.
    let minted: Minted = serde_json::from_slice(body).map_err(|_| {
        MintFailure::Passing("the answer has no token with an expires_at that can be read".into())
    })?;
    let secret = SecretString::from(minted.token);
    let expires = OffsetDateTime::parse(&minted.expires_at, &Rfc3339)
        .ok()
        .and_then(|at| u64::try_from(at.unix_timestamp()).ok())
        .ok_or_else(|| MintFailure::Passing("the answer's expires_at is no time".into()))?;
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

    fn answer(status: u16, body: &str) -> UpstreamAnswer {
        UpstreamAnswer {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::new(),
            body: AnswerBody::Whole(Bytes::copy_from_slice(body.as_bytes())),
            client: 0,
            account: AccountId(0),
            token: TokenId(0),
            requested_at: Timestamp::EPOCH,
            denial_confidence: DenialConfidence::Final,
        }
    }

    #[test]
    fn a_minted_token_is_parsed_with_its_expiry() {
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
    fn a_malformed_token_answer_fails_without_being_quoted() {
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
    fn a_failed_mint_reports_the_status_and_the_message() {
        let refused = read(&answer(404, "{\"message\":\"Not Found\"}")).map(drop);
        assert_eq!(refused, Err(MintFailure::Refused("404 Not Found".into())));
        assert_eq!(read(&answer(502, "<html>")).map(drop), Err(MintFailure::Passing("502".into())));
    }
}
