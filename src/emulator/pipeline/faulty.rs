//! An exchange under faults: the partial execution, the replaced response and the transcript entry.
//!
//! Limits apply before a fault strikes, so that requests sent despite a denial count, whatever
//! becomes of their responses.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use super::arrival::Incoming;
use super::response::set_named;
use crate::clock::Timestamp;
use crate::emulator::accounts::Caller;
use crate::emulator::faults::wire::{Departure, Wire};
use crate::emulator::faults::{
    Canned, Distorted, Ending, Execution, FaultCandidate, FaultId, LimitDenial, Remaining, Strike,
};
use crate::emulator::http::{ApiError, Reply, http_date, parse_http_date};
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

impl State {
    pub(super) fn exchange_under_faults(
        &mut self,
        incoming: &Incoming<'_>,
    ) -> (Response<Bytes>, Departure) {
        if self.faults.is_idle() {
            return (self.exchange(incoming), Departure::Unwatched);
        }
        let Strike { ending, distortion, names } = self.strike(incoming);
        self.faults.distortion = distortion;
        let mut response = match ending {
            Some((fault, ending)) => match ending.execution() {
                Execution::NotExecuted => self.end_before(incoming, fault, ending),
                Execution::Executed => self.end_after(incoming, fault, ending),
            },
            None => self.exchange(incoming),
        };
        self.faults.distortion = Distorted::default();
        distort(&mut response, distortion, incoming.canonical.path);
        let Some(entry) = self.transcript.last_mut() else {
            return (response, Departure::Unwatched);
        };
        entry.fault = (!names.is_empty()).then(|| names.join("+"));
        let departure = self.faults.holds.arrived(incoming.id, &entry.account);
        (response, departure)
    }

    fn strike(&mut self, incoming: &Incoming<'_>) -> Strike {
        let caller = self.known_caller(incoming);
        let account = self.world.account_name(caller.account);
        self.faults.strike(&FaultCandidate {
            method: incoming.request.method(),
            path: incoming.canonical.path,
            caller: &caller,
            account: &account,
        })
    }

    fn known_caller(&self, incoming: &Incoming<'_>) -> Caller {
        self.credential(incoming).unwrap_or_else(|_| Caller::anonymous(incoming.peer))
    }

