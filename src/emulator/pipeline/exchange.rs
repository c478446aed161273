//! One request from arrival to completion: authentication, limits, response and cost.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, header};
use serde_json::json;

use super::arrival::Incoming;
use super::cpu;
use super::demand::{Demand, Target};
use super::response::{Context, set_named};
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::auth::access;
use crate::emulator::auth::credentials::{self, BadCredentials};
use crate::emulator::http::path::{self, UploadBytes};
use crate::emulator::http::{ApiError, Query, Reply, Urls, iso};
use crate::emulator::limits::secondary::LimitDenial;
use crate::emulator::limits::{Exceeded, RequestId, Resource, View};
use crate::emulator::replay::Replayer;
use crate::emulator::resources::code::lfs;
use crate::emulator::resources::service::meta;
use crate::emulator::routing::call::view;
use crate::emulator::routing::{Call, Charge, Outcome, Params, Verb};
use crate::emulator::state::State;
use crate::emulator::state::transcript::Entry;
use crate::emulator::{generic, graphql};

/// The documented versions, oldest first. The default is undocumented; the oldest is used.
const VERSIONS: [&str; 2] = ["2022-11-28", "2026-03-10"];

pub struct Denial {
    pub error: ApiError,
    pub by: &'static str,
    pub until: Timestamp,
}

impl State {
    pub fn exchange(&mut self, incoming: &Incoming<'_>) -> Response<Bytes> {
        let Incoming { id, now, request, peer, .. } = *incoming;
        let (caller, authenticated) = match self.credential(incoming) {
            Ok(caller) => (caller, Ok(())),
            Err(BadCredentials) => (Caller::anonymous(peer), Err(ApiError::BadCredentials)),
        };
        let path = self.routed_path(incoming.canonical);
        let mut demand = self.demand(incoming, &path);
        let denial = self.check(now, &caller, &demand).err();
        let context = self.context(incoming, &caller, &demand.target);
        let mut entry = self.entry(&context, &demand);
        let mut response = if let Some(denial) = denial {
            self.record_denial(id, &caller, &demand, &denial);
            entry.refused = Some(denial.by);
            refusal(denial, &demand, &context)
        } else {
            let outcome = authenticated
                .and_then(|()| version(self.options.dialect, request.headers()))
                .and_then(|_| self.execute(incoming, &caller, demand.target))
                .or_else(|error| self.invented(incoming, error));
            let (style, verb) = (demand.weight.style, Verb::of(request.method()));
            demand.weight.cpu_micros = cpu::micros(&self.limits, style, verb, &outcome);
            let reply = outcome.unwrap_or_else(ApiError::into_reply);
            let reply = lfs::with_lfs_headers(demand.resource, reply);
            let response = self.faults.replicated(now, request, reply).into_response(&context);
            entry.executed = true;
            entry.points = demand.weight.points;
            entry.cpu_micros = demand.weight.cpu_micros;
            entry.cost = cost(demand.charge, &response);
            self.spend(now, caller.account, demand.resource, entry.cost);
            self.secondary.begin(id, caller.account, demand.weight);
            response
        };
        self.write_rate_headers(now, caller.account, demand.resource, response.headers_mut());
        entry.status = response.status().as_u16();
        self.transcript.push(entry);
        response
    }

