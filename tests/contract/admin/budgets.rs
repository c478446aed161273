//! Budgets, limits and tokens on the admin listener and in `weir budgets` (SPECIFICATION, "Admin
//! listener").

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use strum::VariantArray;
use weir::decision::Invariant;

use super::hold_for_five_seconds;
use super::operator::{ADMIN, ISSUES, Operator, TOKEN, printed};
use crate::support::{KEY, Setup, bounded};

#[tokio::test]
async fn budgets_are_listed_by_account_and_resource() {
    let world = Setup::new().listen(ADMIN).account("reserve = 7").manual_clock().start().await;
    world.set_limits(&json!({ "core.user": 50 }));
    world.get(ISSUES).await.assert_status(200);
    let operator = Operator::of(&world);
    let budgets = operator.budgets().await;
    let account = &budgets["accounts"][0];
    assert_eq!(
        (&account["account"], &account["reserve"], &account["cooldown_until"]),
        (&json!("account-0"), &json!(7), &Value::Null)
    );
    let core = &account["resources"][0];
    let reset = core["reset"].as_u64().unwrap();
    assert!(reset > budgets["now"].as_u64().unwrap(), "{budgets}");
    assert!(core["reset_iso"].as_str().unwrap().starts_with("2027-01-15T0"), "{core}");
    let figures = ["resource", "known", "limit", "remaining", "reserved", "used"]
        .map(|key| core[key].clone());
    assert_eq!(figures, [json!("core"), json!(true), json!(50), json!(49), json!(0), json!(1)]);
    assert_eq!(
        account["tokens"],
        json!([{
            "token": "0", "healthy": true, "state": "healthy", "reason": null,
            "rejected_since_iso": null,
        }])
    );
}

#[tokio::test]
async fn every_secondary_limit_is_listed_with_maximum_and_metric() {
    let world = Setup::new().listen(ADMIN).start().await;
    world.get(ISSUES).await.assert_status(200);
    let operator = Operator::of(&world);
    let (_, snapshot) = world.gateway.dispatcher.admissions().snapshot();
    let reported = operator.budgets().await["accounts"][0]["secondary"].clone();
    assert!(!snapshot[0].secondary.is_empty());
    for (limit, reported) in snapshot[0].secondary.iter().zip(reported.as_array().unwrap()) {
        assert_eq!(
            *reported,
            json!({ "limit": limit.limit.name(), "in_use": limit.in_use, "max": limit.max })
        );
        let series = format!(
            "weir_secondary_in_use{{account=\"account-0\",limit=\"{}\"}}",
            limit.limit.name()
        );
        assert_eq!(operator.metric(&series).await, Some(f64::from(limit.in_use)));
    }
}

#[tokio::test]
async fn the_metrics_of_a_budget_match_the_ledger() {
    let world = Setup::new().listen(ADMIN).manual_clock().start().await;
    world.get(ISSUES).await.assert_status(200);
    let operator = Operator::of(&world);
    let core = operator.budgets().await["accounts"][0]["resources"][0].clone();
    for (metric, key) in [
        ("limit", "limit"),
        ("remaining", "remaining"),
        ("reserved", "reserved"),
        ("reset_timestamp_seconds", "reset"),
    ] {
        let series = format!("weir_budget_{metric}{{account=\"account-0\",resource=\"core\"}}");
        assert_eq!(operator.metric(&series).await, core[key].as_f64(), "{metric}");
    }
}

