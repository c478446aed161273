//! Denials by an account that sees less than another one. While the other account is unavailable,
//! such a denial is neither the response nor stored (SPECIFICATION D2, D6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

use crate::support::origin::{Origin, header, token};
use crate::support::{Reply, Setup, World, all_have_status, config};

const SECRET: &str = "/repos/acme/secret";
const NO_WAIT: (&str, &str) = ("prefer", "wait=0");
const STALE: &str = "weir; hit; detail=stale-if-limited";

/// The state of `member`, the only account that sees the secret paths.
#[derive(Default)]
struct Member {
    /// Nonzero: a secondary limit closes the account.
    closed: AtomicU32,
    /// The remaining budget; zero leaves the header out.
    spent: AtomicU32,
    /// The end of its window.
    reset: AtomicU64,
}

/// A pool of one member of acme, followed by a stranger to it.
struct Pool {
    world: World,
    origin: Origin,
    member: Arc<Member>,
}

fn answered(status: u16, headers: &[(&str, String)], body: &'static str) -> Response<Bytes> {
    let response =
        headers.iter().fold(Response::builder().status(status), |response, (name, value)| {
            response.header(*name, value)
        });
    response.header("content-type", "application/json").body(body.into()).unwrap()
}

fn rule() -> String {
    config::cache_ttl("/repos/{owner}/{repo}", "1h")
}

impl Pool {
    async fn new(sections: &str) -> Self {
        let member = Arc::new(Member::default());
        let theirs = Arc::clone(&member);
        let origin = Origin::start(move |request: Request<()>| {
            let member = Arc::clone(&theirs);
            async move { member.answer(&request) }
        })
        .await;
        let setup = Setup::new().holder("member", "user", &[("classic", "tok-member")], "");
        let setup = setup.holder("stranger", "user", &[("classic", "tok-stranger")], "");
        let world = setup.upstream(origin.url()).manual_clock().config(sections).start().await;
        member.reset.store(world.clock.now().as_secs() + 1_800, Ordering::Relaxed);
        Self { world, origin, member }
    }

    fn close(&self, closed: bool) {
        self.member.closed.store(closed.into(), Ordering::Relaxed);
    }

    async fn get(&self, path: &str) -> Reply {
        self.world.get_with(path, &[NO_WAIT]).await
    }

    /// The token of the last request.
    fn last_token(&self) -> String {
        self.origin.last().token().to_owned()
    }
}

impl Member {
    fn answer(&self, request: &Request<()>) -> Response<Bytes> {
        if token(request.headers()) != "tok-member" {
            return answered(404, &[], r#"{"message":"Not Found"}"#);
        }
        if self.closed.load(Ordering::Relaxed) > 0 {
            let body = r#"{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}"#;
            return answered(403, &[("retry-after", "30".into())], body);
        }
        if !request.uri().path().contains("secret") {
            return answered(404, &[], r#"{"message":"Not Found"}"#);
        }
        let mut headers = vec![("etag", "\"it\"".to_owned())];
        if self.spent.load(Ordering::Relaxed) > 0 {
            let figures = [
                ("limit", 5_000),
                ("remaining", 0),
                ("used", 5_000),
                ("reset", self.reset.load(Ordering::Relaxed)),
            ];
            let names = [
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-used",
                "x-ratelimit-reset",
            ];
            headers.extend(
                names.into_iter().zip(figures).map(|(name, (_, value))| (name, value.to_string())),
            );
            headers.push(("x-ratelimit-resource", "core".into()));
        }
        match header(request.headers(), "if-none-match") {
            "\"it\"" => answered(304, &headers, ""),
            _ => answered(200, &headers, r#"{"it":"is here"}"#),
        }
    }
}

#[tokio::test]
async fn a_stored_response_is_served_while_its_account_is_closed() {
    let pool = Pool::new("[cache]\nstale_if_limited = \"1h\"").await;
    pool.get(SECRET).await.assert_status(200);
    assert_eq!(pool.last_token(), "tok-member");
    pool.close(true);
    for _ in 0..3 {
        let answer = pool.get(SECRET).await;
        assert_eq!((answer.status.as_u16(), answer.cache_status()), (200, STALE));
    }
    pool.close(false);
    pool.world.clock.advance(Duration::from_secs(31));
    pool.get(SECRET).await.assert_revalidated();
}

#[tokio::test]
async fn without_stale_responses_the_limit_is_reported_not_a_denial() {
    let stale = config::section("cache", "stale_if_limited = \"1h\"");
    let pool = Pool::new(&(stale + &rule())).await;
    pool.get(SECRET).await.assert_status(200);
    pool.close(true);
    let refused = pool.world.get_with(SECRET, &[NO_WAIT, ("cache-control", "no-cache")]).await;
    refused.assert_secondary_limited();
    let answer = pool.get(SECRET).await;
    assert_eq!((answer.status.as_u16(), answer.cache_status()), (200, "weir; hit"));
}

#[tokio::test]
async fn no_other_account_denies_while_the_seeing_one_is_spent() {
    let pool = Pool::new("[cache]\nstale_if_limited = \"1h\"").await;
    for number in 0..3 {
        pool.get(&format!("{SECRET}-{number}")).await.assert_status(200);
    }
    pool.member.spent.store(1, Ordering::Relaxed);
    pool.get(&format!("{SECRET}-last")).await.assert_status(200);
    for number in 0..3 {
        let answer = pool.get(&format!("{SECRET}-{number}")).await;
        assert_eq!((answer.status.as_u16(), answer.cache_status()), (200, STALE), "{number}");
    }
}

#[tokio::test]
async fn an_unstored_path_another_account_sees_is_limit_denied() {
    let pool = Pool::new("").await;
    pool.get(SECRET).await.assert_status(200);
    pool.close(true);
    let refused = pool.get(&format!("{SECRET}/labels")).await;
    refused.assert_secondary_limited();
    pool.close(false);
    pool.world.clock.advance(Duration::from_secs(31));
    pool.get(&format!("{SECRET}/labels")).await.assert_status(200);
}

#[tokio::test]
async fn a_denial_that_cannot_be_probed_is_served_and_not_stored() {
    let pool = Pool::new(&rule()).await;
    pool.close(true);
    pool.get("/repos/acme/first").await.assert_status(404);
    pool.get(SECRET).await.assert_status(404);
    pool.close(false);
    pool.world.clock.advance(Duration::from_secs(31));
    pool.get(SECRET).await.assert_status(200);
}

#[tokio::test]
async fn after_many_missing_repositories_a_denial_is_not_stored() {
    let pool = Pool::new(&rule()).await;
    for number in 0..20 {
        pool.get(&format!("/repos/acme/missing-{number}")).await.assert_status(404);
    }
    let mut again = Vec::new();
    for round in 0..2 {
        for number in 0..20 {
            let answer = pool.get(&format!("{SECRET}-{number}")).await;
            if round > 0 {
                again.push(answer);
            }
        }
    }
    all_have_status(&again, 200);
}

#[tokio::test]
async fn a_denial_by_every_account_is_stored() {
    let pool = Pool::new(&rule()).await;
    pool.get("/repos/acme/missing").await.assert_status(404);
    assert_eq!(pool.origin.exchanges().len(), 2);
    let again = pool.get("/repos/acme/missing").await;
    assert_eq!((again.status.as_u16(), again.cache_status()), (404, "weir; hit"));
}
