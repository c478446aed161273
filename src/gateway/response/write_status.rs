//! The status resource of a write as JSON (SPECIFICATION, "Asynchronous writes"). The admin
//! listener shows the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Serialize;

use crate::clock::Timestamp;
use crate::gateway::address::Root;
use crate::gateway::response::enclosed::{Enclosed, Enclosing};
use crate::gateway::response::responder::Responder;
use crate::gateway::url_rewrite::map::Origin;
use crate::gateway::url_rewrite::rendering::Rendering;
use crate::gateway::write::queue::Listed;
use crate::writes::WriteState;
use crate::writes::record::{Response, Shape};

/// The end of a status with an answer: the place of its body, and the objects around it.
const END: &str = "null}}";

impl Responder {
    /// Renders the status resource of a write. URLs in its answer take the form of this client;
    /// without an origin they stay as the upstream wrote them. A long answer is rendered as it is
    /// sent.
    pub fn write_status(&self, listed: Listed, origin: Option<&Origin>) -> Enclosed {
        let Listed { write, progress } = listed;
        let (response, body) = progress.response.map_or((None, None), |response| {
            let Response { status, mut headers, body } = *response;
            let bytes = body.unwrap_or_default();
            let (form, is_empty) = (Enclosing::of(&bytes), bytes.is_empty());
            let (body, length) = if let Some(origin) = origin {
                let root = if write.shape == Shape::V3 { Root::V3 } else { origin.root };
                let origin = Origin { base: origin.base.clone(), root };
                let body = self.body_of_kept(&mut headers, bytes);
                self.rewrite_addresses(&mut headers, &origin);
                let rendering = || self.env.urls.rendering(&body, &origin);
                (rendering(), form.length(rendering()))
            } else {
                let rendering = || Rendering::opaque(bytes.clone());
                (rendering(), form.length(rendering()))
            };
            let body = (!is_empty).then_some((form, body, length));
            (Some(ResponseStatus::of(status, &headers)), body)
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
            response,
        };
        // Strings and numbers always serialize.
        let status = serde_json::to_string(&status).unwrap_or_default();
        if let (Some((form, body, length)), Some(begin)) = (body, status.strip_suffix(END)) {
            let (open, close) = form.brackets();
            let before = Bytes::from([begin, open].concat());
            return Enclosed::new(before, body, form, length, [close, "}}"].concat().into());
        }
        let nothing = Rendering::opaque(Bytes::new());
        Enclosed::new(status.into(), nothing, Enclosing::Json, 0, Bytes::new())
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
    response: Option<ResponseStatus>,
}

#[derive(Serialize)]
struct Times {
    accepted_at: String,
    not_before: Option<String>,
    finished_at: Option<String>,
}

#[derive(Serialize)]
struct ResponseStatus {
    status: u16,
    headers: BTreeMap<String, String>,
    /// Nothing here: JSON as it is, text as a string, anything else as Base64 in an object.
    body: (),
}

impl ResponseStatus {
    fn of(status: StatusCode, lines: &HeaderMap) -> Self {
        let mut headers = BTreeMap::<String, String>::new();
        for (name, value) in lines {
            let value = String::from_utf8_lossy(value.as_bytes());
            let line = headers.entry(name.as_str().to_owned()).or_default();
            *line = if line.is_empty() { value.into_owned() } else { format!("{line}, {value}") };
        }
        Self { status: status.as_u16(), headers, body: () }
    }
}
