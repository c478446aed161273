//! Tests faults without a socket: execution, response, counts and transcript.

use serde_json::{Value, json};

use crate::emulator::faults::wire::{Departure, Framing, Wire};
use crate::emulator::pipeline::arrival::Arrival;
use crate::emulator::tests::*;

const ISSUES: &str = "/repos/acme/widgets/issues";

impl Upstream {
    fn arm(&mut self, fault: &Value) -> u64 {
        self.post(NOBODY, "/_emulator/faults", fault).assert_status(201).body["id"]
            .as_u64()
            .expect("an id")
    }

    fn issue(&mut self, title: &str) -> Answer {
        self.post(ADA, ISSUES, &json!({ "title": title }))
    }

    fn issues(&mut self) -> usize {
        let world = self.get(NOBODY, "/_emulator/world").body;
        let widgets = world["repositories"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["full_name"] == "acme/widgets"));
        widgets
            .and_then(|widgets| widgets["issues"].as_u64())
            .and_then(|count| usize::try_from(count).ok())
            .expect("a number")
    }

    fn arrives(&mut self, method: Method, token: &str, path: &str) -> Arrival {
        self.emulator.arrive(self.now, &request(method, token, path, &[], &Value::Null), PEER)
    }

    fn last(&mut self) -> Value {
        let all = self.get(NOBODY, "/_emulator/transcript").body;
        all["requests"].as_array().and_then(|all| all.last().cloned()).expect("a request")
    }

    fn wire(&mut self, method: Method, path: &str, body: &Value) -> (Option<Wire>, u16) {
        let response =
            self.emulator.respond(self.now, &request(method, ADA, path, &[], body), PEER);
        (response.extensions().get().copied(), response.status().as_u16())
    }
}

#[test]
fn a_502_before_execution_does_nothing_and_costs_nothing() {
    let mut upstream = Upstream::new();
    let before = upstream.issues();
    upstream.arm(&json!({ "fault": "status", "match": { "method": "POST", "nth": 1 } }));
    let answer = upstream.issue("x").assert_status(502);
    assert_eq!(answer.body["message"], "Server Error");
    assert_eq!(answer.header("x-ratelimit-remaining"), "", "a proxy in front knows no budget");
    assert_eq!(upstream.issues(), before);
    let last = upstream.last();
    assert_eq!(
        (&last["fault"], &last["executed"], &last["status"], &last["cost"]),
        (&json!("status"), &json!(false), &json!(502), &json!(0))
    );
    assert_eq!(upstream.issue("x").assert_status(201).remaining(), 4_999);
}

#[test]
fn a_post_that_is_answered_502_may_have_been_executed() {
    let mut upstream = Upstream::new();
    let before = upstream.issues();
    upstream.arm(&json!({ "fault": "status", "executed": true, "match": { "method": "POST", "path": "/repos/*/issues", "nth": 1 } }));
    upstream.issue("x").assert_status(502);
    assert_eq!(upstream.issues(), before + 1);
    let last = upstream.last();
    assert_eq!(
        (&last["fault"], &last["executed"], &last["cost"]),
        (&json!("status"), &json!(true), &json!(1))
    );
}

#[test]
fn a_status_fault_takes_any_error_status_body_and_headers() {
    let mut upstream = Upstream::new();
    let fault = json!({ "fault": "status", "status": 503, "body": "<p>down</p>", "headers": { "retry-after": "7" }, "match": { "nth": 1 } });
    upstream.arm(&fault);
    let answer = upstream.get(ADA, "/user").assert_status(503);
    assert_eq!((&answer.bytes[..], answer.header("retry-after")), (&b"<p>down</p>"[..], "7"));
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    upstream.arm(&json!({ "fault": "status", "status": 422, "body": { "message": "no" }, "match": { "nth": 1 } }));
    let answer = upstream.get(ADA, "/user").assert_status(422);
    assert_eq!(answer.body, json!({ "message": "no" }));
    assert_eq!(answer.remaining(), 5_000, "an answer of the service itself has the usual headers");
    upstream.arm(&json!({ "fault": "status", "status": 500, "match": { "nth": 1 } }));
    let head =
        upstream.send(&request(Method::HEAD, ADA, "/user", &[], &Value::Null)).assert_status(500);
    assert!(head.bytes.is_empty() && !head.header("content-length").is_empty());
}

