//! Admission to the control plane: its addresses with their methods, and no access for pages of
//! other sites.
//!
//! A page that a developer visits can make the browser send simple requests to `127.0.0.1`.
//! Browsers mark such requests, and they are refused; other clients send no such marks and are
//! served. Responses carry no CORS headers, so a page cannot read them either.

use bytes::Bytes;
use http::{HeaderName, Request, StatusCode, header};

use super::ControlResult;

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

pub fn is_cross_site(request: &Request<Bytes>) -> bool {
    let sent =
        |name: HeaderName| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    // Fetch Metadata: `none` is a person who typed the address.
    if sent(HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|site| !matches!(site, "same-origin" | "none"))
    {
        return true;
    }
    let Some(origin) = sent(header::ORIGIN) else { return false };
    let own = sent(header::HOST)
        .or_else(|| request.uri().authority().map(http::uri::Authority::as_str))
        .unwrap_or("");
    origin.split_once("://").map(|(_, authority)| authority) != Some(own)
}
