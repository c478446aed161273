//! An upstream that is down, breaks off or never answers: a clear answer, nothing done twice, nothing leaked (DESIGN D7).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use weir::decision::Books;

use crate::support::{Setup, World};

/// What a broken upstream does with each connection, after it has read the request.
#[derive(Clone, Copy)]
enum Behaviour {
    Close,
    Silence,
    HalfBody,
    Garbage,
    ServerError,
}

struct Broken {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl Broken {
    async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counter = Arc::clone(&counter);
                tokio::spawn(async move {
                    let mut buffer = [0; 16 * 1024];
                    if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                        return;
                    }
                    counter.fetch_add(1, Ordering::SeqCst);
                    let answer: &[u8] = match behaviour {
                        Behaviour::Close => b"",
                        Behaviour::Silence => return std::future::pending().await,
                        Behaviour::HalfBody => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\":",
                        Behaviour::Garbage => b"this is not HTTP\r\n\r\n",
                        Behaviour::ServerError => b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\n{}",
                    };
                    let _ = stream.write_all(answer).await;
                });
            }
        });
        Self { url, requests }
    }

    async fn world(&self) -> World {
        let quick = "[writes]\nspacing = \"0s\"\nnotify_spacing = \"0s\"\nmax_attempts = 2";
        Setup::new().upstream(self.url.clone()).upstream_keys("response_timeout = \"300ms\"").config(quick).start().await
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

const ISSUES: &str = "/repos/acme/widgets/issues";

#[tokio::test]
async fn an_upstream_that_is_down_is_a_502_that_says_that_nothing_was_executed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let world = Setup::new().upstream(url).config("[writes]\nmax_attempts = 2\nspacing = \"0s\"\nnotify_spacing = \"0s\"").start().await;
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let answer = world.send(method, ISSUES, &[], "").await;
        answer.assert_status(502);
        assert!(answer.json()["message"].as_str().unwrap().contains("nothing was executed"));
    }
    assert_eq!(world.gateway.turns.writes(), 0);
}

#[tokio::test]
async fn a_post_whose_answer_was_lost_is_not_repeated_and_its_outcome_is_called_unknown() {
    for behaviour in [Behaviour::Close, Behaviour::Silence, Behaviour::HalfBody, Behaviour::Garbage, Behaviour::ServerError] {
        let upstream = Broken::start(behaviour).await;
        let world = upstream.world().await;
        let answer = world.send(Method::POST, ISSUES, &[], "{\"title\":\"once\"}").await;
        answer.assert_status(502);
        assert!(answer.json()["message"].as_str().unwrap().contains("unknown whether this request was executed"), "{answer:?}");
        assert_eq!(upstream.requests(), 1);
    }
}

#[tokio::test]
async fn a_put_or_delete_whose_answer_was_lost_may_be_repeated() {
    for method in [Method::PUT, Method::DELETE] {
        let upstream = Broken::start(Behaviour::Close).await;
        let world = upstream.world().await;
        world.send(method, "/repos/acme/widgets/issues/1/lock", &[], "").await.assert_status(502);
        assert!(upstream.requests() >= 2);
    }
}

#[tokio::test]
async fn a_read_is_tried_again_and_then_answered_clearly() {
    for (behaviour, status) in [(Behaviour::Close, 502), (Behaviour::HalfBody, 502), (Behaviour::Garbage, 502), (Behaviour::Silence, 504)] {
        let upstream = Broken::start(behaviour).await;
        let world = upstream.world().await;
        let answer = world.get(ISSUES).await;
        answer.assert_status(status);
        assert!(answer.json()["message"].is_string());
        assert!(upstream.requests() >= 2);
    }
}

#[tokio::test]
async fn a_lost_answer_counts_as_spent_and_leaves_no_lease() {
    let upstream = Broken::start(Behaviour::Close).await;
    let world = upstream.world().await;
    world.get(ISSUES).await.assert_status(502);
    let snapshot = world.gateway.admissions.with_books(Books::snapshot);
    assert!(snapshot[0].books.iter().all(|book| book.reserved == 0), "{snapshot:?}");
    assert!(snapshot[0].secondary.iter().filter(|limit| limit.limit.name() == "concurrency").all(|limit| limit.in_use == 0));
}