#[test]
fn the_nth_matching_request_is_struck_and_no_other() {
    let mut upstream = Upstream::new();
    let id = upstream.arm(
        &json!({ "fault": "status", "match": { "method": "get", "path": "/users/*", "nth": 2 } }),
    );
    upstream.get(ADA, "/user").assert_status(200);
    upstream.get(ADA, "/users/ada").assert_status(200);
    upstream.post(ADA, "/users/ada", &json!({})).assert_status(404);
    upstream.get(ADA, "/api/v3/users/ben").assert_status(502);
    upstream.get(ADA, "/users/ada").assert_status(200);
    let shown = upstream.get(NOBODY, &format!("/_emulator/faults/{id}")).assert_status(200).body;
    assert_eq!(
        (&shown["seen"], &shown["struck"], &shown["spent"]),
        (&json!(3), &json!(1), &json!(true))
    );
    assert_eq!(
        shown["match"],
        json!({ "method": "get", "path": "/users/*", "nth": 2 }),
        "as in the request"
    );
}

#[test]
fn a_fault_without_nth_strikes_every_match_up_to_times() {
    let mut upstream = Upstream::new();
    upstream.arm(&json!({ "fault": "status", "match": { "path": "/user" } }));
    for _ in 0..3 {
        upstream.get(ADA, "/user").assert_status(502);
    }
    upstream.delete(NOBODY, "/_emulator/faults").assert_status(200);
    upstream.arm(&json!({ "fault": "status", "match": { "nth": 2, "times": 2 } }));
    for status in [200, 502, 502, 200] {
        upstream.get(ADA, "/user").assert_status(status);
    }
}

#[test]
fn a_fault_may_match_one_account_or_one_token() {
    let mut upstream = Upstream::new();
    upstream.arm(&json!({ "fault": "status", "status": 500, "match": { "account": "ben" } }));
    upstream.arm(&json!({ "fault": "status", "status": 501, "match": { "token": ADA_FINE } }));
    upstream.get(BEN, "/user").assert_status(500);
    upstream.get(ADA, "/user").assert_status(200);
    upstream.get(ADA_FINE, "/user").assert_status(501);
}

