//! Reloads: what changes at once, what continues, and the effect of a faulty config (SPECIFICATION,
//! "Configuration").

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use weir::admin::Admin;
use weir::writes::{WriteId, WriteState};

use super::operator::{Operator, printed};
use crate::support::raw::Connection;
use crate::support::{KEY, OTHER_KEY, Reply, Setup, World, config, eventually};

const WIDGETS: &str = "/repos/acme/widgets";
const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const ASYNC: (&str, &str) = ("prefer", "respond-async");
const NEW_KEY: &str = "weir_key_of_somebody_new";

/// The config text without the one section of this heading that contains `marker`.
fn without(text: &str, section: &str, marker: &str) -> String {
    let mut kept = Vec::new();
    let mut sections =
        text.split_inclusive('\n').fold(Vec::<String>::new(), |mut sections, line| {
            if line.starts_with('[') || sections.is_empty() {
                sections.push(String::new());
            }
            sections.last_mut().unwrap().push_str(line);
            sections
        });
    let before = sections.len();
    sections.retain(|one| !(one.starts_with(section) && one.contains(marker)));
    assert_eq!(sections.len() + 1, before, "{section} with {marker} is not there once in\n{text}");
    kept.append(&mut sections);
    kept.concat()
}

fn without_ci(text: &str) -> String {
    without(text, "[[clients]]", "name = \"ci\"")
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

/// Queues a comment on an issue.
async fn queue(world: &World, key: &str, issue: u32, text: &str) -> WriteId {
    let path = format!("{WIDGETS}/issues/{issue}/comments");
    let accepted = world
        .send(
            Method::POST,
            &path,
            &[("authorization", &bearer(key)), ASYNC],
            &json!({ "body": text }).to_string(),
        )
        .await;
    accepted.assert_status(202);
    accepted.json()["id"].as_str().unwrap().parse().unwrap()
}

fn state(world: &World, id: WriteId) -> Option<WriteState> {
    world.gateway.writes.queue().write_status(id).map(|status| status.state)
}

/// The final state of a write and its reason, as operators see them.
async fn end(world: &World, id: WriteId) -> (WriteState, Option<String>) {
    world.gateway.writes.queue().ended(id).await;
    let listed = world.gateway.writes.queue().look_up(id).await.unwrap().unwrap();
    (listed.progress.state, listed.progress.reason.map(|reason| reason.message))
}

fn posted(world: &World) -> Vec<String> {
    let bodies = world.ask_emulator(Method::GET, &format!("{COMMENTS}?per_page=100"), &Value::Null);
    bodies
        .as_array()
        .unwrap()
        .iter()
        .map(|comment| comment["body"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_removed_clients_key_is_refused_on_open_connections_too() {
    let world = Setup::new().start().await;
    let mut connection = Connection::open(world.address).await;
    let request =
        format!("GET {WIDGETS} HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {KEY}\r\n\r\n");
    for _ in 0..2 {
        connection.send(request.as_bytes()).await;
        let answer = connection.read_answer().await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    world.reload(without_ci);
    connection.send(request.as_bytes()).await;
    let answer = connection.read_answer().await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    world.get(WIDGETS).await.assert_status(401);
    world.get_with(WIDGETS, &[("authorization", &bearer(OTHER_KEY))]).await.assert_status(200);
    // The reload restores the account.
    world.current.apply_config(
        weir::config::parse(&world.text, "test", &|_| None, std::path::Path::new(".")).unwrap(),
    );
    connection.send(request.as_bytes()).await;
    let answer = connection.read_answer().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_new_client_with_a_new_account_is_served_at_once() {
    let world = Setup::new().accounts(2).start().await;
    let token = world.tokens[1].token.clone();
    world.reload(|text| {
        let account = config::user("late", &token);
        let pools = config::pool("all", &["account-0"]) + &config::pool("late", &["late"]);
        let client = config::client("new", NEW_KEY, "reads = \"late\"\nwrites = \"late\"");
        let text = without(text, "[[accounts]]", "account-1");
        let text = without(&text, "[[tokens]]", "account-1");
        let text = text
            .replace("name = \"ci\"", "name = \"ci\"\nreads = \"all\"")
            .replace("name = \"other\"", "name = \"other\"\nreads = \"all\"");
        let text = text.replace("writes = \"account-1\"", "writes = \"account-0\"");
        [text, account, pools, client].concat()
    });
    let answer = world.get_with(WIDGETS, &[("authorization", &bearer(NEW_KEY))]).await;
    answer.assert_status(200);
    assert_eq!(answer.header("x-weir-account"), Some("late"));
    let me = world.get_with("/user", &[("authorization", &bearer(NEW_KEY))]).await;
    assert_eq!(me.header("x-weir-account"), Some("late"));
    assert!(world.current.gateway().dispatcher.admissions().audit().is_empty());
}

#[tokio::test]
async fn a_request_under_way_finishes_with_its_first_config() {
    let world = Setup::new().start().await;
    let gate = world.close_gate("GET", WIDGETS);
    let (answer, ()) = tokio::join!(world.get(WIDGETS), async {
        world.held(gate, 1).await;
        world.reload(without_ci);
        world.get(WIDGETS).await.assert_status(401);
        world.open_gate(gate);
    });
    answer.assert_status(200);
}

#[tokio::test]
async fn stored_responses_and_budgets_survive_a_reload() {
    let world = Setup::new().start().await;
    let first = world.get(WIDGETS).await;
    let budgets = || world.current.gateway().dispatcher.admissions().snapshot().1;
    let (before, sent) = (budgets(), world.upstream_requests().len());
    world.reload(|text| text.replace("[upstream]", "[cache]\nstale_if_error = \"2h\"\n[upstream]"));
    let now = budgets();
    assert_eq!(before[0].windows[0].remaining, now[0].windows[0].remaining);
    let again = world.get(WIDGETS).await;
    assert_eq!(
        (again.body.clone(), again.cache_status()),
        (first.body, "weir; fwd=stale; fwd-status=304")
    );
    assert_eq!(world.upstream_requests().len(), sent + 1);
    assert_eq!(budgets()[0].windows[0].remaining, before[0].windows[0].remaining, "a 304 is free");
}

#[tokio::test]
async fn a_pool_with_other_accounts_does_not_reuse_stored_responses() {
    let world = Setup::new()
        .accounts(2)
        .config(&config::pool("p", &["account-0"]))
        .cache_ttl("/repos/{owner}/{repo}", "1h")
        .client("reads = \"p\"")
        .start()
        .await;
    world.get(WIDGETS).await.assert_status(200);
    world.get(WIDGETS).await.assert_hit();
    world.reload(|text| text.replace("reads = \"p\"", "reads = \"p\"\nweight = 2"));
    assert_eq!(world.get(WIDGETS).await.cache_status(), "weir; hit", "its accounts are the same");
    world.reload(|text| text.replace("accounts = [\"account-0\"]", "accounts = [\"account-1\"]"));
    let answer = world.get(WIDGETS).await;
    assert!(
        answer.cache_status().contains("fwd=miss")
            || answer.cache_status().contains("fwd=uri-miss"),
        "{}",
        answer.cache_status()
    );
    assert_eq!(answer.header("x-weir-account"), Some("account-1"));
}

#[tokio::test]
async fn a_removed_cache_rule_applies_to_no_stored_response() {
    let world = Setup::new().cache_ttl("/repos/{owner}/{repo}", "1h").start().await;
    world.get(WIDGETS).await.assert_status(200);
    world.get(WIDGETS).await.assert_hit();
    world.reload(|text| without(text, "[[cache.rules]]", "ttl"));
    world.get(WIDGETS).await.assert_revalidated();
    world.get(WIDGETS).await.assert_revalidated();
}

#[tokio::test]
async fn a_limit_spans_both_configs_and_raising_it_admits_waiters() {
    let world = Setup::new().limits("concurrency = 1").client("max_wait = \"10m\"").start().await;
    world.get("/repos/acme/gadgets").await.assert_status(200);
    let gate = world.close_gate("GET", WIDGETS);
    let path = format!("{WIDGETS}/labels");
    let (first, second) = (world.get(WIDGETS), world.get(&path));
    let (first, second, ()) = tokio::join!(first, second, async {
        world.held(gate, 1).await;
        eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
        world.reload(|text| text.replace("max_wait = \"10m\"", "max_wait = \"9m\""));
        let raised = async {
            eventually(|| world.gateway.dispatcher.admissions().waiting() == 2).await;
            world.reload(|text| text.replace("concurrency = 1", "concurrency = 2"));
        };
        let (third, ()) = tokio::join!(world.get("/repos/acme/widgets/branches"), raised);
        third.assert_status(200);
        world.open_gate(gate);
    });
    first.assert_status(200);
    second.assert_status(200);
}

#[tokio::test]
async fn a_replaced_token_is_no_longer_used() {
    let world = Setup::new().accounts(2).start().await;
    let (old, new) = (world.tokens[0].token.clone(), world.tokens[1].token.clone());
    world.get(WIDGETS).await.assert_status(200);
    world.reload(|text| {
        let text = without(text, "[[tokens]]", &new);
        let text =
            without(&text, "[[accounts]]", "account-1").replace("writes = \"account-1\"", "");
        text.replace(&old, &new)
    });
    let answer = world.get("/user").await;
    let login = answer.json()["login"].as_str().unwrap().to_owned();
    assert_eq!(Some(login), world.tokens[1].user.clone());
}

#[tokio::test]
async fn queued_writes_of_a_removed_client_fail_and_others_proceed() {
    let world = Setup::new().accounts(2).unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let on_wire = queue(&world, KEY, 1, "on the wire").await;
    world.held(gate, 1).await;
    let behind =
        [queue(&world, KEY, 1, "behind it").await, queue(&world, KEY, 1, "and behind that").await];
    let resting = queue(&world, KEY, 2, "held by the books").await;
    let others = queue(&world, OTHER_KEY, 1, "of another client").await;
    world.reload(without_ci);
    let (failed, reason) = end(&world, resting).await;
    assert_eq!(failed, WriteState::Failed);
    assert!(
        reason.as_ref().is_some_and(|reason| reason.contains("`ci`") || reason.contains("ci")),
        "{reason:?}"
    );
    assert_eq!(state(&world, on_wire), Some(WriteState::Sending), "it is brought to its end");
    world.open_gate(gate);
    assert_eq!(end(&world, on_wire).await.0, WriteState::Done);
    for id in behind {
        assert_eq!(end(&world, id).await.0, WriteState::Failed);
    }
    assert_eq!(end(&world, others).await.0, WriteState::Done);
    let mut posted = posted(&world);
    posted.retain(|body| {
        body.contains("wire") || body.contains("behind") || body.contains("another")
    });
    posted.sort();
    assert_eq!(posted, ["of another client", "on the wire"]);
}

#[tokio::test]
async fn queued_writes_without_account_or_permission_fail_in_order() {
    let world = Setup::new().accounts(2).unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let first = queue(&world, KEY, 1, "w 1").await;
    world.held(gate, 1).await;
    let second = queue(&world, KEY, 1, "w 2").await;
    let third = queue(&world, KEY, 1, "w 3").await;
    world.reload(|text| text.replace("name = \"ci\"", "name = \"ci\"\npriority = \"batch\""));
    world.open_gate(gate);
    for id in [first, second, third] {
        assert_eq!(end(&world, id).await.0, WriteState::Done);
    }
    assert_eq!(
        posted(&world).into_iter().filter(|body| body.starts_with("w ")).collect::<Vec<_>>(),
        ["w 1", "w 2", "w 3"]
    );
    let gate = world.close_gate("POST", COMMENTS);
    let first = queue(&world, KEY, 1, "x 1").await;
    world.held(gate, 1).await;
    let second = queue(&world, KEY, 1, "x 2").await;
    world.reload(|text| text.replace("name = \"ci\"", "name = \"ci\"\nallow = [\"GET /**\"]"));
    world.open_gate(gate);
    assert_eq!(end(&world, first).await.0, WriteState::Done);
    assert_eq!(end(&world, second).await.0, WriteState::Failed);
    let third = queue(&world, OTHER_KEY, 1, "x 3");
    world.reload(|text| {
        let text = text.replace("writes = \"account-1\"", "writes = \"account-0\"");
        without(&without(&text, "[[accounts]]", "account-1"), "[[tokens]]", "account-1")
    });
    assert_eq!(
        end(&world, third.await).await.0,
        WriteState::Done,
        "by the account that writes for it now"
    );
}

#[tokio::test]
async fn a_write_waiting_for_a_removed_account_fails_at_once() {
    let world =
        Setup::new().accounts(2).writes("spacing = \"1h\"\nnotify_spacing = \"1h\"").start().await;
    let first = queue(&world, OTHER_KEY, 1, "first").await;
    assert_eq!(end(&world, first).await.0, WriteState::Done);
    let held = queue(&world, OTHER_KEY, 2, "held for an hour").await;
    eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
    world.reload(|text| {
        let text = text.replace("writes = \"account-1\"", "writes = \"account-0\"");
        without(&without(&text, "[[accounts]]", "account-1"), "[[tokens]]", "account-1")
    });
    let (state, reason) = end(&world, held).await;
    assert_eq!(state, WriteState::Failed);
    assert!(reason.as_ref().is_some_and(|reason| reason.contains("account-1")), "{reason:?}");
    assert_eq!(world.gateway.dispatcher.admissions().waiting(), 0);
}

#[tokio::test]
async fn a_write_is_retried_by_the_current_config_only() {
    let world = Setup::new().accounts(2).unspaced_writes().start().await;
    world.arm(&json!({ "match": { "method": "POST", "path": COMMENTS, "nth": 1 }, "fault": "secondary", "retry_after": 1 }));
    let gate = world.close_gate("POST", COMMENTS);
    let gone = queue(&world, OTHER_KEY, 1, "of a client that goes").await;
    world.held(gate, 1).await;
    world.reload(|text| without(text, "[[clients]]", "name = \"other\""));
    world.open_gate(gate);
    let (state, reason) = end(&world, gone).await;
    assert_eq!(state, WriteState::Failed, "{reason:?}");
    let posts = world.upstream_requests().iter().filter(|entry| entry.method == "POST").count();
    assert_eq!(posts, 1, "it is not sent again");
}

#[tokio::test]
async fn a_client_restored_by_a_reload_finds_its_writes() {
    use std::sync::Arc;
    use weir::clock::Clock;
    use weir::gateway::Current;
    use weir::gateway::Recovery;
    use weir::telemetry::Metrics;
    use weir::writes::memory::MemoryStore;
    use weir::writes::{Change, Store as _, Stored};

    let world = Setup::new().unspaced_writes().start().await;
    let done = queue(&world, KEY, 1, "before").await;
    assert_eq!(end(&world, done).await.0, WriteState::Done);
    let listed = world.gateway.writes.queue().look_up(done).await.unwrap().unwrap();
    let store = Arc::new(MemoryStore::default());
    store
        .apply(Change::Insert(
            done.number,
            Stored { request: listed.write.encode(), progress: listed.progress.encode() },
        ))
        .await
        .unwrap();
    let mut recovery = Recovery::default();
    recovery.take(done.number, &store.load(done.number).await.unwrap().unwrap()).unwrap();
    let without = config::parsed(&without_ci(&world.text));
    let restarted = Current::with_writes(
        Arc::new(without),
        Clock::system(),
        Arc::new(Metrics::new()),
        store,
        recovery,
    );
    let before = restarted.gateway().writes.queue().write_status(done).unwrap();
    restarted.apply_config(config::parsed(&world.text));
    let gateway = restarted.gateway();
    assert_eq!(&*gateway.env.config.clients[before.client as usize].name, "ci");
    assert!(!gateway.env.config.clients[before.client as usize].retired);
}

#[tokio::test]
async fn the_admin_reload_refuses_a_bad_config_with_422() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    let world = Setup::new().listen("admin = \"127.0.0.1:0\"").start().await;
    let admin = Admin::open(&world.current).unwrap().address().unwrap();
    let reload = |method: &'static str| async move {
        let mut connection = Connection::open(admin).await;
        connection
            .send(format!("{method} /api/reload HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n").as_bytes())
            .await;
        let answer = connection.read_to_close().await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: u16 = head[9..12].parse().unwrap();
        (status, serde_json::from_str::<Value>(body).unwrap())
    };
    assert_eq!(reload("POST").await.0, 409, "it was not read from a file");
    world.current.read_from(file.clone());
    assert_eq!(reload("GET").await.0, 405);
    std::fs::write(&file, world.text.replace("name = \"other\"", "name = \"ci\"")).unwrap();
    let (status, reported) = reload("POST").await;
    assert_eq!(status, 422, "{reported}");
    let fault = &reported["faults"][0];
    assert!(
        fault["line"].is_u64() && fault["key"].as_str().unwrap().starts_with("clients[1]"),
        "{reported}"
    );
    world.get(WIDGETS).await.assert_status(200);
    std::fs::write(&file, without_ci(&world.text)).unwrap();
    assert_eq!(
        reload("POST").await,
        (200, json!({ "message": "the config is in force", "at_next_start": [] }))
    );
    world.get(WIDGETS).await.assert_status(401);
    std::fs::write(
        &file,
        world.text.replace("[upstream]", "[telemetry]\nlog = \"text\"\n[upstream]"),
    )
    .unwrap();
    let (status, reported) = reload("POST").await;
    assert_eq!((status, &reported["at_next_start"]), (200, &json!(["telemetry.log"])));
    world.get(WIDGETS).await.assert_status(200);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(reload("POST").await.0, 422);
    world.get(WIDGETS).await.assert_status(200);
}

#[tokio::test]
async fn a_reload_reads_included_files_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, included) = (folder.path().join("weir.toml"), folder.path().join("more.toml"));
    let world = Setup::new().start().await;
    world.current.read_from(file.clone());
    std::fs::write(&file, format!("include = [\"more.toml\"]\n{}", world.text)).unwrap();
    std::fs::write(&included, "").unwrap();
    world.current.reload().unwrap();
    let key = bearer(NEW_KEY);
    let ask = async || world.get_with(WIDGETS, &[("authorization", &key)]).await;
    ask().await.assert_status(401);
    std::fs::write(&included, config::client("more", NEW_KEY, "")).unwrap();
    world.current.reload().unwrap();
    ask().await.assert_status(200);
    std::fs::remove_file(&included).unwrap();
    let fault = world.current.reload().unwrap_err().to_string();
    assert!(fault.contains("weir.toml:1: include[0]: "), "{fault}");
    ask().await.assert_status(200);
}

#[tokio::test]
async fn reloads_under_load_lose_and_refuse_nothing() {
    let world = Setup::new().accounts(2).unspaced_writes().start().await;
    let readers = (0..8).map(|number| {
        let world = &world;
        async move {
            let mut refused = Vec::<Reply>::new();
            for turn in 0..40 {
                let path = if number % 2 == 0 {
                    WIDGETS.to_owned()
                } else {
                    format!("{WIDGETS}/issues/{}", turn % 3 + 1)
                };
                let answer = world.get(&path).await;
                if answer.status != 200 {
                    refused.push(answer);
                }
            }
            refused
        }
    });
    let reloads = async {
        for turn in 0..40 {
            world.reload(|text| {
                text.replace(
                    "name = \"ci\"",
                    &format!("name = \"ci\"\nmax_wait = \"{}s\"", 60 + turn),
                )
            });
            tokio::task::yield_now().await;
            world
                .gateway
                .env
                .clock
                .reach(world.gateway.env.clock.now() + Duration::from_millis(2))
                .await;
        }
    };
    let (refused, ()) = tokio::join!(futures_util::future::join_all(readers), reloads);
    let refused: Vec<_> = refused.into_iter().flatten().collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(world.current.gateway().env.config.clients.len(), 2);
    assert!(world.gateway.dispatcher.admissions().audit().is_empty());
}

#[tokio::test]
async fn the_reload_command_shows_faults_and_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    let world = Setup::new().listen("admin = \"127.0.0.1:0\"").start().await;
    let operator = Operator::of(&world);
    let address = operator.address.to_string();
    let reload = async || {
        let output = operator.weir("reload", &["--admin", &address], None).await;
        (output.status.code(), printed(&output))
    };
    let (code, text) = reload().await;
    assert!(code == Some(1) && text.contains("the config was not read from a file"), "{text}");
    world.current.read_from(file.clone());
    std::fs::write(&file, world.text.replace("name = \"other\"", "name = \"ci\"")).unwrap();
    let (code, text) = reload().await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("the config has faults; the old one stays in force\n"), "{text}");
    assert!(text.contains("weir.toml:") && text.contains(" clients[1].name: "), "{text}");
    assert_eq!(operator.metric("weir_config_reload_successful").await, Some(0.0));
    let changed = world.text.replace("[upstream]", "[telemetry]\nlog = \"text\"\n[upstream]");
    std::fs::write(&file, changed).unwrap();
    let (code, text) = reload().await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("\nat the next start: telemetry.log\n"), "{text}");
    assert_eq!(operator.metric("weir_config_reload_successful").await, Some(1.0));
    let refused = "weir_config_reloads_total{result=\"refused\"}";
    assert_eq!(operator.metric(refused).await, Some(1.0));
    assert!(operator.metric("process_resident_memory_bytes").await > Some(1e6));
}
