//! The JSON around a GraphQL document: the members that decide which operation runs.
//!
//! JSON parsers disagree about duplicate names, spellings of names, and invalid text. Servers
//! disagree about `Content-Type`. A body that two of them could read differently is rejected.

use std::borrow::Cow;
use std::fmt;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Members that name a stored document, which the upstream may run instead of the given one.
const STORED_DOCUMENT: [&str; 5] = ["id", "documentId", "doc_id", "queryId", "persistedQuery"];
const PERSISTED: &str = "persistedQuery";

pub(super) struct Envelope<'b> {
    /// Member `query`.
    pub document: Cow<'b, str>,
    /// Member `operationName`.
    pub operation_name: Option<Cow<'b, str>>,
}

impl<'b> Envelope<'b> {
    /// Parses a body. Returns `None` unless it is one unambiguous JSON object with a document.
    pub fn open(headers: &HeaderMap, body: &'b [u8]) -> Option<Self> {
        if headers.contains_key(CONTENT_ENCODING) || !may_be_read_as_json_alone(headers, body) {
            return None;
        }
        // A byte order mark is no JSON (RFC 8259 §8.1), and neither is anything but UTF-8.
        serde_json::from_str(std::str::from_utf8(body).ok()?).ok()
    }
}

/// Returns true unless a server could take the body for something other than JSON. Command-line
/// clients send JSON with the type of a form by default. That is harmless unless the body separates
/// pairs as a form does: the name of its only pair begins with the brace of the object, and no
/// server knows such a name.
fn may_be_read_as_json_alone(headers: &HeaderMap, body: &[u8]) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(given), None) = (types.next(), types.next()) else {
        return !headers.contains_key(CONTENT_TYPE);
    };
    let Ok(given) = given.to_str() else { return false };
    let given = given.to_ascii_lowercase();
    let (kind, parameters) = given.split_once(';').unwrap_or((&given, ""));
    let is_utf8 = |parameter: &str| {
        let charset = parameter.trim().strip_prefix("charset=");
        charset.is_none_or(|charset| {
            matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii")
        })
    };
    let kind = kind.trim();
    let fits = match kind {
        "application/x-www-form-urlencoded" => !body.iter().any(|byte| matches!(byte, b'&' | b';')),
        "text/plain" => true,
        _ => {
            kind == "application/json"
                || kind.starts_with("application/") && kind.ends_with("+json")
        }
    };
    fits && parameters.split(';').all(is_utf8)
}

/// String, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'b>(#[serde(borrow)] Cow<'b, str>);

/// Members that decide which operation runs.
const DECIDING: [&str; 3] = ["query", "operationName", "extensions"];

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a GraphQL request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let (mut document, mut operation_name, mut seen) = (None, None, [false; DECIDING.len()]);
        while let Some(Text(name)) = map.next_key()? {
            let is = |known: &&str| known.eq_ignore_ascii_case(&name);
            if STORED_DOCUMENT.iter().any(is) {
                return Err(A::Error::custom("a stored document"));
            }
            let Some(place) = DECIDING.iter().position(is) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if DECIDING[place] != name || std::mem::replace(&mut seen[place], true) {
                return Err(A::Error::custom("a name given twice or in another spelling"));
            }
            match place {
                0 => document = map.next_value::<Option<Text<'_>>>()?.map(|text| text.0),
                1 => operation_name = map.next_value::<Option<Text<'_>>>()?.map(|text| text.0),
                _ => {
                    let extensions: Value = map.next_value()?;
                    let is_persisted = |name: &String| name.eq_ignore_ascii_case(PERSISTED);
                    if extensions.as_object().is_some_and(|it| it.keys().any(is_persisted)) {
                        return Err(A::Error::custom("a stored document"));
                    }
                }
            }
        }
        let document = document.ok_or_else(|| A::Error::missing_field("query"))?;
        Ok(Envelope { document, operation_name })
    }
}
