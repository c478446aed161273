//! A limit of the size of files, as a full disk is one: it refuses new writes, and loses none.

use std::process::Command;

use http::Method;
use serde_json::json;

use super::Run;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_size_limit_refuses_new_writes_and_loses_none() {
    let run = Run::start().await;
    let mut limited = Command::new("sh");
    // In blocks of 512 bytes: 4 MiB.
    limited.args(["-c", "ulimit -f 8192; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_weir")]);
    let mut gateway = run.gateway_by(limited).await;
    let body = json!({ "body": "x".repeat(50_000) }).to_string();
    let hand_over = async |n: usize| {
        let target = format!("/repos/acme/widgets/issues/1/comments?w=0-{n}");
        run.ask(0, &Method::POST, &target, &[("prefer", "respond-async")], &body).await
    };
    let mut accepted = Vec::new();
    let refused = loop {
        match hand_over(accepted.len()).await {
            Some((202, reported)) => accepted.push(reported["id"].as_str().unwrap().to_owned()),
            answer => break answer,
        }
        assert!(accepted.len() < 1000, "more was kept than there is room for");
    };
    assert!(
        gateway.0.try_wait().unwrap().is_none(),
        "it ended for the limit, after {} writes",
        accepted.len()
    );
    assert_eq!(refused.map(|(status, _)| status), Some(503));
    // Their outcome is readable even while the disk is full.
    assert!(
        run.ask(0, &Method::GET, &format!("/_weir/writes/{}", accepted[0]), &[], "")
            .await
            .is_some_and(|(status, _)| status == 200)
    );
    drop(gateway);
    let _gateway = run.gateway().await;
    for (n, id) in accepted.iter().enumerate() {
        let state = run.end_of(0, id).await;
        let times = run.executed().get(&format!("0-{n}")).map_or(0, Vec::len);
        assert!(
            state == "done" && times == 1 || state == "unknown" && times <= 1,
            "write {n} is {state} and was carried out {times} times"
        );
    }
    assert_eq!(hand_over(accepted.len()).await.map(|(status, _)| status), Some(202));
}
