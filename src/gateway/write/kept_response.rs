//! The answer to a write as the queue keeps it.

use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::environment::Environment;
use crate::gateway::http::headers::{remove_digests, to_client};
use crate::gateway::http::media_type::is_json;
use crate::gateway::url_rewrite::map::blank_secrets;
use crate::writes::record::Response;
use bytes::Bytes;
use http::header::{self, HeaderValue};

/// The stored form of a queued write's answer: without credentials, with the upstream's URLs.
pub fn kept_response(env: &Environment, answer: Answer) -> Response {
    let mut headers = to_client(&answer.headers, env.mode);
    let body = match answer.body {
        AnswerBody::Whole(bytes) if is_json(&answer.headers) => {
            let blanked = blank_secrets(&bytes);
            if blanked != bytes {
                remove_digests(&mut headers);
            }
            Some(blanked)
        }
        AnswerBody::Whole(bytes) => Some(bytes),
        AnswerBody::SharedBody { .. } => {
            for name in [header::CONTENT_ENCODING, header::ETAG, header::CONTENT_RANGE] {
                headers.remove(name);
            }
            remove_digests(&mut headers);
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json; charset=utf-8"),
            );
            Some(Bytes::from_static(br#"{"message":"The upstream's answer was longer than this gateway keeps (cache.max_object)."}"#))
        }
    };
    Response { status: answer.status, headers, body }
}
