//! One request from arrival to completion: authentication, limits, response and cost.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};

use super::arrival::Arrival;
use super::cpu;
use super::demand::{Demand, Target};
use super::response::{Context, set_named};
use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::auth::access;
use crate::emulator::auth::credentials::{self, BadCredentials};
use crate::emulator::faults::wire::{Departure, Wire};
use crate::emulator::http::path::{self, UploadBytes};
use crate::emulator::http::validators::is_conditional;
use crate::emulator::http::{ApiArea, ApiError, Canonical, Query, Reply, Urls, iso};
use crate::emulator::limits::secondary::LimitDenial;
use crate::emulator::limits::{Exceeded, RequestId, Resource, View};
use crate::emulator::replay::Replayer;
use crate::emulator::resources::code::lfs;
use crate::emulator::resources::service::meta;
use crate::emulator::routing::call::view;
use crate::emulator::routing::{Call, Charge, Outcome, Params, Verb};
use crate::emulator::state::State;
use crate::emulator::state::transcript::Entry;
use crate::emulator::world::World;
use crate::emulator::{control, generic, graphql, migrations, resources};

/// The documented versions, oldest first. The default is undocumented; the oldest is used.
const VERSIONS: [&str; 2] = ["2022-11-28", "2026-03-10"];

pub struct Denial {
    pub fault: ApiError,
    pub by: &'static str,
    pub until: Timestamp,
}

impl State {
    pub fn arrive(&mut self, now: Timestamp, request: &Request<Bytes>, peer: IpAddr) -> Arrival {
        let canonical = path::canonical(request.uri().path());
        migrations::advance(&mut self.world, &self.limits, now);
        if canonical.area == ApiArea::Control {
            let response = control::respond(self, now, request, canonical.path);
            return Arrival {
                id: RequestId(0),
                response,
                gate: None,
                wire: Wire::Whole,
                departure: Departure::Unwatched,
            };
        }
        resources::notifications::finish_due_reads(&mut self.world, now);
        self.world.clone_secrets.turn(now);
        self.next_request += 1;
        let id = RequestId(self.next_request);
        let (response, departure) = self.exchange_under_faults(now, id, request, canonical, peer);
        let gate = self.gates.hold(id, request.method(), canonical.path);
        let wire = response.extensions().get().copied().unwrap_or_default();
        Arrival { id, response, gate, wire, departure }
    }

    pub fn finish(&mut self, now: Timestamp, id: RequestId) {
        self.gates.release(id);
        self.faults.holds.release(id);
        self.secondary.finish(now, id, &self.limits);
        if let Some((account, resource, until)) = self.announcing.remove(&id) {
            self.announced.retain(|_, until| *until > now);
            self.announced.insert((account, resource), until);
        }
    }