    fn end_after(
        &mut self,
        incoming: &Incoming<'_>,
        fault: FaultId,
        ending: Ending,
    ) -> Response<Bytes> {
        let Incoming { id, now, .. } = *incoming;
        if ending == Ending::Revoke {
            let caller = self.known_caller(incoming);
            self.faults.revoke(&caller);
        }
        let mut response = self.exchange(incoming);
        let wire = match ending {
            Ending::Status(canned, _) => {
                self.withhold(id);
                replace_response(&mut response, canned, incoming);
                if let Some(entry) = self.transcript.last_mut() {
                    entry.status = response.status().as_u16();
                }
                Wire::Whole
            }
            Ending::ResetAfter => self.unsent(id, Wire::Reset),
            Ending::Lost => self.unsent(id, Wire::Lost),
            Ending::HalfBody(framing) => Wire::Half(framing),
            Ending::Stall(length, _) => {
                let wire = held_back(now, length);
                self.stall(id, fault, wire);
                wire
            }
            Ending::Reorder { after, timeout } => {
                let until = now + timeout;
                let account = self.transcript.last().map_or("", |entry| entry.account.as_str());
                self.faults.holds.reorder(id, fault, until, account, after);
                Wire::HeldBack { until }
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

    fn stall(&mut self, id: RequestId, fault: FaultId, wire: Wire) {
        if let Wire::HeldBack { until } = wire {
            self.faults.holds.stall(id, fault, until);
        }
    }

    /// Marks the response as undelivered; the caller does not know of a denial in it.
    pub fn withhold(&mut self, id: RequestId) {
        self.announcing.remove(&id);
        self.secondary.withhold_denial(id);
    }

    /// The request takes a concurrency slot and no other budget.
    fn end_before(
        &mut self,
        incoming: &Incoming<'_>,
        fault: FaultId,
        ending: Ending,
    ) -> Response<Bytes> {
        let Incoming { id, now, .. } = *incoming;
        let caller = self.known_caller(incoming);
        let path = self.routed_path(incoming.canonical);
        let demand = self.demand(incoming, &path);
        let denial = self.check(now, &caller, &demand).err();
        let was_announced =
            denial.is_some_and(|denial| self.was_announced(&caller, &demand, &denial));
        let context = self.context(incoming, &caller, &demand.target);
        let mut entry = self.entry(&context, &demand);
        let view = self.view(now, caller.account, demand.resource);
        let reply = match ending {
            Ending::Secondary(LimitDenial { status, retry_after_secs, .. }) => {
                let exceeded = Exceeded::Points;
                ApiError::SecondaryLimit { exceeded, status, retry_after_secs }.into_reply()
            }
            _ => Reply::empty(StatusCode::BAD_GATEWAY),
        };
        let mut response = reply.into_response(&context);
        self.write_rate_headers(now, caller.account, demand.resource, response.headers_mut());
        if let Some(until) = self.refuses_until(now, &ending, view) {
            entry.refused = Some("fault");
            self.denial_counts.denied_secondary += 1;
            self.secondary.begin_denied(id, caller.account, until);
        } else {
            let weight = Weight {
                points: 0,
                content: Content::None,
                tokens: TokenRequest::No,
                ..demand.weight
            };
            self.secondary.begin(id, caller.account, weight);
        }
        if was_announced {
            self.note_sent_while_limited(caller.account);
        }
        let wire = instead(&mut response, incoming, ending, view);
        // A response that is never sent has no status.
        entry.status = if wire == Wire::Reset { 0 } else { response.status().as_u16() };
        self.transcript.push(entry);
        put_wire(&mut response, wire);
        self.stall(id, fault, wire);
        response
    }

    /// The later of two given times applies (SPECIFICATION, "After a limit").
    fn refuses_until(&self, now: Timestamp, ending: &Ending, view: View) -> Option<Timestamp> {
        let a_minute = now + self.limits.duration("penalty");
        match ending {
            Ending::HtmlRefusal(_) => Some(a_minute),
            Ending::Secondary(denial) => {
                let announced = denial.retry_after_secs.map(|secs| now + Duration::from_secs(secs));
                let reset = (denial.remaining == Remaining::Zero).then_some(view.reset);
                Some(announced.max(reset).unwrap_or(a_minute))
            }
            _ => None,
        }
    }
}

/// Builds the substitute for a response that was never made, and its transport.
fn instead(
    response: &mut Response<Bytes>,
    incoming: &Incoming<'_>,
    ending: Ending,
    view: View,
) -> Wire {
    match ending {
        Ending::Status(canned, _) => replace_response(response, canned, incoming),
        Ending::HtmlRefusal(status) => {
            // A proxy in front sends no `retry-after` and no budget.
            response.headers_mut().clear();
            let body = Bytes::from_static(REFUSAL_PAGE.as_bytes());
            let canned = Canned { status, content_type: HTML, body, headers: Vec::new() };
            replace_response(response, canned, incoming);
        }
        Ending::Secondary(LimitDenial { remaining: Remaining::Zero, .. }) => {
            set_named(response.headers_mut(), "x-ratelimit-remaining", "0");
            set_named(response.headers_mut(), "x-ratelimit-used", &view.limit.to_string());
        }
        Ending::ResetBefore => return Wire::Reset,
        Ending::Stall(length, _) => {
            replace_response(response, timed_out(), incoming);
            return held_back(incoming.now, length);
        }
        _ => {}
    }
    Wire::Whole
}

/// Without a length, for ever.
fn held_back(now: Timestamp, length: Option<Duration>) -> Wire {
    Wire::HeldBack { until: length.map_or(Timestamp::FAR_FUTURE, |length| now + length) }
}

fn timed_out() -> Canned {
    let body = json!({ "message": "The request could not be processed in time." });
    Canned {
        status: StatusCode::GATEWAY_TIMEOUT,
        content_type: "application/json; charset=utf-8",
        body: body.to_string().into(),
        headers: Vec::new(),
    }
}

/// A proxy in front knows no budgets and ids; the service keeps the common headers.
fn replace_response(response: &mut Response<Bytes>, canned: Canned, incoming: &Incoming<'_>) {
    *response.status_mut() = canned.status;
    let headers = response.headers_mut();
    if IN_FRONT.contains(&canned.status) {
        headers.clear();
    }
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
    set_named(headers, header::DATE.as_str(), &http_date(incoming.now));
    for (name, value) in canned.headers {
        headers.insert(name, value);
    }
    let is_head = incoming.request.method() == Method::HEAD;
    if is_head {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(canned.body.len()));
    }
    *response.body_mut() = if is_head { Bytes::new() } else { canned.body };
}

fn put_wire(response: &mut Response<Bytes>, wire: Wire) {
    if wire != Wire::Whole {
        response.extensions_mut().insert(wire);
    }
}

fn distort(response: &mut Response<Bytes>, distortion: Distorted, path: &str) {
    let Distorted { reset_shift, date_shift, .. } = distortion;
    let headers = response.headers_mut();
    let text = |headers: &HeaderMap, name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    if date_shift != 0
        && let Some(date) =
            text(headers, header::DATE.as_str()).and_then(|text| parse_http_date(&text))
    {
        let wrong = Timestamp::from_secs(shifted(date.as_secs(), date_shift));
        set_named(headers, header::DATE.as_str(), &http_date(wrong));
    }
    if reset_shift != 0 {
        if let Some(reset) = text(headers, "x-ratelimit-reset").and_then(|text| text.parse().ok()) {
            let wrong = shifted(reset, reset_shift).to_string();
            set_named(headers, "x-ratelimit-reset", &wrong);
        }
        if path == "/rate_limit" {
            shift_resets(response, reset_shift);
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
