//! What the upstream is asked: a request that is complete but for account and credential.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use crate::api::{Classified, Endpoint};
use crate::clock::Timestamp;
use crate::decision::permissions::Asked;
use crate::decision::{AccountId, WriteSpacing};
use crate::tokens::{Credential, TokenId};

use crate::gateway::Gateway;
use crate::gateway::address::Service;
use crate::gateway::dispatch::client_credential::Brought;
use crate::gateway::http::headers;
use crate::gateway::http::interim::Interims;
use crate::gateway::upstream::fetch::OutgoingBody;
use crate::gateway::write::queue::Journal;

/// How long the gateway's own requests wait for budget. Ours: as long as a client's by default
/// (CONTRACT §2, `max_wait`).
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A request for the upstream, complete but for account and credential.
pub struct Job {
    /// What the table knows about it.
    pub endpoint: &'static Endpoint,
    /// Which of the upstream's addresses.
    pub service: Service,
    /// GET for a read of either kind.
    pub method: Method,
    /// Canonical path and query.
    pub target: String,
    /// End-to-end headers without credential and conditions.
    pub headers: Arc<HeaderMap>,
    /// The body.
    pub body: OutgoingBody,
    /// Units of the primary budget to reserve.
    pub cost: u32,
    /// Points of the secondary limit.
    pub points: u32,
    /// Whether it counts against the content limits.
    pub content: bool,
    /// Whose request it is: the client's place in the config.
    pub client: u32,
    /// How it is spaced from other writes.
    pub spacing: WriteSpacing,
    /// The accounts that may carry it; never empty.
    pub candidates: Arc<[AccountId]>,
    /// What it asks, as far as tokens' rights go.
    pub asked: Asked,
    /// How long it may be held.
    pub deadline: Timestamp,
    /// Bytes of the largest body that is held.
    pub hold_max: usize,
    /// The pool or account whose budget the client is told about.
    pub view: Arc<[AccountId]>,
    /// The client's request, for tracing.
    pub span: tracing::Span,
    /// The held body's part of the memory for bodies.
    pub memory: Option<OwnedSemaphorePermit>,
    /// The client's own credential, which no other takes the place of.
    pub brought: Option<Arc<Brought>>,
    /// Of a queued write: where its attempts are told.
    pub journal: Option<Arc<Journal>>,
    /// Where informational answers go.
    pub interims: Option<Arc<Interims>>,
}

/// The validators that a request carries: they belong to tokens (DESIGN D3), so they are known only
/// once the token is.
pub trait Conditions: Sync {
    /// A token whose validators are better than those of others; taken when its account is as good
    /// as another.
    fn preferred(&self) -> Option<TokenId>;
    /// The conditions to ask with.
    fn with(&self, credential: &Credential) -> HeaderMap;
    /// The status of the stored answer that a 304 confirms.
    fn stored(&self) -> Option<StatusCode> {
        None
    }
    /// The tokens that are known to have been answered as it is stored; `None` when nothing but a
    /// denial or a fault is.
    fn seen_by(&self) -> Option<Vec<TokenId>> {
        None
    }
}

/// Asks without conditions.
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
    /// Whether it changes nothing upstream. A GraphQL query is a read although it is a POST.
    pub fn is_read(&self) -> bool {
        self.spacing == WriteSpacing::None
    }

    /// The method that says whether it may be repeated. What a mutation does, its method does not
    /// say: none is sent again that may have been executed.
    pub fn repeated_as(&self) -> &Method {
        static POST: Method = Method::POST;
        if self.service == Service::Graphql { &POST } else { &self.method }
    }

    /// An attempt has failed, and there will be another: not before this time.
    pub fn failed(&self, not_before: Timestamp, may_have_run: bool) {
        if let Some(journal) = &self.journal {
            journal.failed(not_before, may_have_run);
        }
    }
}

impl Gateway {
    /// A request of the gateway itself, without a body: `payer` alone carries it, for `client`'s
    /// place in the line. Not spaced like a write, whatever its method: what the gateway asks for
    /// itself changes nothing that anybody sees.
    pub fn own_job(
        &self,
        method: Method,
        target: String,
        payer: AccountId,
        client: u32,
        hold_max: usize,
    ) -> Job {
        let Classified { endpoint, .. } = self.table.classify(&method, &target);
        let payer = self.account_alone(payer);
        let mut headers = HeaderMap::new();
        headers::complete(&mut headers, self.config.upstream.dialect);
        Job {
            endpoint,
            service: Service::Rest,
            asked: Asked::of(endpoint, &target),
            method,
            target,
            headers: Arc::new(headers),
            body: OutgoingBody::Whole(Bytes::new()),
            client,
            cost: endpoint.primary_cost,
            points: endpoint.points,
            content: endpoint.content_generating,
            spacing: WriteSpacing::None,
            candidates: Arc::clone(&payer),
            deadline: self.clock.now() + PATIENCE,
            hold_max,
            view: payer,
            span: tracing::Span::none(),
            memory: None,
            brought: None,
            journal: None,
            interims: None,
        }
    }
}
