//! What a request means for this client: its endpoint, whose view answers it, and which accounts may carry it.
//!
//! The facts come from the endpoint table and the config; the choice among the accounts is made by `decision/` when the request is admitted.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::api::{Classified, Endpoint, GRAPHQL_MUTATION_POINTS, GRAPHQL_QUERY_POINTS, Params, Table};
use crate::config::Config;
use crate::decision::cache_key::Scope;
use crate::decision::{AccountId, WriteSpacing};

use super::Gateway;
use super::attempt::needed_tokens;
use super::auth::Client;
use super::intake::Intake;
use super::refuse::Refused;

/// Where a request goes and for whom.
#[derive(Clone, Debug)]
pub struct Route {
    /// The endpoint of the table, or a class of unknown routes.
    pub endpoint: &'static Endpoint,
    /// Whose view a read shows.
    pub scope: Scope,
    /// Who may carry it; never empty.
    pub candidates: Arc<[AccountId]>,
    /// Whose budget the client is told about.
    pub view: Arc<[AccountId]>,
    /// The written resource, which gives writes their order.
    pub lane: String,
    /// Points of the secondary limit.
    pub points: u32,
    /// Whether it changes something, and how far from others.
    pub spacing: WriteSpacing,
}

/// What a GraphQL document does, as far as a look at its text tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphqlKind {
    /// Only reads.
    Query,
    /// May change something.
    Mutation,
}

impl Gateway {
    /// The endpoint's name, also of a request that turns out to have no route.
    pub fn template_of(&self, intake: &Intake) -> &'static str {
        &self.table.classify(&intake.method, &intake.path).endpoint.template
    }

    /// The route of a REST request or an upload.
    pub fn route(&self, intake: &Intake, client: &Client) -> Result<Route, Refused> {
        let Classified { endpoint, params, lane_path } = self.table.classify(&intake.method, &intake.path);
        let is_read = matches!(intake.method, Method::GET | Method::HEAD);
        let view = self.view_of(client, is_read);
        let own = client.account;
        let about_caller = endpoint.about_caller || self.may_be_about_caller(endpoint, intake);
        let (scope, accounts) = if is_read && !about_caller {
            (Scope::Pool(u32::try_from(client.pool).unwrap_or(u32::MAX)), self.pool(client.pool))
        } else {
            // A pool of one account has only one identity to be "me".
            let alone = self.pool(client.pool).first().copied().filter(|_| is_read && self.pool(client.pool).len() == 1);
            let account = own.or(alone).ok_or(Refused::NoAccount)?;
            (Scope::Account(account.0), self.account_alone(account))
        };
        let candidates = self.able(endpoint, &params, &intake.path, &accounts)?;
        let spacing = match (is_read, endpoint.notifies) {
            (true, _) => WriteSpacing::None,
            (false, false) => WriteSpacing::Plain,
            (false, true) => WriteSpacing::Notifies,
        };
        Ok(Route { endpoint, scope, candidates, view, lane: lane_path.to_owned(), points: endpoint.points, spacing })
    }

    /// Whether a request may be answered differently for each account although its endpoint is not: an unknown spelling of a route about "me" that the upstream
    /// may know, or a search that names "me".
    fn may_be_about_caller(&self, endpoint: &Endpoint, intake: &Intake) -> bool {
        let query = intake.query.as_deref().unwrap_or_default();
        if query.contains('@') || query.contains('%') {
            let decoded = percent_decode_str(query).decode_utf8_lossy().to_ascii_lowercase();
            if decoded.contains("@me") {
                return true;
            }
        }
        let first = intake.path.split('/').nth(1).unwrap_or_default();
        let word: String = first.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>().to_ascii_lowercase();
        endpoint.generic && self.roots_about_caller.contains(&word)
    }

    /// The route of a GraphQL request: a query is read for the pool and not kept, a mutation is a write of the client's own account.
    pub fn graphql_route(&self, client: &Client, kind: GraphqlKind) -> Result<Route, Refused> {
        let Classified { endpoint, .. } = self.table.classify(&Method::POST, "/graphql");
        let own = client.account.map(|account| (Scope::Account(account.0), self.account_alone(account)));
        let (scope, accounts) = match kind {
            GraphqlKind::Mutation => own.ok_or(Refused::NoAccount)?,
            // `viewer` may stand in any query: the client's own identity answers it where it has one.
            GraphqlKind::Query => own.unwrap_or((Scope::Pool(u32::try_from(client.pool).unwrap_or(u32::MAX)), self.pool(client.pool))),
        };
        let candidates = self.able(endpoint, &Params::default(), "/graphql", &accounts)?;
        let (points, spacing) = match kind {
            GraphqlKind::Query => (GRAPHQL_QUERY_POINTS, WriteSpacing::None),
            GraphqlKind::Mutation => (GRAPHQL_MUTATION_POINTS, WriteSpacing::Plain),
        };
        Ok(Route { endpoint, scope, view: Arc::clone(&candidates), candidates, lane: "/graphql".into(), points, spacing })
    }

    /// Whose budget a client is told about: its pool's for reads, its own account's for writes (DESIGN D9).
    pub fn view_of(&self, client: &Client, is_read: bool) -> Arc<[AccountId]> {
        match client.account {
            Some(account) if !is_read => self.account_alone(account),
            _ => self.pool(client.pool),
        }
    }

    /// Those of `accounts` that have a token of an accepted kind and can see what the path names.
    fn able(
        &self,
        endpoint: &'static Endpoint,
        params: &Params<'_, '_>,
        path: &str,
        accounts: &Arc<[AccountId]>,
    ) -> Result<Arc<[AccountId]>, Refused> {
        let has_token = |account: &AccountId| self.tokens.has_kind(*account, endpoint.tokens);
        let is_able = |account: &AccountId| has_token(account) && reaches(&self.config, *account, params, path);
        if accounts.iter().all(is_able) {
            return Ok(Arc::clone(accounts));
        }
        let able: Arc<[AccountId]> = accounts.iter().copied().filter(is_able).collect();
        if !able.is_empty() {
            return Ok(able);
        }
        if accounts.iter().any(has_token) {
            return Err(Refused::NoToken("no account of this client reaches what it names".into()));
        }
        Err(Refused::NoToken(needed_tokens(endpoint)))
    }
}

