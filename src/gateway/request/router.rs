//! Routing: the endpoint, the cache scope and the possible accounts of a client's request.
//!
//! The endpoint table and the config supply the facts. `decision/` chooses the account later.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;

use crate::api::{
    Classified, Endpoint, GRAPHQL_MUTATION_POINTS, GRAPHQL_QUERY_POINTS, GraphqlEffect,
    GraphqlRequest, Params, ResourceName, Table, lane_of,
};
use crate::config::Config;
use crate::decision::permissions::needs::{AccountTokens, unmet};
use crate::decision::{
    AccountId, ClientId, WriteSpacing, cache::freshness::Mode, cache::key::Scope,
};
use crate::gateway::dispatch::candidates::{AccountLists, Accounts, PathSubject, Territories};
use crate::gateway::dispatch::graphql_prices::Operation;
use crate::gateway::dispatch::route::{MINT, Route};
use crate::gateway::dispatch::{dispatcher::Dispatcher, job::ClientCredential};
use crate::gateway::environment::Environment;
use crate::gateway::error::{GatewayError, Malformed};
use crate::gateway::http::headers::{Repeated, only_value};
use crate::gateway::request::clients::{Client, Clients, KEY_HEADER};
use crate::gateway::request::passthrough::DynamicAccounts;
use crate::gateway::request::validate::{Methods, ValidRequest};
use crate::tokens::{Tokens, Wanted};

/// Routes requests under one config: their client, endpoint, scope, accounts and cost.
pub struct Router {
    env: Arc<Environment>,
    dispatcher: Arc<Dispatcher>,
    tokens: Arc<Tokens>,
    accounts: Arc<AccountLists>,
    table: &'static Table,
    roots_about_caller: Arc<BTreeSet<String>>,
    clients: Clients,
    dynamic_accounts: Arc<DynamicAccounts>,
}

impl Router {
    /// Builds the router of one config. The dynamic accounts and prices of `before`, the previous
    /// config's router, are kept.
    pub fn new(
        env: &Arc<Environment>,
        dispatcher: &Arc<Dispatcher>,
        before: Option<&Self>,
    ) -> Arc<Self> {
        let table = dispatcher.table();
        Arc::new(Self {
            env: Arc::clone(env),
            dispatcher: Arc::clone(dispatcher),
            tokens: Arc::clone(dispatcher.tokens()),
            accounts: Arc::clone(dispatcher.accounts()),
            table,
            roots_about_caller: before.map_or_else(
                || Arc::new(roots_about_caller(table)),
                |before| Arc::clone(&before.roots_about_caller),
            ),
            clients: Clients::new(env, before.map(|before| &before.clients)),
            dynamic_accounts: before.map_or_else(
                || Arc::new(DynamicAccounts::new(&env.config)),
                |before| Arc::clone(&before.dynamic_accounts),
            ),
        })
    }

    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    pub fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    /// Methods that are served: those that the service documents, or, for a plain HTTP cache, all.
    pub fn methods(&self) -> Methods {
        if self.env.mode == Mode::Rfc9111 { Methods::All } else { Methods::Documented }
    }

    /// Returns the upstream credential that a known client sends beside its key, with a dynamic
    /// account. `None` if there is none or it must not be used. `by_key` is false for a client that
    /// a certificate identifies.
    pub fn client_credential(
        &self,
        client: &Client,
        request_headers: &HeaderMap,
        is_read: bool,
        by_key: bool,
    ) -> Result<Option<Arc<ClientCredential>>, GatewayError> {
        let is_identity = by_key && !request_headers.contains_key(KEY_HEADER);
        if !self.env.config.passthrough.enabled || is_identity {
            return Ok(None);
        }
        let bad = |what| GatewayError::Malformed(Malformed::Bad(what));
        let value = only_value(request_headers, AUTHORIZATION)
            .map_err(|Repeated| bad("several Authorization headers"))?;
        let Some(value) = value else { return Ok(None) };
        if value.as_bytes().trim_ascii().is_empty() {
            return Err(bad("an Authorization header without a credential"));
        }
        // The upstream must never see a key of this gateway, even one sent in both headers.
        if self.clients.have_place_in(value) {
            return Ok(None);
        }
        let vacate = |account| self.dispatcher.admissions().vacate(account);
        let client_credential = self.dynamic_accounts.assign(value.clone(), vacate).map(Arc::new);
        client_credential.map(Some).ok_or_else(|| {
            let view = self.view_for(client, None, is_read);
            self.dispatcher.queue_full(ClientId(client.index), &view, ResourceName::core())
        })
    }

    /// Returns the accounts behind the client's budget headers: that of its own credential, its
    /// pool or its own account (SPECIFICATION D9).
    pub fn view_for(
        &self,
        client: &Client,
        client_credential: Option<&ClientCredential>,
        is_read: bool,
    ) -> Accounts {
        match (client_credential, client.account) {
            (Some(credential), _) => self.accounts.alone(credential.account()),
            (None, Some(account)) if !is_read => self.accounts.alone(account),
            (None, _) => self.accounts.pool(client.pool),
        }
    }

