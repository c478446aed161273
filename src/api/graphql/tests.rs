//! Requests with a known effect, ambiguous requests, and noise.

use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::GraphqlEffect::{Creates, Notifies, Plain, Query, Unclear};
use super::*;

fn effect_of_body(body: &[u8]) -> GraphqlEffect {
    GraphqlRequest::read(&Method::POST, None, &HeaderMap::new(), body).effect
}

fn effect_of(body: &Value) -> GraphqlEffect {
    effect_of_body(body.to_string().as_bytes())
}

fn effect(document: &str) -> GraphqlEffect {
    effect_of(&json!({ "query": document }))
}

#[test]
fn a_query_may_contain_the_word_mutation() {
    for document in [
        "{ viewer { login } }",
        "query { mutation }",
        "# mutation\n{ a }",
        "{ a(x: \"mutation {\") }",
        "query mutations { a }",
        "query mutation { mutation: a }",
        "{ a(x: \"\"\"} mutation { b } \\\"\"\" mutation\"\"\") }",
        "{ a(x: \"\\\"} mutation {\") }",
        "query ($x: [Int!]! = [1, 2], $y: In = { mutation: true }) @mutation(if: $x) { a @include(if: true) }",
        "{ ...mutation } fragment mutation on Query { a }",
        "\u{feff}{ a }",
        "{ a } # mutation Q { b }",
    ] {
        assert_eq!(effect(document), Query, "{document}");
    }
}

#[test]
fn a_mutation_is_recognised_wherever_it_stands() {
    for document in [
        "mutation { a }",
        "mutation{a}",
        "#c\rmutation{a}",
        "#c\nmutation M($x: Int) @d { a }",
        ",,mutation,{a}",
        "\u{feff}mutation { a }",
        "fragment F on Q { a } mutation { b }",
        "subscription { a }",
    ] {
        assert_eq!(effect(document), Plain, "{document}");
    }
}

#[test]
fn the_named_operation_of_several_counts() {
    let document = "query A { a } mutation B { closeIssue { id } } query C { c } mutation D { addComment { id } }";
    let named = |name: Value| effect_of(&json!({ "query": document, "operationName": name }));
    assert_eq!(
        [named(json!("A")), named(json!("B")), named(json!("C")), named(json!("D"))],
        [Query, Plain, Query, Creates]
    );
}

#[test]
fn an_ambiguous_operation_name_counts_as_the_worst() {
    let mixed = "query A { a } mutation B { addComment { id } }";
    let queries = "query A { a } query C { c }";
    for name in [json!(null), json!(""), json!("X"), json!("a"), json!("A "), json!(" A")] {
        assert_eq!(effect_of(&json!({ "query": mixed, "operationName": name })), Creates, "{name}");
        assert_eq!(effect_of(&json!({ "query": queries, "operationName": name })), Query, "{name}");
    }
    assert_eq!(effect_of(&json!({ "query": mixed })), Creates);
    assert_eq!(effect_of(&json!({ "query": "mutation { a }", "operationName": "X" })), Plain);
    assert_eq!(
        effect_of(&json!({ "query": "query A { a } mutation A { b }", "operationName": "A" })),
        Plain
    );
    assert_eq!(effect_of(&json!({ "query": queries, "operationName": ["A"] })), Unclear);
}

#[test]
fn an_ambiguous_or_malformed_body_is_unclear() {
    for body in [
        "",
        "{",
        "null",
        "\"{ a }\"",
        "{ viewer { login } }",
        "[{\"query\":\"{a}\"}]",
        "{\"query\":5}",
        "{\"query\":null}",
        "{\"id\":\"persisted\"}",
        "{\"extensions\":{\"persistedQuery\":{\"version\":1}}}",
        "{\"query\":\"{a}\"} {\"query\":\"mutation{b}\"}",
        "{\"query\":\"{a}\",\"query\":\"mutation{b}\"}",
        "{\"query\":\"mutation{b}\",\"query\":\"{a}\"}",
        "{\"query\":\"{a}\",\"qu\\u0065ry\":\"mutation{b}\"}",
        "{\"query\":\"{a}\",\"Query\":\"mutation{b}\"}",
        "{\"query\":\"query A{a} mutation B{b}\",\"operationName\":\"A\",\"operationName\":\"B\"}",
        "{\"query\":\"query A{a} mutation B{b}\",\"operationName\":\"A\",\"operationname\":\"B\"}",
        "{\"query\":\"{a}\",\"id\":\"persisted\"}",
        "{\"query\":\"{a}\",\"extensions\":{\"persistedQuery\":{}}}",
        "\u{feff}{\"query\":\"{a}\"}",
        "{'query':'{a}'}",
        "{\"query\":\"{a}\",}",
        "{\"query\":\"{a}\"/**/}",
        "{\"query\":\"{a \\ud800}\"}",
        "query=%7Ba%7D",
    ] {
        assert_eq!(effect_of_body(body.as_bytes()), Unclear, "{body}");
    }
    assert_eq!(effect_of_body(b"{\"query\":\"{a}\",\"x\":\"\xff\"}"), Unclear);
}

