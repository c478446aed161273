//! Loads recorded exchanges: the package `@octokit/fixtures`, its `scenarios` folder, or one
//! scenario.
//!
//! A scenario has `raw-fixture.json` (the exact exchange) and usually `normalized-fixture.json`;
//! the raw one is preferred. The recorder decoded bodies. One that it kept encoded is served
//! unchanged, with its `content-encoding` and without rewriting.

use std::path::{Path, PathBuf};
use std::slice;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;

use super::{Exchange, Key, RecordedBody, Recording, Site, body_value};
use crate::emulator::http::{Query, parse_http_date};
use crate::emulator::limits::Resource;

/// In the order of preference.
const FILES: [&str; 2] = ["raw-fixture.json", "normalized-fixture.json"];
/// `package/scenarios/HOST/SCENARIO`, and one more as a margin.
const DEPTH_MAX: usize = 5;
/// A recording is kept in memory; the published one has 3 MB.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The reason a recording cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A folder or file that could not be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Path of the folder or file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file that is not an array of recorded exchanges.
    #[error("{path} is not a recording: {reason}")]
    Malformed {
        /// Path of the folder or file.
        path: PathBuf,
        /// The problem with its content.
        reason: String,
    },
    /// A folder without recordings.
    #[error("{path} has no scenario; a folder with raw-fixture.json files below it is needed")]
    Empty {
        /// Path of the folder.
        path: PathBuf,
    },
}

impl Recording {
    /// Loads all scenarios at or below a folder.
    pub fn load(folder: &Path) -> Result<Self, LoadError> {
        let mut files = Vec::new();
        find(folder, DEPTH_MAX, &mut files)?;
        let mut exchanges = Vec::new();
        for file in &files {
            exchanges.extend(read(file)?);
        }
        if exchanges.is_empty() {
            return Err(LoadError::Empty { path: folder.to_owned() });
        }
        Ok(Self { exchanges })
    }
}

fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), LoadError> {
    if let Some(file) = FILES.iter().map(|name| folder.join(name)).find(|file| file.is_file()) {
        files.push(file);
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    let unreadable = |source| LoadError::Unreadable { path: folder.to_owned(), source };
    let mut below = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "node_modules") {
            below.push(path);
        }
    }
    // The order must not depend on the file system.
    below.sort();
    below.iter().try_for_each(|path| find(path, depth - 1, files))
}

