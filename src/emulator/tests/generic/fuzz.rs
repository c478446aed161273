//! Sends seeded random requests: no panic, and every response is well formed.

use http::{HeaderValue, Method, Request};

use crate::cases::cases;
use crate::emulator::resources;
use crate::emulator::tests::*;
use crate::random::Rng;

const REQUESTS: u32 = 20_000;
/// Resets after this many requests, so that lists stay short.
const RESET_EVERY: u32 = 2_000;
const PIECES: &[&str] = &[
    "acme",
    "ada",
    "widgets",
    "gadgets",
    "cogs",
    "1",
    "2",
    "77",
    "1001",
    "bug",
    "README.md",
    "x",
    "%2F",
    "%",
    "%ff",
    "..",
    "",
    "-1",
    "99999999999999999999",
    "é",
    "v1.0.0",
    "🦀",
    "environment",
];
const NAMES: &[&str] = &[
    "page",
    "per_page",
    "state",
    "since",
    "before",
    "all",
    "participating",
    "cursor",
    "exclude",
    "q",
    "sort",
    "direction",
    "labels",
    "status",
    "name",
    "creator",
    "repository_query",
];
const VALUES: &[&str] = &[
    "1",
    "0",
    "-1",
    "100",
    "true",
    "open",
    "all",
    "2030-01-01T00:00:00Z",
    "v1_5",
    "%00",
    "a+b",
    "label:bug",
    "repo:acme/widgets",
    "",
    "9223372036854775808",
    "props.teams:bots+-is:private",
    "state_change",
    "invitation",
];
const FIELDS: &[&str] = &[
    "title",
    "body",
    "name",
    "config",
    "events",
    "active",
    "state",
    "labels",
    "assignees",
    "milestone",
    "color",
    "new_name",
    "ignored",
    "last_read_at",
    "read",
    "tag_name",
    "query",
    "url",
    "secret",
    "insecure_ssl",
    "private",
    "visibility",
    "description",
    "type",
    "repository",
    "match",
    "role",
    "invitee_id",
    "email",
    "team_ids",
    "privacy",
    "parent_team_id",
    "maintainers",
    "permission",
    "organization_slugs",
    "usernames",
    "organization",
    "user",
    "access_token",
    "repositories",
    "repository_ids",
    "permissions",
    "operation",
    "objects",
    "lock_repositories",
    "org_metadata_only",
    "exclude",
    "variables",
    "operationName",
    "properties",
    "property_name",
    "value_type",
    "allowed_values",
    "default_value",
    "repository_names",
    "value",
    "options",
    "data_type",
    "priority",
    "actor",
    "team",
    "number",
];
const TOKENS: &[&str] = &[
    ADA,
    BEN,
    DAN,
    ADA_FINE,
    ADA_NO_PERMISSIONS,
    ADA_NO_SCOPES,
    INSTALLATION,
    WORKFLOW,
    OAUTH,
    "emu_app_user_ben",
    NOBODY,
    "wrong",
    "emu_app_user_iris",
    "emu_installation_initech",
    "emu_classic_revoked",
    "ZW11X2NsaWVudF9pZDplbXVfY2xpZW50X3NlY3JldA==",
];

pub fn pick<'a>(dice: &mut Rng, from: &[&'a str]) -> &'a str {
    dice.pick(from).copied().unwrap_or("")
}

/// Returns mostly an existing value, so that requests pass the first look-up.
fn parameter<'a>(dice: &mut Rng, name: &str) -> &'a str {
    let known: &[&str] = match name {
        "{owner}" | "{org}" => &["acme", "globex"],
        "{org_id}" => &["201", "202"],
        "{repo}" => &["widgets", "gadgets", "cogs"],
        "{team_slug}" => &["platform", "bots", "staff", "ent:architects"],
        "{team_id}" => &["401", "402", "403", "411", "511"],
        "{username}" => &["ada", "ben", "cleo", "hugo", "finn", "globex"],
        "{role_id}" => &["601", "602"],
        "{enterprise}" => &["initech"],
        "{enterprise-team}" => &["ent:architects", "512"],
        _ => PIECES,
    };
    let from = if dice.below(3) == 0 { PIECES } else { known };
    pick(dice, from)
}

fn path(dice: &mut Rng, templates: &[&str]) -> String {
    let mut path = match dice.below(10) {
        0 => format!("/{}/{}", pick(dice, PIECES), pick(dice, PIECES)),
        1 => "/graphql".to_owned(),
        2 => {
            "/_emulator/".to_owned()
                + pick(dice, &["events", "gates", "limits", "transcript", "books", "gates/1"])
        }
        _ => pick(dice, templates)
            .split('/')
            .map(|piece| if piece.starts_with('{') { parameter(dice, piece) } else { piece })
            .collect::<Vec<_>>()
            .join("/"),
    };
    if dice.below(5) == 0 {
        path = format!("/api/v3{path}");
    }
    for turn in 0..dice.below(3) {
        let separator = if turn == 0 { "?" } else { "&" };
        path.extend([separator, pick(dice, NAMES), "=", pick(dice, VALUES)]);
    }
    path
}

