//! `listen`: bounds of connections, and trusted proxies.

use super::*;

fn with_keys(keys: &str) -> String {
    spoilt("admin = \"127.0.0.1:9090\"", keys)
}

#[test]
fn trusted_proxies_are_networks_or_addresses() {
    let keys =
        "trusted_proxies = [\"10.0.0.0/8\", \"fd00::/8\", \"192.0.2.1\"]\nproxy_protocol = true";
    let config = accepted(&with_keys(keys));
    let warned = |config: &Config| {
        config.warnings().iter().any(|warning| warning.key == "listen.trusted_proxies")
    };
    assert!(!warned(&config));
    let all = accepted(&with_keys("trusted_proxies = [\"10.0.0.0/8\", \"::/0\"]"));
    assert!(warned(&all), "a network of all addresses");
    let networks = config.listen.trusted_proxies.iter().map(ToString::to_string);
    assert!(networks.eq(["10.0.0.0/8", "fd00::/8", "192.0.2.1/32"]));
    assert!(config.redacted_toml().contains("\"192.0.2.1/32\""));
}

#[test]
fn connections_have_a_default_bound_and_addresses_none() {
    let listen = accepted(&with_keys("")).listen;
    assert_eq!((listen.connections_max, listen.connections_max_per_address), (10_000, None));
    let listen = accepted(&with_keys("connections_max = 7\nconnections_max_per_address = 3"));
    let listen = listen.listen;
    assert_eq!(listen.connections_max, 7);
    assert_eq!(listen.connections_max_per_address.map(u32::from), Some(3));
}

#[test]
fn faults_of_connections_and_proxies_name_their_key() {
    for (keys, key, message) in [
        ("connections_max = 0", "connections_max", "zero"),
        ("connections_max_per_address = 0", "connections_max_per_address", "out of bounds"),
        ("trusted_proxies = [\"10.0.0.1/8\"]", "trusted_proxies[0]", "bad network"),
        ("trusted_proxies = [\"proxy.internal\"]", "trusted_proxies[0]", "bad network"),
        (&format!("unix = \"/{}\"", "s".repeat(107)), "unix", "107 bytes"),
        (&format!("takeover = \"/{}\"", "s".repeat(107)), "takeover", "107 bytes"),
        ("proxy_protocol = true", "proxy_protocol", "there are no trusted_proxies"),
    ] {
        let faults = parsed(&with_keys(keys)).unwrap_err();
        let fault = &faults.0[0];
        assert_eq!(fault.key, format!("listen.{key}"), "{faults}");
        assert!(fault.to_string().contains(message), "{fault}");
    }
}