    pub fn classify<'p>(&self, valid: &'p ValidRequest) -> Classified<'static, 'p> {
        self.table.classify(&valid.method, &valid.path)
    }

    pub fn route(
        &self,
        classified: Classified<'static, '_>,
        valid: &ValidRequest,
        client: &Client,
        client_credential: Option<&ClientCredential>,
    ) -> Result<Route, GatewayError> {
        let Classified { endpoint, params } = classified;
        let is_mint = endpoint.template == MINT;
        // The answer is a credential, which only the owner of the app may see (SPECIFICATION,
        // "Promises" 6).
        if is_mint && !client_credential.is_some_and(ClientCredential::is_jwt) {
            return Err(GatewayError::NoToken(
                "with its app, installation tokens are minted for the gateway alone; those of \
                 your own app need its JWT, by pass-through"
                    .into(),
            ));
        }
        let is_read = matches!(valid.method, Method::GET | Method::HEAD);
        let view = self.view_for(client, client_credential, is_read);
        let about_caller = endpoint.about_caller || self.may_be_about_caller(endpoint, valid);
        let (scope, accounts) = if let Some(client_credential) = client_credential {
            self.of_credential(client_credential)
        } else if is_read && !about_caller {
            self.of_pool(client)
        } else {
            let account = self.acting_app(endpoint, client, is_read).or(client.account);
            let account = match *self.accounts.pool(client.pool) {
                // In a pool of one account, "me" is unambiguous.
                [only] if is_read => account.unwrap_or(only),
                _ => account.ok_or(GatewayError::NoAccount)?,
            };
            self.of_account(account)
        };
        // The kind and reach of a client's own credential are unknown; the upstream decides.
        let candidates = if client_credential.is_some() {
            accounts
        } else {
            self.able(endpoint, &params, &valid.path, &accounts)?
        };
        // A mint changes nothing visible, and is repeated like the gateway's own.
        let spacing = match (is_read || is_mint, endpoint.notifies) {
            (true, _) => WriteSpacing::None,
            (false, false) => WriteSpacing::Plain,
            (false, true) => WriteSpacing::Notifies,
        };
        Ok(Route {
            endpoint,
            scope,
            about_caller,
            candidates,
            view,
            // Decoded, because two spellings may be one resource, as in `invalidation/log.rs`.
            lane: if is_read {
                String::new()
            } else {
                lane_of(&percent_decode_str(&valid.path).decode_utf8_lossy())
            },
            cost: endpoint.primary_cost,
            points: endpoint.points,
            content: endpoint.content_generating,
            spacing,
            operation: None,
        })
    }

    /// The app behind a read for apps only: the client's own account, or its pool's only app.
    fn acting_app(&self, endpoint: &Endpoint, client: &Client, is_read: bool) -> Option<AccountId> {
        let wanted = Wanted::by(endpoint);
        if !is_read
            || !wanted.only_app()
            || client.account.is_some_and(|own| self.tokens.may_carry(own, wanted))
        {
            return client.account;
        }
        let is_app = |account| self.tokens.may_carry(account, wanted);
        let (pool, territories) = (self.accounts.pool(client.pool), Territories::default());
        let apps = self.accounts.candidates.able(&pool, wanted, territories, is_app)?;
        if let [app] = *apps { Some(app) } else { None }
    }

    /// True if the answer may depend on the account although the endpoint's does not. Examples: an
    /// unknown spelling of a route about "me", or a search for "@me".
    fn may_be_about_caller(&self, endpoint: &Endpoint, valid: &ValidRequest) -> bool {
        let query = valid.query.as_deref().unwrap_or_default();
        if query.bytes().any(|byte| matches!(byte, b'@' | b'%')) {
            let decoded = percent_decode_str(query).decode_utf8_lossy().to_ascii_lowercase();
            if decoded.contains("@me") {
                return true;
            }
        }
        if !endpoint.generic {
            return false;
        }
        let first = valid.path.split('/').nth(1).unwrap_or_default();
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let word = first.split(|c| !is_of_word(c)).next().unwrap_or_default();
        self.roots_about_caller.contains(&word.to_ascii_lowercase())
    }

    /// The route of a GraphQL request. A query is an unstored read for the pool; anything else is a
    /// write of the client's own account. Unreadable documents are spaced like notifying writes.
    pub fn graphql_route(
        &self,
        client: &Client,
        graphql: &GraphqlRequest,
        client_credential: Option<&ClientCredential>,
    ) -> Result<Route, GatewayError> {
        let Classified { endpoint, .. } = self.table.classify(&Method::POST, "/graphql");
        let (scope, accounts) = match (client_credential, client.account) {
            (Some(credential), _) => self.of_credential(credential),
            // Any query may contain `viewer`, so the client's own account goes first.
            (None, Some(account)) => self.of_account(account),
            (None, None) if graphql.effect == GraphqlEffect::Query => self.of_pool(client),
            (None, None) => return Err(GatewayError::NoAccount),
        };
        let candidates = if client_credential.is_some() {
            accounts
        } else {
            self.able(endpoint, &Params::default(), "/graphql", &accounts)?
        };
        let operation = Operation::of(graphql);
        let (points, spacing) = match graphql.effect {
            GraphqlEffect::Query => (GRAPHQL_QUERY_POINTS, WriteSpacing::None),
            GraphqlEffect::Plain => (GRAPHQL_MUTATION_POINTS, WriteSpacing::Plain),
            GraphqlEffect::Notifies | GraphqlEffect::Creates | GraphqlEffect::Unclear => {
                (GRAPHQL_MUTATION_POINTS, WriteSpacing::Notifies)
            }
        };
        Ok(Route {
            endpoint,
            scope,
            about_caller: true,
            view: Arc::clone(&candidates),
            candidates,
            lane: "/graphql".into(),
            cost: operation.map_or(endpoint.primary_cost, |operation| {
                self.dispatcher.admissions().graphql_prices.of(operation.key)
            }),
            points,
            content: matches!(graphql.effect, GraphqlEffect::Creates | GraphqlEffect::Unclear),
            spacing,
            operation,
        })
    }

    fn of_credential(&self, credential: &ClientCredential) -> (Scope, Accounts) {
        (credential.scope(), self.accounts.alone(credential.account()))
    }

    fn of_account(&self, account: AccountId) -> (Scope, Accounts) {
        (Scope::Account(account.0), self.accounts.alone(account))
    }

    fn of_pool(&self, client: &Client) -> (Scope, Accounts) {
        let scope = Scope::Pool(u32::try_from(client.pool).unwrap_or(u32::MAX));
        (scope, self.accounts.pool(client.pool))
    }

    /// Filters `accounts` by token kind and `reach`. The result is cached.
    fn able(
        &self,
        endpoint: &'static Endpoint,
        params: &Params<'_, '_>,
        path: &str,
        accounts: &Accounts,
    ) -> Result<Accounts, GatewayError> {
        let subject = subject_of(params, path);
        let wanted = Wanted::by(endpoint);
        let is_able = |account| {
            self.tokens.may_carry(account, wanted) && reaches(&self.env.config, account, subject)
        };
        let territories = self.accounts.candidates.territories(subject);
        let able = self.accounts.candidates.able(accounts, wanted, territories, is_able);
        able.ok_or_else(|| {
            GatewayError::NoToken(self.explain_no_account(endpoint, subject, accounts))
        })
    }

    /// Explains why none of `accounts` may carry a request.
    fn explain_no_account(
        &self,
        endpoint: &Endpoint,
        subject: PathSubject<'_>,
        accounts: &[AccountId],
    ) -> String {
        let held = |account: &AccountId| {
            let settings = self.env.config.account(*account)?;
            Some(AccountTokens {
                name: &settings.name,
                kind: settings.kind,
                tokens: self.tokens.kinds_of(*account).collect(),
                accepted: self.tokens.may_carry(*account, Wanted::by(endpoint)),
                reaches: reaches(&self.env.config, *account, subject),
            })
        };
        let named = match subject {
            PathSubject::Repository { owner, name } => format!("{owner}/{name}"),
            PathSubject::Owner(owner) => owner.to_owned(),
            PathSubject::Neither => String::new(),
        };
        unmet(endpoint, &named, &accounts.iter().filter_map(held).collect::<Vec<_>>())
    }
}