fn value(dice: &mut Rng, depth: u32) -> Value {
    match dice.below(if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => json!(dice.below(2) == 0),
        2 => json!(dice.next_u64()),
        3 => json!(-1.5),
        4 => json!(pick(
            dice,
            &[
                "open",
                "web",
                "https://example.com/x",
                "acme/widgets",
                "comment",
                "@ada {viewer{login}}",
                "{viewer{repositories(first:3){nodes{id}}}}",
                "ff0000",
                ""
            ]
        )),
        5 => json!(pick(dice, VALUES)),
        6 => (0..dice.below(3)).map(|_| value(dice, depth - 1)).collect(),
        _ => object(dice, depth - 1),
    }
}

pub fn object(dice: &mut Rng, depth: u32) -> Value {
    let members: Vec<(String, Value)> =
        (0..dice.below(5)).map(|_| (pick(dice, FIELDS).to_owned(), value(dice, depth))).collect();
    Value::Object(members.into_iter().collect())
}

fn random_request(dice: &mut Rng, templates: &[&str]) -> Option<Request<Bytes>> {
    let method = Method::from_bytes(
        pick(
            dice,
            &[
                "GET", "GET", "GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "TRACE",
                "ODD",
            ],
        )
        .as_bytes(),
    )
    .ok()?;
    let mut builder = Request::builder().method(method).uri(path(dice, templates));
    let token = pick(dice, TOKENS);
    if !token.is_empty() {
        let scheme = pick(dice, &["Bearer", "Bearer", "token", "Basic", ""]);
        builder = builder.header("authorization", format!("{scheme} {token}"));
    }
    for name in [
        "if-none-match",
        "if-modified-since",
        "accept",
        "accept-encoding",
        "host",
        "x-service-api-version",
    ] {
        if dice.below(6) == 0 {
            let bytes = [b'a' + u8::try_from(dice.below(26)).unwrap_or(0), 0xff];
            let odd = HeaderValue::from_bytes(&bytes).ok()?;
            let usual = HeaderValue::from_static(
                ["*", "W/\"x\", \"y\"", "Tue, 19 Jul 2022 04:37:49 GMT", "gzip", "2026-03-10"]
                    [usize::try_from(dice.below(5)).unwrap_or(0)],
            );
            builder = builder.header(name, if dice.below(4) == 0 { odd } else { usual });
        }
    }
    let body = match dice.below(4) {
        0 => Bytes::new(),
        1 => Bytes::from(pick(
            dice,
            &["{", "[]", "null", "\"x\"", "{\"query\":\"{viewer{login\"}", "\u{0}"],
        )),
        _ => Bytes::from(object(dice, 2).to_string()),
    };
    builder.body(body).ok()
}

fn begin(upstream: &mut Upstream) {
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    for name in [
        "core",
        "points.rest",
        "points.graphql",
        "content.minute",
        "content.hour",
        "search",
        "search.anonymous",
        "graphql",
    ] {
        upstream.set_limit(name, 1_000_000_000);
    }
}

#[test]
fn random_requests_get_only_well_formed_answers() {
    let seed = 20_260_728;
    let mut upstream = Upstream::new();
    let templates: Vec<&str> = resources::all().map(|route| route.template).collect();
    let mut dice = Rng::new(seed);
    let mut by_class = [0_u32; 6];
    for turn in 0..cases(REQUESTS) {
        if turn % RESET_EVERY == 0 {
            begin(&mut upstream);
        }
        let Some(request) = random_request(&mut dice, &templates) else { continue };
        let is_control = request.uri().path().starts_with("/_emulator");
        if is_control && request.method() == Method::PUT {
            // A PUT could set limits that refuse all later requests.
            continue;
        }
        upstream.now = upstream.now + Duration::from_millis(dice.below(50));
        let answer = upstream.send(&request);
        let what = || {
            format!(
                "seed {seed}, turn {turn}: {} {} → {}",
                request.method(),
                request.uri(),
                answer.status
            )
        };
        assert!((200..500).contains(&answer.status), "{}", what());
        by_class[usize::from(answer.status / 100)] += 1;
        if !is_control {
            assert!(
                answer.headers.contains_key("x-ratelimit-reset")
                    && answer.headers.contains_key("date"),
                "{}",
                what()
            );
        }
        if answer.header("content-type").starts_with("application/json")
            && request.method() != Method::HEAD
        {
            assert!(!answer.body.is_null(), "{}", what());
        }
        if answer.status >= 400 && request.method() != Method::HEAD {
            assert!(answer.body["message"].is_string(), "{} {}", what(), answer.body);
        }
    }
    assert!(
        by_class[2] > cases(1_000) && by_class[3] > cases(5) && by_class[4] > cases(1_000),
        "it reaches all kinds of answers: {by_class:?}"
    );
}
