//! The status resource of a write as JSON (SPECIFICATION, "Asynchronous writes"). The admin
//! listener shows the same.

use std::collections::BTreeMap;

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
    /// Renders the status resource of a write. URLs in its answer take the form of this client;
    /// without an origin they stay as the upstream wrote them.
    pub fn write_status(&self, listed: Listed, origin: Option<&Origin>) -> Bytes {
        let Listed { write, progress } = listed;
        let response = progress.response.map(|response| match origin {
            Some(origin) => {
                let root = if write.shape == Shape::V3 { Root::V3 } else { origin.root };
                let origin = Origin { base: origin.base.clone(), root };
                self.reply_from_kept(*response, &origin).in_one_piece()
            }
            None => Reply {
                status: response.status,
                headers: response.headers,
                body: ReplyBody::Whole(response.body.unwrap_or_default()),
            },
        });
        let status = StatusBody {
            id: write.id.to_string(),
            state: progress.state,
            method: write.method.as_str(),
            path: &write.target(),
            client: &write.client,
            account: &write.account,
            attempts: progress.attempts,
            times: Times {
                accepted_at: write.accepted.rfc3339_past(),
                not_before: (!progress.state.is_final()).then(|| progress.not_before.rfc3339()),
                finished_at: progress.finished.map(Timestamp::rfc3339_past),
            },
            reason: progress.reason.as_ref().map(|reason| &*reason.word),
            message: progress.reason.as_ref().map(|reason| &*reason.message),
            response: response.as_ref().map(ResponseStatus::of),
        };
        // Strings and numbers always serialize, and an embedded answer is JSON already.
        Bytes::from(serde_json::to_vec(&status).unwrap_or_default())
    }
}

#[derive(Serialize)]
struct StatusBody<'w> {
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

/// JSON as it is, text as a string, anything else as Base64 in an object.
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
        let body: &[u8] = match &reply.body {
            ReplyBody::Whole(body) => body,
            ReplyBody::Rendered(_) | ReplyBody::Streamed { .. } => &[],
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
