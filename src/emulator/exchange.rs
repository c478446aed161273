//! One request from arrival to completion: who asks, may it be asked now, what is the answer, what did it cost.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};

use super::access::{self, Need};
use super::accounts::{AccountId, Caller};
use super::arrival::{Arrival, RequestId};
use super::call::{Call, Context, view};
use super::fault::Fault;
use super::gates::Gates;
use super::intake::{self, Canonical, Door, Query};
use super::limits::{Limits, Resource};
use super::primary::{Primary, View};
use super::replay::{Recording, Replayer};
use super::reply::{self, Reply};
use super::route::{self, Charge, Outcome, Params, Route, Verb};
use super::secondary::{Content, Exceeded, Secondary, Style, Weight};
use super::timestamps::iso;
use super::transcript::{Entry, Transcript};
use super::urls::Urls;
use super::validators::is_conditional;
use super::world::World;
use super::{Options, control, credentials, graphql, inventory, resources, seed};
use crate::api::Dialect;
use crate::clock::Timestamp;

/// The versions that Document 1 names, oldest first. The behaviour without the header is not shown; the oldest is taken.
const VERSIONS: [&str; 2] = ["2022-11-28", "2026-03-10"];

/// The size of an upload whose body the socket shell counted instead of keeping it. A request extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadBytes(pub u64);

/// All that an emulator is.
#[derive(Debug)]
pub struct State {
    pub options: Options,
    pub world: World,
    pub replayer: Option<Replayer>,
    pub limits: Limits,
    pub primary: Primary,
    pub secondary: Secondary,
    pub gates: Gates,
    pub transcript: Transcript,
    pub tally: Tally,
    next_request: u64,
    /// Refusals of a primary budget under way, and those that callers know of: nothing may be sent before then.
    telling: BTreeMap<RequestId, (AccountId, Resource, Timestamp)>,
    told: BTreeMap<(AccountId, Resource), Timestamp>,
}

/// What went wrong between callers and limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub refused_primary: u64,
    pub refused_secondary: u64,
    /// Requests sent although an earlier answer had said to wait.
    pub sent_while_limited: u64,
}

/// What is asked, as far as limits are concerned.
struct Demand {
    target: Target,
    endpoint: String,
    resource: Resource,
    charge: Charge,
    weight: Weight,
}

