//! Asks the upstream for an account's state with one of its tokens: `GET /rate_limit`. The question
//! is free of the primary limit. Its answer updates the budgets, and shows whether the upstream
//! accepts the token.
//!
//! `decision/quota/asks.rs` says when a question is due, and what its answer is worth. Here is the
//! exchange: one at a time for each account, through ordinary admission, bounded in time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use tokio::time::timeout;

use crate::api::{StatedBudget, stated_budgets, upstream_limit};
use crate::decision::breaker::Heard;
use crate::decision::permissions::plan::DenialRole;
use crate::decision::{AccountId, ClientId, Stated};
use crate::telemetry::{MethodName, UpstreamOutcome};
use crate::tokens::Credential;

use crate::gateway::dispatch::admission::{Lease, OpenQuestion};
use crate::gateway::dispatch::answer::status_and_message;
use crate::gateway::dispatch::attempt::UnsettledAnswer;
use crate::gateway::dispatch::breaker::heard;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::permissions::Offer;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::dispatch::questions::{Acceptance, LastAnswer, Recent};
use crate::gateway::upstream::fetch::{Collected, FetchError, Reuse, UpstreamRequest};

/// The longest question, its wait for admission included. Chosen here: the service ends a request
/// after 10 s, and a client may wait for the answer.
const ASK_TIME_MAX: Duration = Duration::from_secs(10);
/// The age up to which the answer to an equal question is taken. Chosen here: looks at all tokens
/// that follow each other ask once.
const RECENT: Duration = Duration::from_secs(1);
/// The largest answer. Chosen here: a dozen resources take 2 KiB.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

impl Dispatcher {
    /// Asks with this credential, after any other question about the account.
    pub async fn ask(
        &self,
        account: AccountId,
        credential: &Credential,
        recent: Recent,
    ) -> Acceptance {
        self.ask_in_turn(account, credential, recent, || self.admissions.begin_question(account))
            .await
    }

    /// The same by order of an operator.
    pub async fn ask_by_operator(&self, account: AccountId, credential: &Credential) -> Acceptance {
        let question = || self.admissions.begin_question(account).by_operator();
        self.ask_in_turn(account, credential, Recent::IsTooOld, question).await
    }

    /// Asks a question that is due, with a token of the account that works.
    pub async fn ask_due(&self, question: OpenQuestion) {
        let Some(account) = question.account() else { return };
        let Some(credential) = self.tokens.for_question(account, self.env.clock.now()) else {
            return question.ended(&Stated::Nothing { is_unknown_route: true });
        };
        let acceptance =
            self.ask_in_turn(account, &credential, Recent::IsTooOld, move || question).await;
        self.judged(account, &credential, &acceptance);
    }

    async fn ask_in_turn(
        &self,
        account: AccountId,
        credential: &Credential,
        recent: Recent,
        question: impl FnOnce() -> OpenQuestion,
    ) -> Acceptance {
        let turn = self.asking.turn(account);
        let mut last = turn.last.lock().await;
        let suffices = |last: &LastAnswer| match recent {
            Recent::Suffices => self.env.clock.now().since(last.at) < RECENT,
            Recent::SufficesAfter(number) => last.number > number,
            Recent::IsTooOld => false,
        };
        if let Some(last) = last.as_ref().filter(|last| last.token == credential.token)
            && suffices(last)
        {
            return last.acceptance.clone();
        }
        let number = turn.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let asked = timeout(ASK_TIME_MAX, self.exchange(account, credential, question()));
        let acceptance = asked
            .await
            .unwrap_or_else(|_| Acceptance::Unknown("the upstream did not answer in time".into()));
        *last = Some(LastAnswer {
            number,
            token: credential.token,
            at: self.env.clock.now(),
            acceptance: acceptance.clone(),
        });
        acceptance
    }

