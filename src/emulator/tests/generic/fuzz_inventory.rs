//! Sends seeded random requests to every route of the endpoint table: no panic, and every response
//! is valid for its route.

use std::collections::BTreeMap;

use http::{Method, Request};

use super::documented::{self, Form};
use super::fuzz::{object, pick};
use super::inventory::{OAUTH_APP, app_jwt, lift_limits, request_with, routes};
use super::walk::WALK;
use crate::cases::cases;
use crate::emulator::resources::find;
use crate::emulator::routing::Verb;
use crate::emulator::tests::*;
use crate::random::Rng;

/// Requests for each dialect; with the 20,000 of `fuzz` they are 100,000.
const REQUESTS: u32 = 40_000;
/// Resets after this many requests, so that lists stay short.
const RESET_EVERY: u32 = 8_000;

const CREDENTIALS: &[&str] = &[
    ADA,
    ADA,
    ADA,
    ADA,
    ADA,
    ADA,
    ADA,
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
    OAUTH_APP,
    "jwt",
    NOBODY,
    "wrong",
];
const ODD: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "99999999999999999999",
    "%2F",
    "%",
    "%ff",
    "%00",
    "..",
    ".",
    "é",
    "🦀",
    "a%20b",
    "x",
    "ACME",
    "main...main",
    "a.b.c",
    "*",
    "{x}",
    "unlisted",
    "widgets.git",
];
const REPOSITORIES: &[&str] =
    &["widgets", "widgets", "widgets", "gadgets", "cogs", "sprockets", "Widgets"];
const QUERIES: &[&str] = &[
    "",
    "",
    "",
    "?page=2",
    "?per_page=1",
    "?per_page=0&page=-1",
    "?page=99999999999999999999",
    "?cursor=v1_1",
    "?cursor=%ff",
    "?state=all",
    "?since=x",
    "?q=a",
    "?key=x",
    "?protected=true",
    "?a&b=&=c&%",
];

/// Names of created objects, by the template of their list.
type Made = BTreeMap<String, Vec<String>>;

/// Returns a path of the endpoint; some values are odd, others name objects created before.
fn path(dice: &mut Rng, template: &str, made: &Made) -> String {
    let mut path = if dice.below(8) == 0 { "/api/v3".to_owned() } else { String::new() };
    let mut list = String::new();
    for segment in template.split('/').skip(1) {
        let known = made.get(&list).and_then(|names| dice.pick(names));
        let word = match segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) {
            _ if dice.below(150) == 0 => pick(dice, ODD),
            None => segment,
            Some(_) if dice.below(12) == 0 => pick(dice, ODD),
            Some("repo") => pick(dice, REPOSITORIES),
            Some("*rest") => pick(
                dice,
                &[
                    "unlisted",
                    "unlisted/5",
                    "5/parts",
                    "things/5",
                    "a/b/c",
                    "5/things/x/parts",
                    "%2F/x",
                ],
            ),
            Some(_) if known.is_some() => known.map_or("", String::as_str),
            Some(name) => {
                WALK.iter().find(|(known, _)| *known == name).map_or("4711", |(_, value)| value)
            }
        };
        path = format!("{path}/{word}");
        list = format!("{list}/{segment}");
    }
    if template == "/" {
        path.push('/');
    }
    path + pick(dice, QUERIES)
}

/// Returns true for requests that delete or rename objects of most routes; they come last.
fn removes_shared_objects(method: &Method, template: &str) -> bool {
    matches!(
        (method.as_str(), template),
        ("DELETE" | "PATCH", "/repos/{owner}/{repo}") | ("DELETE", "/orgs/{org}")
    )
}

fn note(made: &mut Made, template: &str, answer: &Answer) {
    let name = answer.body["url"]
        .as_str()
        .and_then(|url| url.rsplit('/').next())
        .filter(|_| answer.status == 201);
    made.entry(template.to_owned()).or_default().extend(name.map(str::to_owned));
}

fn random_request(
    dice: &mut Rng,
    upstream: &Upstream,
    path: &str,
    usual: &Method,
    jwt: &str,
) -> Option<Request<Bytes>> {
    let method = if dice.below(10) == 0 {
        Method::from_bytes(
            pick(dice, &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
                .as_bytes(),
        )
        .ok()?
    } else {
        usual.clone()
    };
    path.parse::<http::Uri>().ok()?;
    let credential = match pick(dice, CREDENTIALS) {
        "jwt" => jwt,
        credential => credential,
    };
    let mut request = request_with(upstream, &method, credential, path, &Value::Null);
    *request.body_mut() = match dice.below(5) {
        0 => Bytes::from_static(pick(dice, &["{", "[]", "null", "\"x\"", "[1,\"a\",{}]", "\u{0}", "{\"a\":1}x"]).as_bytes()),
        1 => Bytes::new(),
        2 => Bytes::from_static(
            br#"{"name":"n","value":"v","head_sha":"main","ref":"main","sha":"main","state":"success","key":"k","body":"b","content":"heart","title":"t","head":"main","base":"main"}"#,
        ),
        _ => Bytes::from(object(dice, 2).to_string()),
    };
    for (name, value) in [
        ("if-none-match", "*"),
        ("if-modified-since", "Fri, 01 Jan 2038 00:00:00 GMT"),
        ("accept", "application/vnd.service.raw+json"),
    ] {
        if dice.below(30) == 0 {
            request.headers_mut().insert(name, http::HeaderValue::from_static(value));
        }
    }
    Some(request)
}

/// Documented errors that such a request can meet, and redirects of renamed repositories.
fn may_answer(method: &Method, status: u16) -> bool {
    match status {
        200 | 204 | 400 | 401 | 403 | 404 | 422 => true,
        201 | 202 => matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE),
        205 => matches!(*method, Method::PUT | Method::PATCH),
        301 | 302 => matches!(*method, Method::GET | Method::HEAD),
        304 => !matches!(*method, Method::POST | Method::OPTIONS),
        307 => !matches!(*method, Method::GET | Method::HEAD),
        _ => false,
    }
}