    pub fn context<'a>(
        &self,
        incoming: &Incoming<'a>,
        caller: &'a Caller,
        target: &Target,
    ) -> Context<'a> {
        let dialect = self.options.dialect;
        let (accepted_permissions, accepted_scopes) = target.accepted();
        Context {
            incoming: *incoming,
            caller,
            dialect,
            version: version(dialect, incoming.request.headers()).ok(),
            accepted_permissions,
            accepted_scopes,
            issued_dates: Arc::clone(&self.issued_dates),
        }
    }

    pub fn credential(&self, incoming: &Incoming<'_>) -> Result<Caller, BadCredentials> {
        let (headers, peer) = (incoming.request.headers(), incoming.peer);
        let caller = match &self.replayer {
            Some(_) => Ok(Replayer::caller(headers, peer)),
            None => credentials::caller(&self.world, headers, peer, incoming.now, self.pace),
        };
        self.faults.unless_revoked(caller)
    }

    /// Checks the limits. Secondary limits come first, because they apply whatever the budget.
    pub fn check(&self, now: Timestamp, caller: &Caller, demand: &Demand) -> Result<(), Denial> {
        if self.secondary.is_banned(caller.account) {
            let (error, until) = (ApiError::Banned, Timestamp::FAR_FUTURE);
            return Err(Denial { error, by: "banned", until });
        }
        // The upstream uses 403 or 429 (SPECIFICATION, "Errors").
        let status = if self.limits.get("refusal.status") == 429 {
            StatusCode::TOO_MANY_REQUESTS
        } else {
            StatusCode::FORBIDDEN
        };
        let view = self.view(now, caller.account, demand.resource);
        self.secondary
            .check(now, caller.account, &demand.weight, &self.limits)
            .map_err(|denial| self.stop(now, denial, status, view))?;
        // Anonymous GraphQL has no budget to exhaust; it gets a 401.
        let has_budget = !(caller.is_anonymous() && demand.resource == Resource::GRAPHQL);
        if demand.charge != Charge::Free && has_budget && view.remaining() == 0 {
            let error = ApiError::PrimaryLimit { account: caller.account.to_string(), status };
            return Err(Denial { error, by: "primary", until: view.reset });
        }
        Ok(())
    }

    /// SPECIFICATION, "After a limit": `retry-after` is only sometimes present. Without it, the
    /// wait is until the reset when nothing remains, else at least a minute.
    fn stop(&self, now: Timestamp, denial: LimitDenial, status: StatusCode, view: View) -> Denial {
        let announced = match self.limits.get("refusal.retry-after") {
            _ if denial.exceeded == Exceeded::Waiting => true,
            0 => false,
            1 => true,
            _ => self.denial_counts.denied_secondary.is_multiple_of(2),
        };
        let wait = denial.until.since(now).as_millis().div_ceil(1_000);
        let retry_after_secs = announced.then(|| u64::try_from(wait).unwrap_or(u64::MAX).max(1));
        let until = match (announced, view.remaining()) {
            (true, _) => denial.until,
            (false, 0) => denial.until.max(view.reset),
            (false, _) => denial.until.max(now + self.limits.duration("penalty")),
        };
        let error =
            ApiError::SecondaryLimit { exceeded: denial.exceeded, status, retry_after_secs };
        Denial { error, by: denial.exceeded.into_str(), until }
    }

    fn record_denial(&mut self, id: RequestId, caller: &Caller, demand: &Demand, denial: &Denial) {
        if denial.by == "primary" {
            self.denial_counts.denied_primary += 1;
            self.announcing.insert(id, (caller.account, demand.resource, denial.until));
        } else {
            self.denial_counts.denied_secondary += 1;
            self.secondary.begin_denied(id, caller.account, denial.until);
        }
        if self.was_announced(caller, demand, denial) {
            self.note_sent_while_limited(caller.account);
        }
    }

    pub fn note_sent_while_limited(&mut self, account: AccountId) {
        self.denial_counts.sent_while_limited += 1;
        self.secondary.note_sent_while_limited(account, &self.limits);
    }

    /// Returns true when an earlier response had announced this refusal.
    pub fn was_announced(&self, caller: &Caller, demand: &Demand, denial: &Denial) -> bool {
        match denial.by {
            "primary" => {
                self.announced.get(&(caller.account, demand.resource)) == Some(&denial.until)
            }
            by => by == Exceeded::Waiting.into_str() || by == "banned",
        }
    }

    fn execute(&mut self, incoming: &Incoming<'_>, caller: &Caller, target: Target) -> Outcome {
        let Incoming { now, request, canonical, .. } = *incoming;
        if path::is_too_large(request, path::BODY_BYTES_MAX) {
            return Err(ApiError::TooLarge);
        }
        let urls = Urls::new(&self.origin(request), canonical.prefix);
        let upload_bytes = request
            .extensions()
            .get::<UploadBytes>()
            .map_or(request.body().len() as u64, |upload| upload.0);
        let mut call = Call {
            world: &mut self.world,
            limits: &self.limits,
            primary: self.faults.budgets(&self.primary),
            now,
            dialect: self.options.dialect,
            caller,
            urls: &urls,
            headers: request.headers(),
            body: request.body(),
            upload_bytes,
            is_read: matches!(*request.method(), Method::GET | Method::HEAD),
            requested_path: canonical.path,
            raw_query: request.uri().query(),
            query: Query::parse(request.uri().query()),
            params: Params::default(),
            repository: 0,
            organization: 0,
        };
        match target {
            Target::Recorded if canonical.path == "/rate_limit" => {
                Ok(meta::rate_limit_of(|resource| call.budget(resource)))
            }
            Target::Recorded => self
                .replayer
                .as_mut()
                .map(|replayer| replayer.answer(request, canonical, &urls))
                .ok_or(ApiError::NotFound),
            Target::Unknown => Err(ApiError::NotFound),
            Target::Options => Ok(preflight()),
            Target::Graphql(plan) => graphql::answer(&mut call, request.method(), *plan),
            Target::Route(route, params) => {
                call.params = params;
                access::admit(&mut call, route.need)?;
                (route.answer)(&mut call)
            }
            Target::Listed(found) => generic::answer(&mut call, found),
        }
    }

    /// Answers a read of a thing that does not exist, if the options say so.
    fn invented(&self, incoming: &Incoming<'_>, error: ApiError) -> Outcome {
        let is_read = matches!(*incoming.request.method(), Method::GET | Method::HEAD);
        if self.options.invents_reads && is_read && matches!(error, ApiError::NotFound) {
            return Ok(Reply::ok(json!({ "path": incoming.canonical.path })));
        }
        Err(error)
    }

    /// Charges the account's budget, and the user's lower budget as far as it goes.
    fn spend(&mut self, now: Timestamp, account: AccountId, resource: Resource, cost: u32) {
        let window = self.limits.primary_window(resource);
        self.primary.spend(now, account, resource, cost, window);
        if let Some(user) = account.also_spends() {
            let left = self.view(now, user, resource).remaining();
            self.primary.spend(now, user, resource, cost.min(left), window);
        }
    }

    pub fn write_rate_headers(
        &self,
        now: Timestamp,
        account: AccountId,
        resource: Resource,
        headers: &mut HeaderMap,
    ) {
        let primary = self.faults.budgets(&self.primary);
        let view = view(&self.world, &self.limits, primary, now, account, resource);
        let values = [
            ("x-ratelimit-limit", view.limit.to_string()),
            ("x-ratelimit-remaining", view.remaining().to_string()),
            ("x-ratelimit-used", view.used.to_string()),
            ("x-ratelimit-reset", view.reset.as_secs().to_string()),
            ("x-ratelimit-resource", resource.name().to_owned()),
        ];
        for (name, value) in values {
            set_named(headers, name, &value);
        }
    }

    pub fn entry(&self, context: &Context<'_>, demand: &Demand) -> Entry {
        let Incoming { id, now, request, .. } = context.incoming;
        let sent = request.headers();
        let conditional = match (
            sent.contains_key(header::IF_NONE_MATCH),
            sent.contains_key(header::IF_MODIFIED_SINCE),
        ) {
            (true, true) => "both",
            (true, false) => "etag",
            (false, true) => "last-modified",
            (false, false) => "none",
        };
        Entry {
            sequence: id.0,
            at_millis: now.as_millis(),
            time: iso(now),
            method: request.method().to_string(),
            path: context.incoming.address().to_owned(),
            endpoint: demand.weight.endpoint.clone(),
            account: self.world.account_name(context.caller.account),
            token: context.caller.token.as_ref().map(|(position, _)| *position),
            resource: demand.resource.name(),
            conditional,
            concurrency: self.secondary.concurrency(context.caller.account),
            ..Entry::default()
        }
    }
}

