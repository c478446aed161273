//! A blocking HTTP request to the emulator's control plane, on its own connection.
//!
//! Client libraries do not use it: the test looks behind the gateway.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// Sends a request to the control plane and returns the JSON of the response, or null without a
/// body.
pub fn request(address: &str, method: &str, path: &str, body: Option<&Value>) -> Value {
    let answer = exchange(
        address,
        &format!("{method} {path}"),
        "",
        &body.map(Value::to_string).unwrap_or_default(),
    );
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    assert!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_owned() };
    if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&body)
            .unwrap_or_else(|fault| panic!("{method} {path}: {fault}\n{body}"))
    }
}

/// Sends a credential to the upstream directly. The response does not matter: the upstream records
/// the account.
pub fn show(address: &str, token: &str) {
    exchange(address, "GET /", &format!("Authorization: Bearer {token}\r\n"), "");
}

/// `line` is method and path; `headers` are whole lines.
fn exchange(address: &str, line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).expect("the emulator accepts");
    stream.write_all((head + body).as_bytes()).expect("the emulator reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the emulator answers");
    answer
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
