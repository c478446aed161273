//! `[state]`: the Redis of several replicas.

use super::*;

fn redis(value: &str) -> Result<Redis, String> {
    let text = VALID.replacen("[cache]", &format!("[state]\nredis = {value}\n[cache]"), 1);
    parsed(&text).map(|config| config.state.redis.unwrap()).map_err(|faults| faults.to_string())
}

#[test]
fn an_address_alone_is_one_node_with_all_defaults() {
    let redis = redis("\"redis://Redis.Internal\"").unwrap();
    let url = &redis.urls[0];
    assert_eq!((url.host.as_str(), url.port(), url.database), ("redis.internal", 6379, 0));
    assert_eq!(redis.topology, Topology::Single);
    assert_eq!((redis.op_timeout, &*redis.prefix), (Duration::from_millis(50), "weir"));
}

#[test]
fn a_list_of_nodes_is_a_cluster_or_has_sentinels() {
    let cluster = redis("{ url = [\"rediss://a\", \"rediss://b:7000\"], cluster = true }").unwrap();
    assert_eq!(cluster.topology, Topology::Cluster);
    assert_eq!((cluster.urls[0].port(), cluster.urls[1].port()), (6379, 7000));
    let sentinel = redis("{ url = [\"redis://a\"], sentinel = \"primary\" }").unwrap();
    assert_eq!(sentinel.topology, Topology::Sentinel("primary".to_owned()));
    assert_eq!(sentinel.urls[0].sentinel_port(), 26379);
}

#[test]
fn sentinels_have_a_user_of_their_own() {
    let own = "sentinel_username = \"watcher\", sentinel_password = { value = \"of-sentinels\" }";
    let of_both = format!("password = {{ value = \"of-primary\" }}, {own}");
    let redis = redis(&format!("{{ url = \"redis://a\", sentinel = \"primary\", {of_both} }}"));
    let redis = redis.unwrap();
    let shown = |secret: Option<Secret>| secret.unwrap().expose_secret().to_owned();
    assert_eq!((redis.username, shown(redis.password)), (None, "of-primary".to_owned()));
    assert_eq!(redis.sentinel_username.as_deref(), Some("watcher"));
    assert_eq!(shown(redis.sentinel_password), "of-sentinels");
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    for (value, problem) in [
        ("\"http://a\"", "its scheme is neither redis nor rediss"),
        ("\"redis://weir:s3cret@a\"", "it has a user name or password"),
        ("\"redis://a/x\"", "its path is no number of a database"),
        ("{ url = [] }", "no address"),
        ("{ url = [\"redis://a\", \"redis://b\"] }", "several addresses of one node"),
        ("{ url = [\"redis://a\", \"rediss://b\"], cluster = true }", "of different kinds"),
        ("{ url = \"redis://a/1\", cluster = true }", "a cluster has one database"),
        ("{ url = \"redis://a\", cluster = true, sentinel = \"x\" }", "beside sentinel"),
        ("{ url = \"redis://a\", username = \"weir\" }", "without password"),
        (
            "{ url = \"redis://a\", sentinel = \"x\", sentinel_username = \"weir\" }",
            "without password",
        ),
        ("{ url = \"redis://a\", sentinel_password = { value = \"s3cret\" } }", "without sentinel"),
        ("{ url = \"redis://a\", ca_file = \"authority.pem\" }", "without TLS"),
        ("{ url = \"redis://a\", prefix = \"we ir\" }", "unusable as the beginning of keys"),
        ("{ url = \"redis://a\", op_timeout = \"0s\" }", "zero"),
        ("{ op_timeout = \"1s\" }", "missing"),
        ("7", "wrong type: an integer"),
    ] {
        let faults = redis(value).unwrap_err();
        assert!(faults.contains(problem), "{value}: {faults}");
        assert!(!faults.contains("s3cret"), "{faults}");
    }
}

#[test]
fn a_key_for_redis_must_be_long() {
    let short = "{ value = \"0123456789abcdef0123456789abcde\" }";
    let long = "{ value = \"0123456789abcdef0123456789abcdef\" }";
    let read = |keys: &str| redis(&format!("\"redis://a\"\n{keys}"));
    let fault = read(&format!("encrypt_key = {short}")).unwrap_err();
    assert!(fault.contains("the key is too short") && !fault.contains("abcde"), "{fault}");
    assert!(read(&format!("encrypt_key = {long}")).is_ok());
    let fault = read(&format!("previous_encrypt_key = {long}")).unwrap_err();
    assert!(fault.contains("without encrypt_key"), "{fault}");
}