#[tokio::test]
async fn a_rejected_token_is_reported_everywhere_without_its_secret() {
    let world = Setup::new().listen(ADMIN).accounts(3).broken_token(2).start().await;
    let operator = Operator::of(&world);
    let answers = join_all((0..8).map(|page| {
        let world = &world;
        async move { world.get(&format!("{ISSUES}?page={page}&per_page=1")).await }
    }))
    .await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(
        operator.get("/readyz").await.body,
        "ok\n1 of 3 upstream tokens benched, 0 minting\n"
    );
    assert_eq!(
        operator.metric("weir_token_healthy{account=\"account-0\",token=\"0\"}").await,
        Some(1.0)
    );
    assert_eq!(
        operator.metric("weir_token_healthy{account=\"account-2\",token=\"2\"}").await,
        Some(0.0)
    );
    let token = operator.budgets().await["accounts"][2]["tokens"][0].clone();
    assert_eq!((&token["token"], &token["healthy"]), (&json!("2"), &json!(false)));
    assert!(token["reason"].as_str().unwrap().contains("401"), "{token}");
    for path in ["/readyz", "/metrics", "/api/budgets", "/api/clients"] {
        let text = String::from_utf8(operator.get(path).await.body.to_vec()).unwrap();
        assert!(!text.contains("emu_") && !text.contains(KEY), "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_request_is_counted_then_recorded_under_its_limit() {
    let world = Setup::new().listen(ADMIN).manual_clock().limits("concurrency = 1").start().await;
    let operator = Operator::of(&world);
    let waiting = async || {
        (
            operator.metric("weir_waiting{client=\"ci\"}").await,
            operator.client("ci").await["waiting"].clone(),
        )
    };
    let (answer, seen) = hold_for_five_seconds(&world, waiting).await;
    assert_eq!(seen, (Some(1.0), json!(1)));
    answer.assert_status(200);
    assert_eq!(
        answer.header("server-timing"),
        Some("queue;dur=5000;desc=\"concurrency\", upstream;dur=0")
    );
    assert_eq!(operator.metric("weir_waiting{client=\"ci\"}").await, Some(0.0));
    assert_eq!(operator.metric("weir_wait_seconds_sum{reason=\"concurrency\"}").await, Some(5.0));
    // The figures of a client are those of ended requests, and its answer comes before its end.
    let client = bounded(async {
        loop {
            let client = operator.client("ci").await;
            if client["waits"]["count"] == 1 {
                return client;
            }
        }
    })
    .await;
    assert_eq!(
        (&client["waiting"], &client["weight"], &client["priority"]),
        (&json!(0), &json!(1), &json!("normal"))
    );
    assert_eq!(
        (&client["waits"]["count"], &client["waits"]["sum_seconds"]),
        (&json!(1), &json!(5.0))
    );
    let p99 = client["waits"]["p99_seconds"].as_f64().unwrap();
    assert!((5.0..=6.25).contains(&p99), "{client}");
    assert_eq!(operator.client("other").await["requests"], 0);
}

#[tokio::test]
async fn denials_are_counted_by_client_and_reason() {
    let world = Setup::new().listen(ADMIN).start().await;
    world.set_limits(&json!({ "core.user": 1 }));
    world.get(ISSUES).await.assert_status(200);
    for page in 2..4 {
        world.get(&format!("{ISSUES}?page={page}")).await.assert_status(403);
    }
    world.get_with(ISSUES, &[("authorization", "Bearer wrong")]).await.assert_status(401);
    let operator = Operator::of(&world);
    assert_eq!(
        operator.metric("weir_refused_total{client=\"ci\",reason=\"primary\"}").await,
        Some(2.0)
    );
    let client = operator.client("ci").await;
    assert_eq!(
        (&client["requests"], &client["refused"], &client["refused_by"]),
        (&json!(3), &json!(2), &json!({ "primary": 2 }))
    );
    let without_key = operator.get("/api/clients").await.json()["without_key"].clone();
    assert_eq!(
        without_key,
        json!({ "requests": 1, "refused": 1, "refused_by": { "wrong_key": 1 } })
    );
}

#[tokio::test]
async fn spending_is_counted_by_client_and_endpoint() {
    let world = Setup::new().listen(ADMIN).start().await;
    world.get(ISSUES).await.assert_status(200);
    // Free, and a point nevertheless.
    world.get(ISSUES).await.assert_status(200);
    world.get(&format!("{ISSUES}?page=2")).await.assert_status(200);
    world.send(Method::POST, &format!("{ISSUES}/1/comments"), &[], r#"{"body":"x"}"#).await;
    let operator = Operator::of(&world);
    let client = operator.client("ci").await;
    assert_eq!((&client["units"], &client["points"]), (&json!(3), &json!(8)), "{client}");
    let dearest = &client["spending"][0];
    assert_eq!(
        (&dearest["endpoint"], &dearest["units"], &dearest["points"]),
        (&json!("/repos/{owner}/{repo}/issues"), &json!(2), &json!(3)),
        "{client}"
    );
    let series = format!(
        "weir_points_total{{client=\"ci\",account={},resource=\"core\",endpoint=\"/repos/{{owner}}/{{repo}}/issues\"}}",
        dearest["account"]
    );
    assert_eq!(operator.metric(&series).await, Some(3.0));
    let address = operator.address.to_string();
    let shown = operator.weir("clients", &["ci", "--admin", &address], None).await;
    let text = printed(&shown);
    assert!(
        text.starts_with("ci: 4 requests, 0 refused, 3 units spent, 8 points taken\n"),
        "{text}"
    );
    let unknown = operator.weir("clients", &["nobody", "--admin", &address], None).await;
    assert!(!unknown.status.success() && printed(&unknown).contains("no client named nobody"));
}

#[tokio::test]
async fn an_upstream_limit_is_counted_and_its_account_shown_closed() {
    let world = Setup::new().listen(ADMIN).accounts(2).start().await;
    let once =
        json!({ "match": { "method": "GET", "path": ISSUES, "nth": 1 }, "fault": "secondary" });
    world.ask_emulator(Method::POST, "/_emulator/faults", &once);
    world.get(ISSUES).await.assert_status(200);
    assert_eq!(world.upstream_requests().iter().filter(|entry| entry.refused.is_some()).count(), 1);
    let operator = Operator::of(&world);
    let budgets = operator.budgets().await;
    let closed = budgets["accounts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|account| account["cooldown_until"].is_u64());
    let closed = closed.unwrap_or_else(|| panic!("none is closed: {budgets}"));
    assert!(
        closed["cooldown_until"].as_u64() > budgets["now"].as_u64()
            && closed["cooldown_until_iso"].is_string(),
        "{closed}"
    );
    let account = closed["account"].as_str().unwrap();
    let series =
        format!("weir_upstream_limited_total{{account=\"{account}\",limit=\"secondary\"}}");
    assert_eq!(operator.metric(&series).await, Some(1.0));
    let table = operator.weir_budgets(&["--admin", &operator.address.to_string()], None).await;
    assert!(
        printed(&table).contains(&format!("needs attention\n  {account}: closed, ")),
        "{}",
        printed(&table)
    );
}

#[tokio::test]
async fn every_invariant_is_a_metric_from_the_start() {
    let world = Setup::new().listen(ADMIN).start().await;
    let operator = Operator::of(&world);
    for invariant in Invariant::VARIANTS {
        let series = format!("weir_invariant_broken_total{{invariant=\"{}\"}}", invariant.name());
        assert_eq!(operator.metric(&series).await, Some(0.0), "{series}");
    }
}

#[tokio::test]
async fn the_admin_token_is_required_for_everything_but_health() {
    let world = Setup::new()
        .listen(&format!("{ADMIN}\nadmin_token = {{ value = \"{TOKEN}\" }}"))
        .start()
        .await;
    let operator = Operator::of(&world);
    let right = format!("Bearer {TOKEN}");
    for path in ["/metrics", "/api/budgets", "/api/clients", "/nothing"] {
        for wrong in [
            None,
            Some("Bearer open-sesame"),
            Some("Bearer "),
            Some("Bearer"),
            Some(TOKEN),
            Some("Basic b3Blbg=="),
        ] {
            let refused = operator.ask(Method::GET, path, wrong).await;
            refused.assert_status(401);
            assert!(
                refused.header("www-authenticate").is_some()
                    && refused.json()["message"].is_string()
            );
        }
        operator.ask(Method::GET, path, Some(&right)).await.assert_status(if path == "/nothing" {
            404
        } else {
            200
        });
    }
    for path in ["/healthz", "/readyz"] {
        operator.ask(Method::GET, path, None).await.assert_status(200);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_get_json_errors_and_head_no_body() {
    let world = Setup::new().listen(ADMIN).start().await;
    let operator = Operator::of(&world);
    for path in ["/api/budget", "/api/budgets/", "/index.html", "/api"] {
        let refused = operator.ask(Method::GET, path, None).await;
        refused.assert_status(404);
        assert!(refused.json()["message"].is_string());
    }
    for path in ["/healthz", "/readyz", "/metrics", "/api/budgets", "/api/clients"] {
        let refused = operator.ask(Method::POST, path, None).await;
        refused.assert_status(405);
        assert_eq!(refused.header("allow"), Some("GET, HEAD"));
        assert!(refused.json()["message"].is_string());
        let head = operator.ask(Method::HEAD, path, None).await;
        head.assert_status(200);
        assert!(head.body.is_empty() && head.number("content-length") > 0, "{head:?}");
    }
}

#[tokio::test]
async fn weir_budgets_prints_a_table_or_the_json_of_a_running_gateway() {
    let world = Setup::new()
        .listen(&format!("{ADMIN}\nadmin_token = {{ value = \"{TOKEN}\" }}"))
        .start()
        .await;
    world.get(ISSUES).await.assert_status(200);
    let operator = Operator::of(&world);
    let address = operator.address.to_string();
    let table = operator.weir_budgets(&["--admin", &address], Some(TOKEN)).await;
    assert_eq!(table.status.code(), Some(0), "{}", printed(&table));
    assert!(
        printed(&table).contains("account-0  core") && printed(&table).contains("4999 of 5000"),
        "{}",
        printed(&table)
    );
    let json = operator.weir_budgets(&["--admin", &address, "--json"], Some(TOKEN)).await;
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["accounts"][0]["resources"][0]["remaining"], 4_999);
}

#[tokio::test]
async fn weir_budgets_names_the_fault_and_exits_with_its_code() {
    let world = Setup::new()
        .listen(&format!("{ADMIN}\nadmin_token = {{ value = \"{TOKEN}\" }}"))
        .start()
        .await;
    let operator = Operator::of(&world);
    let address = operator.address.to_string();
    let nobody =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let clients = world.address.to_string();
    let upstream = world.emulator.addr().to_string();
    let cases: [(&[&str], Option<&str>, i32, &str); 8] = [
        (&["--admin", &nobody], None, 1, "is the gateway running there"),
        (&["--admin", &address], None, 1, "does not accept a question without an admin token"),
        (&["--admin", &address], Some("wrong"), 1, "does not accept this admin token"),
        (&["--admin", &clients], Some("wrong"), 1, "is not the admin listener of a gateway"),
        (&["--admin", &upstream], None, 1, "is not the admin listener of a gateway"),
        (&[], None, 2, "give --admin ADDR, or --config FILE"),
        (&["--config", "none.toml"], None, 2, "none.toml: cannot be read"),
        (&["--admin", "somewhere"], None, 2, "not a host and a port"),
    ];
    for (arguments, token, code, message) in cases {
        let output = operator.weir_budgets(arguments, token).await;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", printed(&output));
        assert!(
            printed(&output).contains(message) && output.stdout.is_empty(),
            "{arguments:?}: {}",
            printed(&output)
        );
        assert!(!printed(&output).contains(TOKEN));
    }
}
