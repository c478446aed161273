//! Blocking HTTP requests, each on its own connection.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// An answer's status and body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|fault| panic!("{fault}: {self:?}"))
    }
}

/// The answer to a request, or `None` where nothing answers. `headers` are whole lines.
pub fn exchange(address: &str, line: &str, headers: &str, body: &str) -> Option<Answer> {
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_owned() };
    Some(Answer { status, body })
}

/// The answer to `GET path`.
pub fn get(address: &str, path: &str) -> Option<Answer> {
    exchange(address, &format!("GET {path}"), "", "")
}

/// The answer to a request with a body of JSON.
pub fn send(address: &str, line: &str, body: &Value) -> Option<Answer> {
    exchange(address, line, "Content-Type: application/json\r\n", &body.to_string())
}

/// Joins the chunks of a body (RFC 9112 §7.1).
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk's size");
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