#[test]
fn the_first_armed_fault_decides_the_end_of_a_request() {
    let mut upstream = Upstream::new();
    let first = upstream.arm(&json!({ "fault": "status", "status": 500, "match": { "nth": 1 } }));
    let second = upstream.arm(&json!({ "fault": "status", "status": 501, "match": { "nth": 1 } }));
    upstream.get(ADA, "/user").assert_status(500);
    assert_eq!(upstream.get(NOBODY, &format!("/_emulator/faults/{second}")).body["seen"], 0);
    upstream.get(ADA, "/user").assert_status(501);
    assert_eq!(
        upstream.get(NOBODY, "/_emulator/faults").body["faults"].as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(
        upstream.delete(NOBODY, &format!("/_emulator/faults/{first}")).assert_status(200).body["struck"],
        1
    );
    upstream.get(NOBODY, &format!("/_emulator/faults/{first}")).assert_status(404);
    upstream.delete(NOBODY, &format!("/_emulator/faults/{first}")).assert_status(404);
    assert_eq!(upstream.delete(NOBODY, "/_emulator/faults").assert_status(200).body["deleted"], 1);
}

#[test]
fn wire_faults_are_reported_to_callers_without_a_socket() {
    let mut upstream = Upstream::new();
    let before = upstream.issues();
    for (fault, wire, executed, status) in [
        (json!({ "fault": "reset_before" }), Wire::Reset, false, 0),
        (json!({ "fault": "reset_after" }), Wire::Reset, true, 201),
        (json!({ "fault": "lost" }), Wire::Lost, true, 201),
        (json!({ "fault": "half_body" }), Wire::Half(Framing::Length), true, 201),
        (json!({ "fault": "half_body", "chunked": true }), Wire::Half(Framing::Chunked), true, 201),
        (json!({ "fault": "stall" }), Wire::HeldBack { until: Timestamp::FAR_FUTURE }, true, 201),
        (
            json!({ "fault": "stall", "executed": false }),
            Wire::HeldBack { until: Timestamp::FAR_FUTURE },
            false,
            504,
        ),
    ] {
        upstream.arm(&fault);
        let (seen, _) = upstream.wire(Method::POST, ISSUES, &json!({ "title": "x" }));
        assert_eq!(seen, Some(wire), "{fault}");
        let last = upstream.last();
        assert_eq!(
            (&last["executed"], &last["status"]),
            (&json!(executed), &json!(status)),
            "{fault}"
        );
        assert_eq!(last["cost"], u32::from(executed), "{fault}");
        upstream.delete(NOBODY, "/_emulator/faults").assert_status(200);
    }
    assert_eq!(upstream.issues(), before + 5);
    assert_eq!(upstream.wire(Method::GET, "/user", &Value::Null), (None, 200));
    assert_eq!(upstream.usage()["secondary"][0]["in_flight"], 0);
}

#[test]
fn a_stalled_request_is_in_flight_until_it_finishes() {
    let mut upstream = Upstream::new();
    for executed in [true, false] {
        let id = upstream.arm(&json!({ "fault": "stall", "seconds": 30, "executed": executed, "match": { "nth": 1 } }));
        let stalled = upstream.arrives(Method::GET, ADA, "/user");
        assert_eq!(stalled.wire, Wire::HeldBack { until: upstream.now + Duration::from_secs(30) });
        assert!(upstream.emulator.is_held_back(upstream.now, stalled.id));
        assert_eq!(upstream.usage()["secondary"][0]["in_flight"], 1);
        assert_eq!(upstream.get(NOBODY, &format!("/_emulator/faults/{id}")).body["holding"], 1);
        upstream.emulator.finish(upstream.now, stalled.id);
        assert_eq!(upstream.usage()["secondary"][0]["in_flight"], 0);
        assert_eq!(upstream.get(NOBODY, &format!("/_emulator/faults/{id}")).body["holding"], 0);
    }
    let timed = {
        upstream.arm(&json!({ "fault": "stall", "seconds": 30, "match": { "nth": 1 } }));
        upstream.arrives(Method::GET, ADA, "/user")
    };
    upstream.pass(30);
    assert!(!upstream.emulator.is_held_back(upstream.now, timed.id));
}

#[test]
fn a_deleted_fault_or_a_reset_releases_stalled_requests() {
    let mut upstream = Upstream::new();
    let id = upstream.arm(&json!({ "fault": "stall" }));
    let stalled = upstream.arrives(Method::GET, ADA, "/user");
    assert_eq!(upstream.delete(NOBODY, &format!("/_emulator/faults/{id}")).body["released"], 1);
    assert!(!upstream.emulator.is_held_back(upstream.now, stalled.id));
    upstream.arm(&json!({ "fault": "stall" }));
    let stalled = upstream.arrives(Method::GET, ADA, "/user");
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    assert!(!upstream.emulator.is_held_back(upstream.now, stalled.id));
    assert_eq!(upstream.get(NOBODY, "/_emulator/faults").body["faults"], json!([]));
}

#[test]
fn a_reordered_answer_waits_for_later_answers_of_its_account() {
    let mut upstream = Upstream::new();
    upstream.arm(&json!({ "fault": "reorder", "after": 2, "match": { "nth": 1 } }));
    let held = upstream.arrives(Method::GET, ADA, "/user");
    assert_eq!(held.wire, Wire::HeldBack { until: upstream.now + Duration::from_secs(10) });
    let other = upstream.arrives(Method::GET, BEN, "/user");
    assert_eq!(other.departure, Departure::Unwatched);
    for turn in 0..2 {
        assert!(upstream.emulator.is_held_back(upstream.now, held.id), "after {turn}");
        let later = upstream.arrives(Method::GET, ADA_FINE, "/user");
        assert_eq!(later.departure, Departure::Watched);
        upstream.emulator.finish(upstream.now, later.id);
        upstream.emulator.departed(later.id);
        let remaining = |arrival: &Arrival| {
            arrival.response.headers()["x-ratelimit-remaining"].to_str().expect("digits").to_owned()
        };
        assert!(remaining(&held) > remaining(&later));
    }
    assert!(!upstream.emulator.is_held_back(upstream.now, held.id));
}

#[test]
fn a_lost_denial_leaves_sent_while_limited_at_0() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 0);
    upstream.arm(&json!({ "fault": "lost", "match": { "times": 2 } }));
    upstream.get(ADA, "/user");
    upstream.get(ADA, "/user");
    assert_eq!(upstream.usage()["sent_while_limited"], 0);
    assert_eq!(upstream.last()["refused"], "points", "the account knew of no wait");
    upstream.set_limit("points.rest", 900);
    upstream.set_limit("core", 0);
    upstream.arm(&json!({ "fault": "status", "executed": true, "match": { "times": 2 } }));
    upstream.get(ADA, "/user").assert_status(502);
    upstream.get(ADA, "/user").assert_status(502);
    let usage = upstream.usage();
    assert_eq!(
        (&usage["refused_primary"], &usage["sent_while_limited"], &usage["told"]),
        (&json!(2), &json!(0), &json!([]))
    );
}

