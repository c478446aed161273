//! Snapshots: what is stored, and what is known of the budgets, outlasts a restart (SPECIFICATION
//! D24).
//!
//! A crash leaves the file as it is at that moment, so a copy of the file stands for it. One test
//! kills the built program.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tempfile::TempDir;
use weir::emulator::{Entry, Handle};
use weir::gateway::Prefix;

use crate::support::raw::Connection;
use crate::support::{KEY, OTHER_KEY, Setup, World, captured_log, config, eventually};

const REPOSITORY: &str = "/repos/acme/widgets";
const ISSUE: &str = "/repos/acme/widgets/issues/3";
/// A page in the middle of a list.
const PAGE: &str = "/repos/acme/widgets/issues?per_page=2&page=2";
const COMMENTS: &str = "/repos/acme/widgets/issues/3/comments";
const PATHS: [&str; 5] = [REPOSITORY, ISSUE, PAGE, COMMENTS, "/user"];
const ISSUE_ROUTE: &str = "/repos/{owner}/{repo}/issues/{issue_number}";

/// A folder for a snapshot, and its path.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.cache");
    (folder, path)
}

fn setup(path: &std::path::Path) -> Setup {
    Setup::new().cache(&config::snapshot(path))
}

fn nothing(_: &Handle) {}

fn unchanged(text: &str) -> String {
    text.to_owned()
}

/// Restarts the gateway with the same config.
async fn restarted(world: World) -> World {
    world.restart(nothing, unchanged).await
}

/// The same as if the gateway had crashed when the file was like this.
async fn crashed(world: World, path: &std::path::Path, file: Vec<u8>) -> World {
    world.restart(|_| std::fs::write(path, file).unwrap(), unchanged).await
}

/// Writes a snapshot now; false if it could not be.
async fn is_written(world: &World) -> bool {
    let snapshots = world.current.snapshots().unwrap();
    snapshots.write_now(Arc::clone(&world.gateway.cache)).await
}

/// Writes a snapshot now.
async fn write(world: &World) {
    assert!(is_written(world).await);
}

/// The requests since the first `before` ones.
fn since(world: &World, before: usize) -> Vec<Entry> {
    world.upstream_requests().split_off(before)
}

async fn get_all(world: &World) -> Vec<bytes::Bytes> {
    let mut bodies = Vec::new();
    for path in PATHS {
        let answer = world.get(path).await;
        answer.assert_status(200);
        bodies.push(answer.body);
    }
    bodies
}

/// Asserts that everything is confirmed for free, with the same bodies.
async fn all_are_confirmed(world: &World, bodies: &[bytes::Bytes]) {
    let before = world.upstream_requests().len();
    for (path, body) in PATHS.iter().zip(bodies) {
        let answer = world.get(path).await;
        answer.assert_revalidated();
        assert_eq!(rewritten(world, body), rewritten(world, &answer.body), "{path}");
    }
    let asked = since(world, before);
    let free = asked.iter().filter(|entry| (entry.status, entry.cost) == (304, 0)).count();
    assert_eq!((free, asked.len()), (PATHS.len(), PATHS.len()), "{asked:?}");
}

/// A body without the address of the gateway, which a restart changes here.
fn rewritten(world: &World, body: &bytes::Bytes) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let mut parts = text.split("http://127.0.0.1:");
    let first = parts.next().unwrap_or_default().to_owned();
    let is_digit = |c: char| c.is_ascii_digit();
    assert!(world.address.ip().is_loopback());
    parts.fold(first, |all, part| all + part.trim_start_matches(is_digit))
}

#[tokio::test]
async fn an_answer_of_before_the_restart_costs_nothing() {
    let (_folder, path) = place();
    let world = setup(&path).start().await;
    let bodies = get_all(&world).await;
    let world = restarted(world).await;
    all_are_confirmed(&world, &bodies).await;
    // Once more, with answers that nobody asked for in between.
    let world = restarted(restarted(world).await).await;
    all_are_confirmed(&world, &bodies).await;
}

