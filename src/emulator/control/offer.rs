//! Admission to the control plane: its addresses with their methods, and no access for pages of
//! other sites.
//!
//! A page that a developer visits can make the browser send simple requests to `127.0.0.1`.
//! Browsers mark such requests, and they are refused; other clients send no such marks and are
//! served. Responses carry no CORS headers, so a page cannot read them either.

use bytes::Bytes;
use http::{Method, Request, StatusCode};

use super::{ControlResult, JsonReply};
use crate::cross_site;
use crate::emulator::http::path;

/// Each address with its methods; `{id}` matches any segment.
const OFFERED: &[(&[&str], &[&str])] = &[
    (&["world"], &["GET"]),
    (&["transcript"], &["GET"]),
    (&["books"], &["GET"]),
    (&["limits"], &["GET", "PUT"]),
    (&["gates"], &["GET", "POST", "DELETE"]),
    (&["gates", "{id}"], &["GET", "DELETE"]),
    (&["faults"], &["GET", "POST", "DELETE"]),
    (&["faults", "{id}"], &["GET", "DELETE"]),
    (&["events"], &["POST"]),
    (&["tokens"], &["POST"]),
    (&["migrations", "{id}"], &["POST"]),
    (&["seed"], &["GET", "POST"]),
    (&["reset"], &["POST"]),
];

pub fn methods(segments: &[&str]) -> Option<&'static [&'static str]> {
    let is_it = |template: &[&str]| {
        let mut pairs = template.iter().zip(segments);
        template.len() == segments.len()
            && pairs.all(|(wanted, given)| *wanted == "{id}" || wanted == given)
    };
    OFFERED.iter().find(|(template, _)| is_it(template)).map(|(_, methods)| *methods)
}

/// The names that the query of a control may have.
pub fn queries(method: &str, segments: &[&str]) -> &'static [&'static str] {
    match (method, segments) {
        ("GET", ["transcript"]) => &["since", "limit"],
        ("GET", ["gates", _]) => &["held"],
        ("GET", ["faults", _]) => &["struck"],
        _ => &[],
    }
}

pub fn has(method: &str, segments: &[&str]) -> bool {
    methods(segments).is_some_and(|methods| methods.contains(&method))
}

/// Refuses with 405 where other methods exist, else with 404.
pub fn refuse(segments: &[&str]) -> ControlResult {
    if let Some(methods) = methods(segments) {
        let message = format!("this control takes {}", methods.join(" or "));
        return super::refuse(StatusCode::METHOD_NOT_ALLOWED, &message);
    }
    let mut names: Vec<&str> =
        OFFERED.iter().filter_map(|(template, _)| template.first().copied()).collect();
    names.dedup();
    let message = format!("there is no such control; see {}", names.join(", "));
    super::refuse(StatusCode::NOT_FOUND, &message)
}

/// Refuses requests that a page of another site may have caused.
pub fn admit(request: &Request<Bytes>, segments: &[&str]) -> Result<(), JsonReply> {
    let (uri, headers) = (request.uri(), request.headers());
    if path::has_foreign_host(request) {
        let message = "the control plane is reached by an IP address or as localhost";
        return super::refuse(StatusCode::FORBIDDEN, message);
    }
    if cross_site::is_of_foreign_page(uri, headers, "http") {
        let message = "pages of other sites may not use the control plane";
        return super::refuse(StatusCode::FORBIDDEN, message);
    }
    // A page cannot send this type without a preflight, which is not granted.
    let is_json = match cross_site::media_type(headers).as_deref() {
        None => request.body().is_empty(),
        Some(media_type) => media_type == "application/json",
    };
    if request.method() == Method::POST && has("POST", segments) && !is_json {
        let message = "the body of a POST to the control plane has Content-Type: application/json";
        return super::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    Ok(())
}
