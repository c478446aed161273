//! The deadline of a request over all its attempts, and the circuit breaker (SPECIFICATION D22).
//!
//! Timeouts of the upstream follow the machine's clock, so they are short here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use weir::clock::{Clock, machine_instant};

use crate::support::switched::Mode::{Answers, Closes, FreeAnswers, Hangs, Late, StallsInBody};
use crate::support::switched::{Mode, Switched};
use crate::support::{OTHER_KEY, Reply, Setup, World, eventually};

const STORED: &str = "/repos/acme/stored";
const ISSUES: &str = "/repos/acme/widgets/issues";

/// With it, five lost attempts take about a second.
const SHORT: &str = "response_timeout = \"200ms\"";
/// With it, only silence shows an outage.
const LONG: &str = "response_timeout = \"5m\"";

struct Fixture {
    world: Arc<World>,
    upstream: Switched,
}

impl Fixture {
    /// A gateway with an answer in its store; then the upstream changes.
    async fn then(mode: Mode, upstream_keys: &str, edit: impl FnOnce(Setup) -> Setup) -> Self {
        let upstream = Switched::start(Answers).await;
        let setup = Setup::new().manual_clock().upstream(upstream.url()).unspaced_writes();
        let world = Arc::new(edit(setup.upstream_keys(upstream_keys)).start().await);
        world.get(STORED).await.assert_status(200);
        upstream.switch(mode);
        Self { world, upstream }
    }

    /// The same with an open breaker.
    async fn down(edit: impl FnOnce(Setup) -> Setup) -> Self {
        let fixture = Self::then(Hangs, SHORT, edit).await;
        fixture.lose_requests().await;
        fixture
    }

    /// Sends requests until the breaker opens.
    async fn lose_requests(&self) {
        let clock = self.world.clock.clone();
        let retries = tokio::spawn(async move {
            loop {
                clock.advance(Duration::from_millis(10));
                tokio::task::yield_now().await;
            }
        });
        let lost = (0..6).map(|n| self.get(&format!("/repos/acme/lost-{n}")));
        for reply in join_all(lost).await {
            assert!([502, 504].contains(&reply.unwrap().status.as_u16()));
        }
        eventually(|| self.is_down()).await;
        retries.abort();
    }

    fn get(&self, path: &str) -> JoinHandle<Reply> {
        let (world, path) = (Arc::clone(&self.world), path.to_owned());
        tokio::spawn(async move { world.get(&path).await })
    }

    fn is_down(&self) -> bool {
        self.world.gateway.dispatcher.is_upstream_down()
    }

    async fn returns(&self) {
        self.upstream.switch(Answers);
        eventually(|| !self.is_down()).await;
    }
}

