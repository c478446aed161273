//! Clients that are known by OIDC tokens (SPECIFICATION, "Tokens of an issuer").

use std::time::Duration;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use serde_json::{Value, json};

use crate::support::issuer::{Issuer, Signer, unsigned};
use crate::support::proxy::{TestProxy, Tunnel};
use crate::support::raw::Connection;
use crate::support::{KEY, Reply, Setup, World, captured_log, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
const MINUTE: Duration = Duration::from_mins(1);

/// The client `tools` has the tokens of the main branch of a repository.
fn tools(issuer: &Issuer) -> String {
    let claims = "{ repository = \"acme/tools\", ref = [\"refs/heads/main\", \"refs/tags/v*\"] }";
    let oidc = format!("oidc = {{ issuer = \"actions\", claims = {claims} }}");
    let allow = "allow = [\"GET /repos/**\"]";
    issuer.section() + &format!("[[clients]]\nname = \"tools\"\n{oidc}\n{allow}\n")
}

/// A world with an issuer of one key, whose keys the gateway has.
async fn world(signer: &Signer) -> (World, Issuer) {
    let issuer = Issuer::start(&[signer]).await;
    let world = Setup::new().config(&tools(&issuer)).manual_clock().start().await;
    eventually(|| has_fetched(&world)).await;
    (world, issuer)
}

/// True if the keys of an issuer were fetched at the present time of the clock.
fn has_fetched(world: &World) -> bool {
    let gateway = world.current.gateway();
    let now = Some(world.clock.now());
    gateway.issuers().iter().all(|issuer| issuer.fetched_at() == now)
}

async fn get(world: &World, token: &str) -> Reply {
    world.get_with(REPOSITORY, &[("authorization", &format!("Bearer {token}"))]).await
}

fn now(world: &World) -> u64 {
    world.clock.now().as_secs()
}

/// Asserts a 401 of this reason, and that nothing was sent upstream for it.
async fn assert_refused(world: &World, token: &str, reason: &str) {
    let sent = world.upstream_requests().len();
    let answer = get(world, token).await;
    answer.assert_status(401);
    let link = answer.json()["documentation_url"].as_str().unwrap().to_owned();
    assert!(link.ends_with(&format!("#{reason}")), "{reason}: {link}");
    let shown = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(token.len() < 20 || !shown.contains(token), "{shown}");
    assert_eq!(world.upstream_requests().len(), sent, "{reason}");
}

/// A header of a token.
fn header(alg: &str, kid: &str) -> Value {
    json!({ "alg": alg, "typ": "JWT", "kid": kid })
}

#[tokio::test]
async fn a_token_with_wrong_claims_identifies_no_client() {
    let signer = Signer::new("one");
    let (world, issuer) = world(&signer).await;
    let now = now(&world);
    let with = |name: &str, value: Value| {
        let mut claims = issuer.claims(now);
        claims[name] = value;
        signer.token(&claims)
    };
    get(&world, &signer.token(&issuer.claims(now))).await.assert_status(200);
    for (token, reason) in [
        (with("iss", json!("https://issuer.example")), "wrong_issuer"),
        (with("iss", json!(format!("{}/", issuer.url()))), "wrong_issuer"),
        (with("iss", json!([issuer.url()])), "wrong_issuer"),
        (with("aud", json!("another")), "wrong_audience"),
        (with("aud", json!(["another", "third"])), "wrong_audience"),
        (with("aud", Value::Null), "malformed_token"),
        (with("exp", json!(now - 31)), "expired_token"),
        (with("exp", json!("soon")), "malformed_token"),
        (with("exp", Value::Null), "malformed_token"),
        (with("nbf", json!(now + 31)), "early_token"),
        (with("iat", json!(now + 31)), "early_token"),
        (with("repository", json!("acme/tools2")), "wrong_claims"),
        (with("repository", Value::Null), "wrong_claims"),
        (with("ref", json!("refs/heads/next")), "wrong_claims"),
        (with("padding", json!("x".repeat(9_000))), "malformed_token"),
        ("eyJ.eyJ.x".to_owned(), "wrong_issuer"),
    ] {
        assert_refused(&world, &token, reason).await;
    }
    // Within the difference of clocks, with several audiences, and by another value of a claim.
    for token in [
        with("exp", json!(now - 29)),
        with("nbf", json!(now + 29)),
        with("aud", json!(["another", "weir"])),
        with("ref", json!("refs/tags/v1.2")),
    ] {
        get(&world, &token).await.assert_status(200);
    }
}

#[tokio::test]
async fn a_token_without_the_issuers_signature_identifies_no_client() {
    let (signer, other) = (Signer::new("one"), Signer::new("one"));
    let (world, issuer) = world(&signer).await;
    let claims = issuer.claims(now(&world));
    let right = signer.token(&claims);
    let parts: Vec<_> = right.split('.').collect();
    let none = unsigned(&header("none", "one"), &claims);
    let by_hmac = {
        // The well-known confusion: the public key as the secret of an HMAC.
        let text = unsigned(&header("HS256", "one"), &claims);
        let secret = hmac::Key::new(hmac::HMAC_SHA256, signer.public());
        let tag = hmac::sign(&secret, text.as_bytes());
        format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    };
    let tampered = {
        let mut admin = claims.clone();
        admin["sub"] = json!("somebody else");
        let payload = BASE64_URL_SAFE_NO_PAD.encode(admin.to_string());
        format!("{}.{payload}.{}", parts[0], parts[2])
    };
    let without_name = json!({ "alg": "ES256", "typ": "JWT" });
    let critical = json!({ "alg": "ES256", "kid": "one", "crit": ["b64"], "b64": false });
    for (token, reason) in [
        (format!("{none}."), "malformed_token"),
        (format!("{none}.{}", parts[2]), "malformed_token"),
        (by_hmac, "forged_token"),
        (signer.token_with(&header("RS256", "one"), &claims), "forged_token"),
        (signer.token_with(&header("ES384", "one"), &claims), "forged_token"),
        (other.token(&claims), "forged_token"),
        (tampered, "forged_token"),
        (right[..right.len() - 2].to_owned(), "forged_token"),
        (signer.token_with(&without_name, &claims), "malformed_token"),
        (signer.token_with(&critical, &claims), "malformed_token"),
        (signer.token_with(&header("ES256", "two"), &claims), "wrong_signer"),
    ] {
        passing_time(&world, &issuer, assert_refused(&world, &token, reason)).await;
    }
    get(&world, &right).await.assert_status(200);
}

#[tokio::test]
async fn a_token_stands_wherever_a_key_may_stand() {
    let signer = Signer::new("one");
    let (world, issuer) = world(&signer).await;
    let token = signer.token(&issuer.claims(now(&world)));
    for value in [
        format!("token {token}"),
        format!("Basic {}", BASE64_STANDARD.encode(format!("x-access-token:{token}"))),
        format!("Basic {}", BASE64_STANDARD.encode(format!("{token}:x-oauth-basic"))),
    ] {
        world.get_with(REPOSITORY, &[("authorization", &value)]).await.assert_status(200);
    }
    world.get_with(REPOSITORY, &[("x-weir-key", &token)]).await.assert_status(200);
    // The permissions are the client's.
    let refused = world.get_with("/user", &[("x-weir-key", &token)]).await;
    refused.assert_status(403);
    world.get(REPOSITORY).await.assert_status(200);
}

#[tokio::test]
async fn a_token_is_verified_once_and_is_in_no_log_and_never_upstream() {
    captured_log::begin();
    let signer = Signer::new("one");
    let (world, issuer) = world(&signer).await;
    let token = signer.token(&issuer.claims(now(&world)));
    for _ in 0..3 {
        get(&world, &token).await.assert_status(200);
    }
    assert_refused(&world, &signer.token(&json!({ "iss": "https://x.example" })), "wrong_issuer")
        .await;
    let metrics = world.gateway.env.metrics.encode();
    for line in [
        "weir_issuer_tokens_total{issuer=\"actions\",outcome=\"accepted\"} 1\n",
        "weir_issuer_tokens_total{issuer=\"_none\",outcome=\"wrong_issuer\"} 1\n",
        "reason=\"wrong_issuer\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    assert!(metrics.contains("client=\"tools\""), "{metrics}");
    assert!(world.upstream_requests().iter().all(|entry| entry.status != 401));
    let log = captured_log::all();
    for part in token.split('.').skip(1) {
        assert!(!log.contains(part), "a token is in the log");
    }
}