#[tokio::test]
async fn a_restored_answer_is_confirmed_before_it_is_served() {
    for keys in ["freshness = \"revalidate\"", config::RFC9111, "revalidate_at_most = \"1h\""] {
        let (_folder, path) = place();
        let setup = setup(&path).cache(keys).cache_ttl(ISSUE_ROUTE, "1h");
        let world = setup.manual_clock().start().await;
        world.get(ISSUE).await.assert_status(200);
        world.get(ISSUE).await.assert_hit();
        let world = restarted(world).await;
        world.get_with(ISSUE, &[("cache-control", "only-if-cached")]).await.assert_status(504);
        world.get(ISSUE).await.assert_revalidated();
        world.get(ISSUE).await.assert_hit();
    }
}

#[tokio::test]
async fn a_change_between_stop_and_start_is_seen() {
    let (_folder, path) = place();
    let world = setup(&path).start().await;
    get_all(&world).await;
    let token = world.tokens[0].token.clone();
    let change = move |emulator: &Handle| {
        let request = http::Request::patch(ISSUE)
            .header("authorization", format!("Bearer {token}"))
            .body(bytes::Bytes::from(json!({ "title": "changed meanwhile" }).to_string()))
            .unwrap();
        let now = weir::clock::Clock::system().now();
        let answer = emulator
            .with_emulator(|emulator| emulator.respond(now, &request, [127, 0, 0, 1].into()));
        assert!(answer.status().is_success());
    };
    let world = world.restart(change, unchanged).await;
    assert_eq!(world.get(ISSUE).await.json()["title"], "changed meanwhile");
    world.get(REPOSITORY).await.assert_status(200);
}

#[tokio::test]
async fn a_changed_pool_reads_nothing_of_another() {
    let (_folder, path) = place();
    let pools = config::pool("one", &["account-0"]) + &config::pool("two", &["account-1"]);
    let setup = setup(&path).accounts(2).config(&pools).client("reads = \"one\"");
    let world = setup.other_client("reads = \"two\"").start().await;
    let other_key = format!("Bearer {OTHER_KEY}");
    let by_other = [("authorization", other_key.as_str())];
    world.get(ISSUE).await.assert_fetched_and_stored();
    world.get_with(ISSUE, &by_other).await.assert_fetched_and_stored();
    world.get_with("/user", &by_other).await.assert_fetched_and_stored();
    // Another reach is another view.
    let narrowed = |text: &str| {
        text.replacen("name = \"account-1\"", "name = \"account-1\"\nreach = [\"acme\"]", 1)
    };
    let world = world.restart(nothing, narrowed).await;
    world.get(ISSUE).await.assert_revalidated();
    world.get_with(ISSUE, &by_other).await.assert_fetched_and_stored();
    world.get_with("/user", &by_other).await.assert_fetched_and_stored();
}

#[tokio::test]
async fn an_account_with_another_token_reads_nothing_of_before() {
    let (_folder, path) = place();
    let world = setup(&path).start().await;
    get_all(&world).await;
    let secret = world.tokens[0].token.clone();
    let tokens = world.emulator.with_emulator(|emulator| emulator.tokens());
    let mut others = tokens.into_iter().filter(|token| token.kind == "classic");
    let other = others.find(|token| token.token != secret && token.scopes.contains(&"repo"));
    let other = other.unwrap().token;
    let edit = |text: &str| text.replace(&secret, &other);
    let world = world.restart(nothing, edit).await;
    for path in PATHS {
        world.get(path).await.assert_fetched_and_stored();
    }
}

