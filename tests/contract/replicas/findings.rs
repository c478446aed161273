//! What one replica has learned, the others know.

use http::{HeaderMap, Method};
use ring::hmac;
use serde_json::json;

use weir::api::{GraphqlRequest, OperationKey};
use weir::gateway::Current;

use super::Replicas;
use crate::support::{Reply, Setup, eventually};

const SECRET: &str = "It's a Secret to Everybody";
/// A private repository of acme.
const GADGETS: &str = "/repos/acme/gadgets";
/// Asks for issues of a hundred repositories: it costs more than one unit.
const DEAR: &str = "query Dear { rateLimit { cost } organization(login: \"acme\") { \
    repositories(first: 100) { nodes { issues(first: 100) { nodes { comments(first: 10) { \
    nodes { id } } } } } } } }";

fn operation(body: &str) -> OperationKey {
    let read = GraphqlRequest::read(&Method::POST, None, &HeaderMap::new(), body.as_bytes());
    read.operation.unwrap()
}

fn price(current: &Current, operation: OperationKey) -> u32 {
    current.gateway().dispatcher.admissions().graphql_prices.of(operation)
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_and_prices_are_learned_by_one_for_all() {
    // A stranger to acme before a member: the ledger chooses the first of equal accounts.
    let dan = ("classic", "emu_classic_dan_all_scopes");
    let cleo = ("classic", "emu_classic_cleo_all_scopes");
    let setup = Setup::new().holder("dan", "user", &[dan], "").holder("cleo", "user", &[cleo], "");
    let replicas = Replicas::start(setup, 2).await;
    let used = || {
        let seen = replicas.world.upstream_requests();
        let of_gadgets = seen.iter().filter(|entry| entry.path.starts_with(GADGETS));
        of_gadgets.map(|entry| entry.account.clone()).collect::<Vec<_>>()
    };
    replicas.get(0, &format!("{GADGETS}/issues")).await.assert_status(200);
    assert_eq!(used(), ["dan", "cleo"]);
    let body = json!({ "query": DEAR }).to_string();
    replicas.send(0, Method::POST, "/graphql", &body).await.assert_status(200);
    let [first, second] = [0, 1].map(|replica| replicas.all().nth(replica).unwrap());
    let known = price(first, operation(&body));
    assert!(known > 1);
    // Findings come in order.
    eventually(|| price(second, operation(&body)) == known).await;
    for path in ["", "/issues?page=2", "/labels", "/issues/1"] {
        replicas.get(1, &format!("{GADGETS}{path}")).await.assert_status(200);
    }
    assert_eq!(used(), ["dan", "cleo", "cleo", "cleo", "cleo", "cleo"]);
}

/// Delivers a change of an issue through a replica.
async fn deliver(replicas: &Replicas, replica: usize, guid: &str) -> Reply {
    let body = json!({ "action": "edited", "issue": { "number": 3 }, "repository": { "id": 1, "full_name": "acme/widgets" } }).to_string();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), body.as_bytes());
    let digits = tag.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
    let headers = [
        ("authorization", ""),
        ("content-type", "application/json"),
        ("x-github-event", "issues"),
        ("x-github-delivery", guid),
        ("x-hub-signature-256", &format!("sha256={digits}")),
    ];
    let (world, address) = (&replicas.world, replicas.address(replica));
    world.send_to(address, Method::POST, "/_weir/webhooks", &headers, &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_has_its_effect_once_among_all() {
    let setup = Setup::new().config(&format!("[webhooks]\nsecret = {{ value = \"{SECRET}\" }}"));
    let setup = setup.cache_ttl("/repos/{owner}/{repo}/issues/{issue_number}", "1h");
    let replicas = Replicas::start(setup, 3).await;
    let issue = "/repos/acme/widgets/issues/3";
    let is_hit = async |replica| replicas.get(replica, issue).await.cache_status().contains("hit");
    // A replica of a busy machine may hear nothing for a second, and then confirms its answer.
    let becomes_hit = async |replica| while !is_hit(replica).await {};
    for replica in 0..3 {
        becomes_hit(replica).await;
    }
    let message = async |replica, guid| deliver(&replicas, replica, guid).await.json();
    assert_eq!(message(0, "g-1").await["message"], "accepted");
    for replica in 0..3 {
        assert!(!is_hit(replica).await, "replica {replica}");
    }
    for replica in 0..3 {
        assert_eq!(message(replica, "g-1").await["message"], "duplicate", "replica {replica}");
        // Thus no replica misses it in the upstream's list.
        let gateway = replicas.all().nth(replica).unwrap().gateway();
        assert!(gateway.webhooks.receiver().unwrap().has_received("g-1", "issues"));
    }
    assert_eq!(message(1, "g-2").await["message"], "accepted");
}