#[tokio::test]
async fn a_token_ends_on_an_open_connection_too() {
    let signer = Signer::new("one");
    let (world, issuer) = world(&signer).await;
    let token = signer.token(&issuer.claims(now(&world)));
    let mut connection = Connection::open(world.address).await;
    let request =
        format!("GET {REPOSITORY} HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {token}\r\n\r\n");
    for (advance, status) in [(0, "200"), (0, "200"), (329, "200"), (1, "401")] {
        world.advance_both(Duration::from_secs(advance));
        connection.send(request.as_bytes()).await;
        let answer = connection.read_answer().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{advance}: {answer}");
    }
    assert_refused(&world, &token, "expired_token").await;
}

#[tokio::test]
async fn a_new_key_is_fetched_at_once_and_an_old_one_ends_its_tokens() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let (world, issuer) = world(&old).await;
    let long = |signer: &Signer| {
        let mut claims = issuer.claims(now(&world));
        claims["exp"] = json!(now(&world) + 3_600);
        signer.token(&claims)
    };
    let (by_old, by_new) = (long(&old), long(&new));
    let mut connection = Connection::open(world.address).await;
    let request = format!(
        "GET {REPOSITORY} HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {by_old}\r\n\r\n"
    );
    connection.send(request.as_bytes()).await;
    let answer = connection.read_answer().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // The issuer announces the new key: its first token has it fetched.
    issuer.publish(&[&old, &new]);
    world.advance_both(Duration::from_secs(10));
    get(&world, &by_new).await.assert_status(200);
    get(&world, &by_old).await.assert_status(200);
    assert_eq!(issuer.requests(), 4);
    // The old key is gone: with the next fetch its tokens end, known ones too.
    issuer.publish(&[&new]);
    get(&world, &by_old).await.assert_status(200);
    world.advance_both(10 * MINUTE);
    eventually(|| has_fetched(&world)).await;
    passing_time(&world, &issuer, assert_refused(&world, &by_old, "wrong_signer")).await;
    connection.send(request.as_bytes()).await;
    let answer = passing_time(&world, &issuer, connection.read_answer()).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    get(&world, &by_new).await.assert_status(200);
}