#[test]
fn a_secret_under_another_name_is_noticed() {
    for (document, hides) in [
        ("{ repository { tempCloneToken } }", false),
        ("{ repository { tempCloneToken: tempCloneToken } }", false),
        ("{ repository { tempCloneToken: name t: name } }", false),
        ("{ repository { t: tempCloneToken } }", true),
        ("{ repository { t: # a comment\n tempCloneToken } }", true),
        ("{ repository { ...F } } fragment F on R { ... on R { t: tempCloneToken } }", true),
        ("mutation { x { t: tempCloneToken } }", true),
    ] {
        let body = serde_json::json!({ "query": document }).to_string();
        let headers = HeaderMap::new();
        let request = GraphqlRequest::read(&Method::POST, None, &headers, body.as_bytes());
        assert_eq!(request.hides_secret, hides, "{document}");
    }
}

#[test]
fn a_document_that_does_not_parse_is_unclear() {
    for document in [
        "",
        " ",
        "query",
        "{",
        "{}",
        "{ a } }",
        "{ a } mutation",
        "{ a \u{0} }",
        "{ a(x: \"b\n\") }",
        "Mutation { a }",
        "{ a } type Mutation { b: Int }",
        "extend schema { query: Mutation } { a }",
        "fragment F on Q { a }",
        "{ a(x: \"\"\"open) }",
    ] {
        assert_eq!(effect(document), Unclear, "{document}");
    }
}

#[test]
fn irrelevant_members_of_any_value_are_skipped() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let body = format!(
        "{{\"variables\":{deep},\"query\":\"{{a}}\",\"variables\":1,\"operationName\":null,\"extensions\":{{\"client\":{{}}}}}}"
    );
    assert_eq!(effect_of_body(body.as_bytes()), Query);
    let escaped = "{\"\\u0071uery\":\"\\u007b\\u0061\\u007d\"}";
    assert_eq!(effect_of_body(escaped.as_bytes()), Query);
    let escaped = "{\"query\":\"m\\u0075tation{a}\"}";
    assert_eq!(effect_of_body(escaped.as_bytes()), Plain);
}

#[test]
fn only_a_post_of_json_is_plainly_a_query() {
    let body = b"{\"query\":\"{a(x:1)}\"}";
    let read = |method: Method, query, kind: &'static str| {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        GraphqlRequest::read(&method, query, &headers, body).effect
    };
    for kind in [
        "application/json",
        "Application/JSON; charset=UTF-8",
        "application/vnd.github+json",
        "text/plain;charset=utf-8",
        "application/x-www-form-urlencoded",
    ] {
        assert_eq!(read(Method::POST, None, kind), Query, "{kind}");
        assert_eq!(read(Method::POST, Some(""), kind), Query, "{kind}");
    }
    for kind in [
        "application/json; charset=utf-7",
        "multipart/form-data; boundary=a",
        "application/graphql",
        "",
        "json",
    ] {
        assert_eq!(read(Method::POST, None, kind), Unclear, "{kind}");
    }
    assert_eq!(read(Method::POST, Some("query=mutation{b}"), "application/json"), Unclear);
    assert_eq!(read(Method::GET, Some("query={a}"), "application/json"), Unclear);
    assert_eq!(read(Method::PUT, None, "application/json"), Unclear);
    let form = HeaderMap::from_iter([(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    )]);
    for (body, expected) in [
        (&b"{\"query\":\"query($a:ID=\\\"b=\\\"){a}\",\"variables\":{\"a\":\"MQ==\"}}"[..], Query),
        (b"{\"query\":\"{a}\",\"x\":\"&query=mutation{b}\"}", Unclear),
        (b"{\"query\":\"{a}\",\"x\":\";query=mutation{b}\"}", Unclear),
    ] {
        assert_eq!(GraphqlRequest::read(&Method::POST, None, &form, body).effect, expected);
    }
    let mut twice = HeaderMap::new();
    twice.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    twice.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    assert_eq!(GraphqlRequest::read(&Method::POST, None, &twice, body).effect, Unclear);
    let packed = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
    assert_eq!(GraphqlRequest::read(&Method::POST, None, &packed, body).effect, Unclear);
}