/// Returns the documented success of a hand-written route; `None` for generic resources.
fn documented(method: &Method, path: &str) -> Option<(Vec<u16>, Form)> {
    let verb = Verb::of(method)?;
    let (route, _) = find(verb, path.strip_prefix("/api/v3").unwrap_or(path))?;
    documented::row(verb.name(), route.template)
}

fn judge(dialect: Dialect, request: &Request<Bytes>, answer: &Answer) -> Result<(), &'static str> {
    let (method, path) = (request.method(), request.uri().path());
    let is_head = *method == Method::HEAD;
    if !may_answer(method, answer.status) {
        return Err("the status is none of such a request");
    }
    if let Some((successes, form)) = documented(method, path) {
        let is_conditional = matches!(*method, Method::GET | Method::HEAD) && answer.status == 304;
        if answer.status < 300 && !successes.contains(&answer.status) {
            return Err("the documents list another success");
        }
        if (300..400).contains(&answer.status)
            && !successes.contains(&answer.status)
            && !is_conditional
            && !matches!(answer.status, 301 | 307)
        {
            return Err("the documents list no such redirect");
        }
        if form == Form::Array && answer.status == 200 && !is_head && !answer.body.is_array() {
            return Err("the documents say that it is an array");
        }
    }
    let branded = [
        dialect.accepted_permissions_header().to_owned(),
        dialect.delivery_header("media-type"),
        dialect.delivery_header("request-id"),
    ];
    let everywhere = [
        "date",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-used",
        "x-ratelimit-reset",
        "x-ratelimit-resource",
    ];
    if !everywhere
        .iter()
        .copied()
        .chain(branded.iter().map(String::as_str))
        .all(|name| answer.headers.contains_key(name))
    {
        return Err("a header of every answer is missing");
    }
    let is_json = answer.header("content-type").starts_with("application/json");
    if is_json && !is_head && answer.body.is_null() && &*answer.bytes != b"null" {
        return Err("the JSON is malformed");
    }
    if answer.status >= 400 && !is_head && !(is_json && answer.body["message"].is_string()) {
        return Err("an error has no message");
    }
    if matches!(answer.status, 204 | 205 | 304) && !answer.bytes.is_empty() {
        return Err("no content is some");
    }
    if answer.status == 422
        && !is_head
        && answer.body["errors"].as_array().is_none_or(Vec::is_empty)
    {
        return Err("a 422 names no field");
    }
    if matches!(answer.status, 301 | 302 | 307) && answer.header("location").is_empty() {
        return Err("a redirect leads nowhere");
    }
    Ok(())
}

fn fuzz(dialect: Dialect, seed: u64) {
    let mut upstream = Upstream::with(Options { dialect, ..Options::default() });
    let endpoints: Vec<(Method, &str)> = routes(dialect)
        .map(|endpoint| (endpoint.method.clone(), endpoint.template.as_str()))
        .collect();
    let mut dice = Rng::new(seed);
    let mut by_status = BTreeMap::<u16, u32>::new();
    let mut jwt = String::new();
    let mut made = Made::new();
    for turn in 0..cases(REQUESTS) {
        if turn % RESET_EVERY == 0 {
            upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
            lift_limits(&mut upstream);
            jwt = app_jwt(&upstream);
            made.clear();
        }
        let Some((method, template)) = dice.pick(&endpoints).cloned() else { continue };
        if turn % RESET_EVERY < RESET_EVERY / 10 * 9 && removes_shared_objects(&method, template) {
            continue;
        }
        let path = path(&mut dice, template, &made);
        let Some(request) = random_request(&mut dice, &upstream, &path, &method, &jwt) else {
            continue;
        };
        upstream.now = upstream.now + Duration::from_millis(dice.below(50));
        let answer = upstream.send(&request);
        *by_status.entry(answer.status).or_default() += 1;
        note(&mut made, template, &answer);
        if let Err(fault) = judge(dialect, &request, &answer) {
            panic!(
                "{dialect:?}, seed {seed}, turn {turn}: {fault}: {} {} → {} {}",
                request.method(),
                request.uri(),
                answer.status,
                answer.body
            );
        }
    }
    for status in [200, 201, 202, 204, 301, 302, 304, 307, 400, 401, 403, 404, 422] {
        assert!(by_status.contains_key(&status), "all kinds of answers occur: {by_status:?}");
    }
}

#[test]
fn every_answer_to_a_random_request_is_valid_for_its_route() {
    fuzz(Dialect::Service, 20_260_729);
}

#[test]
fn every_github_answer_to_a_random_request_is_valid() {
    fuzz(Dialect::Github, 20_260_730);
}