#[tokio::test]
async fn tokens_with_names_of_no_keys_cause_no_storm_of_fetches() {
    let signer = Signer::new("one");
    let (world, issuer) = world(&signer).await;
    let claims = issuer.claims(now(&world));
    let storm = |round: usize| {
        let (world, signer, claims) = (&world, &signer, &claims);
        let names = (0..40).map(move |number| format!("none-{round}-{number}"));
        futures_util::future::join_all(names.map(move |name| async move {
            let token = signer.token_with(&json!({ "alg": "ES256", "kid": name }), claims);
            get(world, &token).await.assert_status(401);
        }))
    };
    let begun = world.clock.now();
    for round in 0..4 {
        passing_time(&world, &issuer, storm(round)).await;
    }
    let fetches = u64::try_from(issuer.requests() / 2).unwrap();
    let passed = world.clock.now().since(begun).as_secs();
    assert!(fetches <= 1 + passed / 10, "{fetches} fetches in {passed} seconds");
    assert!(fetches < 40, "one for many of them: {fetches}");
}

/// Lets ten seconds pass, and again after each fetch of keys, until the future ends.
async fn passing_time<T>(world: &World, issuer: &Issuer, future: impl Future<Output = T>) -> T {
    let pass = async {
        loop {
            let before = issuer.requests();
            world.advance_both(Duration::from_secs(10));
            eventually(|| issuer.requests() > before).await;
        }
    };
    tokio::select! {
        done = future => done,
        () = pass => unreachable!("time has no end"),
    }
}

#[tokio::test]
async fn a_token_of_a_new_key_waits_until_keys_may_be_fetched() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let (world, issuer) = world(&old).await;
    let token = new.token(&issuer.claims(now(&world)));
    // The keys were fetched a moment ago, as after a stranger's token.
    issuer.publish(&[&new]);
    let fetch = async {
        eventually(|| world.current.gateway().env.active.count() > 0).await;
        assert_eq!(issuer.requests(), 2);
        world.clock.advance(Duration::from_secs(10));
    };
    let (answer, ()) = tokio::join!(get(&world, &token), fetch);
    answer.assert_status(200);
    assert_eq!(issuer.requests(), 4);
}

#[tokio::test]
async fn an_issuer_that_is_down_at_the_start_is_a_503() {
    let signer = Signer::new("one");
    let issuer = Issuer::start(&[&signer]).await;
    issuer.set_down(true);
    let world = Setup::new().config(&tools(&issuer)).manual_clock().start().await;
    let token = signer.token(&issuer.claims(now(&world)));
    let answer = get(&world, &token).await;
    answer.assert_status(503);
    assert!(answer.header("retry-after").is_some());
    world.get(REPOSITORY).await.assert_status(200);
    issuer.set_down(false);
    world.clock.advance(Duration::from_secs(10));
    get(&world, &token).await.assert_status(200);
}

