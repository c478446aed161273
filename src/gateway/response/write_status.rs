//! The status resource of a write, as JSON (CONTRACT §3).
//!
//! An answer's body stands in it as it is where it is JSON itself. Operators are told the same
//! (CONTRACT §5).

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::gateway::address::Root;
use crate::gateway::response::reply::{Reply, ReplyBody};
use crate::gateway::response::responder::Responder;
use crate::gateway::url_rewrite::map::Origin;
use crate::gateway::write::queue::Listed;
use crate::writes::WriteState;
use crate::writes::record::Shape;

impl Responder {
    /// A write as the status resource tells it; the answer's addresses as this client, or else the
    /// upstream, writes them.
    pub fn write_status(&self, listed: Listed, origin: Option<&Origin>) -> Bytes {
        let Listed { write, progress } = listed;
        let response = progress.response.map(|response| match origin {
            Some(origin) => {
                let root = if write.shape == Shape::V3 { Root::V3 } else { origin.root };
                self.reply_from_kept(*response, &Origin { base: origin.base.clone(), root })
            }
            None => Reply {
                status: response.status,
                headers: response.headers,
                body: ReplyBody::Whole(response.body.unwrap_or_default()),
            },
        });
        let status = WriteStatus {
            id: write.id.to_string(),
            state: progress.state,
            method: write.method.as_str(),
            path: &write.target(),
            client: &write.client,
            account: &write.account,
            attempts: progress.attempts,
            times: Times {
                accepted_at: past(write.accepted),
                not_before: (!progress.state.is_final()).then(|| progress.not_before.rfc3339()),
                finished_at: progress.finished.map(past),
            },
            reason: progress.reason.as_ref().map(|reason| &*reason.word),
            message: progress.reason.as_ref().map(|reason| &*reason.message),
            response: response.as_ref().map(ResponseStatus::of),
        };
        // Texts and numbers always make JSON, and the answer's own is JSON where it stands as it
        // is.
        Bytes::from(serde_json::to_vec(&status).unwrap_or_default())
    }
}

/// The status resource (CONTRACT §3, and what else helps).
#[derive(Serialize)]
struct WriteStatus<'w> {
    id: String,
    state: WriteState,
    method: &'w str,
    path: &'w str,
    client: &'w str,
    account: &'w str,
    attempts: u32,
    #[serde(flatten)]
    times: Times,
    reason: Option<&'w str>,
    message: Option<&'w str>,
    response: Option<ResponseStatus<'w>>,
}

#[derive(Serialize)]
struct Times {
    accepted_at: String,
    not_before: Option<String>,
    finished_at: Option<String>,
}

#[derive(Serialize)]
struct ResponseStatus<'w> {
    status: u16,
    headers: BTreeMap<&'w str, String>,
    body: ResponseBody<'w>,
}

/// JSON as it is, a text as a string, anything else in Base64 in an object.
#[derive(Serialize)]
#[serde(untagged)]
enum ResponseBody<'w> {
    Json(&'w RawValue),
    Text(&'w str),
    Bytes { base64: String },
    None,
}

impl<'w> ResponseStatus<'w> {
    fn of(reply: &'w Reply) -> Self {
        let ReplyBody::Whole(body) = &reply.body else {
            return Self {
                status: reply.status.as_u16(),
                headers: BTreeMap::new(),
                body: ResponseBody::None,
            };
        };
        let mut headers = BTreeMap::<_, String>::new();
        for (name, value) in &reply.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            let status = headers.entry(name.as_str()).or_default();
            *status =
                if status.is_empty() { value.into_owned() } else { format!("{status}, {value}") };
        }
        let body = match (serde_json::from_slice(body), std::str::from_utf8(body)) {
            _ if body.is_empty() => ResponseBody::None,
            (Ok(json), _) => ResponseBody::Json(json),
            (Err(_), Ok(text)) => ResponseBody::Text(text),
            (Err(_), Err(_)) => ResponseBody::Bytes { base64: BASE64_STANDARD.encode(body) },
        };
        Self { status: reply.status.as_u16(), headers, body }
    }
}

/// What has happened has not happened later than now: rounded down.
fn past(at: Timestamp) -> String {
    (at - Duration::from_millis(999)).rfc3339()
}