fn read(path: &Path) -> Result<Vec<Exchange>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let malformed = |reason: String| LoadError::Malformed { path: path.to_owned(), reason };
    if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(malformed(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read(path).map_err(unreadable)?;
    let records: Vec<Value> =
        serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
    let mut exchanges = Vec::new();
    for (index, record) in records.iter().enumerate() {
        exchanges.extend(
            exchange(record).map_err(|reason| malformed(format!("record {index}: {reason}")))?,
        );
    }
    Ok(exchanges)
}

/// Parses one record; `None` for a host that is not replayed.
fn exchange(record: &Value) -> Result<Option<Exchange>, String> {
    let text = |name: &str| {
        record.get(name).and_then(Value::as_str).ok_or_else(|| format!("{name} is not a string"))
    };
    let site = match text("scope")?.trim_end_matches(":443").trim_end_matches('/') {
        "https://api.github.com" => Site::Api,
        "https://uploads.github.com" => Site::Uploads,
        _ => return Ok(None),
    };
    let address = text("path")?;
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let status = record.get("status").and_then(Value::as_u64);
    let status = status.and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
    let received = headers(record);
    let value_of = |name: HeaderName| {
        let (_, value) = received.iter().find(|(given, _)| *given == name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let resource = value_of(HeaderName::from_static("x-ratelimit-resource"))
        .and_then(|name| Resource::named(&name));
    let kept_encoded = value_of(header::CONTENT_ENCODING).is_some();
    let binary =
        kept_encoded || record.get("responseIsBinary").and_then(Value::as_bool) == Some(true);
    Ok(Some(Exchange {
        key: Key {
            method: text("method")?.to_ascii_uppercase(),
            site,
            path: path.to_owned(),
            query: Query::parse(Some(query)).sorted(),
        },
        body: (site == Site::Api).then(|| recorded_body(record)),
        status: status.ok_or("status is not an HTTP status")?,
        answer: answer(record.get("response").unwrap_or(&Value::Null), binary),
        etag: value_of(header::ETAG),
        content_type: value_of(header::CONTENT_TYPE),
        last_modified: value_of(header::LAST_MODIFIED).as_deref().and_then(parse_http_date),
        resource: resource.unwrap_or(Resource::CORE),
        headers: received.into_iter().filter(|(name, _)| is_kept(name)).collect(),
    }))
}

fn recorded_body(record: &Value) -> Value {
    match record.get("body") {
        None | Some(Value::Null) => body_value(b""),
        Some(Value::String(text)) => body_value(text.as_bytes()),
        Some(other) => other.clone(),
    }
}

/// Drops the recorded time, connection and budget; validators and the type are kept elsewhere.
fn is_kept(name: &HeaderName) -> bool {
    let elsewhere = [
        header::DATE,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::ETAG,
        header::LAST_MODIFIED,
        header::CONTENT_TYPE,
    ];
    !elsewhere.contains(name) && !name.as_str().starts_with("x-ratelimit-")
}

/// `rawHeaders` is a flat list of names and values; `headers` and `responseHeaders` are objects.
fn headers(record: &Value) -> Vec<(HeaderName, HeaderValue)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let names = ["rawHeaders", "responseHeaders", "headers"];
    let pairs: Vec<(String, String)> = match names.iter().find_map(|name| record.get(*name)) {
        Some(Value::Array(list)) => {
            list.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
        }
        Some(Value::Object(map)) => map
            .iter()
            .flat_map(|(name, value)| {
                let values = value.as_array().map_or(slice::from_ref(value), Vec::as_slice);
                values.iter().map(move |value| (name.clone(), text(value)))
            })
            .collect(),
        _ => Vec::new(),
    };
    let header = |(name, value)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    };
    pairs.into_iter().filter_map(header).collect()
}

fn answer(response: &Value, binary: bool) -> RecordedBody {
    match response {
        Value::Null => RecordedBody::Empty,
        Value::String(text) if text.is_empty() => RecordedBody::Empty,
        Value::String(text) if binary => {
            RecordedBody::Bytes(unhex(text).unwrap_or_else(|| text.clone().into_bytes()).into())
        }
        Value::String(text) => RecordedBody::Bytes(Bytes::from(text.clone())),
        // An encoded body is recorded as the list of its chunks.
        Value::Array(chunks) if binary => {
            let parts: Option<Vec<Vec<u8>>> =
                chunks.iter().map(|chunk| chunk.as_str().and_then(unhex)).collect();
            parts.map_or_else(
                || RecordedBody::Json(response.clone()),
                |parts| RecordedBody::Bytes(parts.concat().into()),
            )
        }
        other => RecordedBody::Json(other.clone()),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| Some((digit(pair[0])? << 4) | digit(pair[1])?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hex_encoded_body_becomes_bytes_and_other_text_stays() {
        assert_eq!(unhex("1f8b"), Some(vec![0x1f, 0x8b]));
        assert_eq!(unhex("1f8"), None);
        assert_eq!(unhex("zz"), None);
        assert!(
            matches!(answer(&serde_json::json!(["1f", "8b"]), true), RecordedBody::Bytes(bytes) if bytes.as_ref() == [0x1f, 0x8b])
        );
    }

    #[test]
    fn a_record_of_another_host_is_not_served() {
        let record = serde_json::json!({ "scope": "https://codeload.github.com:443", "method": "get", "path": "/x", "status": 200 });
        assert!(exchange(&record).expect("it is well formed").is_none());
    }

    #[test]
    fn a_malformed_record_is_named() {
        let record = serde_json::json!({ "scope": "https://api.github.com:443", "method": "get", "path": "/x", "status": 9 });
        assert_eq!(exchange(&record).unwrap_err(), "status is not an HTTP status");
    }
}