#[test]
fn a_mutation_has_the_effect_of_its_fields() {
    for (fields, expected) in [
        ("addComment(input: {}) { subject { id } }", Creates),
        ("createIssue { issue { id } }", Creates),
        ("createPullRequest { id }", Creates),
        ("createDiscussion { id }", Creates),
        ("createSomethingOfTomorrow { id }", Creates),
        ("addPullRequestReview { id }", Creates),
        ("addPullRequestReviewThreadReply { id }", Creates),
        ("submitPullRequestReview { id }", Creates),
        ("addReaction { id }", Creates),
        ("addDiscussionComment { id }", Creates),
        ("mergePullRequest { id }", Notifies),
        ("requestReviews { id }", Notifies),
        ("createRef { id }", Plain),
        ("createCheckRun { id }", Plain),
        ("createCommitOnBranch { id }", Plain),
        ("closeIssue { id }", Plain),
        ("addLabelsToLabelable { id }", Plain),
        ("addStar { addComment }", Plain),
        ("addComment: closeIssue { id }", Plain),
        ("closeIssue { id } other: addComment { id }", Creates),
        (
            "closeIssue { id } ... { ... on Mutation @skip(if: true) { addComment { id } } }",
            Creates,
        ),
        ("...F ...G", Creates),
    ] {
        let document = format!(
            "mutation {{ {fields} }} fragment F on Mutation {{ ...G ...F }} fragment G on Mutation {{ ...F addComment }}"
        );
        assert_eq!(effect(&document), expected, "{fields}");
    }
}

#[test]
fn an_operation_that_selects_its_cost_has_its_own_key() {
    let key = |document: &str, name: Value| {
        let body = json!({ "query": document, "operationName": name, "variables": { "n": 5 } })
            .to_string();
        let read = GraphqlRequest::read(&Method::POST, None, &HeaderMap::new(), body.as_bytes());
        read.operation.filter(|_| read.reports_cost)
    };
    let priced = "query A { viewer { login } ...P } fragment P on Query { rateLimit { cost } } query B { rateLimit { remaining cost } }";
    let [a, b] = ["A", "B"].map(|name| key(priced, json!(name)));
    assert!(a.is_some() && b.is_some() && a != b);
    assert_eq!(a, key(priced, json!("A")));
    for document in [
        "{ viewer { login } }",
        "{ rateLimit { limit } }",
        "{ r: rateLimit { cost } }",
        "{ rateLimit { c: cost } }",
        "nonsense",
    ] {
        assert_eq!(key(document, json!(null)), None, "{document}");
    }
}

