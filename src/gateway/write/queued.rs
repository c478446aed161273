//! The route and the job of a queued write under the current config.

use std::sync::Arc;

use http::Method;

use crate::api::GraphqlRequest;
use crate::clock::Timestamp;
use crate::decision::access::permitted;
use crate::decision::permissions::AccessQuery;
use crate::gateway::address::{Root, Service};
use crate::gateway::dispatch::job::{Job, Journal};
use crate::gateway::dispatch::route::Route;
use crate::gateway::error::GatewayError;
use crate::gateway::request::validate::{BodyFraming, ValidRequest};
use crate::gateway::upstream::outgoing::{OutgoingBody, OutgoingRequest};
use crate::gateway::write::queue::{NotChanged, Repetition};
use crate::gateway::write::writes::Writes;
use crate::telemetry::spans::TraceSpan;
use crate::writes::record::{Address, Shape};
use crate::writes::{Write, WriteId};

/// The reason why a write is not retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRetried {
    /// The queue refuses the change.
    NotChanged(NotChanged),
    /// The config no longer allows it; with the reason.
    NotAllowed(String),
}

impl From<NotChanged> for NotRetried {
    fn from(why: NotChanged) -> Self {
        Self::NotChanged(why)
    }
}

impl Writes {
    pub fn queued_job(
        &self,
        write: &Write,
        deadline: Timestamp,
        journal: Arc<dyn Journal>,
    ) -> Result<Job, GatewayError> {
        let graphql = (write.address == Address::Graphql).then(|| {
            GraphqlRequest::read(&write.method, write.query.as_deref(), &write.headers, &write.body)
        });
        let (route, client) = self.queued_route(write, graphql.as_ref())?;
        let is_bodiless = matches!(write.method, Method::GET | Method::HEAD);
        let request = OutgoingRequest {
            service: service_of(write.address),
            method: write.method.clone(),
            target: write.target(),
            headers: Arc::new(write.headers.clone()),
            body: if is_bodiless {
                OutgoingBody::Absent
            } else {
                OutgoingBody::Whole(write.body.clone())
            },
        };
        Ok(Job {
            access_query: AccessQuery::of(route.endpoint, &write.path),
            route: Arc::new(route),
            request,
            client,
            began: self.env.timeouts.now(),
            deadline,
            hold_max: self.env.hold_max(),
            span: TraceSpan::none(),
            memory: None,
            client_credential: None,
            journal: Some(journal),
            interims: None,
        })
    }

    /// The route of a queued write under the current config, and its client's index there.
    pub fn queued_route(
        &self,
        write: &Write,
        graphql: Option<&GraphqlRequest>,
    ) -> Result<(Route, u32), GatewayError> {
        let gone = |what: String| {
            GatewayError::NoToken(format!("since it was accepted, {what} the gateway's config"))
        };
        let client = self
            .router
            .clients()
            .named(&write.client)
            .ok_or_else(|| gone(format!("the client {} was taken out of", write.client)))?;
        let own = client.account.map(|account| self.env.account_name(account));
        if own != Some(&*write.account) {
            return Err(gone(format!(
                "the client {} writes for {} no more by",
                write.client, write.account
            )));
        }
        let valid = ValidRequest {
            method: write.method.clone(),
            root: if write.shape == Shape::V3 { Root::V3 } else { Root::Plain },
            service: service_of(write.address),
            path: write.path.clone(),
            query: write.query.clone(),
            host: String::new(),
            is_https: false,
            body: BodyFraming::None,
        };
        if !permitted(&client.allow, valid.method_for_rules(), &valid.path) {
            return Err(GatewayError::NotAllowed);
        }
        let route = if write.address == Address::Graphql {
            let graphql = graphql.unwrap_or(&GraphqlRequest::UNCLEAR);
            self.router.graphql_route(client, graphql, None)?
        } else {
            self.router.route(self.router.classify(&valid), &valid, client, None)?
        };
        Ok((route, client.index))
    }

    /// Retries a write that ended without being done (SPECIFICATION, "Admin listener"). The current
    /// config decides its lane and its account.
    pub async fn retry_write(&self, id: WriteId, repetition: Repetition) -> Result<(), NotRetried> {
        let listed = self.queue.look_up(id).await.map_err(NotChanged::Store)?;
        let listed = listed.ok_or(NotChanged::NoSuchWrite)?;
        let (group, lane) = self
            .group_and_lane(&listed.write)
            .map_err(|refused| NotRetried::NotAllowed(refused.as_reason().message))?;
        Ok(self.queue.retry(&self.turns, (group, &lane), id, repetition).await?)
    }
}

fn service_of(address: Address) -> Service {
    match address {
        Address::Rest => Service::Rest,
        Address::Graphql => Service::Graphql,
        Address::Uploads => Service::Uploads,
    }
}
