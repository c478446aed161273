//! An exchange under faults: the partial execution, the replaced response and the transcript entry.
//!
//! Limits apply before a fault strikes, so that requests sent despite a denial count, whatever
//! becomes of their responses.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use super::exchange::{entry, version};
use super::response::{Context, set_named};
use crate::clock::Timestamp;
use crate::emulator::accounts::Caller;
use crate::emulator::faults::wire::{Departure, Wire};
use crate::emulator::faults::{
    Canned, Distorted, Ending, Execution, FaultId, LimitDenial, Remaining, Seen, Strike,
};
use crate::emulator::http::{ApiError, Canonical, Reply, http_date, parse_http_date};
use crate::emulator::limits::secondary::Weight;
use crate::emulator::limits::{Content, Exceeded, RequestId, TokenRequest, View};
use crate::emulator::state::State;

/// Statuses of a proxy in front of the service (SPECIFICATION, "Limits in practice").
const IN_FRONT: [StatusCode; 3] =
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
const HTML: &str = "text/html; charset=utf-8";
/// Some denials are HTML (SPECIFICATION, "Limits in practice").
const REFUSAL_PAGE: &str = "<!DOCTYPE html>\n<html><head><title>Slow down</title></head><body><h1>Whoa there!</h1>\n\
    <p>You have exceeded a secondary rate limit. Please wait a few minutes before you try again.</p></body></html>\n";

struct Struck<'a> {
    now: Timestamp,
    id: RequestId,
    request: &'a Request<Bytes>,
    canonical: Canonical<'a>,
    peer: IpAddr,
    fault: FaultId,
}

impl State {
    pub(super) fn exchange_under_faults(
        &mut self,
        now: Timestamp,
        id: RequestId,
        request: &Request<Bytes>,
        canonical: Canonical<'_>,
        peer: IpAddr,
    ) -> (Response<Bytes>, Departure) {
        if self.faults.is_idle() {
            return (self.exchange(now, id, request, canonical, peer), Departure::Unwatched);
        }
        let Strike { ending, distortion, names } = self.strike(now, request, canonical, peer);
        self.faults.distortion = distortion;
        let mut response = match ending {
            Some((fault, ending)) => {
                self.end(&Struck { now, id, request, canonical, peer, fault }, ending)
            }
            None => self.exchange(now, id, request, canonical, peer),
        };
        self.faults.distortion = Distorted::default();
        distort(&mut response, distortion, canonical.path);
        let Some(entry) = self.transcript.last_mut() else {
            return (response, Departure::Unwatched);
        };
        entry.fault = (!names.is_empty()).then(|| names.join("+"));
        let departure = self.faults.holds.arrived(id, &entry.account);
        (response, departure)
    }

    fn strike(
        &mut self,
        now: Timestamp,
        request: &Request<Bytes>,
        canonical: Canonical<'_>,
        peer: IpAddr,
    ) -> Strike {
        let caller = self.known_caller(now, request, peer);
        let account = self.world.account_name(caller.account);
        self.faults.strike(&Seen {
            method: request.method(),
            path: canonical.path,
            caller: &caller,
            account: &account,
        })
    }

    fn known_caller(&self, now: Timestamp, request: &Request<Bytes>, peer: IpAddr) -> Caller {
        self.credential(now, request, peer).unwrap_or_else(|_| Caller::anonymous(peer))
    }

    fn end(&mut self, struck: &Struck<'_>, ending: Ending) -> Response<Bytes> {
        match ending.execution() {
            Execution::NotExecuted => self.end_before(struck, ending),
            Execution::Executed => self.end_after(struck, ending),
        }
    }

    fn end_after(&mut self, struck: &Struck<'_>, ending: Ending) -> Response<Bytes> {
        let Struck { now, id, request, canonical, peer, fault } = *struck;
        if ending == Ending::Revoke {
            let caller = self.known_caller(now, request, peer);
            self.faults.revoke(&caller);
        }
        let mut response = self.exchange(now, id, request, canonical, peer);
        let account =
            self.transcript.last_mut().map(|entry| entry.account.clone()).unwrap_or_default();
        let wire = match ending {
            Ending::Status(canned, _) => {
                self.withhold(id);
                replace_response(&mut response, canned, now, request.method());
                if let Some(entry) = self.transcript.last_mut() {
                    entry.status = response.status().as_u16();
                }
                Wire::Whole
            }
            Ending::ResetAfter => self.unsent(id, Wire::Reset),
            Ending::Lost => self.unsent(id, Wire::Lost),
            Ending::HalfBody(framing) => Wire::Half(framing),
            Ending::Stall(length, _) => {
                let until = length.map_or(Timestamp::FAR_FUTURE, |length| now + length);
                self.faults.holds.stall(id, fault, until);
                Wire::HeldBack { until }
            }
            Ending::Reorder { after, timeout } => {
                self.faults.holds.reorder(id, fault, now + timeout, &account, after);
                Wire::HeldBack { until: now + timeout }
            }
            Ending::Revoke
            | Ending::ResetBefore
            | Ending::HtmlRefusal(_)
            | Ending::Secondary(_) => Wire::Whole,
        };
        put_wire(&mut response, wire);
        response
    }