#[test]
fn huge_documents_and_deep_ones_overflow_no_stack() {
    fn nested(open: &str, close: &str, count: usize) -> String {
        format!("{}{}", open.repeat(count), close.repeat(count))
    }
    let deep = |count: usize| {
        [
            nested("{a", "}", count),
            nested("{... on T", "}", count),
            format!("{{a(x:{})}}", nested("[", "]", count)),
            format!("{{a(x:{}1{})}}", "{a:".repeat(count), "}".repeat(count)),
            format!("query($x:{}Int{}){{a}}", "[".repeat(count), "]".repeat(count)),
            format!("query($x:Int={}){{a}}", nested("[", "]", count)),
            format!("{{a @d(x:{})}}", nested("[", "]", count)),
            "{a".repeat(count),
            "[".repeat(count),
            "(".repeat(count),
            format!("{{a(x:{}", "[".repeat(count)),
        ]
    };
    // Half of a gateway thread's stack, with the large frames of a debug build.
    let small = std::thread::Builder::new().stack_size(1024 * 1024);
    let reading = small.spawn(move || {
        for document in deep(60).iter().chain(&deep(60_000)) {
            let _ = effect(document);
        }
        for document in deep(60_000) {
            assert_eq!(effect(&document), Unclear);
        }
    });
    reading.unwrap().join().unwrap();
    let chain: String = (0..3_000)
        .map(|n| format!("fragment F{n} on M{{...F{}}}", n + 1))
        .collect::<Vec<_>>()
        .concat();
    assert_eq!(
        effect(&format!("mutation{{...F0}}{chain}fragment F3000 on M{{addComment}}")),
        Creates
    );
    assert_eq!(effect(&format!("{{{}}}", "a ".repeat(DOCUMENT_BYTES_MAX))), Unclear);
    assert_eq!(effect(&format!("{{{}}}", "a ".repeat(TOKENS_MAX))), Unclear);
    assert_eq!(effect(&format!("{{{}}}", "a ".repeat(20_000))), Query);
}

/// Cruder second parser: searches `mutation` outside of strings, comments and braces, and not as
/// the name of a query.
fn names_a_mutation(document: &str) -> bool {
    let mut depth = 0_u32;
    let mut is_name = false;
    let mut rest = document;
    while let Some(at) = rest
        .find(|c: char| matches!(c, '"' | '#' | '{' | '}') || c.is_ascii_alphabetic() || c == '_')
    {
        // Anything but a space or a word ends the place for a name.
        is_name &=
            !rest[..at].contains(|c: char| !matches!(c, ' ' | '\n' | '\r' | ',' | '\u{feff}'));
        rest = &rest[at..];
        let skip = match rest.as_bytes().first() {
            Some(b'{') => {
                (depth, is_name) = (depth + 1, false);
                1
            }
            Some(b'}') => {
                (depth, is_name) = (depth.saturating_sub(1), false);
                1
            }
            Some(b'#') => rest.find(['\n', '\r']).unwrap_or(rest.len()),
            Some(b'"') => {
                is_name = false;
                string_length(rest)
            }
            _ => {
                let word = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                if depth == 0 && !is_name && &rest[..word] == "mutation" {
                    return true;
                }
                is_name = !is_name && &rest[..word] == "query";
                word
            }
        };
        rest = &rest[skip..];
    }
    false
}

/// Length of the GraphQL string at the start of `text`, quotes included.
fn string_length(text: &str) -> usize {
    let (mut at, quote) = if text.starts_with("\"\"\"") { (3, "\"\"\"") } else { (1, "\"") };
    while at < text.len() {
        let rest = &text[at..];
        at += match rest.chars().next() {
            Some('\\') if quote.len() == 3 => {
                if rest.starts_with("\\\"\"\"") {
                    4
                } else {
                    1
                }
            }
            Some('\\') => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            _ if rest.starts_with(quote) => return at + quote.len(),
            other => other.map_or(1, char::len_utf8),
        };
    }
    text.len()
}

#[derive(Clone, Debug)]
struct Known {
    effect: GraphqlEffect,
    text: String,
}

/// Text between tokens without a meaning.
fn ignored() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        " ",
        "\n",
        "\r",
        "\r\n",
        "\t",
        ",",
        "\u{feff} ",
        " #mutation{b}\n",
        "#\" {\r",
        "#\"\"\"\n",
    ])
}

/// Field below the root, or an argument that distracts.
fn distraction() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "mutation",
        "mutation:query",
        "a(x:\"mutation{addComment}\")",
        "a(x:\"\\\\\",y:\"}\\\"mutation{\")",
        "a(x:\"\"\"\\\"\"\" } mutation { \"\"\")",
        "a(x:\"\")",
        "a(x:{mutation:[$query,ENUM,null,-1.5e3]})@include(if:$mutation)",
        "...on Mutation{addComment}",
        "a{addComment{createIssue}}",
    ])
}

