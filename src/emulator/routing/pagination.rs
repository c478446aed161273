//! Numbered pages and the `Link` header (SPECIFICATION, "Conventions").

use http::{HeaderName, HeaderValue, header};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use serde_json::Value;

use super::call::Call;
use crate::emulator::http::Reply;

/// The documented defaults of `per_page`.
pub const USUAL: Caps = Caps { default: 30, max: 100 };
/// `per_page` of notifications (SPECIFICATION, "Notifications").
pub const NOTIFICATIONS: Caps = Caps { default: 50, max: 50 };

#[derive(Clone, Copy, Debug)]
pub struct Caps {
    pub default: usize,
    pub max: usize,
}

/// A malformed number counts as absent; a page beyond the end is empty.
pub fn page<T>(call: &Call<'_>, caps: Caps, items: Vec<T>, render: impl Fn(T) -> Value) -> Reply {
    let (shown, link) = cut(call, caps, items);
    let mut reply = Reply::ok(Value::Array(shown.into_iter().map(render).collect()));
    reply.headers.extend(link);
    reply
}

/// Returns the items of the requested page, and the `Link` header if there is more than one page.
pub fn cut<T>(
    call: &Call<'_>,
    caps: Caps,
    items: Vec<T>,
) -> (Vec<T>, Option<(HeaderName, HeaderValue)>) {
    let per_page = per_page(call, caps);
    let page =
        call.query.get("page").and_then(|given| given.parse::<usize>().ok()).unwrap_or(1).max(1);
    let last = items.len().div_ceil(per_page).max(1);
    let link = link(call, page, last);
    let shown =
        items.into_iter().skip((page - 1).saturating_mul(per_page)).take(per_page).collect();
    (shown, link)
}

pub fn per_page(call: &Call<'_>, caps: Caps) -> usize {
    let requested = call.query.get("per_page").and_then(|given| given.parse::<usize>().ok());
    requested.filter(|size| *size > 0).unwrap_or(caps.default).min(caps.max)
}

fn link(call: &Call<'_>, page: usize, last: usize) -> Option<(HeaderName, HeaderValue)> {
    let mut relations = Vec::new();
    if page > 1 {
        // Beyond the end, "prev" leads back to the last page with items.
        relations.push(("prev", (page - 1).min(last)));
    }
    if page < last {
        relations.push(("next", page + 1));
        relations.push(("last", last));
    }
    if page > 1 {
        relations.push(("first", 1));
    }
    let entries: Vec<(&str, String)> = relations
        .into_iter()
        .map(|(relation, page)| (relation, address(call, "page", &page.to_string())))
        .collect();
    header(&entries)
}

/// One line, because clients read only one (SPECIFICATION, "Client libraries" 1).
pub fn header(entries: &[(&str, String)]) -> Option<(HeaderName, HeaderValue)> {
    if entries.is_empty() {
        return None;
    }
    let line: Vec<String> = entries
        .iter()
        .map(|(relation, address)| format!("<{address}>; rel=\"{relation}\""))
        .collect();
    // The path may contain characters that are illegal in a header.
    let line = utf8_percent_encode(&line.join(", "), CONTROLS).to_string();
    HeaderValue::from_str(&line).ok().map(|value| (header::LINK, value))
}

pub fn address(call: &Call<'_>, name: &str, value: &str) -> String {
    let given = call
        .raw_query
        .unwrap_or("")
        .split('&')
        .filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(name));
    let mut pairs: Vec<String> = given.map(str::to_owned).collect();
    pairs.push(format!("{name}={value}"));
    format!("{}{}?{}", call.urls.api, call.requested_path, pairs.join("&"))
}