    fn unsent(&mut self, id: RequestId, wire: Wire) -> Wire {
        self.withhold(id);
        wire
    }

    /// Marks the response as undelivered; the caller does not know of a denial in it.
    pub fn withhold(&mut self, id: RequestId) {
        self.announcing.remove(&id);
        self.secondary.withhold_denial(id);
    }

    /// The request takes a concurrency slot and no other budget.
    fn end_before(&mut self, struck: &Struck<'_>, ending: Ending) -> Response<Bytes> {
        let Struck { now, id, request, canonical, peer, fault } = *struck;
        let caller = self.known_caller(now, request, peer);
        let path = self.routed_path(canonical);
        let demand = self.demand(request, canonical, &path);
        let denial = self.check(now, &caller, &demand).err();
        let was_announced =
            denial.as_ref().is_some_and(|denial| self.was_announced(&caller, &demand, denial));
        let (accepted_permissions, accepted_scopes) = demand.target.accepted();
        let context = Context {
            id,
            now,
            method: request.method(),
            headers: request.headers(),
            caller: &caller,
            dialect: self.options.dialect,
            version: version(self.options.dialect, request.headers()).ok(),
            accepted_permissions,
            accepted_scopes,
            address: request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
            issued_dates: Arc::clone(&self.issued_dates),
        };
        let mut entry = entry(
            &self.world,
            &context,
            request,
            &demand,
            self.secondary.concurrency(caller.account),
        );
        let view = self.view(now, caller.account, demand.resource);
        let reply = if let Ending::Secondary(refusal) = &ending {
            secondary(*refusal)
        } else {
            Reply::empty(StatusCode::BAD_GATEWAY)
        };
        let mut response = reply.into_response(&context);
        self.write_rate_headers(now, caller.account, demand.resource, response.headers_mut());
        if let Some(until) = self.refuses_until(now, &ending, view) {
            entry.refused = Some("fault");
            self.denial_counts.denied_secondary += 1;
            self.secondary.begin_denied(id, caller.account, until);
        } else {
            self.secondary.begin(
                id,
                caller.account,
                Weight {
                    points: 0,
                    content: Content::None,
                    tokens: TokenRequest::No,
                    ..demand.weight
                },
            );
        }
        if was_announced {
            self.denial_counts.sent_while_limited += 1;
            self.secondary.note_sent_while_limited(caller.account, &self.limits);
        }
        let wire = instead(&mut response, struck, ending, view);
        // A response that is never sent has no status.
        entry.status = if wire == Wire::Reset { 0 } else { response.status().as_u16() };
        self.transcript.push(entry);
        put_wire(&mut response, wire);
        if let Wire::HeldBack { until } = wire {
            self.faults.holds.stall(id, fault, until);
        }
        response
    }

    /// The later of two given times applies (SPECIFICATION, "After a limit").
    fn refuses_until(&self, now: Timestamp, ending: &Ending, view: View) -> Option<Timestamp> {
        let a_minute = now + self.limits.duration("penalty");
        match ending {
            Ending::HtmlRefusal(_) => Some(a_minute),
            Ending::Secondary(refusal) => {
                let announced =
                    refusal.retry_after_secs.map(|secs| now + std::time::Duration::from_secs(secs));
                let reset = (refusal.remaining == Remaining::Zero).then_some(view.reset);
                Some(announced.max(reset).unwrap_or(a_minute))
            }
            _ => None,
        }
    }
}