#[tokio::test]
async fn a_snapshot_holds_no_credential_and_is_for_its_owner() {
    let (_folder, path) = place();
    let world = setup(&path).start().await;
    get_all(&world).await;
    write(&world).await;
    let file = std::fs::read(&path).unwrap();
    let token = world.tokens[0].token.as_bytes();
    for secret in [token, KEY.as_bytes()] {
        assert!(!file.windows(secret.len()).any(|part| part == secret));
    }
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_damaged_snapshot_is_left_alone() {
    let (_folder, path) = place();
    let world = setup(&path).start().await;
    let bodies = get_all(&world).await;
    let mut world = restarted(world).await;
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    let middle = whole.len() / 2;
    flipped[middle] ^= 1;
    let mut newer = whole.clone();
    newer[10] = 200;
    let cases = [
        (flipped, "damaged"),
        (whole[..middle].to_vec(), "damaged"),
        (b"a letter to a friend".to_vec(), "not a snapshot"),
        (newer, "version 200"),
    ];
    for (bad, problem) in cases {
        captured_log::begin();
        let file = bad.clone();
        world = crashed(world, &path, file).await;
        let log = captured_log::own();
        let line = log.lines().find(|line| line.contains("left alone")).unwrap_or_default();
        assert!(line.contains("WARN") && line.contains(problem), "{problem}: {log}");
        // The gateway serves, and does not touch the file, not even at its end.
        world.get(ISSUE).await.assert_fetched_and_stored();
        assert!(!is_written(&world).await);
        let kept = path.clone();
        let expected = bad.clone();
        world = world
            .restart(move |_| assert_eq!(std::fs::read(&kept).unwrap(), expected), unchanged)
            .await;
    }
    // Out of the way, the next one is written.
    std::fs::remove_file(&path).unwrap();
    get_all(&world).await;
    let world = restarted(world).await;
    all_are_confirmed(&world, &bodies).await;
}

#[tokio::test]
async fn a_place_that_cannot_be_written_keeps_nobody_from_serving() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("weir.cache");
    captured_log::begin();
    let world = setup(&path).start().await;
    world.get(ISSUE).await.assert_status(200);
    assert!(!is_written(&world).await);
    let world = restarted(world).await;
    world.get(ISSUE).await.assert_fetched_and_stored();
    let text = captured_log::all();
    assert!(text.contains("no snapshot of the cache can be written"), "{text}");
}

#[tokio::test]
async fn a_crash_restores_the_last_periodic_snapshot() {
    let (_folder, path) = place();
    let setup = setup(&path).cache("snapshot_interval = \"1m\"").manual_clock();
    let world = setup.start().await;
    let bodies = get_all(&world).await;
    world.advance_both(Duration::from_secs(60));
    eventually(|| path.exists()).await;
    world.get("/repos/acme/widgets/issues/4").await.assert_fetched_and_stored();
    let file = std::fs::read(&path).unwrap();
    let world = crashed(world, &path, file).await;
    all_are_confirmed(&world, &bodies).await;
    world.get("/repos/acme/widgets/issues/4").await.assert_fetched_and_stored();
}

#[tokio::test]
async fn a_list_is_fetched_anew_after_a_write_and_a_crash() {
    let (_folder, path) = place();
    let world = setup(&path).unspaced_writes().start().await;
    get_all(&world).await;
    write(&world).await;
    let issue = json!({ "title": "one more" });
    world.post("/repos/acme/widgets/issues", issue).await.assert_status(201);
    let file = std::fs::read(&path).unwrap();
    let world = crashed(world, &path, file).await;
    // A 304 would not tell of a new last page.
    let answer = world.get(PAGE).await;
    assert_eq!(answer.cache_status(), "weir; fwd=stale; fwd-status=200");
    world.get(REPOSITORY).await.assert_status(200);
}

#[tokio::test]
async fn a_purged_answer_does_not_return_after_a_crash() {
    let (_folder, path) = place();
    let world = setup(&path).start().await;
    get_all(&world).await;
    write(&world).await;
    world.gateway.cache.store().purge(&Prefix::new(ISSUE).unwrap(), world.clock.now());
    let file = std::fs::read(&path).unwrap();
    let world = crashed(world, &path, file).await;
    world.get(ISSUE).await.assert_fetched_and_stored();
}