#[track_caller]
fn assert_down(reply: &Reply, status: u16) {
    reply.assert_status(status);
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
    let message = reply.json()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("does not answer at the moment"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_answered_at_its_deadline() {
    let keys = format!("{LONG}\ntotal_timeout = \"300ms\"");
    let fixture = Fixture::then(Answers, &keys, |setup| setup).await;
    fixture.upstream.hang_path("/slow");
    let began = machine_instant();
    fixture.world.get("/slow").await.assert_status(504);
    let took = began.elapsed();
    assert!((300..1_300).contains(&took.as_millis()), "{took:?}");
    assert_eq!(fixture.upstream.requests(), 2, "it was sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stalls_ends_soon_after_the_deadline() {
    let keys = format!("{LONG}\ntotal_timeout = \"300ms\"");
    let fixture = Fixture::then(StallsInBody, &keys, |setup| setup).await;
    let began = machine_instant();
    fixture.world.get("/slow").await.assert_status(504);
    let took = began.elapsed();
    assert!((300..2_000).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_at_its_deadline_is_of_unknown_outcome() {
    let keys = format!("{LONG}\ntotal_timeout = \"300ms\"");
    let fixture = Fixture::then(Answers, &keys, |setup| setup).await;
    fixture.upstream.hang_path(ISSUES);
    let reply = fixture.world.post(ISSUES, json!({})).await;
    reply.assert_status(502);
    assert!(reply.json()["message"].as_str().unwrap().contains("unknown whether"), "{reply:?}");
    assert_eq!(fixture.upstream.requests(), 2, "it was sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_upstream_opens_the_breaker() {
    let both = [Hangs, StallsInBody].map(async |mode| {
        let fixture = Fixture::then(mode, LONG, |setup| setup).await;
        assert_down(&fixture.world.get("/repos/acme/waiting").await, 504);
        assert!(fixture.is_down());
        assert_down(&fixture.world.get("/repos/acme/new").await, 504);
        let post = fixture.world.post(ISSUES, json!({})).await;
        assert_down(&post, 504);
        assert!(post.json()["message"].as_str().unwrap().contains("nothing was executed"));
        assert_eq!(fixture.upstream.requests(), 2, "{mode:?}");
        fixture.returns().await;
        fixture.world.get("/repos/acme/new").await.assert_status(200);
    });
    join_all(both).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_hangs_beside_its_budgets_opens_the_breaker() {
    let fixture = Fixture::then(FreeAnswers, LONG, |setup| setup).await;
    let waiting = (0..5).map(|n| fixture.get(&format!("/repos/acme/{n}")));
    for reply in join_all(waiting).await {
        assert_down(&reply.unwrap(), 504);
    }
    assert_down(&fixture.world.get("/repos/acme/new").await, 504);
    fixture.returns().await;
    fixture.world.get("/repos/acme/new").await.assert_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_always_slow_is_not_down() {
    let late = Late(Duration::from_millis(6_500));
    let fixture = Fixture::then(late, LONG, |setup| setup.clock(Clock::system())).await;
    for round in 0..2 {
        let slow = (0..3).map(|n| fixture.get(&format!("/repos/acme/{round}-{n}")));
        for reply in join_all(slow).await {
            reply.unwrap().assert_status(200);
        }
        assert!(!fixture.is_down());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusing_port_opens_the_breaker_and_its_return_closes_it() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = upstream.local_addr().unwrap();
    drop(upstream);
    let setup = Setup::new().upstream(format!("http://{address}")).unspaced_writes();
    let world = Arc::new(setup.start().await);
    let paths = ["/repos/acme/first", "/repos/acme/second"];
    for reply in join_all(paths.map(|path| world.get(path))).await {
        reply.assert_status(502);
    }
    eventually(|| world.gateway.dispatcher.is_upstream_down()).await;
    assert_down(&world.get("/repos/acme/down").await, 502);
    let listener = TcpListener::bind(address).await.unwrap();
    let returned = machine_instant();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(
            &mut stream,
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        )
        .await
        .unwrap();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut Vec::new()).await
    });
    eventually(|| !world.gateway.dispatcher.is_upstream_down()).await;
    assert!(returned.elapsed() < Duration::from_secs(2), "{:?}", returned.elapsed());
    answering.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_closes_every_connection_is_down() {
    let fixture = Fixture::then(Closes, LONG, |setup| setup).await;
    fixture.lose_requests().await;
    assert_down(&fixture.world.get("/repos/acme/new").await, 504);
    fixture.returns().await;
    fixture.world.get("/repos/acme/new").await.assert_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_always_hangs_opens_no_breaker() {
    let fixture = Fixture::then(Answers, SHORT, |setup| setup.clock(Clock::system())).await;
    fixture.upstream.hang_path("/hangs");
    let hanging = (0..20).map(|n| fixture.get(&format!("/repos/acme/{n}/hangs")));
    for reply in join_all(hanging).await {
        let reply = reply.unwrap();
        reply.assert_status(504);
        assert!(reply.json()["message"].as_str().unwrap().contains("in time"), "{reply:?}");
    }
    assert!(fixture.upstream.probes() > 0);
    eventually(|| fixture.world.gateway.dispatcher.is_upstream_trusted()).await;
    let other = [("authorization", &*format!("Bearer {OTHER_KEY}"))];
    fixture.world.get_with("/repos/acme/other", &other).await.assert_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_answer_is_served_stale_at_once_during_an_outage() {
    let fixture = Fixture::down(|setup| setup.cache("stale_if_error = \"1h\"")).await;
    let requests = fixture.upstream.requests();
    let stale = fixture.world.get(STORED).await;
    stale.assert_status(200);
    assert_eq!(stale.cache_status(), "weir; hit; detail=stale-if-error");
    fixture.world.clock.advance(Duration::from_secs(3_600));
    assert_down(&fixture.world.get(STORED).await, 504);
    assert_eq!(fixture.upstream.requests(), requests);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_a_slot_are_answered_when_it_opens() {
    let fixture = Fixture::then(Hangs, LONG, |setup| setup.limits("concurrency = 1")).await;
    let waiting = (0..5).map(|n| fixture.get(&format!("/repos/acme/{n}")));
    for reply in join_all(waiting).await {
        assert_down(&reply.unwrap(), 504);
    }
    assert_eq!(fixture.upstream.requests(), 2);
    assert_eq!(fixture.world.gateway.dispatcher.admissions().waiting(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_write_outlasts_an_outage_without_an_attempt() {
    let fixture = Fixture::down(|setup| setup).await;
    let asynchronous = [("prefer", "respond-async")];
    let accepted = fixture.world.send(Method::POST, ISSUES, &asynchronous, "{}").await;
    accepted.assert_status(202);
    let status = accepted.header("location").unwrap().to_owned();
    fixture.world.clock.advance(Duration::from_secs(600));
    let waiting = fixture.world.get(&status).await.json();
    assert_eq!((&waiting["state"], &waiting["attempts"]), (&json!("queued"), &json!(0)));
    fixture.returns().await;
    let world = &fixture.world;
    let done = async {
        loop {
            let write = world.get(&status).await.json();
            if write["state"] != "queued" && write["state"] != "sending" {
                return write;
            }
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(20), done).await.unwrap();
    assert_eq!((&done["state"], &done["attempts"]), (&json!("done"), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_a_key_fails_at_once_during_an_outage() {
    let fixture = Fixture::down(|setup| setup).await;
    let requests = fixture.upstream.requests();
    let key = [("idempotency-key", "once")];
    assert_down(&fixture.world.send(Method::POST, ISSUES, &key, "{}").await, 504);
    assert_eq!(fixture.upstream.requests(), requests);
    fixture.returns().await;
    fixture.world.send(Method::POST, ISSUES, &key, "{}").await.assert_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_of_an_outage_are_a_second_apart() {
    let fixture = Fixture::down(|setup| setup).await;
    let (before, began) = (fixture.upstream.probes(), machine_instant());
    eventually(|| fixture.upstream.probes() == before + 4).await;
    let took = began.elapsed();
    assert!(took > Duration::from_millis(2_900), "{took:?}");
}

/// In real time. `benches/outages.py` has the bounds of an optimized build.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_clients_of_a_hanging_upstream_are_answered() {
    const DEADLINE: Duration = Duration::from_secs(2);
    let upstream = Switched::start(Answers).await;
    let setup = Setup::new().upstream(upstream.url()).cache("stale_if_error = \"1h\"");
    let keys = "response_timeout = \"1s\"\ntotal_timeout = \"2s\"";
    let world = setup.upstream_keys(keys).start().await;
    world.get(STORED).await.assert_status(200);
    upstream.switch(Hangs);
    let hundred = |round: &'static str| {
        let world = &world;
        join_all((0..100).map(move |n| async move {
            let began = machine_instant();
            let path = if n % 4 == 0 { STORED.to_owned() } else { format!("/repos/{round}/{n}") };
            let reply = world.get(&path).await;
            (n, reply, began.elapsed())
        }))
    };
    let slowest = |answers: Vec<(usize, Reply, Duration)>| {
        for (n, reply, _) in &answers {
            assert_eq!(reply.status, if n % 4 == 0 { 200 } else { 504 }, "{reply:?}");
        }
        answers.into_iter().map(|(.., took)| took).max().unwrap()
    };
    let while_closed = slowest(hundred("first").await);
    assert!(while_closed < 2 * DEADLINE, "{while_closed:?}");
    eventually(|| world.gateway.dispatcher.is_upstream_down()).await;
    let while_open = slowest(hundred("second").await);
    assert!(while_open < DEADLINE, "{while_open:?}");
    upstream.switch(Answers);
    let returned = machine_instant();
    eventually(|| !world.gateway.dispatcher.is_upstream_down()).await;
    let closed = returned.elapsed();
    assert!(closed < Duration::from_secs(2), "{closed:?}");
    world.get("/repos/acme/after").await.assert_status(200);
    println!("while closed {while_closed:?}, while open {while_open:?}, closed after {closed:?}");
}