    async fn exchange(
        &self,
        account: AccountId,
        credential: &Credential,
        question: OpenQuestion,
    ) -> Acceptance {
        let client = ClientId::BACKGROUND.0;
        let target = "/rate_limit".to_owned();
        let job = self.own_job(Method::GET, target, account, client, ANSWER_BYTES_MAX);
        let breaker = self.breaker(&job);
        if breaker.outage().is_some() {
            return Acceptance::Unknown("the upstream is down".into());
        }
        let (accounts, deadline) = (Arc::clone(&job.route.candidates), job.deadline);
        let offer = Offer { accounts, deadline, resort: DenialRole::Ordinary };
        let lease = match self.acquire(&job, &offer, &RequestProgress::default(), None).await {
            Ok(lease) => lease,
            Err(denied) => {
                return Acceptance::Unknown(format!("held by a limit ({})", denied.limit.name()));
            }
        };
        let mut added = HeaderMap::new();
        added.extend(credential.authorization.clone().map(|value| (AUTHORIZATION, value)));
        let request = UpstreamRequest { request: &job.request, added, interims: None };
        let may_send = || {
            lease.sending();
            Ok(())
        };
        let began = self.env.clock.moment();
        let listening = breaker.begin();
        let answered = async {
            let exchange = self.upstream.send(&request, Reuse::Idle, may_send).await?;
            UnsettledAnswer::read(exchange, ANSWER_BYTES_MAX, ANSWER_BYTES_MAX, None).await
        };
        let result = answered.await;
        listening.ended(match heard(result.as_ref().map(UnsettledAnswer::is_whole)) {
            Heard::Answer => Heard::BudgetsAnswer,
            heard => heard,
        });
        let took = self.env.clock.moment().since(began);
        if !matches!(result, Err(FetchError::Connect(_) | FetchError::Unsendable(_))) {
            self.env.metrics.upstream(&UpstreamOutcome {
                account: self.env.account_name(account),
                resource: job.route.endpoint.resource.as_str(),
                endpoint: &job.route.endpoint.template,
                method: MethodName::from(&job.request.method),
                server_address: self.upstream.host(job.request.service),
                status: result.as_ref().ok().map(|answer| answer.status().as_u16()),
                duration: took,
                trace: None,
            });
        }
        match result {
            Ok(answer) => self.stated(&job, lease, question, answer, took),
            Err(error) => {
                match error {
                    FetchError::Connect(_) | FetchError::Unsendable(_) => lease.never_sent(),
                    FetchError::Lost(_) | FetchError::Stale(_) => lease.lost(),
                    // The gateway gave up, and the drop of the lease says so.
                    _ => {}
                }
                Acceptance::Unknown(error.to_string())
            }
        }
    }

    /// Settles the answer and passes its budgets on.
    fn stated(
        &self,
        job: &Job,
        lease: Lease,
        question: OpenQuestion,
        answer: UnsettledAnswer,
        took: Duration,
    ) -> Acceptance {
        let (status, mut headers, body) = answer.into_parts();
        let now = self.env.clock.now();
        self.tokens.observe(&mut headers, now, took);
        let body: &[u8] = if let Collected::Whole(bytes) = &body { bytes } else { &[] };
        let may_refuse = matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
        let limit = may_refuse.then(|| upstream_limit(status, &headers, body, now)).flatten();
        if let Some(limit) = &limit {
            self.note_limit(job, lease.account(), limit);
        }
        lease.answered(status, None, limit.as_ref());
        let text = status_and_message(status, body);
        let stated = stated_budgets(body).filter(|_| status == StatusCode::OK);
        let is_unknown_route = stated.is_none()
            && (status.is_success()
                || matches!(
                    status,
                    StatusCode::NOT_FOUND
                        | StatusCode::METHOD_NOT_ALLOWED
                        | StatusCode::GONE
                        | StatusCode::NOT_IMPLEMENTED
                ));
        question.ended(&match stated {
            Some(budgets) => Stated::Budgets(
                budgets
                    .into_iter()
                    .map(|(resource, budget)| {
                        let reset = self.tokens.local_time(budget.reset);
                        (resource, StatedBudget { reset, ..budget })
                    })
                    .collect(),
            ),
            None => Stated::Nothing { is_unknown_route },
        });
        match status {
            StatusCode::UNAUTHORIZED => Acceptance::Rejected(Box::new(headers), text),
            status if status.is_success() => Acceptance::Accepted,
            _ => Acceptance::Unknown(text),
        }
    }
}