    pub fn exchange(
        &mut self,
        now: Timestamp,
        id: RequestId,
        request: &Request<Bytes>,
        canonical: Canonical<'_>,
        peer: IpAddr,
    ) -> Response<Bytes> {
        let credential = self.credential(now, request, peer);
        let caller = credential.clone().unwrap_or_else(|_| Caller::anonymous(peer));
        let path = self.routed_path(canonical);
        let mut demand = self.demand(request, canonical, &path);
        let (accepted_permissions, accepted_scopes) = demand.target.accepted();
        let concurrency = self.secondary.concurrency(caller.account);
        let denial = self.check(now, &caller, &demand).err();
        let version = version(self.options.dialect, request.headers());
        let context = Context {
            id,
            now,
            method: request.method(),
            headers: request.headers(),
            caller: &caller,
            dialect: self.options.dialect,
            version: version.as_ref().ok().copied(),
            accepted_permissions,
            accepted_scopes,
            address: request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
            issued_dates: Arc::clone(&self.issued_dates),
        };
        let mut entry = entry(&self.world, &context, request, &demand, concurrency);
        let mut response = if let Some(denial) = denial {
            self.record_denial(id, &caller, &demand, &denial);
            entry.refused = Some(denial.by);
            refusal(denial, &demand, &context)
        } else {
            let outcome = match (credential, version) {
                (Err(_), _) => Err(ApiError::BadCredentials),
                (_, Err(fault)) => Err(fault),
                (Ok(_), Ok(_)) if path::is_too_large(request, path::BODY_BYTES_MAX) => {
                    Err(ApiError::TooLarge)
                }
                (Ok(_), Ok(_)) => self.execute(now, &caller, request, canonical, demand.target),
            };
            demand.weight.cpu_micros = cpu::micros(
                &self.limits,
                demand.weight.style,
                Verb::of(request.method()),
                &outcome,
            );
            let reply = lfs::with_lfs_headers(
                demand.resource,
                outcome.unwrap_or_else(ApiError::into_reply),
            );
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

    pub fn credential(
        &self,
        now: Timestamp,
        request: &Request<Bytes>,
        peer: IpAddr,
    ) -> Result<Caller, BadCredentials> {
        let caller = match &self.replayer {
            Some(_) => Ok(Replayer::caller(request.headers(), peer)),
            None => credentials::caller(&self.world, request.headers(), peer, now),
        };
        self.faults.unless_revoked(caller)
    }

    /// Checks the limits. Secondary limits come first, because they apply whatever the budget.
    pub fn check(&self, now: Timestamp, caller: &Caller, demand: &Demand) -> Result<(), Denial> {
        if self.secondary.is_banned(caller.account) {
            return Err(Denial {
                fault: ApiError::Banned,
                by: "banned",
                until: Timestamp::FAR_FUTURE,
            });
        }
        // The upstream uses 403 or 429 (SPECIFICATION, "Errors").
        let status = if self.limits.get("refusal.status") == 429 {
            StatusCode::TOO_MANY_REQUESTS
        } else {
            StatusCode::FORBIDDEN
        };
        if let Err(refusal) =
            self.secondary.check(now, caller.account, &demand.weight, &self.limits)
        {
            return Err(self.stop(
                now,
                refusal,
                status,
                self.view(now, caller.account, demand.resource),
            ));
        }
        let view = self.view(now, caller.account, demand.resource);
        // Anonymous GraphQL has no budget to exhaust; it gets a 401.
        let has_budget = !(caller.is_anonymous() && demand.resource == Resource::GRAPHQL);
        if demand.charge != Charge::Free && has_budget && view.remaining() == 0 {
            let fault = ApiError::PrimaryLimit { account: caller.account.to_string(), status };
            return Err(Denial { fault, by: "primary", until: view.reset });
        }
        Ok(())
    }

    /// SPECIFICATION, "After a limit": `retry-after` is only sometimes present. Without it, the
    /// wait is until the reset when nothing remains, else at least a minute.
    fn stop(&self, now: Timestamp, refusal: LimitDenial, status: StatusCode, view: View) -> Denial {
        let announced = match self.limits.get("refusal.retry-after") {
            _ if refusal.exceeded == Exceeded::Waiting => true,
            0 => false,
            1 => true,
            _ => self.denial_counts.denied_secondary.is_multiple_of(2),
        };
        let wait = refusal.until.since(now).as_millis().div_ceil(1_000);
        let retry_after_secs = announced.then(|| u64::try_from(wait).unwrap_or(u64::MAX).max(1));
        let until = match (announced, view.remaining()) {
            (true, _) => refusal.until,
            (false, 0) => refusal.until.max(view.reset),
            (false, _) => refusal.until.max(now + self.limits.duration("penalty")),
        };
        let fault =
            ApiError::SecondaryLimit { exceeded: refusal.exceeded, status, retry_after_secs };
        Denial { fault, by: refusal.exceeded.name(), until }
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
            self.denial_counts.sent_while_limited += 1;
            self.secondary.note_sent_while_limited(caller.account, &self.limits);
        }
    }

    /// Returns true when an earlier response had announced this refusal.
    pub fn was_announced(&self, caller: &Caller, demand: &Demand, denial: &Denial) -> bool {
        match denial.by {
            "primary" => {
                self.announced.get(&(caller.account, demand.resource)) == Some(&denial.until)
            }
            by => by == Exceeded::Waiting.name() || by == "banned",
        }
    }

    fn execute(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        request: &Request<Bytes>,
        canonical: Canonical<'_>,
        target: Target,
    ) -> Outcome {
        let urls = Urls::new(&self.origin(request), canonical.prefix);
        if matches!(target, Target::Recorded) {
            return self.replay(now, caller, request, canonical, &urls);
        }
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
            Target::Recorded | Target::Unknown => Err(ApiError::NotFound),
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

    fn replay(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        request: &Request<Bytes>,
        canonical: Canonical<'_>,
        urls: &Urls,
    ) -> Outcome {
        if canonical.path == "/rate_limit" {
            let primary = self.faults.budgets(&self.primary);
            let view =
                |resource| view(&self.world, &self.limits, primary, now, caller.account, resource);
            return Ok(meta::rate_limit_of(view));
        }
        self.replayer
            .as_mut()
            .map(|replayer| replayer.answer(request, canonical, urls))
            .ok_or(ApiError::NotFound)
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
        let view = view(
            &self.world,
            &self.limits,
            self.faults.budgets(&self.primary),
            now,
            account,
            resource,
        );
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
}

/// A 304 is free; a query costs what its size demands; every other response costs one.
fn cost(charge: Charge, response: &Response<Bytes>) -> u32 {
    match charge {
        Charge::Free => 0,
        Charge::One => u32::from(response.status() != StatusCode::NOT_MODIFIED),
        Charge::Cost(units) => {
            if response.status() == StatusCode::OK {
                units
            } else {
                1
            }
        }
    }
}

fn refusal(denial: Denial, demand: &Demand, context: &Context<'_>) -> Response<Bytes> {
    // GraphQL answers 200 with the type `RATE_LIMITED` (SPECIFICATION, "Limits in practice").
    let reply = match (&demand.target, &denial.fault) {
        (Target::Graphql(_), ApiError::PrimaryLimit { account, .. }) => graphql::exhausted(account),
        _ => lfs::with_lfs_headers(demand.resource, denial.fault.into_reply()),
    };
    reply.into_response(context)
}

pub fn version(dialect: Dialect, headers: &HeaderMap) -> Result<&'static str, ApiError> {
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

pub fn entry(
    world: &World,
    context: &Context<'_>,
    request: &Request<Bytes>,
    demand: &Demand,
    concurrency: u32,
) -> Entry {
    let sent = request.headers();
    let conditional = match (
        sent.contains_key(header::IF_NONE_MATCH),
        sent.contains_key(header::IF_MODIFIED_SINCE),
    ) {
        _ if !is_conditional(sent) => "none",
        (true, true) => "both",
        (true, false) => "etag",
        (false, _) => "last-modified",
    };
    Entry {
        sequence: context.id.0,
        at_millis: context.now.as_millis(),
        time: iso(context.now),
        method: request.method().to_string(),
        path: request
            .uri()
            .path_and_query()
            .map_or("/", http::uri::PathAndQuery::as_str)
            .to_owned(),
        endpoint: demand.endpoint.clone(),
        account: world.account_name(context.caller.account),
        token: context.caller.token.as_ref().map(|(position, _)| *position),
        resource: demand.resource.name(),
        cost: 0,
        points: 0,
        cpu_micros: 0,
        status: 0,
        conditional,
        executed: false,
        concurrency,
        refused: None,
        fault: None,
    }
}
