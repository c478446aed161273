//! Redis with Sentinels and as a cluster: the limits hold across a failover.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::{Replicas, is_away};
use crate::support::redis_server::RedisServer;
use crate::support::setup::gateway_by;
use crate::support::{Setup, eventually};

const BUDGET: usize = 40;
/// Longer than a failover takes on a slow machine.
const FAILED_OVER_WITHIN: Duration = Duration::from_secs(60);

/// Three gateways with this `state.redis`.
async fn start(redis: &str) -> Replicas {
    let state = format!("[state]\nredis = {redis}");
    let setup = Setup::new().client("max_wait = \"5s\"").config(&state);
    let world = setup.start().await;
    let others = (1..3).map(|_| gateway_by(&world.text, &world.clock)).collect();
    let replicas = Replicas { redis: None, world, others };
    eventually(|| replicas.all().all(|current| !is_away(current))).await;
    replicas
}

/// Sends as many requests through all of them. Returns how many were served.
async fn serve(replicas: &Replicas, first: usize, requests: usize) -> usize {
    let mut served = 0;
    for page in first..first + requests {
        let path = format!("/repos/acme/widgets/issues?per_page=1&page={page}");
        served += usize::from(replicas.get(page % 3, &path).await.status == 200);
    }
    served
}

fn assert_none_refused(replicas: &Replicas) {
    let seen = replicas.world.upstream_requests();
    assert!(seen.iter().all(|entry| entry.refused.is_none()), "{seen:#?}");
}

/// A Sentinel that watches this primary.
struct Sentinel {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Sentinel {
    fn start(primary: &RedisServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = RedisServer::free_port();
        let config = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor weir 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds weir 500\nsentinel failover-timeout weir 5000\n",
            primary.port()
        );
        std::fs::write(&config, text).unwrap();
        let process = sentinel(&config);
        Self { process, port, _folder: folder }
    }
}

fn sentinel(config: &Path) -> Child {
    let mut command = Command::new("redis-server");
    command.arg(config).arg("--sentinel").stdout(Stdio::null()).spawn().unwrap()
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_across_a_failover_by_a_sentinel() {
    let mut primary = RedisServer::start(&[]);
    let of = format!("127.0.0.1 {}", primary.port());
    let second = RedisServer::start(&["--replicaof", &of]);
    eventually(|| second.run("ROLE") == "*5" && second.info("master_link_status") == "up").await;
    let sentinel = Sentinel::start(&primary);
    let url = format!("redis://127.0.0.1:{}", sentinel.port);
    let replicas = start(&format!("{{ url = \"{url}\", sentinel = \"weir\" }}")).await;
    replicas.world.set_limits(&json!({ "core.user": BUDGET }));
    let before = serve(&replicas, 0, BUDGET / 2).await;
    assert_eq!(before, BUDGET / 2);
    primary.kill();
    let is_back = async {
        eventually(|| replicas.all().any(|current| is_away(current))).await;
        eventually(|| replicas.all().all(|current| !is_away(current))).await;
    };
    tokio::time::timeout(FAILED_OVER_WITHIN, is_back).await.expect("a failover");
    let after = serve(&replicas, BUDGET, 2 * BUDGET).await;
    assert_none_refused(&replicas);
    assert!(before + after >= BUDGET * 9 / 10, "{before} and {after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_keeps_the_limits() {
    let nodes: Vec<_> = (0..3).map(|_| RedisServer::start(&["--cluster-enabled", "yes"])).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let mut create = Command::new("redis-cli");
    create.args(["--cluster", "create"]).args(&addresses).args(["--cluster-yes"]);
    let created = create.output().expect("redis-cli");
    assert!(created.status.success(), "{created:?}");
    eventually(|| nodes.iter().all(|node| node.cluster_state() == "ok")).await;
    let urls: Vec<_> = nodes.iter().map(RedisServer::url).collect();
    let replicas = start(&format!("{{ url = {urls:?}, cluster = true }}")).await;
    replicas.world.set_limits(&json!({ "core.user": BUDGET }));
    let served = serve(&replicas, 0, 3 * BUDGET).await;
    assert_none_refused(&replicas);
    assert_eq!(served, BUDGET);
}