#[test]
fn a_request_while_limited_counts_even_if_its_answer_is_faulty() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core", 0);
    upstream.get(ADA, "/user").assert_status(403);
    for fault in ["reset_before", "status", "lost", "secondary"] {
        upstream.arm(&json!({ "fault": fault, "match": { "nth": 1 } }));
        upstream.get(ADA, "/user");
    }
    assert_eq!(upstream.usage()["sent_while_limited"], 4);
}

#[test]
fn a_secondary_fault_limits_the_account_for_its_retry_after() {
    let mut upstream = Upstream::new();
    upstream.arm(&json!({ "fault": "secondary", "retry_after": 5, "match": { "nth": 1 } }));
    let refused = upstream.get(ADA, "/user").assert_status(403);
    assert_eq!(refused.header("retry-after"), "5");
    assert_eq!(refused.remaining(), 5_000);
    assert!(
        refused.body["message"]
            .as_str()
            .is_some_and(|message| message.contains("secondary rate limit"))
    );
    assert_eq!(
        (&upstream.last()["refused"], &upstream.last()["executed"]),
        (&json!("fault"), &json!(false))
    );
    assert_eq!(
        (&upstream.usage()["refused_secondary"], &upstream.usage()["sent_while_limited"]),
        (&json!(1), &json!(0))
    );
    upstream.pass(4);
    upstream.get(ADA, "/user").assert_status(403);
    assert_eq!(upstream.usage()["sent_while_limited"], 1);
    upstream.pass(1);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn a_secondary_fault_lasts_a_minute_or_until_the_reset() {
    let mut upstream = Upstream::new();
    upstream.arm(&json!({ "fault": "secondary", "status": 429, "match": { "nth": 1 } }));
    assert_eq!(upstream.get(ADA, "/user").assert_status(429).header("retry-after"), "");
    upstream.pass(59);
    upstream.get(ADA, "/user").assert_status(403);
    upstream.pass(1);
    upstream.get(ADA, "/user").assert_status(200);
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    upstream.arm(
        &json!({ "fault": "secondary", "remaining": 0, "retry_after": 5, "match": { "nth": 1 } }),
    );
    let refused = upstream.get(ADA, "/user").assert_status(403);
    assert_eq!((refused.remaining(), refused.header("x-ratelimit-used")), (0, "5000"));
    let reset: u64 = refused.header("x-ratelimit-reset").parse().expect("seconds");
    upstream.now = Timestamp::from_secs(reset - 1);
    upstream.get(ADA, "/user").assert_status(403);
    upstream.now = Timestamp::from_secs(reset);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn a_secondary_denial_ends_with_its_retry_after() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core", 1);
    upstream.get(ADA, "/user").assert_status(200);
    upstream.arm(&json!({ "fault": "secondary", "retry_after": 5, "match": { "nth": 1 } }));
    upstream.get(ADA, "/user").assert_status(403);
    upstream.pass(5);
    upstream.get(ADA, "/search/issues?q=x").assert_status(200);
    assert_eq!(upstream.usage()["sent_while_limited"], 0);
}

#[test]
fn a_denial_may_be_an_html_page_without_retry_after() {
    let mut upstream = Upstream::new();
    upstream.arm(&json!({ "fault": "html_refusal", "match": { "nth": 1 } }));
    let refused = upstream.get(ADA, "/user").assert_status(403);
    assert_eq!(
        (refused.header("content-type"), refused.header("retry-after")),
        ("text/html; charset=utf-8", "")
    );
    assert!(String::from_utf8_lossy(&refused.bytes).contains("secondary rate limit"));
    upstream.pass(59);
    upstream.get(ADA, "/user").assert_status(403);
    upstream.pass(1);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn a_revoked_token_is_401_until_a_reset() {
    let mut upstream = Upstream::new();
    let id = upstream.arm(&json!({ "fault": "revoke", "match": { "token": ADA, "nth": 2 } }));
    upstream.get(ADA, "/user").assert_status(200);
    assert_eq!(upstream.get(ADA, "/user").assert_status(401).body["message"], "Bad credentials");
    upstream.delete(NOBODY, &format!("/_emulator/faults/{id}")).assert_status(200);
    upstream.get(ADA, "/user").assert_status(401);
    upstream.get(ADA_FINE, "/user").assert_status(200);
    upstream.post(NOBODY, "/_emulator/reset", &Value::Null).assert_status(200);
    upstream.get(ADA, "/user").assert_status(200);
}

#[test]
fn a_revoke_fault_spares_requests_without_a_credential() {
    let mut upstream = Upstream::new();
    upstream.arm(&json!({ "fault": "revoke" }));
    upstream.get(NOBODY, "/users/ada").assert_status(200);
    let basic = Request::get("/users/ada")
        .header("authorization", "Basic ZW11X2NsaWVudF9pZDplbXVfY2xpZW50X3NlY3JldA==")
        .body(Bytes::new())
        .expect("well formed");
    upstream.send(&basic).assert_status(401);
    upstream.delete(NOBODY, "/_emulator/faults").assert_status(200);
    upstream.send(&basic).assert_status(401);
}

#[test]
fn the_reset_time_wobbles_randomly_by_the_seed_or_alternates() {
    let seen = |seed: u64, pattern: &str| {
        let mut upstream = Upstream::with(Options { seed, ..Options::default() });
        let truth: i64 =
            upstream.get(ADA, "/user").header("x-ratelimit-reset").parse().expect("seconds");
        upstream.arm(&json!({ "fault": "wobble", "seconds": 2, "pattern": pattern }));
        let wobbly = |_| {
            upstream.get(ADA, "/user").header("x-ratelimit-reset").parse::<i64>().expect("seconds")
                - truth
        };
        (0..20).map(wobbly).collect::<Vec<i64>>()
    };
    assert_eq!(seen(1, "alternating")[..4], [2, -2, 2, -2]);
    let random = seen(1, "random");
    assert!(
        random.iter().all(|shift| shift.abs() <= 2)
            && random.iter().any(|shift| *shift > 0)
            && random.iter().any(|shift| *shift < 0)
    );
    assert_eq!(random, seen(1, "random"));
    assert_ne!(random, seen(2, "random"));
}

#[test]
fn a_clock_offset_shifts_date_and_reset_but_not_the_budget() {
    let mut upstream = Upstream::new();
    let truth = upstream.get(ADA, "/user");
    upstream.arm(&json!({ "fault": "clock_offset", "seconds": -90 }));
    let wrong = upstream.get(ADA, "/user");
    let secs =
        |answer: &Answer| answer.header("x-ratelimit-reset").parse::<u64>().expect("seconds");
    let date = |answer: &Answer| httpdate::parse_http_date(answer.header("date")).expect("a date");
    assert_eq!(secs(&wrong) + 90, secs(&truth));
    assert_eq!(
        date(&truth).duration_since(date(&wrong)).expect("earlier"),
        Duration::from_secs(90)
    );
    let body = upstream.get(ADA, "/rate_limit").body;
    assert_eq!(
        (&body["resources"]["core"]["reset"], &body["rate"]["reset"]),
        (&json!(secs(&wrong)), &json!(secs(&wrong)))
    );
    assert_eq!(upstream.usage()["windows"][0]["reset"], secs(&truth));
    assert_eq!(upstream.last()["fault"], "clock_offset");
}

#[test]
fn a_pristine_rate_limit_answer_hides_the_spent_budget() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core", 3);
    upstream.get(ADA, "/user");
    upstream.get(ADA, "/user");
    upstream.arm(&json!({ "fault": "pristine_rate_limit" }));
    let pristine = upstream.get(ADA, "/rate_limit").assert_status(200);
    assert_eq!(
        (&pristine.body["rate"]["remaining"], &pristine.body["rate"]["used"], pristine.remaining()),
        (&json!(3), &json!(0), 3)
    );
    assert_eq!(upstream.get(ADA, "/user").remaining(), 0);
    upstream.get(ADA, "/user").assert_status(403);
}

#[test]
fn a_lagging_replica_serves_the_previous_version() {
    let mut upstream = Upstream::new();
    let described = |answer: Answer| answer.body["description"].as_str().unwrap_or("").to_owned();
    let rename = |upstream: &mut Upstream, text: &str| {
        upstream
            .patch(ADA, "/repos/acme/widgets", &json!({ "description": text }))
            .assert_status(200);
    };
    upstream.arm(&json!({ "fault": "stale_read", "reads": 2 }));
    let before = described(upstream.get(ADA, "/repos/acme/widgets"));
    rename(&mut upstream, "new");
    for _ in 0..2 {
        assert_eq!(described(upstream.get(ADA, "/repos/acme/widgets")), before);
    }
    assert_eq!(described(upstream.get(ADA, "/repos/acme/widgets")), "new");
    upstream.delete(NOBODY, "/_emulator/faults").assert_status(200);
    upstream.arm(&json!({ "fault": "stale_read", "seconds": 10 }));
    upstream.get(ADA, "/repos/acme/widgets/issues/80").assert_status(404);
    upstream.issue("the eightieth").assert_status(201);
    upstream.get(ADA, "/repos/acme/widgets/issues/80").assert_status(404);
    upstream.pass(10);
    upstream.get(ADA, "/repos/acme/widgets/issues/80").assert_status(200);
}

#[test]
fn a_deleted_stale_read_fault_forgets_its_reads() {
    let mut upstream = Upstream::new();
    upstream.arm(&json!({ "fault": "stale_read", "reads": 2 }));
    upstream.get(ADA, "/repos/acme/widgets/issues/80").assert_status(404);
    upstream.delete(NOBODY, "/_emulator/faults").assert_status(200);
    upstream.issue("the eightieth").assert_status(201);
    upstream.arm(&json!({ "fault": "stale_read", "reads": 2 }));
    upstream.get(ADA, "/repos/acme/widgets/issues/80").assert_status(200);
}

#[test]
fn header_faults_combine_with_each_other_and_a_status_fault() {
    let mut upstream = Upstream::new();
    upstream.arm(&json!({ "fault": "wobble", "seconds": 1, "pattern": "alternating" }));
    upstream.arm(&json!({ "fault": "status", "status": 500, "match": { "nth": 1 } }));
    upstream.arm(&json!({ "fault": "clock_offset", "seconds": 10 }));
    let reset = upstream.now.as_secs() + 3_600;
    assert_eq!(
        upstream.get(ADA, "/user").assert_status(500).header("x-ratelimit-reset"),
        (reset + 11).to_string()
    );
    assert_eq!(upstream.last()["fault"], "wobble+status+clock_offset");
}

#[test]
fn a_fault_strikes_during_replay_too() {
    let mut upstream = Upstream::new();
    upstream.emulator = Emulator::replaying(
        Options::default(),
        crate::emulator::replay::Recording::default(),
        START,
    );
    upstream.arm(&json!({ "fault": "revoke", "match": { "nth": 1 } }));
    upstream.get(ADA, "/user").assert_status(401);
    upstream.get(ADA, "/user").assert_status(401);
    upstream.get(BEN, "/user").assert_status(404);
    upstream.post(NOBODY, "/_emulator/seed", &json!({ "seed": 1 })).assert_status(422);
}

#[test]
fn an_invalid_fault_names_every_wrong_field() {
    let mut upstream = Upstream::new();
    let wrong = json!({ "fault": "stall", "seconds": "long", "match": { "nth": 0, "method": 7, "colour": 1 }, "status": 500 });
    let refused = upstream.post(NOBODY, "/_emulator/faults", &wrong).assert_status(422);
    for field in ["seconds", "match.nth", "match.method", "match.colour", "status"] {
        let errors = refused.body["errors"].as_array().expect("a list");
        assert!(errors.iter().any(|error| error["field"] == field), "{field} in {}", refused.body);
    }
    upstream
        .post(NOBODY, "/_emulator/faults", &json!({ "fault": "teapot" }))
        .assert_names_field("fault");
    upstream.post(NOBODY, "/_emulator/faults", &json!({})).assert_names_field("fault");
    upstream.post(NOBODY, "/_emulator/faults", &json!([])).assert_status(400);
    let malformed = Request::post("/_emulator/faults")
        .header("content-type", "application/json")
        .body(Bytes::from_static(b"{"));
    upstream.send(&malformed.expect("well formed")).assert_status(400);
    assert_eq!(
        upstream.get(NOBODY, "/_emulator/faults").body["faults"],
        json!([]),
        "nothing was armed"
    );
}

#[test]
fn more_than_a_thousand_faults_are_refused() {
    let mut upstream = Upstream::new();
    for _ in 0..1_000 {
        upstream.arm(&json!({ "fault": "lost", "match": { "path": "/none" } }));
    }
    upstream.post(NOBODY, "/_emulator/faults", &json!({ "fault": "lost" })).assert_status(422);
    upstream.get(ADA, "/user").assert_status(200);
}
