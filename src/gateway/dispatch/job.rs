//! A request for the upstream, complete except for account and credential.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::api::Classified;
use crate::clock::Timestamp;
use crate::decision::permissions::AccessQuery;
use crate::decision::retry::Patience;
use crate::decision::{AccountId, ClientId, WriteSpacing};
use crate::tokens::{Credential, TokenId};

use crate::decision::cache::key::{CredentialKey, Scope};
use crate::gateway::address::Service;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::route::Route;
use crate::gateway::http::headers;
use crate::gateway::http::interim::Interims;
use crate::gateway::shared_space::Share;
use crate::gateway::upstream::outgoing::{OutgoingBody, OutgoingRequest};
use crate::telemetry::spans::TraceSpan;

/// The wait limit of the gateway's own requests. Chosen here: the default `max_wait` of clients.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A request to the upstream, with the client and the route that it belongs to.
pub struct Job {
    /// Its endpoint, its accounts and its cost.
    pub route: Arc<Route>,
    pub request: OutgoingRequest,
    /// The index of the client in the config, for its place in the wait queue.
    pub client: u32,
    /// The key of its permission observations.
    pub access_query: AccessQuery,
    /// The time at which it was complete, by the clock of timeouts.
    pub began: Timestamp,
    /// The end of the client's wait for admission.
    pub deadline: Timestamp,
    /// The largest answer body to hold in memory, in bytes.
    pub hold_max: usize,
    /// The parent of the spans of its attempts.
    pub span: TraceSpan,
    /// Memory for the body of a write, held until the job is done.
    pub memory: Option<Share>,
    /// The client's own upstream credential.
    pub client_credential: Option<Arc<ClientCredential>>,
    /// For a write that is kept: the record of its attempts.
    pub journal: Option<Arc<dyn Journal>>,
    /// The receiver of interim answers; `None`: they are dropped.
    pub interims: Option<Arc<Interims>>,
}

/// The record of a queued write's attempts, as dispatch sees it. The queue implements it.
pub trait Journal: Send + Sync {
    fn terms(&self) -> QueuedTerms;

    /// Records that the write is about to be sent. It must not be sent when this fails.
    fn sending(&self) -> BoxFuture<'_, Result<(), MustNotBeSent>>;

    /// Records that an attempt failed; the next one starts at `not_before`.
    fn failed(&self, not_before: Timestamp, may_have_run: bool);
}

/// The terms of further attempts of a queued write.
#[derive(Clone, Copy, Debug)]
pub struct QueuedTerms {
    pub patience: Patience,
    /// Attempts of earlier runs.
    pub attempts: u32,
    /// True if one of them may have been executed.
    pub may_have_run: bool,
}

/// The write must not be sent: it was cancelled, the gateway shuts down, or the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MustNotBeSent;

/// A client's own credential, for one request.
pub struct ClientCredential {
    pub authorization: HeaderValue,
    pub dynamic_account: Arc<DynamicAccount>,
}

pub struct DynamicAccount {
    pub key: CredentialKey,
    pub account: AccountId,
    pub token: TokenId,
}

impl ClientCredential {
    /// The cache scope of its reads.
    pub fn scope(&self) -> Scope {
        Scope::Credential(self.dynamic_account.key)
    }

    pub fn account(&self) -> AccountId {
        self.dynamic_account.account
    }

    /// True for the form of an app's JWT, which needs `Bearer` (SPECIFICATION, "Credentials").
    pub fn is_jwt(&self) -> bool {
        let Ok(text) = self.authorization.to_str() else { return false };
        let Some((scheme, token)) = text.split_once(' ') else { return false };
        let is_base64url =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=');
        let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_base64url);
        let token = token.trim();
        scheme.eq_ignore_ascii_case("bearer")
            && token.split('.').count() == 3
            && token.split('.').all(is_part)
    }

    pub fn credential(&self) -> Credential {
        Credential::of_client(self.dynamic_account.token, self.authorization.clone())
    }
}

/// The conditions of a request. They depend on the token, which is chosen late (SPECIFICATION D3).
pub trait Conditions: Sync {
    /// A token with better validators, used when its account is as good as another.
    fn preferred(&self) -> Option<TokenId>;
    fn with(&self, credential: &Credential) -> HeaderMap;
    /// The status of the stored answer that a 304 stands for.
    fn stored(&self) -> Option<StatusCode> {
        None
    }
    /// The tokens with an answer equal to the stored one; `None` for a stored denial or failure.
    fn seen_by(&self) -> Option<Vec<TokenId>> {
        None
    }
}

pub struct Unconditional;

impl Conditions for Unconditional {
    fn preferred(&self) -> Option<TokenId> {
        None
    }

    fn with(&self, _: &Credential) -> HeaderMap {
        HeaderMap::new()
    }
}

impl Job {
    /// Its client and its route, which a denial is about.
    pub fn client_route(&self) -> (ClientId, &Route) {
        (ClientId(self.client), &self.route)
    }

    /// True if it changes nothing upstream. A GraphQL query is a read although it is a POST.
    pub fn is_read(&self) -> bool {
        self.route.spacing == WriteSpacing::None
    }

    /// True if no client waits for it, so that it may outlast any outage of the upstream.
    pub fn is_queued(&self) -> bool {
        let terms = self.journal.as_ref().map(|journal| journal.terms());
        terms.is_some_and(|terms| terms.patience == Patience::Queued)
    }

    /// The method that decides on repetition. What is no plain query may be a mutation, even a GET.
    pub fn repeated_as(&self) -> &Method {
        static QUERY: Method = Method::GET;
        static MUTATION: Method = Method::POST;
        match self.request.service {
            Service::Graphql if self.is_read() => &QUERY,
            Service::Graphql => &MUTATION,
            _ => &self.request.method,
        }
    }

    pub fn failed(&self, not_before: Timestamp, may_have_run: bool) {
        if let Some(journal) = &self.journal {
            journal.failed(not_before, may_have_run);
        }
    }
}

impl Dispatcher {
    /// A request of the gateway itself, without a body. `payer` alone carries it, in the wait queue
    /// at `client`'s place. It is not spaced like a write, because it changes nothing visible.
    pub fn own_job(
        &self,
        method: Method,
        target: String,
        payer: AccountId,
        client: u32,
        hold_max: usize,
    ) -> Job {
        let Classified { endpoint, .. } = self.table.classify(&method, &target);
        let view = self.accounts.alone(payer);
        let mut headers = HeaderMap::new();
        headers::complete(&mut headers, self.env.config.upstream.dialect);
        let route = Route {
            endpoint,
            scope: Scope::Account(payer.0),
            about_caller: true,
            candidates: Arc::clone(&view),
            view,
            lane: String::new(),
            cost: endpoint.primary_cost,
            points: endpoint.points,
            content: endpoint.content_generating,
            spacing: WriteSpacing::None,
            operation: None,
        };
        let access_query = AccessQuery::of(endpoint, &target);
        let request = OutgoingRequest {
            service: Service::Rest,
            method,
            target,
            headers: Arc::new(headers),
            body: OutgoingBody::Whole(Bytes::new()),
        };
        Job {
            route: Arc::new(route),
            request,
            client,
            access_query,
            began: self.env.timeouts.now(),
            deadline: self.env.clock.now() + PATIENCE,
            hold_max,
            span: TraceSpan::none(),
            memory: None,
            client_credential: None,
            journal: None,
            interims: None,
        }
    }
}
