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
    pub fn told(&self, listed: Listed, origin: Option<&Origin>) -> Bytes {
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
        let told = Told {
            id: write.id.to_string(),
            state: progress.state,
            method: write.method.as_str(),
            path: &write.target(),
            client: &write.client,
            account: &write.account,
            attempts: progress.attempts,
            accepted_at: past(write.accepted),
            not_before: (!progress.state.is_final()).then(|| progress.not_before.rfc3339()),
            finished_at: progress.finished.map(past),
            reason: progress.reason.as_ref().map(|reason| &*reason.word),
            message: progress.reason.as_ref().map(|reason| &*reason.message),
            response: response.as_ref().map(TellResponse::of),
        };
        // Texts and numbers always make JSON, and the answer's own is JSON where it stands as it
        // is.
        Bytes::from(serde_json::to_vec(&told).unwrap_or_default())
    }
}

/// The status resource (CONTRACT §3, and what else helps).
#[derive(Serialize)]
struct Told<'w> {
    id: String,
    state: WriteState,
    method: &'w str,
    path: &'w str,
    client: &'w str,
    account: &'w str,
    attempts: u32,
    accepted_at: String,
    not_before: Option<String>,
    finished_at: Option<String>,
    reason: Option<&'w str>,
    message: Option<&'w str>,
    response: Option<TellResponse<'w>>,
}

#[derive(Serialize)]
struct TellResponse<'w> {
    status: u16,
    headers: BTreeMap<&'w str, String>,
    body: TellBody<'w>,
}

/// JSON as it is, a text as a string, anything else in Base64 in an object.
#[derive(Serialize)]
#[serde(untagged)]
enum TellBody<'w> {
    Json(&'w RawValue),
    Text(&'w str),
    Bytes { base64: String },
    None,
}

impl<'w> TellResponse<'w> {
    fn of(reply: &'w Reply) -> Self {
        let ReplyBody::Whole(body) = &reply.body else {
            return Self {
                status: reply.status.as_u16(),
                headers: BTreeMap::new(),
                body: TellBody::None,
            };
        };
        let mut headers = BTreeMap::<_, String>::new();
        for (name, value) in &reply.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            let told = headers.entry(name.as_str()).or_default();
            *told = if told.is_empty() { value.into_owned() } else { format!("{told}, {value}") };
        }
        let body = match (serde_json::from_slice(body), std::str::from_utf8(body)) {
            _ if body.is_empty() => TellBody::None,
            (Ok(json), _) => TellBody::Json(json),
            (Err(_), Ok(text)) => TellBody::Text(text),
            (Err(_), Err(_)) => TellBody::Bytes { base64: BASE64_STANDARD.encode(body) },
        };
        Self { status: reply.status.as_u16(), headers, body }
    }
}

/// What has happened has not happened later than now: rounded down.
fn past(at: Timestamp) -> String {
    (at - Duration::from_millis(999)).rfc3339()
}