enum Target {
    Route(&'static Route, Params),
    /// A route that only the endpoint table knows.
    Listed(inventory::Found),
    Graphql,
    /// A CORS preflight, which has no credential by nature.
    Options,
    Unknown,
    Recorded,
}

impl Target {
    /// What the two headers of every answer say that it accepts.
    fn accepted(&self) -> (String, String) {
        match self {
            Self::Route(route, _) => (route.need.accepted_permissions(), route.need.accepted_scopes()),
            Self::Listed(found) => (found.facts.accepted_permissions.clone(), found.facts.accepted_scopes.clone()),
            _ => (Need::Nothing.accepted_permissions(), Need::Nothing.accepted_scopes()),
        }
    }
}

/// A refusal before anything was executed.
struct Stopped {
    fault: Fault,
    by: &'static str,
    until: Timestamp,
}

impl State {
    pub fn new(options: Options, recording: Option<Recording>, now: Timestamp) -> Self {
        let world = seed::world(&options, now);
        Self {
            world,
            replayer: recording.map(Replayer::new),
            options,
            limits: Limits::default(),
            primary: Primary::default(),
            secondary: Secondary::default(),
            gates: Gates::default(),
            transcript: Transcript::default(),
            tally: Tally::default(),
            next_request: 0,
            telling: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Back to the seed: world, budgets, limits, gates and transcript.
    pub fn reset(&mut self, now: Timestamp) {
        let recording = self.replayer.take().map(Replayer::into_recording);
        *self = Self::new(self.options.clone(), recording, now);
    }

    pub fn arrive(&mut self, now: Timestamp, request: &Request<Bytes>, peer: IpAddr) -> Arrival {
        let canonical = intake::canonical(request.uri().path());
        if canonical.door == Door::Control {
            let response = control::respond(self, now, request, canonical.path);
            return Arrival { id: RequestId(0), response, gate: None };
        }
        resources::notifications::finish_background_reads(&mut self.world, now);
        self.next_request += 1;
        let id = RequestId(self.next_request);
        let response = self.exchange(now, id, request, canonical, peer);
        let gate = self.gates.hold(id, request.method(), canonical.path);
        Arrival { id, response, gate }
    }

    pub fn finish(&mut self, now: Timestamp, id: RequestId) {
        self.gates.release(id);
        self.secondary.finish(now, id, &self.limits);
        if let Some((account, resource, until)) = self.telling.remove(&id) {
            self.told.retain(|_, until| *until > now);
            self.told.insert((account, resource), until);
        }
    }

    fn exchange(
        &mut self,
        now: Timestamp,
        id: RequestId,
        request: &Request<Bytes>,
        canonical: Canonical<'_>,
        peer: IpAddr,
    ) -> Response<Bytes> {
        let credential = match &self.replayer {
            Some(_) => Ok(Replayer::caller(request.headers(), peer)),
            None => credentials::caller(&self.world, request.headers(), peer, now),
        };
        let caller = credential.clone().unwrap_or_else(|_| Caller::anonymous(peer));
        let path = self.routed_path(canonical);
        let demand = self.demand(request, canonical, &path);
        let (accepted_permissions, accepted_scopes) = demand.target.accepted();
        let concurrency = self.secondary.concurrency(caller.account);
        let stopped = self.judge(now, &caller, &demand).err();
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
        };
        let mut entry = entry(&self.world, &context, request, &demand, concurrency);
        let mut response = if let Some(stopped) = stopped {
            self.note_refusal(id, &caller, &demand, &stopped);
            entry.refused = Some(stopped.by);
            refusal(stopped, &demand, &context)
        } else {
            let outcome = match (credential, version) {
                (Err(_), _) => Err(Fault::BadCredentials),
                (_, Err(fault)) => Err(fault),
                (Ok(_), Ok(_)) if request.body().len() > intake::BODY_BYTES_MAX => Err(Fault::TooLarge),
                (Ok(_), Ok(_)) => self.execute(now, &caller, request, canonical, demand.target),
            };
            let response = outcome.unwrap_or_else(Fault::into_reply).into_response(&context);
            entry.executed = true;
            entry.points = demand.weight.points;
            entry.cost = cost(demand.charge, &response, &caller);
            self.spend(now, caller.account, demand.resource, entry.cost);
            self.secondary.begin(id, caller.account, demand.weight);
            response
        };
        self.write_rate_headers(now, caller.account, demand.resource, response.headers_mut());
        entry.status = response.status().as_u16();
        self.transcript.push(entry);
        response
    }

    /// `/repositories/{id}/…` is `/repos/{owner}/{repo}/…` of the repository with that id.
    fn routed_path(&self, canonical: Canonical<'_>) -> String {
        let by_id = || {
            let rest = canonical.path.strip_prefix("/repositories/")?;
            let (id, rest) = rest.split_once('/').map_or((rest, ""), |(id, _)| (id, &rest[id.len()..]));
            let repository = self.world.repositories.get(&id.parse().ok()?)?;
            Some(format!("{}{rest}", access::path_of(&self.world, repository)))
        };
        let by_number = || inventory::named_path(&self.world, self.options.dialect, canonical.path);
        by_id().or_else(by_number).unwrap_or_else(|| canonical.path.to_owned())
    }

    fn demand(&self, request: &Request<Bytes>, canonical: Canonical<'_>, path: &str) -> Demand {
        let verb = Verb::of(request.method());
        let points = if verb == Some(Verb::Get) || request.method() == Method::OPTIONS { 1 } else { 5 };
        let rest = |target, endpoint: String, resource, charge, content| Demand {
            weight: Weight { endpoint: endpoint.clone(), points, style: Style::Rest, content },
            target,
            endpoint,
            resource,
            charge,
        };
        if request.method() == Method::OPTIONS {
            return rest(Target::Options, "OPTIONS *".to_owned(), Resource::CORE, Charge::Free, Content::None);
        }
        if canonical.door == Door::Graphql && self.replayer.is_none() {
            let points = graphql::points(request.body());
            let weight = Weight { endpoint: "POST /graphql".to_owned(), points, style: Style::Graphql, content: Content::None };
            return Demand {
                target: Target::Graphql,
                endpoint: weight.endpoint.clone(),
                resource: Resource::GRAPHQL,
                charge: Charge::One,
                weight,
            };
        }
        if let Some(replayer) = &self.replayer {
            let resource = replayer.resource(request, canonical);
            let charge = if canonical.path == "/rate_limit" { Charge::Free } else { Charge::One };
            return rest(Target::Recorded, replayer.endpoint(request, canonical), resource, charge, Content::None);
        }
        let names_it =
            |(route, _): &(&Route, Params)| !inventory::has_a_closer_route(self.options.dialect, request.method(), path, route.template);
        match verb.and_then(|verb| route::find(verb, path)).filter(names_it) {
            Some((route, params)) => {
                let endpoint = format!("{} {}", route.verb.name(), route.template);
                rest(Target::Route(route, params), endpoint, route.resource, route.charge, route.content)
            }
            None => match inventory::find(self.options.dialect, request.method(), path) {
                Some(found) => {
                    let facts = found.facts;
                    let endpoint = format!("{} {}", facts.endpoint.method, facts.endpoint.template);
                    let mut demand = rest(Target::Listed(found), endpoint, facts.resource, facts.charge, facts.content);
                    demand.weight.points = facts.endpoint.points;
                    demand
                }
                None => rest(Target::Unknown, format!("{} (unknown)", request.method()), Resource::CORE, Charge::One, Content::None),
            },
        }
    }

    /// Whether the request may be served now. Secondary limits are looked at first: while one holds, nothing else matters.
    fn judge(&self, now: Timestamp, caller: &Caller, demand: &Demand) -> Result<(), Stopped> {
        if self.secondary.is_banned(caller.account) {
            return Err(Stopped { fault: Fault::Banned, by: "banned", until: Timestamp::FAR_FUTURE });
        }
        let status = StatusCode::from_u16(u16::try_from(self.limits.get("refusal.status")).unwrap_or(403)).unwrap_or(StatusCode::FORBIDDEN);
        if let Err(refusal) = self.secondary.judge(now, caller.account, &demand.weight, &self.limits) {
            // "retry-after" is sometimes there (Document 1, Client behavior, rules 2 to 4); without it the rule is a minute at least.
            let told = self.tally.refused_secondary.is_multiple_of(2) || refusal.exceeded == Exceeded::Waiting;
            let wait = refusal.until.since(now).as_millis().div_ceil(1_000);
            let retry_after_secs = told.then(|| u64::try_from(wait).unwrap_or(u64::MAX).max(1));
            let until = if told { refusal.until } else { refusal.until.max(now + self.limits.duration("penalty")) };
            let fault = Fault::SecondaryLimit { exceeded: refusal.exceeded, status, retry_after_secs };
            return Err(Stopped { fault, by: refusal.exceeded.name(), until });
        }
        let view = self.view(now, caller.account, demand.resource);
        // Without a token GraphQL has no budget to exhaust; it is answered 401.
        let has_budget = !(caller.is_anonymous() && demand.resource == Resource::GRAPHQL);
        if demand.charge == Charge::One && has_budget && view.remaining() == 0 {
            let fault = Fault::PrimaryLimit { whose: caller.account.to_string(), status };
            return Err(Stopped { fault, by: "primary", until: view.reset });
        }
        Ok(())
    }

    fn note_refusal(&mut self, id: RequestId, caller: &Caller, demand: &Demand, stopped: &Stopped) {
        let knew = match stopped.by {
            "primary" => {
                self.tally.refused_primary += 1;
                self.telling.insert(id, (caller.account, demand.resource, stopped.until));
                self.told.get(&(caller.account, demand.resource)) == Some(&stopped.until)
            }
            by => {
                self.tally.refused_secondary += 1;
                self.secondary.begin_refused(id, caller.account, stopped.until);
                by == Exceeded::Waiting.name() || by == "banned"
            }
        };
        if knew {
            self.tally.sent_while_limited += 1;
            self.secondary.note_sent_while_limited(caller.account, &self.limits);
        }
    }

    fn execute(&mut self, now: Timestamp, caller: &Caller, request: &Request<Bytes>, canonical: Canonical<'_>, target: Target) -> Outcome {
        let urls = Urls::new(&self.origin(request), canonical.prefix);
        if matches!(target, Target::Recorded) {
            return self.replay(now, caller, request, canonical, &urls);
        }
        let upload_bytes = request.extensions().get::<UploadBytes>().map_or(request.body().len() as u64, |upload| upload.0);
        let mut call = Call {
            world: &mut self.world,
            limits: &self.limits,
            primary: &self.primary,
            now,
            dialect: self.options.dialect,
            caller,
            urls: &urls,
            headers: request.headers(),
            body: request.body(),
            upload_bytes,
            is_read: matches!(*request.method(), Method::GET | Method::HEAD),
            asked_path: canonical.path,
            raw_query: request.uri().query(),
            query: Query::parse(request.uri().query()),
            params: Params::default(),
            repository: 0,
            organization: 0,
        };
        match target {
            Target::Recorded | Target::Unknown => Err(Fault::NotFound),
            Target::Options => Ok(preflight()),
            Target::Graphql => graphql::answer(&mut call, request.method()),
            Target::Route(route, params) => {
                call.params = params;
                access::admit(&mut call, route.need)?;
                (route.answer)(&mut call)
            }
            Target::Listed(found) => inventory::answer(&mut call, found),
        }
    }

    fn replay(&mut self, now: Timestamp, caller: &Caller, request: &Request<Bytes>, canonical: Canonical<'_>, urls: &Urls) -> Outcome {
        if canonical.path == "/rate_limit" {
            let view = |resource| view(&self.world, &self.limits, &self.primary, now, caller.account, resource);
            return Ok(resources::service::rate_limit_of(view));
        }
        self.replayer.as_mut().map(|replayer| replayer.answer(request, canonical, urls)).ok_or(Fault::NotFound)
    }

    /// Scheme and authority that answers name.
    fn origin(&self, request: &Request<Bytes>) -> String {
        if !self.options.base_url.is_empty() {
            return self.options.base_url.clone();
        }
        let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
        let authority = host.or_else(|| request.uri().authority().map(http::uri::Authority::as_str)).unwrap_or("localhost");
        format!("http://{authority}")
    }

    pub fn view(&self, now: Timestamp, account: AccountId, resource: Resource) -> View {
        view(&self.world, &self.limits, &self.primary, now, account, resource)
    }

    fn spend(&mut self, now: Timestamp, account: AccountId, resource: Resource, cost: u32) {
        self.primary.spend(now, account, resource, cost, self.limits.primary_window(resource));
    }

    /// Document 1, Rate limit response headers.
    fn write_rate_headers(&self, now: Timestamp, account: AccountId, resource: Resource, headers: &mut HeaderMap) {
        let view = self.view(now, account, resource);
        let values = [
            ("x-ratelimit-limit", view.limit.to_string()),
            ("x-ratelimit-remaining", view.remaining().to_string()),
            ("x-ratelimit-used", view.used.to_string()),
            ("x-ratelimit-reset", view.reset.as_secs().to_string()),
            ("x-ratelimit-resource", resource.name().to_owned()),
        ];
        for (name, value) in values {
            reply::set_named(headers, name, &value);
        }
    }
}

/// A 304 is free "if the request was authorised" (UPSTREAM.md, Limits); everything else that is served costs one.
fn cost(charge: Charge, response: &Response<Bytes>, caller: &Caller) -> u32 {
    let is_free = charge == Charge::Free || (response.status() == StatusCode::NOT_MODIFIED && !caller.is_anonymous());
    u32::from(!is_free)
}

fn refusal(stopped: Stopped, demand: &Demand, context: &Context<'_>) -> Response<Bytes> {
    // UPSTREAM.md, Limits: "GraphQL primary exhaustion is 200 with `errors[].type` = `RATE_LIMITED`".
    let reply = match (&demand.target, &stopped.fault) {
        (Target::Graphql, Fault::PrimaryLimit { whose, .. }) => graphql::exhausted(whose),
        _ => stopped.fault.into_reply(),
    };
    reply.into_response(context)
}

/// The version in force; the dialect's header chooses it.
fn version(dialect: Dialect, headers: &HeaderMap) -> Result<&'static str, Fault> {
    let Some(given) = headers.get(dialect.version_header()) else { return Ok(VERSIONS[0]) };
    VERSIONS.into_iter().find(|known| given.as_bytes() == known.as_bytes()).ok_or_else(|| {
        Fault::BadRequest(format!(
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

fn entry(world: &World, context: &Context<'_>, request: &Request<Bytes>, demand: &Demand, concurrency: u32) -> Entry {
    let sent = request.headers();
    let conditional = match (sent.contains_key(header::IF_NONE_MATCH), sent.contains_key(header::IF_MODIFIED_SINCE)) {
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
        path: request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned(),
        endpoint: demand.endpoint.clone(),
        account: world.account_name(context.caller.account),
        token: context.caller.token.as_ref().map(|(position, _)| *position),
        resource: demand.resource.name(),
        cost: 0,
        points: 0,
        status: 0,
        conditional,
        executed: false,
        concurrency,
        refused: None,
    }
}