/// The first segments of all routes about "me", such as `user` and `notifications`.
fn roots_about_caller(table: &Table) -> BTreeSet<String> {
    let own = table.endpoints().iter().filter(|endpoint| endpoint.about_caller);
    own.filter_map(|endpoint| endpoint.template.split('/').nth(1))
        .filter(|segment| !segment.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

/// The repository or owner in a path, as far as `reach` needs it.
fn subject_of<'p>(params: &Params<'_, 'p>, path: &'p str) -> PathSubject<'p> {
    let (owner, name) = (params.get("owner"), params.get("repo"));
    if let (Some(owner), Some(name)) = (owner, name) {
        return PathSubject::Repository { owner, name };
    }
    let mut segments = path.split('/').skip(1);
    let first = segments.next();
    let owner = owner.or_else(|| segments.next().filter(|_| first == Some("repos")));
    let name = name.or_else(|| segments.next().filter(|_| first == Some("repos")));
    match (owner, name, params.get("org")) {
        (Some(owner), Some(name), _) => PathSubject::Repository { owner, name },
        // An organization's number does not reveal its name.
        (_, _, Some(org))
            if first == Some("orgs")
                || first == Some("organizations")
                    && !org.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            PathSubject::Owner(org)
        }
        _ => PathSubject::Neither,
    }
}

fn reaches(config: &Config, account: AccountId, subject: PathSubject<'_>) -> bool {
    let Some(account) = config.account(account) else { return false };
    match subject {
        PathSubject::Repository { owner, name } => account.reach.covers_repository(owner, name),
        PathSubject::Owner(owner) => account.reach.covers_owner(owner),
        PathSubject::Neither => true,
    }
}
