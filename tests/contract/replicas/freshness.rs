//! What one replica changes, no other serves any more.

use http::Method;
use serde_json::json;

use super::Replicas;
use crate::support::Setup;

const REPO: &str = "/repos/acme/widgets";

#[tokio::test(flavor = "multi_thread")]
async fn a_write_through_one_replica_shows_in_all() {
    let setup = Setup::new().unspaced_writes().cache_ttl("/repos/{owner}/{repo}", "1h");
    let replicas = Replicas::start(setup, 3).await;
    replicas.world.set_limits(&json!({ "core.user": 100_000, "points.rest": 1_000_000, "content.minute": 100_000, "content.hour": 100_000 }));
    for round in 0..20 {
        for replica in 0..3 {
            replicas.get(replica, REPO).await.assert_status(200);
        }
        let description = format!("round {round}");
        let body = json!({ "description": description }).to_string();
        replicas.send(round % 3, Method::PATCH, REPO, &body).await.assert_status(200);
        for replica in 0..3 {
            let seen = replicas.get(replica, REPO).await;
            assert_eq!(seen.json()["description"], description.as_str(), "replica {replica}");
        }
    }
    let hits = replicas.get(1, REPO).await;
    assert!(hits.cache_status().contains("hit"), "{hits:?}");
}
