//! What a request means for its client: the endpoint by the table, whose view it shows, who may
//! carry it. As the gateway has it, but for the rights and the reach of tokens, which are not
//! simulated.

use std::sync::Arc;

use http::Method;

use super::bots::Ask;
use super::plan::Client;
use crate::api::{Classified, Dialect, Endpoint, GRAPHQL_QUERY_POINTS, Table, lane_of};
use crate::decision::cache::key::Scope;
use crate::decision::{AccountId, WriteSpacing};

/// Requests of which an app may make a number per hour (Document 1, Secondary rate limits: OAuth
/// access token requests).
const TOKEN_REQUESTS: [&str; 2] =
    ["/app/installations/{installation_id}/access_tokens", "/applications/{client_id}/token"];

/// Where a request goes and for whom.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub endpoint: &'static Endpoint,
    /// Sender view it shows, where its answer may be stored.
    pub scope: Option<Scope>,
    pub candidates: Arc<[AccountId]>,
    /// The written resource.
    pub lane: Option<String>,
    pub points: u32,
    pub graphql: bool,
    pub token_request: bool,
    pub spacing: WriteSpacing,
}

impl Route {
    /// `None` when the client has no account for it. A trace may hold mutations: a GraphQL request
    /// whose kind is not known is read as a query.
    pub fn of(ask: &Ask, client: &Client) -> Option<Self> {
        let path = ask.path.split('?').next().unwrap_or("/");
        let Classified { endpoint, .. } =
            Table::embedded(Dialect::Service).classify(&ask.method, path);
        if path == "/graphql" {
            let candidates = client.writes.clone().unwrap_or_else(|| Arc::clone(&client.reads));
            let (points, spacing) = (GRAPHQL_QUERY_POINTS, WriteSpacing::None);
            return Some(Self {
                endpoint,
                scope: None,
                candidates,
                lane: None,
                points,
                graphql: true,
                token_request: false,
                spacing,
            });
        }
        let is_read = matches!(ask.method, Method::GET | Method::HEAD);
        let (scope, candidates) = if is_read && !endpoint.about_caller {
            (Scope::Pool(client.pool), Arc::clone(&client.reads))
        } else {
            let alone = || (is_read && client.reads.len() == 1).then(|| Arc::clone(&client.reads));
            let own = client.writes.clone().or_else(alone)?;
            (Scope::Account(own.first()?.0), own)
        };
        let spacing = match (is_read, endpoint.notifies) {
            (true, _) => WriteSpacing::None,
            (false, false) => WriteSpacing::Plain,
            (false, true) => WriteSpacing::Notifies,
        };
        Some(Self {
            endpoint,
            scope: is_read.then_some(scope),
            candidates,
            lane: (!is_read).then(|| lane_of(path)),
            points: endpoint.points,
            graphql: false,
            token_request: TOKEN_REQUESTS.contains(&endpoint.template.as_str()),
            spacing,
        })
    }
}