/// Builds the substitute for a response that was never made, and its transport.
fn instead(
    response: &mut Response<Bytes>,
    struck: &Struck<'_>,
    ending: Ending,
    view: View,
) -> Wire {
    let (now, method) = (struck.now, struck.request.method());
    match ending {
        Ending::Status(canned, _) => replace_response(response, canned, now, method),
        Ending::HtmlRefusal(status) => page(response, status, now, method),
        Ending::Secondary(LimitDenial { remaining: Remaining::Zero, .. }) => {
            set_named(response.headers_mut(), "x-ratelimit-remaining", "0");
            set_named(response.headers_mut(), "x-ratelimit-used", &view.limit.to_string());
        }
        Ending::ResetBefore => return Wire::Reset,
        Ending::Stall(length, _) => {
            replace_response(response, timed_out(), now, method);
            return Wire::HeldBack {
                until: length.map_or(Timestamp::FAR_FUTURE, |length| now + length),
            };
        }
        _ => {}
    }
    Wire::Whole
}

fn secondary(refusal: LimitDenial) -> Reply {
    let LimitDenial { status, retry_after_secs, .. } = refusal;
    ApiError::SecondaryLimit { exceeded: Exceeded::Points, status, retry_after_secs }.into_reply()
}

fn timed_out() -> Canned {
    let body =
        json!({ "message": "The request could not be processed in time." }).to_string().into();
    Canned {
        status: StatusCode::GATEWAY_TIMEOUT,
        content_type: "application/json; charset=utf-8",
        body,
        headers: Vec::new(),
    }
}

/// A proxy in front knows no budgets and ids; the service keeps the common headers.
fn replace_response(
    response: &mut Response<Bytes>,
    canned: Canned,
    now: Timestamp,
    method: &Method,
) {
    if IN_FRONT.contains(&canned.status) {
        response.headers_mut().clear();
    }
    let headers = response.headers_mut();
    for name in [
        header::ETAG,
        header::LAST_MODIFIED,
        header::LINK,
        header::LOCATION,
        header::CONTENT_LENGTH,
        header::RETRY_AFTER,
    ] {
        headers.remove(name);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(canned.content_type));
    set_named(headers, header::DATE.as_str(), &http_date(now));
    for (name, value) in canned.headers {
        headers.insert(name, value);
    }
    *response.status_mut() = canned.status;
    if *method == Method::HEAD {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(canned.body.len()));
        *response.body_mut() = Bytes::new();
    } else {
        *response.body_mut() = canned.body;
    }
}

/// A proxy in front sends no `retry-after` and no budget.
fn page(response: &mut Response<Bytes>, status: StatusCode, now: Timestamp, method: &Method) {
    response.headers_mut().clear();
    let canned = Canned {
        status,
        content_type: HTML,
        body: Bytes::from_static(REFUSAL_PAGE.as_bytes()),
        headers: Vec::new(),
    };
    replace_response(response, canned, now, method);
}

fn put_wire(response: &mut Response<Bytes>, wire: Wire) {
    if wire != Wire::Whole {
        response.extensions_mut().insert(wire);
    }
}

fn distort(response: &mut Response<Bytes>, distortion: Distorted, path: &str) {
    if distortion.reset_shift != 0 {
        let reset = response
            .headers()
            .get("x-ratelimit-reset")
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse().ok());
        if let Some(reset) = reset {
            set_named(
                response.headers_mut(),
                "x-ratelimit-reset",
                &shifted(reset, distortion.reset_shift).to_string(),
            );
        }
        if path == "/rate_limit" {
            shift_resets(response, distortion.reset_shift);
        }
    }
    if distortion.date_shift != 0 {
        let date = response
            .headers()
            .get(header::DATE)
            .and_then(|value| value.to_str().ok())
            .and_then(parse_http_date);
        if let Some(date) = date {
            let wrong = Timestamp::from_secs(shifted(date.as_secs(), distortion.date_shift));
            set_named(response.headers_mut(), header::DATE.as_str(), &http_date(wrong));
        }
    }
}

fn shifted(secs: u64, by: i64) -> u64 {
    secs.saturating_add_signed(by)
}

/// The body of `GET /rate_limit` repeats the headers.
fn shift_resets(response: &mut Response<Bytes>, by: i64) {
    let Ok(mut body) = serde_json::from_slice::<Value>(response.body()) else { return };
    let mut shift = |statement: &mut Value| {
        if let Some(reset) = statement.get("reset").and_then(Value::as_u64) {
            statement["reset"] = json!(shifted(reset, by));
        }
    };
    if let Some(resources) = body.get_mut("resources").and_then(Value::as_object_mut) {
        resources.values_mut().for_each(&mut shift);
    }
    if let Some(rate) = body.get_mut("rate") {
        shift(rate);
    }
    *response.body_mut() = body.to_string().into();
}