#[tokio::test]
async fn a_write_just_before_the_stop_is_rechecked_after_it() {
    let (_folder, path) = place();
    let setup = setup(&path).cache_ttl(ISSUE_ROUTE, "1h").unspaced_writes().manual_clock();
    let world = setup.start().await;
    world.get(ISSUE).await.assert_status(200);
    world.advance_both(Duration::from_secs(1));
    let title = json!({ "title": "written" }).to_string();
    world.send(Method::PATCH, ISSUE, &[], &title).await.assert_status(200);
    let world = restarted(world).await;
    world.advance_both(Duration::from_secs(1));
    assert_eq!(world.get(ISSUE).await.json()["title"], "written");
    world.get(ISSUE).await.assert_hit();
    // The first answers after a change may come from a replica that lags.
    world.advance_both(Duration::from_secs(3));
    world.get(ISSUE).await.assert_revalidated();
}

#[tokio::test]
async fn a_restored_answer_stands_in_for_an_upstream_that_fails() {
    let (_folder, path) = place();
    let world = setup(&path).start().await;
    world.get(ISSUE).await.assert_status(200);
    let world = restarted(world).await;
    world.arm(&json!({ "fault": "status", "status": 500, "match": { "path": ISSUE } }));
    let answer = world.get(ISSUE).await;
    answer.assert_status(200);
    assert_eq!(answer.cache_status(), "weir; hit; detail=stale-if-error");
}

#[tokio::test]
async fn a_cool_down_outlasts_an_orderly_restart() {
    let (_folder, path) = place();
    let world = setup(&path).manual_clock().client("max_wait = \"0s\"").start().await;
    let fault = json!({ "fault": "secondary", "retry_after": 600, "match": { "times": 1 } });
    world.arm(&fault);
    world.get(ISSUE).await.assert_secondary_limited();
    let world = restarted(world).await;
    let before = world.upstream_requests().len();
    world.current.begin_look();
    world.get(ISSUE).await.assert_secondary_limited();
    assert_eq!(since(&world, before).len(), 0, "the account stays silent");
    world.advance_both(Duration::from_secs(700));
    world.get(ISSUE).await.assert_status(200);
}

#[tokio::test]
async fn a_budget_outlasts_an_orderly_restart() {
    let (_folder, path) = place();
    let world = setup(&path).manual_clock().client("max_wait = \"0s\"").start().await;
    world.set_limits(&json!({ "core.user": 3 }));
    for number in 1..=3 {
        world.get(&format!("/repos/acme/widgets/issues/{number}")).await.assert_status(200);
    }
    let world = restarted(world).await;
    let before = world.upstream_requests().len();
    let answer = world.get("/repos/acme/widgets/issues/4").await;
    answer.assert_rate_limited(world.clock.now().as_secs());
    assert_eq!(since(&world, before).len(), 0, "the gateway knows that nothing is left");
    // A confirmation is free, and its request needs a unit all the same.
    world.advance_both(Duration::from_secs(3_700));
    world.get("/repos/acme/widgets/issues/4").await.assert_status(200);
}

#[tokio::test]
async fn the_spacing_of_writes_outlasts_an_orderly_restart() {
    let (_folder, path) = place();
    let setup = setup(&path).writes("spacing = \"1m\"\nnotify_spacing = \"1m\"");
    let world = setup.client("max_wait = \"0s\"").manual_clock().start().await;
    let label = |name: &str| json!({ "name": name, "color": "ffffff" });
    world.post("/repos/acme/widgets/labels", label("one")).await.assert_status(201);
    let world = restarted(world).await;
    let refused = world.post("/repos/acme/widgets/labels", label("two")).await;
    refused.assert_status(403);
    assert!(refused.number("retry-after") >= 59, "{refused:?}");
    world.advance_both(Duration::from_secs(61));
    world.post("/repos/acme/widgets/labels", label("two")).await.assert_status(201);
}