#[tokio::test]
async fn keys_stay_in_force_for_a_day_while_the_issuer_is_down() {
    let signer = Signer::new("one");
    let (world, issuer) = world(&signer).await;
    issuer.set_down(true);
    let token = || signer.token(&issuer.claims(now(&world)));
    for (hours, status) in [(1, 200), (22, 200), (1, 503)] {
        let before = issuer.requests();
        world.clock.advance(Duration::from_hours(hours));
        eventually(|| issuer.requests() > before).await;
        if status == 503 {
            // The task notices that the time is over.
            eventually(|| world.gateway.issuers()[0].keys().is_empty()).await;
        }
        get(&world, &token()).await.assert_status(status);
    }
    issuer.set_down(false);
    world.clock.advance(Duration::from_secs(10));
    get(&world, &token()).await.assert_status(200);
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_holds_up_only_its_own_tokens() {
    let signer = Signer::new("one");
    let issuer = Issuer::start(&[&signer]).await;
    issuer.hold();
    let world = Setup::new().config(&tools(&issuer)).manual_clock().start().await;
    let token = signer.token(&issuer.claims(now(&world)));
    let waits = get(&world, &token);
    tokio::pin!(waits);
    let others = async {
        for _ in 0..3 {
            world.get(REPOSITORY).await.assert_status(200);
        }
    };
    tokio::select! {
        biased;
        answer = &mut waits => panic!("nothing to answer with: {answer:?}"),
        () = others => {}
    }
    // Five seconds of the machine: a connection follows no other clock.
    waits.await.assert_status(503);
}

#[tokio::test]
async fn a_token_outside_of_its_place_is_a_misplaced_key() {
    captured_log::begin();
    let signer = Signer::new("one");
    let (world, issuer) = world(&signer).await;
    let token = signer.token(&issuer.claims(now(&world)));
    let in_base64 = BASE64_STANDARD.encode(format!("a:{token}"));
    let mut large = issuer.claims(now(&world));
    large["groups"] = json!("x".repeat(9_000));
    let large = signer.token(&large);
    for header in [
        ("user-agent", format!("misplaced-bot ({token})")),
        ("x-token", large.clone()),
        ("x-token", BASE64_STANDARD.encode(&large)),
        ("x-token", format!("a.b.{token}.c")),
        ("x-token", format!("token{token}")),
        ("x-token", spaced(&token)),
        ("x-token", token.clone()),
        ("x-token", format!("Bearer {}", token.replace('.', "%2E"))),
        ("x-token", format!("Basic {in_base64}")),
        ("cookie", format!("session={token}")),
    ] {
        let answer = world.get_with(REPOSITORY, &[(header.0, &header.1)]).await;
        answer.assert_status(400);
    }
    world.get(&format!("{REPOSITORY}?t={token}")).await.assert_status(400);
    world.get(&format!("/repos/misplaced/{token}")).await.assert_status(400);
    for shown in ["misplaced-bot ([redacted])", "/repos/misplaced/[redacted]"] {
        eventually(|| captured_log::all().contains(shown)).await;
    }
    let log = captured_log::all();
    for part in token.split('.').skip(1) {
        let line = log.lines().find(|line| line.contains(part));
        assert!(line.is_none(), "a token is in the log: {line:?}");
    }
    assert_refused(&world, &large, "malformed_token").await;
    assert_refused(&world, &spaced(&token), "forged_token").await;
    let bare = world.get_with(REPOSITORY, &[("authorization", &token)]).await;
    bare.assert_status(400);
    // Tokens of other issuers are none of this gateway's affair.
    let foreign = signer.token(&json!({ "iss": "https://x.example" }));
    world.get_with(REPOSITORY, &[("x-token", &foreign)]).await.assert_status(200);
    // A token beside a key is dropped, as a key is.
    let headers = [("authorization", format!("Bearer {token}")), ("x-weir-key", KEY.to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    world.get_with(REPOSITORY, &headers).await.assert_status(200);
    assert!(world.upstream_requests().iter().all(|entry| entry.status != 401));
}

#[tokio::test]
async fn a_token_beside_a_key_is_no_upstream_credential_of_the_client() {
    let signer = Signer::new("one");
    let issuer = Issuer::start(&[&signer]).await;
    let config = tools(&issuer) + "[passthrough]\nenabled = true\n";
    let world = Setup::new().config(&config).manual_clock().start().await;
    let mut expired = issuer.claims(now(&world));
    expired["exp"] = json!(now(&world) - 3_600);
    let token = signer.token(&issuer.claims(now(&world)));
    let mut large = expired.clone();
    large["groups"] = json!("x".repeat(9_000));
    for token in [spaced(&token), token, signer.token(&expired), signer.token(&large)] {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str()), ("x-weir-key", KEY)];
        let answer = world.get_with(REPOSITORY, &headers).await;
        answer.assert_status(200);
        assert_eq!(answer.header("x-weir-account"), Some("account-0"));
    }
}

#[tokio::test]
async fn a_token_of_two_clients_identifies_none() {
    let signer = Signer::new("one");
    let issuer = Issuer::start(&[&signer]).await;
    let second = "[[clients]]\nname = \"all\"\noidc = { issuer = \"actions\", claims = { repository = \"acme/*\" } }\n";
    let config = tools(&issuer) + second;
    let world = Setup::new().config(&config).manual_clock().start().await;
    eventually(|| has_fetched(&world)).await;
    assert_refused(&world, &signer.token(&issuer.claims(now(&world))), "ambiguous_token").await;
    let mut claims = issuer.claims(now(&world));
    claims["repository"] = json!("acme/others");
    get(&world, &signer.token(&claims)).await.assert_status(200);
}

#[tokio::test]
async fn a_reload_ends_tokens_and_keeps_the_keys_of_issuers() {
    let signer = Signer::new("one");
    let (world, issuer) = world(&signer).await;
    let token = signer.token(&issuer.claims(now(&world)));
    get(&world, &token).await.assert_status(200);
    world.reload(|text| text.replace("\"acme/tools\"", "\"acme/others\""));
    assert_refused(&world, &token, "wrong_claims").await;
    assert_eq!(issuer.requests(), 2, "the issuer is the same");
    world.reload(|text| text.replace("audience = \"weir\"", "audience = \"other\""));
    eventually(|| has_fetched(&world)).await;
    assert_refused(&world, &token, "wrong_audience").await;
}

#[tokio::test]
async fn keys_from_a_file_are_read_again_when_it_changes() {
    captured_log::begin();
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    let publish = |signer: &Signer| {
        std::fs::write(&file, json!({ "keys": [signer.jwk()] }).to_string()).unwrap();
    };
    publish(&old);
    let issuer = Issuer::start(&[]).await;
    let section = issuer.section() + &format!("jwks_file = \"{}\"\n", file.display());
    let config = tools(&issuer).replace(&issuer.section(), &section);
    let world = Setup::new().config(&config).start().await;
    let (by_old, by_new) =
        (old.token(&issuer.claims(now(&world))), new.token(&issuer.claims(now(&world))));
    get(&world, &by_old).await.assert_status(200);
    assert_refused(&world, &by_new, "wrong_signer").await;
    publish(&new);
    let path = file.display().to_string();
    let is_read = || {
        captured_log::all().lines().any(|line| line.contains(&path) && line.contains("read again"))
    };
    eventually(is_read).await;
    get(&world, &by_new).await.assert_status(200);
    assert_refused(&world, &by_old, "wrong_signer").await;
    assert_eq!(issuer.requests(), 0);
}

#[tokio::test]
async fn a_reload_keeps_keys_while_the_issuer_is_down() {
    let signer = Signer::new("one");
    let (world, issuer) = world(&signer).await;
    issuer.set_down(true);
    world.reload(|text| text.replace("audience = \"weir\"", "audience = \"other\""));
    let mut claims = issuer.claims(now(&world));
    assert_refused(&world, &signer.token(&claims), "wrong_audience").await;
    claims["aud"] = json!("other");
    get(&world, &signer.token(&claims)).await.assert_status(200);
}

#[tokio::test]
async fn a_reload_fetches_keys_by_another_proxy() {
    let section =
        "[[issuers]]\nname = \"actions\"\nurl = \"https://issuer.test\"\naudience = \"weir\"\n";
    let client =
        "[[clients]]\nname = \"tools\"\noidc = { issuer = \"actions\", claims = { a = \"b\" } }\n";
    let world = Setup::new().config(&format!("{section}{client}")).manual_clock().start().await;
    let proxy = TestProxy::start(Tunnel::Silence).await;
    let setting = format!("[upstream]\nproxy = \"http://{}\"\n", proxy.address);
    world.reload(|text| text.replacen("[upstream]\n", &setting, 1));
    eventually(|| !proxy.heads().is_empty()).await;
    assert!(proxy.heads()[0].starts_with("CONNECT issuer.test:443 "), "{:?}", proxy.heads());
}

#[tokio::test]
async fn keys_of_this_machine_never_come_through_a_proxy() {
    let (signer, other) = (Signer::new("one"), Signer::new("one"));
    let (issuer, rogue) = (Issuer::start(&[&signer]).await, Issuer::start(&[&other]).await);
    let proxy = TestProxy::start(Tunnel::To(rogue.address())).await;
    let setting = format!("proxy = \"http://{}\"", proxy.address);
    let setup = Setup::new().config(&tools(&issuer)).upstream_keys(&setting).manual_clock();
    let world = setup.start().await;
    eventually(|| has_fetched(&world)).await;
    let keys = world.current.gateway().issuers()[0].keys().named("one").len();
    assert_eq!((keys, issuer.requests(), rogue.requests()), (1, 2, 0));
    assert!(proxy.heads().is_empty(), "{:?}", proxy.heads());
}

#[tokio::test]
async fn a_token_of_two_audiences_is_that_of_any_client() {
    let signer = Signer::new("one");
    let issuer = Issuer::start(&[&signer]).await;
    let second = issuer.section().replace("\"actions\"", "\"deploys\"").replace("weir", "deploy");
    let client = "[[clients]]\nname = \"deploys\"\n\
                  oidc = { issuer = \"deploys\", claims = { repository = \"acme/*\" } }\n";
    let config = tools(&issuer) + &second + client;
    let world = Setup::new().config(&config).manual_clock().start().await;
    eventually(|| has_fetched(&world)).await;
    for audiences in [["weir", "deploy"], ["deploy", "weir"]] {
        let mut claims = issuer.claims(now(&world));
        claims["aud"] = json!(audiences);
        assert_refused(&world, &signer.token(&claims), "ambiguous_token").await;
        claims["repository"] = json!("acme/others");
        get(&world, &signer.token(&claims)).await.assert_status(200);
        claims["repository"] = json!("else/others");
        assert_refused(&world, &signer.token(&claims), "wrong_claims").await;
    }
}

/// The same token with a header that begins with white space.
fn spaced(token: &str) -> String {
    let (_, rest) = token.split_once('.').unwrap();
    let header = "\n { \"alg\": \"ES256\", \"kid\": \"one\" }";
    format!("{}.{rest}", BASE64_URL_SAFE_NO_PAD.encode(header))
}

#[tokio::test]
async fn issuers_of_one_url_differ_by_audience() {
    let signer = Signer::new("one");
    let issuer = Issuer::start(&[&signer]).await;
    let second = issuer.section().replace("\"actions\"", "\"deploys\"").replace("weir", "deploy");
    let client = "[[clients]]\nname = \"deploys\"\nallow = [\"GET /user\"]\n\
                  oidc = { issuer = \"deploys\", claims = { repository = \"acme/tools\" } }\n";
    let config = tools(&issuer) + &second + client;
    let world = Setup::new().config(&config).manual_clock().start().await;
    eventually(|| has_fetched(&world)).await;
    let mut claims = issuer.claims(now(&world));
    get(&world, &signer.token(&claims)).await.assert_status(200);
    claims["aud"] = json!(["others", "deploy"]);
    let token = signer.token(&claims);
    get(&world, &token).await.assert_status(403);
    let of_both = world.get_with("/user", &[("authorization", &format!("Bearer {token}"))]).await;
    of_both.assert_status(200);
    claims["aud"] = json!("others");
    assert_refused(&world, &signer.token(&claims), "wrong_audience").await;
}

#[tokio::test]
async fn keys_with_one_name_are_all_tried() {
    let signers = [(); 2].map(|()| Signer::new("one"));
    let issuer = Issuer::start(&signers.each_ref()).await;
    let world = Setup::new().config(&tools(&issuer)).manual_clock().start().await;
    eventually(|| has_fetched(&world)).await;
    for signer in &signers {
        let token = signer.token(&issuer.claims(now(&world)));
        get(&world, &token).await.assert_status(200);
    }
    let forged = Signer::new("one").token(&issuer.claims(now(&world)));
    assert_refused(&world, &forged, "forged_token").await;
}
