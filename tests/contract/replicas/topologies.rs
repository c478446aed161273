//! Redis with Sentinels and as a cluster: the limits hold across a failover, and queued writes are
//! made once and in order.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::writes::{COMMENTS, DURABLE, is_open, with_queue};
use super::{Replicas, is_away};
use crate::support::link::{Link, Passage};
use crate::support::redis_server::RedisServer;
use crate::support::setup::gateway_by;
use crate::support::{Setup, eventually};

const BUDGET: usize = 40;
/// Longer than a failover takes on a slow machine.
const FAILED_OVER_WITHIN: Duration = Duration::from_secs(60);
/// The Sentinel asks for a password, and the primary for none.
const SENTINEL_PASSWORD: &str = "of-the-sentinel";

/// Queued writes: more than are sent before a fault.
const WRITES: usize = 6;

/// Three gateways with this `state.redis`.
async fn start(setup: Setup, redis: &str) -> Replicas {
    let state = format!("[state]\nredis = {redis}");
    let setup = setup.client("max_wait = \"5s\"").config(&state);
    let world = Arc::new(setup.start().await);
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
    folder: TempDir,
}

impl Sentinel {
    fn start(primary: &RedisServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = RedisServer::free_port();
        let process = sentinel(port, &folder, primary);
        Self { process, port, folder }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Begins again, with another primary.
    fn watch(&mut self, primary: &RedisServer) {
        self.process = sentinel(self.port, &self.folder, primary);
    }
}

fn sentinel(port: u16, folder: &TempDir, primary: &RedisServer) -> Child {
    let config = folder.path().join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor weir 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds weir 500\nsentinel failover-timeout weir 5000\n\
         requirepass {SENTINEL_PASSWORD}\n",
        primary.port()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("redis-server");
    let process = command.arg(config).arg("--sentinel").stdout(Stdio::null()).spawn().unwrap();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::yield_now();
    }
    process
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A primary and its copy, with a Sentinel.
struct Pair {
    primary: RedisServer,
    second: RedisServer,
    sentinel: Sentinel,
}

impl Pair {
    async fn start(arguments: &[&str]) -> Self {
        let primary = RedisServer::start(arguments);
        let of = format!("127.0.0.1 {}", primary.port());
        let second = RedisServer::start(&[arguments, &["--replicaof", &of]].concat());
        let is_copy = || second.run("ROLE") == "*5" && second.info("master_link_status") == "up";
        eventually(is_copy).await;
        let sentinel = Sentinel::start(&primary);
        Self { primary, second, sentinel }
    }

    fn url(&self) -> String {
        self.url_after(&[])
    }

    /// The same with other Sentinels in front.
    fn url_after(&self, others: &[String]) -> String {
        url_of_sentinels(&[others, &[self.sentinel.url()]].concat())
    }

