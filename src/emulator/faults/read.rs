//! Parses faults from JSON: `POST /_emulator/faults` and the `faults` of a configuration file
//! (SPECIFICATION, "Emulator"). Seconds are emulator time, which may run faster than real time.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use super::kind::{
    Canned, Distortion, Ending, Execution, Kind, Lag, LimitDenial, Pattern, Remaining,
};
use super::members::{Members, WrongMember};
use super::wire::Framing;
use super::{Condition, FaultSpec};

/// One year: longer times are typing errors.
const SECONDS_MAX: u32 = 366 * 24 * 3_600;
const BODY_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 20;
const NTH_MAX: u64 = 1_000_000;

/// Reads the members of one kind. After an error there, the returned kind is unused.
type ReadKind = fn(&mut Members<'_>) -> Kind;

const KINDS: &[(&str, ReadKind)] = &[
    ("status", status),
    ("stall", stall),
    ("reset_before", |_| Kind::Ending(Ending::ResetBefore)),
    ("reset_after", |_| Kind::Ending(Ending::ResetAfter)),
    ("half_body", half_body),
    ("lost", |_| Kind::Ending(Ending::Lost)),
    ("html_refusal", |members| Kind::Ending(Ending::HtmlRefusal(refusal_status(members)))),
    ("secondary", secondary),
    ("revoke", |_| Kind::Ending(Ending::Revoke)),
    ("reorder", reorder),
    ("wobble", wobble),
    ("clock_offset", clock_offset),
    ("pristine_rate_limit", |_| Kind::Distortion(Distortion::PristineRateLimit)),
    ("stale_read", stale_read),
];

impl FaultSpec {
    /// Parses a fault.
    ///
    /// # Errors
    /// All problems at once.
    pub fn read(given: &Map<String, Value>) -> Result<Self, Vec<WrongMember>> {
        let mut members = Members::of(given);
        let condition = condition(&mut members);
        let Some(read) = members.choice("fault", KINDS) else {
            if !given.contains_key("fault") {
                let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
                members.refuse::<()>("fault", "missing", format!("one of {}", names.join(", ")));
            }
            // Other members may belong to the kind.
            return Err(members.wrong);
        };
        let kind = read(&mut members);
        let wrong = members.finish();
        if wrong.is_empty() {
            Ok(Self { given: given.clone(), condition, kind })
        } else {
            Err(wrong)
        }
    }
}

fn condition(members: &mut Members<'_>) -> Condition {
    let mut inner = members.inner("match");
    let (method, path) = (inner.method("method"), inner.path("path"));
    let account = inner.text("account", 256).map(str::to_owned);
    let token = inner.text("token", 1_024).map(str::to_owned);
    let nth = inner.whole("nth", 1..=NTH_MAX);
    // `nth` selects one request by default.
    let times = inner.whole("times", 1..=NTH_MAX).or(nth.map(|_| 1));
    members.absorb(inner);
    Condition { method, path, account, token, nth: nth.unwrap_or(1), times }
}

fn status(members: &mut Members<'_>) -> Kind {
    let status = members
        .whole("status", 400..=599)
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::BAD_GATEWAY);
    let (content_type, body) = match members.value("body") {
        None => (JSON, json!({ "message": "Server Error" }).to_string()),
        Some(Value::String(text)) => ("text/html; charset=utf-8", text.clone()),
        Some(value @ (Value::Object(_) | Value::Array(_))) => (JSON, value.to_string()),
        Some(_) => {
            members.refuse::<()>("body", "wrong type", "a string, an object or an array");
            (JSON, String::new())
        }
    };
    if body.len() > BODY_BYTES_MAX {
        members.refuse::<()>("body", "too long", format!("at most {BODY_BYTES_MAX} bytes"));
    }
    let canned = Canned { status, content_type, body: body.into(), headers: headers(members) };
    Kind::Ending(Ending::Status(canned, execution(members, Execution::NotExecuted)))
}

const JSON: &str = "application/json; charset=utf-8";

/// Reads extra headers. Headers that frame the body are refused.
fn headers(members: &mut Members<'_>) -> Vec<(HeaderName, HeaderValue)> {
    const ACCEPTED: &str = "an object of at most 20 header names and values, without content-length, transfer-encoding and connection";
    let given = match members.value("headers") {
        None => return Vec::new(),
        Some(Value::Object(given)) if given.len() <= HEADERS_MAX => given,
        Some(_) => {
            members.refuse::<()>("headers", "wrong type or too many", ACCEPTED);
            return Vec::new();
        }
    };
    let framing =
        [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE];
    let read = |(name, value): (&String, &Value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let value = HeaderValue::from_str(value.as_str()?).ok()?;
        (!framing.contains(&name)).then_some((name, value))
    };
    let read: Option<Vec<_>> = given.iter().map(read).collect();
    read.or_else(|| members.refuse("headers", "no header", ACCEPTED)).unwrap_or_default()
}

fn execution(members: &mut Members<'_>, default: Execution) -> Execution {
    match members.flag("executed") {
        Some(true) => Execution::Executed,
        Some(false) => Execution::NotExecuted,
        None => default,
    }
}

fn stall(members: &mut Members<'_>) -> Kind {
    let length = members.seconds("seconds", SECONDS_MAX);
    Kind::Ending(Ending::Stall(length, execution(members, Execution::Executed)))
}

fn half_body(members: &mut Members<'_>) -> Kind {
    let framing =
        if members.flag("chunked") == Some(true) { Framing::Chunked } else { Framing::Length };
    Kind::Ending(Ending::HalfBody(framing))
}

