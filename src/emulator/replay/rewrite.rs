//! Rewrites recorded addresses to the emulator's: in JSON strings that are addresses, in `Link` and
//! in `Location`.

use http::header::{LINK, LOCATION};
use http::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::emulator::http::Urls;

/// The recorded hosts that the emulator replaces.
const API: &str = "https://api.github.com";
const UPLOADS: &str = "https://uploads.github.com";

/// Rewrites every string that begins with a recorded address. Text that only mentions one stays.
pub fn json(value: &mut Value, urls: &Urls) {
    match value {
        Value::String(text) => {
            if let Some(rewritten) = address(text, urls) {
                *text = rewritten;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| json(item, urls)),
        Value::Object(members) => members.values_mut().for_each(|member| json(member, urls)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

pub fn header(name: &HeaderName, value: &mut HeaderValue, urls: &Urls) {
    let Ok(text) = value.to_str() else { return };
    let rewritten = match *name {
        LOCATION => address(text, urls),
        LINK => Some(link(text, urls)),
        _ => None,
    };
    if let Some(rewritten) = rewritten.and_then(|text| HeaderValue::from_str(&text).ok()) {
        *value = rewritten;
    }
}

fn link(line: &str, urls: &Urls) -> String {
    let mut pieces = line.split('<');
    let mut rewritten = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        rewritten.push('<');
        rewritten.push_str(&address(piece, urls).unwrap_or_else(|| piece.to_owned()));
    }
    rewritten
}

fn address(text: &str, urls: &Urls) -> Option<String> {
    let (rest, base) = text
        .strip_prefix(API)
        .map(|rest| (rest, &urls.api))
        .or_else(|| text.strip_prefix(UPLOADS).map(|rest| (rest, &urls.uploads)))?;
    // `https://api.github.com.example.org` is another host.
    let ends_here = !rest
        .starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '@'));
    ends_here.then(|| format!("{base}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls() -> Urls {
        Urls::new("http://127.0.0.1:8090", "")
    }

    #[test]
    fn only_addresses_of_recorded_hosts_are_rewritten() {
        let mut value = serde_json::json!({
            "url": "https://api.github.com/user", "upload_url": "https://uploads.github.com/repos/a/b/releases/1/assets{?name,label}",
            "html_url": "https://github.com/a/b", "text": "see https://api.github.com/user", "evil": "https://api.github.com.example.org/x",
        });
        json(&mut value, &urls());
        assert_eq!(value["url"], "http://127.0.0.1:8090/user");
        assert_eq!(
            value["upload_url"],
            "http://127.0.0.1:8090/api/uploads/repos/a/b/releases/1/assets{?name,label}"
        );
        assert_eq!(value["html_url"], "https://github.com/a/b");
        assert_eq!(value["text"], "see https://api.github.com/user");
        assert_eq!(value["evil"], "https://api.github.com.example.org/x");
    }

    #[test]
    fn every_entry_of_a_link_is_rewritten() {
        let line = "<https://api.github.com/x?page=2>; rel=\"next\", <https://developer.github.com/y>; rel=\"deprecation\"";
        assert_eq!(
            link(line, &urls()),
            "<http://127.0.0.1:8090/x?page=2>; rel=\"next\", <https://developer.github.com/y>; rel=\"deprecation\""
        );
    }
}