/// A 304 is free; a query costs what its size demands; every other response costs one.
fn cost(charge: Charge, response: &Response<Bytes>) -> u32 {
    match charge {
        Charge::Free => 0,
        Charge::One => u32::from(response.status() != StatusCode::NOT_MODIFIED),
        Charge::Cost(units) if response.status() == StatusCode::OK => units,
        Charge::Cost(_) => 1,
    }
}

fn refusal(denial: Denial, demand: &Demand, context: &Context<'_>) -> Response<Bytes> {
    // GraphQL answers 200 with the type `RATE_LIMITED` (SPECIFICATION, "Limits in practice").
    let reply = match (&demand.target, &denial.error) {
        (Target::Graphql(_), ApiError::PrimaryLimit { account, .. }) => graphql::exhausted(account),
        _ => lfs::with_lfs_headers(demand.resource, denial.error.into_reply()),
    };
    reply.into_response(context)
}

fn version(dialect: Dialect, headers: &HeaderMap) -> Result<&'static str, ApiError> {
    let Some(given) = headers.get(dialect.version_header()) else { return Ok(VERSIONS[0]) };
    VERSIONS.into_iter().find(|known| given.as_bytes() == known.as_bytes()).ok_or_else(|| {
        ApiError::BadRequest(format!(
            "The version given in {} is not supported; supported are {}",
            dialect.version_header(),
            VERSIONS.join(", ")
        ))
    })
}

fn preflight() -> Reply {
    Reply::empty(StatusCode::NO_CONTENT)
        .with(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PATCH, PUT, DELETE")
        .with(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Authorization, Content-Type, If-Match, If-Modified-Since, If-None-Match, Accept-Encoding, X-Requested-With",
        )
        .with(header::ACCESS_CONTROL_MAX_AGE, "86400")
}