fn operation(place: usize) -> impl Strategy<Value = Known> {
    let kind = prop::sample::select(vec![
        ("query", "a", Query),
        ("query", "addComment", Query),
        ("mutation", "addComment(input:{})", Creates),
        ("mutation", "mergePullRequest", Notifies),
        ("mutation", "closeIssue", Plain),
        ("subscription", "addComment", Plain),
    ]);
    let variables = prop::sample::select(vec![
        "",
        "($mutation:Int)",
        "($mutation:[In!]={mutation:\"}mutation{\"})",
        "@mutation",
        "($x:Int@d)@d(x:1)",
    ]);
    (kind, variables, prop::collection::vec((distraction(), ignored()), 0..4), ignored()).prop_map(
        move |((word, field, effect), variables, distractions, space)| {
            let below: String = distractions.iter().map(|(text, space)| format!("{space}{text}{space} ")).collect::<Vec<_>>().concat();
            Known { effect, text: format!("{word}{space} O{place}{space}{variables}{space}{{{space}{field}{{{below} id}}{space}}}") }
        },
    )
}

fn operations() -> impl Strategy<Value = (Vec<Known>, Vec<&'static str>)> {
    let known =
        (operation(0), operation(1), operation(2), 1..=3_usize).prop_map(|(a, b, c, count)| {
            let mut all = vec![a, b, c];
            all.truncate(count);
            all
        });
    (known, prop::collection::vec(ignored(), 4))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_documents_get_their_known_effect((known, spaces) in operations(), wanted in 0..5_usize, escapes in any::<bool>()) {
        let document: String = known.iter().zip(&spaces).map(|(operation, space)| format!("{space}{}{space}", operation.text)).collect::<Vec<_>>().concat();
        let fragment = "fragment mutation on Mutation{addComment}";
        let name = (wanted < 4).then(|| format!("O{wanted}"));
        let body = json!({ "operationName": name, "query": format!("{document} {fragment}") }).to_string();
        let body = if escapes { body.replace('m', "\\u006d").replace('q', "\\u0071") } else { body };
        let worst = known.iter().map(|operation| operation.effect).max().unwrap();
        let truth = known.get(wanted).map_or(worst, |operation| operation.effect);
        prop_assert_eq!(effect_of_body(body.as_bytes()), truth, "{}", body);
    }

    #[test]
    fn token_soup_read_as_a_query_names_no_mutation(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "mutation", "mutation{a}", "query", "{", "}", "{a}", "a", "\"", "\"\"\"", "\\\"", "\\\"\"\"", "\\", "#", "\n", "\r", "(", ")", "x:1", "\u{2028}", " ", "@d",
            "$x:Int", "...", "on", "[", "]", "\u{feff}", ",", "é",
        ]), 0..24),
    ) {
        let document = tokens.concat();
        if effect(&document) == Query {
            prop_assert!(!names_a_mutation(&document), "{:?}", document);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(noise in prop::collection::vec(any::<u8>(), 0..200), at in 0..200_usize, byte in any::<u8>()) {
        let _ = effect_of_body(&noise);
        let mut body = json!({ "query": "query A($x: Int = 1) { a(x: \"\\\"\") ...F } fragment F on Q { b }", "operationName": "A" }).to_string().into_bytes();
        let at = at % body.len();
        body[at] = byte;
        let _ = effect_of_body(&body);
    }
}

#[test]
fn a_credential_is_seen_in_any_spelling_of_an_unclear_request() {
    let secret = "mutation{startRepositoryMigration(input:{accessToken:\"x\"}){clientMutationId}}";
    let spelt =
        percent_encoding::percent_encode(secret.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
    let json = HeaderMap::from_iter([(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    )]);
    let carries = |method: Method, query: Option<&str>, body: &str| {
        GraphqlRequest::read(&method, query, &json, body.as_bytes()).carries_credential
    };
    let in_query = format!("query={spelt}");
    assert!(carries(Method::GET, Some(&in_query), ""));
    assert!(carries(Method::POST, Some(&in_query), "{}"));
    assert!(carries(Method::POST, Some("x=1"), &format!("query={spelt}")));
    assert!(carries(Method::POST, Some("x=1"), r#"{"query":"mutation{sta\u0072t}"}"#));
    assert!(!carries(Method::GET, Some("query=mutation%7Ba%7D"), ""));
}