#[tokio::test]
async fn a_budget_is_unknown_after_a_crash_and_a_cool_down_is_not() {
    let (_folder, path) = place();
    let world = setup(&path).manual_clock().client("max_wait = \"0s\"").start().await;
    world.get(ISSUE).await.assert_status(200);
    write(&world).await;
    let file = std::fs::read(&path).unwrap();
    let world = crashed(world, &path, file).await;
    let known = |world: &World| {
        let (_, accounts) = world.gateway.dispatcher.admissions().snapshot();
        let windows = accounts.into_iter().flat_map(|account| account.windows);
        windows.filter(|window| window.known).count()
    };
    assert_eq!(known(&world), 0, "others may have spent it, and so may this gateway");
    world.get(ISSUE).await.assert_revalidated();
    let fault = json!({ "fault": "secondary", "retry_after": 600, "match": { "times": 1 } });
    world.arm(&fault);
    world.get("/repos/acme/widgets/issues/4").await.assert_secondary_limited();
    write(&world).await;
    let file = std::fs::read(&path).unwrap();
    let world = crashed(world, &path, file).await;
    let before = world.upstream_requests().len();
    world.get("/repos/acme/widgets/issues/5").await.assert_secondary_limited();
    assert_eq!(since(&world, before).len(), 0);
}

#[tokio::test]
async fn a_snapshot_is_used_once_as_the_last_one() {
    let (_folder, path) = place();
    let world = setup(&path).manual_clock().start().await;
    world.get(ISSUE).await.assert_status(200);
    let world = restarted(world).await;
    // The gateway has taken it over: what it says of budgets is old from now on.
    let file = std::fs::read(&path).unwrap();
    let world = crashed(world, &path, file).await;
    let (_, accounts) = world.gateway.dispatcher.admissions().snapshot();
    let windows = accounts.iter().flat_map(|account| &account.windows);
    assert_eq!(windows.filter(|window| window.known).count(), 0);
}

/// The built program, which ends with its test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    async fn start(config: &std::path::Path, address: std::net::SocketAddr) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("serve").arg("--config").arg(config);
        let mut child = Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        while std::net::TcpStream::connect(address).is_err() {
            assert!(child.0.try_wait().unwrap().is_none(), "the gateway does not start");
            tokio::task::yield_now().await;
        }
        child
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_program_begins_with_the_snapshot_before() {
    let (folder, path) = place();
    let world = Setup::new().start().await;
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = world.text.replace("127.0.0.1:0", &address.to_string());
    let text = text + "[cache]\nsnapshot = \"weir.cache\"\nsnapshot_interval = \"1s\"\n";
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, text).unwrap();
    let get = async |path: &str| {
        let mut connection = Connection::open(address).await;
        let head = format!("GET {path} HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {KEY}\r\n");
        connection.send((head + "connection: close\r\n\r\n").as_bytes()).await;
        connection.read_to_close().await
    };
    let mut program = Program::start(&file, address).await;
    assert!(get(ISSUE).await.contains("fwd=uri-miss; stored"));
    // A snapshot from after the answer.
    let read = || std::fs::read(&path).unwrap_or_default();
    eventually(|| !read().is_empty()).await;
    let first = read();
    eventually(|| read() != first).await;
    program.0.kill().unwrap();
    drop(program);
    let _program = Program::start(&file, address).await;
    let before = world.upstream_requests().len();
    assert!(get(ISSUE).await.contains("fwd=stale; fwd-status=304"));
    let of_issue: Vec<_> = since(&world, before)
        .into_iter()
        .filter(|entry| entry.path.contains("/issues/"))
        .map(|entry| (entry.status, entry.cost))
        .collect();
    assert_eq!(of_issue, [(304, 0)]);
}