    /// Waits until the copy has all that the primary has acknowledged.
    fn copy_all(&self) {
        let mut connection = self.primary.connect();
        connection.run("SET copied yes");
        assert_eq!(connection.run("WAIT 1 0"), ":1");
    }
}

/// Waits until some replicas have lost Redis, and all have it again.
async fn failed_over(replicas: &Replicas) {
    let is_back = async {
        eventually(|| replicas.all().any(|current| is_away(current))).await;
        eventually(|| replicas.all().all(|current| !is_away(current))).await;
    };
    tokio::time::timeout(FAILED_OVER_WITHIN, is_back).await.expect("a failover");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_across_a_failover_by_a_sentinel() {
    let mut pair = Pair::start(&[]).await;
    let replicas = start(Setup::new(), &pair.url()).await;
    replicas.world.set_limits(&json!({ "core.user": BUDGET }));
    let before = serve(&replicas, 0, BUDGET / 2).await;
    assert_eq!(before, BUDGET / 2);
    pair.primary.kill();
    failed_over(&replicas).await;
    let after = serve(&replicas, BUDGET, 2 * BUDGET).await;
    assert_none_refused(&replicas);
    assert!(before + after >= BUDGET * 9 / 10, "{before} and {after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_never_answers_holds_up_no_other() {
    let pair = Pair::start(&[]).await;
    let silent = Link::start(pair.primary.port()).await;
    silent.set(Passage::Silent);
    let replicas = start(Setup::new(), &pair.url_after(&[silent.url()])).await;
    assert_eq!(serve(&replicas, 0, 3).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_sentinels_gave_up_is_left_though_it_answers() {
    let mut pair = Pair::start(&[]).await;
    let replicas = start(Setup::new(), &pair.url()).await;
    // The Sentinel follows the copy, as after a failover that has not reached the old primary.
    pair.sentinel.stop();
    pair.second.run("REPLICAOF NO ONE");
    pair.second.run("FLUSHALL");
    pair.sentinel.watch(&pair.second);
    let used = "EVAL \"return redis.call('PUBSUB', 'NUMSUB', 'weir:messages')[2]\" 0";
    eventually(|| pair.second.run(used) == ":3").await;
    eventually(|| replicas.all().all(|current| !is_away(current))).await;
    assert_eq!(serve(&replicas, 0, 6).await, 6);
    assert_ne!(pair.second.run("DBSIZE"), ":0");
    assert_eq!(pair.primary.run("PING"), "+PONG");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_primary_that_most_sentinels_name_is_used() {
    let mut pair = Pair::start(&[]).await;
    pair.sentinel.stop();
    pair.second.run("REPLICAOF NO ONE");
    pair.sentinel.watch(&pair.primary);
    let most = [Sentinel::start(&pair.second), Sentinel::start(&pair.second)];
    let urls = [&pair.sentinel, &most[0], &most[1]].map(Sentinel::url);
    let replicas = start(Setup::new(), &url_of_sentinels(&urls)).await;
    assert_eq!(serve(&replicas, 0, 3).await, 3);
    assert_ne!(pair.second.run("DBSIZE"), ":0");
    assert_eq!(pair.primary.run("DBSIZE"), ":0");
}

fn url_of_sentinels(urls: &[String]) -> String {
    format!(
        "{{ url = {urls:?}, sentinel = \"weir\", \
         sentinel_password = {{ value = \"{SENTINEL_PASSWORD}\" }}, op_timeout = \"500ms\" }}"
    )
}

/// A cluster of three nodes.
async fn cluster(arguments: &[&str]) -> Vec<RedisServer> {
    let arguments = [arguments, &["--cluster-enabled", "yes"]].concat();
    let nodes: Vec<_> = (0..3).map(|_| RedisServer::start(&arguments)).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let mut create = Command::new("redis-cli");
    create.args(["--cluster", "create"]).args(&addresses).args(["--cluster-yes"]);
    let created = create.output().expect("redis-cli");
    assert!(created.status.success(), "{created:?}");
    eventually(|| nodes.iter().all(|node| node.cluster_state() == "ok")).await;
    nodes
}

fn url_of(nodes: &[RedisServer]) -> String {
    let urls: Vec<_> = nodes.iter().map(RedisServer::url).collect();
    format!("{{ url = {urls:?}, cluster = true, op_timeout = \"500ms\" }}")
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_of_a_cluster_may_be_listed_first() {
    let nodes = cluster(&[]).await;
    let copy = RedisServer::start(&["--cluster-enabled", "yes"]);
    copy.run(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port()));
    let id = nodes[0].bulk("CLUSTER MYID");
    eventually(|| copy.run(&format!("CLUSTER REPLICATE {id}")) == "+OK").await;
    eventually(|| copy.run("ROLE") == "*5" && copy.cluster_state() == "ok").await;
    let silent = Link::start(nodes[0].port()).await;
    silent.set(Passage::Silent);
    for urls in [vec![copy.url()], vec![silent.url(), nodes[1].url()]] {
        let redis = format!("{{ url = {urls:?}, cluster = true, op_timeout = \"500ms\" }}");
        let replicas = start(Setup::new(), &redis).await;
        assert_eq!(serve(&replicas, 0, 3).await, 3, "{urls:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_refuses_changes_holds_up_no_other_of_a_cluster() {
    let nodes = cluster(&[]).await;
    let replicas = start(Setup::new(), &url_of(&nodes)).await;
    assert_eq!(serve(&replicas, 0, 3).await, 3);
    let has_no_account =
        |node: &&RedisServer| node.run("GET weir:account:account-0").starts_with("-MOVED");
    let refusing = nodes.iter().find(has_no_account).unwrap();
    refusing.run("CONFIG SET min-replicas-to-write 1");
    let connections = || refusing.info("total_connections_received").parse::<u32>().unwrap();
    let before = connections();
    // Copies of some of the answers belong there.
    assert_eq!(serve(&replicas, 10, 60).await, 60);
    let opened = connections() - before;
    assert!(opened < 10, "{opened} connections were opened anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_keeps_the_limits() {
    let nodes = cluster(&[]).await;
    let replicas = start(Setup::new(), &url_of(&nodes)).await;
    replicas.world.set_limits(&json!({ "core.user": BUDGET }));
    let served = serve(&replicas, 0, 3 * BUDGET).await;
    assert_none_refused(&replicas);
    assert_eq!(served, BUDGET);
}

fn texts(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("number {number}")).collect()
}

/// Queues writes of one lane through all replicas. The first one is on its way, held by the gate.
async fn queue(replicas: &Replicas) -> (u64, Vec<String>) {
    eventually(|| replicas.all().all(is_open)).await;
    let gate = replicas.world.close_gate("POST", COMMENTS);
    let mut writes = Vec::new();
    for (number, text) in texts(0..WRITES).iter().enumerate() {
        writes.push(replicas.accept(number % 3, text).await);
        if number == 0 {
            replicas.world.held(gate, 1).await;
        }
    }
    (gate, writes)
}

/// Asserts that all writes are made in order, each once, and that any replica knows their ends.
async fn assert_worked(replicas: &Replicas, mut writes: Vec<String>) {
    let last = texts(WRITES..WRITES + 1);
    writes.push(replicas.accept(1, &last[0]).await);
    for write in &writes {
        for replica in 0..3 {
            assert_eq!(replicas.end(replica, write).await, "done", "{write} by {replica}");
        }
    }
    assert_eq!(replicas.made().await, texts(0..WRITES + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_writes_survive_a_failover_by_a_sentinel() {
    let mut pair = Pair::start(&DURABLE).await;
    let replicas = start(with_queue(), &pair.url()).await;
    let (gate, writes) = queue(&replicas).await;
    pair.copy_all();
    pair.primary.kill();
    let opens = async {
        eventually(|| replicas.all().any(|current| is_away(current))).await;
        replicas.world.open_gate(gate);
    };
    tokio::join!(failed_over(&replicas), opens);
    assert_worked(&replicas, writes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_writes_survive_a_restart_of_each_node() {
    let mut nodes = cluster(&DURABLE).await;
    let replicas = start(with_queue(), &url_of(&nodes)).await;
    let (gate, writes) = queue(&replicas).await;
    for node in 0..nodes.len() {
        nodes[node].kill();
        nodes[node].revive();
        eventually(|| nodes.iter().all(|node| node.cluster_state() == "ok")).await;
    }
    replicas.world.open_gate(gate);
    assert_worked(&replicas, writes).await;
}