/// The first segments of all routes about "me": `user`, `notifications`, and whatever else the table says.
pub fn roots_about_caller(table: &Table) -> BTreeSet<String> {
    let own = table.iter().filter(|endpoint| endpoint.about_caller);
    own.filter_map(|endpoint| endpoint.template.split('/').nth(1))
        .filter(|segment| !segment.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

/// Whether an account's `reach` covers the owner or repository that a path names; what names neither is within everyone's.
fn reaches(config: &Config, account: AccountId, params: &Params<'_, '_>, path: &str) -> bool {
    let Some(account) = config.accounts.get(account.0 as usize) else { return false };
    let mut segments = path.split('/').skip(1);
    let first = segments.next();
    let owner = params.get("owner").or_else(|| segments.next().filter(|_| first == Some("repos")));
    let name = params.get("repo").or_else(|| segments.next().filter(|_| first == Some("repos")));
    match (owner, name, params.get("org")) {
        (Some(owner), Some(name), _) => account.reach.covers_repository(owner, name),
        (_, _, Some(org)) if first == Some("orgs") => account.reach.covers_owner(org),
        _ => true,
    }
}

/// Reads what a GraphQL request body does. Whatever is not plainly a query counts as a mutation.
pub fn graphql_kind(body: &[u8]) -> Option<GraphqlKind> {
    let request: serde_json::Value = serde_json::from_slice(body).ok()?;
    let document = request.get("query")?.as_str()?;
    Some(if names_a_mutation(document) { GraphqlKind::Mutation } else { GraphqlKind::Query })
}

/// Whether the keyword `mutation` stands outside strings and comments, at the top level.
fn names_a_mutation(document: &str) -> bool {
    let mut depth = 0_u32;
    let mut rest = document;
    while let Some(at) = rest.find(|c: char| matches!(c, '"' | '#' | '{' | '}') || c.is_ascii_alphabetic() || c == '_') {
        rest = &rest[at..];
        let skip = match rest.as_bytes().first() {
            Some(b'{') => {
                depth += 1;
                1
            }
            Some(b'}') => {
                depth = depth.saturating_sub(1);
                1
            }
            // A line ends at either character (GraphQL, section 2.1.2).
            Some(b'#') => rest.find(['\n', '\r']).unwrap_or(rest.len()),
            Some(b'"') => string_length(rest),
            _ => {
                let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                if depth == 0 && &rest[..word] == "mutation" {
                    return true;
                }
                word
            }
        };
        rest = &rest[skip..];
    }
    false
}

/// The length of the GraphQL string that `text` begins with, quotes included.
fn string_length(text: &str) -> usize {
    if let Some(block) = text.strip_prefix("\"\"\"") {
        return block.find("\"\"\"").map_or(text.len(), |end| end + 6);
    }
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(document: &str) -> Option<GraphqlKind> {
        graphql_kind(serde_json::json!({ "query": document }).to_string().as_bytes())
    }

    #[test]
    fn a_mutation_is_recognised_wherever_it_stands() {
        for document in [
            "mutation { a }",
            "query Q { a } mutation M { b }",
            "# query\nmutation($x: Int) { a }",
            "\"mutation\" mutation { a }",
            "#x\rmutation{a}",
        ] {
            assert_eq!(kind(document), Some(GraphqlKind::Mutation), "{document}");
        }
    }

    #[test]
    fn what_only_mentions_a_mutation_is_a_query() {
        for document in [
            "{ viewer { login } }",
            "query { mutation }",
            "# mutation\n{ a }",
            "{ a(x: \"mutation {\") }",
            "query mutations { a }",
            "{ a(x: \"\"\"} mutation\"\"\") }",
        ] {
            assert_eq!(kind(document), Some(GraphqlKind::Query), "{document}");
        }
    }

    #[test]
    fn a_body_that_is_no_graphql_request_has_no_kind() {
        assert_eq!(graphql_kind(b"{"), None);
        assert_eq!(graphql_kind(b"{\"query\": 5}"), None);
        assert_eq!(graphql_kind(b"[{\"query\":\"mutation{b}\"}]"), None);
        assert_eq!(graphql_kind(b"{\"query\":\"{a}\"} {\"query\":\"mutation{b}\"}"), None);
        assert_eq!(graphql_kind(b"{\"id\":\"persisted\"}"), None);
    }
}
