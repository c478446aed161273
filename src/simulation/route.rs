//! Classification of a request for its client: endpoint, scope, accounts. As in the gateway,
//! without permissions and reach of tokens.

use std::sync::Arc;

use http::Method;

use super::bots::BotRequest;
use super::plan::Client;
use crate::api::{Classified, Dialect, Endpoint, GRAPHQL_QUERY_POINTS, Table, lane_of};
use crate::decision::cache::key::Scope;
use crate::decision::{AccountId, WriteSpacing};

/// Routes with a limit per app and hour (SPECIFICATION, "Secondary rate limits").
const TOKEN_REQUESTS: [&str; 2] =
    ["/app/installations/{installation_id}/access_tokens", "/applications/{client_id}/token"];

#[derive(Clone, Debug)]
pub(super) struct Route {
    pub endpoint: &'static Endpoint,
    /// Scope of its answer, if it may be stored.
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
    /// Classifies a request; `None` when the client has no account for it. A recorded GraphQL
    /// request of unknown kind counts as a query.
    pub fn of(request: &BotRequest, client: &Client) -> Option<Self> {
        let path = request.path.split('?').next().unwrap_or("/");
        let Classified { endpoint, .. } =
            Table::embedded(Dialect::Service).classify(&request.method, path);
        if path == "/graphql" {
            return Some(Self {
                endpoint,
                scope: None,
                candidates: Arc::clone(client.writes.as_ref().unwrap_or(&client.reads)),
                lane: None,
                points: GRAPHQL_QUERY_POINTS,
                graphql: true,
                token_request: false,
                spacing: WriteSpacing::None,
            });
        }
        let is_read = matches!(request.method, Method::GET | Method::HEAD);
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