/// A limit answers 403 or 429 (SPECIFICATION, "Errors").
fn refusal_status(members: &mut Members<'_>) -> StatusCode {
    match members.value("status").map(Value::as_u64) {
        Some(Some(429)) => StatusCode::TOO_MANY_REQUESTS,
        None | Some(Some(403)) => StatusCode::FORBIDDEN,
        Some(_) => {
            members.refuse::<()>("status", "unknown value", "403 or 429");
            StatusCode::FORBIDDEN
        }
    }
}

fn secondary(members: &mut Members<'_>) -> Kind {
    let status = refusal_status(members);
    let retry_after_secs = members.whole("retry_after", 1..=u64::from(SECONDS_MAX));
    let remaining = match members.value("remaining").map(Value::as_u64) {
        None => Remaining::Truth,
        Some(Some(0)) => Remaining::Zero,
        Some(_) => members
            .refuse("remaining", "unknown value", "0, or nothing for the truth")
            .unwrap_or(Remaining::Truth),
    };
    Kind::Ending(Ending::Secondary(LimitDenial { status, retry_after_secs, remaining }))
}

fn reorder(members: &mut Members<'_>) -> Kind {
    let after = members.whole("after", 1..=1_000).unwrap_or(1);
    let timeout = members.seconds("seconds", SECONDS_MAX).unwrap_or(Duration::from_secs(10));
    Kind::Ending(Ending::Reorder { after, timeout })
}

fn wobble(members: &mut Members<'_>) -> Kind {
    let seconds = members.whole("seconds", 1..=3_600).unwrap_or(1);
    let pattern = members
        .choice("pattern", &[("random", Pattern::Random), ("alternating", Pattern::Alternating)])
        .unwrap_or(Pattern::Random);
    Kind::Distortion(Distortion::Wobble { seconds, pattern })
}

fn clock_offset(members: &mut Members<'_>) -> Kind {
    let most = i64::from(SECONDS_MAX);
    if members.value("seconds").is_none() {
        let accepted = format!("a whole number from -{most} to {most}");
        members.refuse::<()>("seconds", "missing", accepted);
    }
    let seconds = members.signed("seconds", -most..=most).unwrap_or(0);
    Kind::Distortion(Distortion::ClockOffset { seconds })
}

fn stale_read(members: &mut Members<'_>) -> Kind {
    let reads = members.whole("reads", 1..=NTH_MAX);
    let seconds = members.seconds("seconds", SECONDS_MAX);
    let lag = match (reads, seconds) {
        (None, Some(length)) => Lag::For(length),
        (reads, None) => Lag::Reads(reads.unwrap_or(1)),
        (Some(reads), Some(_)) => {
            members.refuse::<()>("seconds", "beside reads", "either reads or seconds");
            Lag::Reads(reads)
        }
    };
    Kind::Distortion(Distortion::StaleRead(lag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(given: &Value) -> Vec<String> {
        let wrong =
            FaultSpec::read(given.as_object().expect("an object")).err().unwrap_or_default();
        wrong.into_iter().map(|one| one.member).collect()
    }

    #[test]
    fn every_kind_of_fault_is_parsed_by_its_name() {
        for (name, _) in KINDS {
            let given = json!({ "fault": name, "seconds": 1 });
            let spec = FaultSpec::read(given.as_object().expect("an object")).or_else(|_| {
                FaultSpec::read(json!({ "fault": name }).as_object().expect("an object"))
            });
            assert_eq!(spec.expect("without further members").kind.name(), *name);
        }
    }

    #[test]
    fn each_invalid_member_is_named() {
        let cases = [
            (json!({}), vec!["fault"]),
            (json!({ "fault": "flood", "nth": 1 }), vec!["fault"]),
            (json!({ "fault": 5, "match": [] }), vec!["match", "fault"]),
            (
                json!({ "fault": "status", "status": 200, "executed": "yes", "body": 3, "headers": [] }),
                vec!["status", "executed", "body", "headers"],
            ),
            (
                json!({ "fault": "status", "status": 600, "headers": { "content-length": "1" } }),
                vec!["status", "headers"],
            ),
            (
                json!({ "fault": "status", "body": "x".repeat(70_000), "headers": { "a b": "1" } }),
                vec!["body", "headers"],
            ),
            (json!({ "fault": "status", "seconds": 1 }), vec!["seconds"]),
            (
                json!({ "fault": "stall", "seconds": "long", "executed": 1 }),
                vec!["seconds", "executed"],
            ),
            (json!({ "fault": "stall", "seconds": 1e300 }), vec!["seconds"]),
            (json!({ "fault": "half_body", "chunked": "yes" }), vec!["chunked"]),
            (
                json!({ "fault": "secondary", "retry_after": 0, "remaining": 1, "status": 404 }),
                vec!["status", "retry_after", "remaining"],
            ),
            (json!({ "fault": "html_refusal", "status": "403" }), vec!["status"]),
            (json!({ "fault": "reorder", "after": 0, "seconds": -1 }), vec!["after", "seconds"]),
            (
                json!({ "fault": "wobble", "seconds": 0.5, "pattern": "wild" }),
                vec!["seconds", "pattern"],
            ),
            (json!({ "fault": "clock_offset" }), vec!["seconds"]),
            (json!({ "fault": "clock_offset", "seconds": 99_999_999_999_u64 }), vec!["seconds"]),
            (json!({ "fault": "stale_read", "reads": 1, "seconds": 1 }), vec!["seconds"]),
            (
                json!({ "fault": "lost", "match": { "method": "G T", "path": "", "nth": 0, "times": -1, "account": 1, "token": [], "x": 1 } }),
                vec![
                    "match.method",
                    "match.path",
                    "match.account",
                    "match.token",
                    "match.nth",
                    "match.times",
                    "match.x",
                ],
            ),
        ];
        for (given, expected) in cases {
            let mut expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            let mut found = wrong(&given);
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{given}");
        }
    }
}
