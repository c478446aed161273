//! GraphQL requests: no mutation is taken for a query, however the body is written.

use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Map, Value};

use crate::api::{GraphqlEffect, GraphqlRequest, meaning};
use crate::gateway::dispatch::graphql_prices::{GraphqlPrices, Measured, Operation};

/// Longest document that is parsed (`api/graphql/mod.rs`).
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// The limit of the budget, which no price exceeds.
const LIMIT: u32 = 100;

/// The input is a body, a document, and an answer with a price.
pub fn graphql(input: &[u8]) {
    let request = read(input);
    body(input, &request);
    if let Ok(document) = std::str::from_utf8(input) {
        let mut members = Map::new();
        members.insert("query".to_owned(), document.into());
        let body = Value::Object(members).to_string();
        let request = read(body.as_bytes());
        query(document, None, &request);
        without_meaning(document, &request);
    }
    price(input);
}

fn read(body: &[u8]) -> GraphqlRequest {
    GraphqlRequest::read(&Method::POST, None, &HeaderMap::new(), body)
}

/// Facts of a body: independent of its spelling and its variables, and unclear for any other
/// request than a plain POST.
fn body(input: &[u8], request: &GraphqlRequest) {
    let headers = HeaderMap::new();
    for (method, query) in [(Method::GET, None), (Method::PUT, None), (Method::POST, Some("a"))] {
        let other = GraphqlRequest::read(&method, query, &headers, input);
        assert_eq!((other.effect, other.operation), (GraphqlEffect::Unclear, None), "{method}");
    }
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    let typed = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
    assert_eq!(GraphqlRequest::read(&Method::POST, Some(""), &typed, input), *request);
    if request.effect == GraphqlEffect::Unclear {
        return;
    }
    let Ok(Value::Object(mut members)) = serde_json::from_slice(input) else {
        panic!("a body that is no object has an effect");
    };
    let same = |members: &Map<String, Value>| {
        let body = Value::Object(members.clone()).to_string();
        let again = read(body.as_bytes());
        assert_eq!((again.effect, again.operation), (request.effect, request.operation), "{body}");
    };
    same(&members);
    let respelled = Value::Object(members.clone()).to_string();
    let [written, again] = [input, respelled.as_bytes()].map(meaning);
    assert!(written.first() == Some(&b'b') || written == again, "{respelled}");
    members.insert("variables".to_owned(), serde_json::json!({ "query": "mutation { a }" }));
    same(&members);
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let document = text("query").expect("a body without a document has an effect");
    query(document, text("operationName"), request);
}

/// A query is one by an independent reader too.
fn query(document: &str, operation_name: Option<&str>, request: &GraphqlRequest) {
    assert!(request.effect == GraphqlEffect::Unclear || document.len() <= DOCUMENT_BYTES_MAX);
    assert!(request.operation.is_none() || request.effect != GraphqlEffect::Unclear);
    if request.reports_cost {
        assert!(document.contains("rateLimit") && document.contains("cost"), "{document:?}");
    }
    if request.effect != GraphqlEffect::Query {
        return;
    }
    let operations = operations(document);
    let named = operations.iter().filter(|(_, name)| name.is_some() && *name == operation_name);
    let named: Vec<_> = named.collect();
    let candidates = if named.is_empty() { operations.iter().collect() } else { named };
    assert!(!candidates.is_empty(), "a document without an operation: {document:?}");
    for (kind, name) in candidates {
        assert_eq!(*kind, "query", "{name:?} of {document:?}");
    }
}

/// Comments and blanks have no meaning.
fn without_meaning(document: &str, request: &GraphqlRequest) {
    if request.effect == GraphqlEffect::Unclear || document.len() + 32 > DOCUMENT_BYTES_MAX {
        return;
    }
    for other in [format!("#mutation {{ createIssue }}\n{document}"), format!("{document}\n,\t")] {
        let again = read(serde_json::json!({ "query": other }).to_string().as_bytes());
        assert_eq!(again.effect, request.effect, "{other:?}");
        assert_eq!(again.reports_cost, request.reports_cost, "{other:?}");
    }
}

/// Kind and name of each operation. A definition ends with the brace that closes its selections.
fn operations(document: &str) -> Vec<(&str, Option<&str>)> {
    let words = words(document);
    let (mut found, mut depth, mut begins) = (Vec::new(), 0_usize, true);
    for (at, word) in words.iter().enumerate() {
        if begins && *word != "fragment" {
            let kind = if *word == "{" { "query" } else { *word };
            let name = words.get(at + 1).filter(|name| *word != "{" && is_name(name));
            found.push((kind, name.copied()));
        }
        begins = false;
        match *word {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                begins = depth == 0 && *word == "}";
            }
            _ => {}
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Names and punctuation, without strings, comments and blanks (GraphQL, section 2.1).
fn words(document: &str) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), document);
    while let Some(first) = rest.chars().next() {
        let end = |found: Option<usize>, more: usize| found.map_or(rest.len(), |at| at + more);
        let bytes = match first {
            '#' => end(rest.find(['\n', '\r']), 0),
            '"' if rest.starts_with("\"\"\"") => {
                let inside = rest[3..].replace("\\\"\"\"", "xxxx");
                end(inside.find("\"\"\""), 6)
            }
            '"' => {
                let mut is_escaped = false;
                let is_end = |c: char| {
                    let is_plain = !std::mem::take(&mut is_escaped);
                    is_escaped = is_plain && c == '\\';
                    is_plain && c == '"'
                };
                end(rest[1..].find(is_end), 2)
            }
            _ if is_name(rest) => {
                end(rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_'), 0)
            }
            _ => first.len_utf8(),
        };
        let (word, after) = rest.split_at(bytes);
        rest = after;
        let is_blank = first.is_whitespace() || matches!(first, ',' | '\u{feff}' | '#' | '"');
        words.extend((!is_blank).then_some(word));
    }
    words
}

/// A recorded price stays between the bounds, whatever the answer says.
fn price(answer: &[u8]) {
    let prices = GraphqlPrices::default();
    let asks = read(br#"{"query":"{ rateLimit { cost } }"}"#);
    let asks = Operation::of(&asks).expect("it is a query");
    let limited = Measured { units: None, limit: Some(LIMIT) };
    prices.learn(0, asks, Some(answer), limited);
    assert!((1..=LIMIT).contains(&prices.of(asks.key)));
    prices.learn(0, asks, Some(br#"{"data":{"rateLimit":{"cost":7}}}"#), limited);
    assert_eq!(prices.of(asks.key), 7, "an earlier answer hides the price");
}
