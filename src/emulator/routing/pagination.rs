//! Pages by number, and the `Link` header that leads to the others (Document 1, Page-number
//! pagination).

use http::{HeaderName, HeaderValue, header};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use serde_json::Value;

use super::call::Call;
use crate::emulator::http::Reply;

/// Document 1: "`per_page` (integer, max 100, default 30)".
pub const USUAL: Caps = Caps { default: 30, max: 100 };
/// Document 2: "`per_page` (max 50, default 50)".
pub const NOTIFICATIONS: Caps = Caps { default: 50, max: 50 };

/// How many items a page may have.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    pub default: usize,
    pub max: usize,
}

/// One page of a list that is already in its order. What is not a number counts as absent; a page
/// beyond the end is empty.
pub fn page<T>(call: &Call<'_>, caps: Caps, items: Vec<T>, render: impl Fn(T) -> Value) -> Reply {
    let (shown, link) = cut(call, caps, items);
    let mut reply = Reply::ok(Value::Array(shown.into_iter().map(render).collect()));
    reply.headers.extend(link);
    reply
}

/// The items of the page asked for, and the `Link` header if there is more than one page.
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

/// The page size asked for, within its caps.
pub fn per_page(call: &Call<'_>, caps: Caps) -> usize {
    let requested = call.query.get("per_page").and_then(|given| given.parse::<usize>().ok());
    requested.filter(|size| *size > 0).unwrap_or(caps.default).min(caps.max)
}

fn link(call: &Call<'_>, page: usize, last: usize) -> Option<(HeaderName, HeaderValue)> {
    let mut relations = Vec::new();
    if page > 1 {
        // Beyond the end, "prev" leads back to where there is something.
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

/// A `Link` header of these relations, in one line (CLIENTS.md, 1); none when there are none.
pub fn header(entries: &[(&str, String)]) -> Option<(HeaderName, HeaderValue)> {
    if entries.is_empty() {
        return None;
    }
    let line: Vec<String> = entries
        .iter()
        .map(|(relation, address)| format!("<{address}>; rel=\"{relation}\""))
        .collect();
    // A path may have been sent with characters that no header takes.
    let line = utf8_percent_encode(&line.join(", "), CONTROLS).to_string();
    HeaderValue::from_str(&line).ok().map(|value| (header::LINK, value))
}

/// This request's own address with one parameter of its query replaced.
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
