//! The alerts in a real Prometheus: a fault of a real gateway makes one fire, and its remedy ends
//! it.
//!
//! A minute of the rules lasts [`MINUTE_MS`]; the bounds in their expressions stay as they are.

use serde_json::json;

use super::programs::{Gateway, TOKEN, UNKNOWN_TOKEN, Upstream, until};
use super::prometheus::{INTERVAL_MS, Prometheus};
use super::redis_server::RedisServer;
use super::rules::RULES;
use super::{config, file, http};

/// A rate needs two samples in a window, and the shortest window has five minutes.
const MINUTE_MS: u64 = INTERVAL_MS;

/// A gateway in front of its upstream, watched by a Prometheus with the alerts.
struct Watched {
    upstream: Upstream,
    gateway: Gateway,
    prometheus: Prometheus,
}

impl Watched {
    /// The setup with further sections of the config. No alert fires.
    fn start(sections: &str) -> Self {
        let upstream = Upstream::start();
        let gateway = Gateway::start(&upstream.address, sections);
        let rules = quickened(&file(RULES));
        let prometheus = Prometheus::start(&[&gateway.admin], &rules);
        prometheus.has("up{job=\"weir\"} == 1");
        let watched = Self { upstream, gateway, prometheus };
        assert_eq!(watched.gateway.get("/user"), Some(200));
        watched.rests();
        watched
    }

    fn fires(&self, alert: &str) {
        until(&format!("{alert} fires"), || {
            self.prometheus.firing().iter().any(|firing| firing == alert).then_some(())
        });
    }

    /// Waits until no alert fires.
    fn rests(&self) {
        until("no alert fires", || self.prometheus.firing().is_empty().then_some(()));
    }

    /// Requests of the client, one after the other, while this alert does not fire.
    fn asks_until_it_fires(&self, alert: &str) {
        let mut page = 0;
        while !self.prometheus.firing().iter().any(|firing| firing == alert) {
            page += 1;
            assert!(page < 3_000, "{alert} does not fire");
            // Each of them is new to the cache.
            self.gateway.get(&format!("/users/ada/repos?per_page=1&page={page}"));
        }
    }
}

/// The rules with each duration as short as [`MINUTE_MS`] makes it.
fn quickened(rules: &str) -> String {
    let mut text = rules.to_owned();
    for before in ["[", "offset ", "for: "] {
        let mut parts = text.split(before);
        let mut quick = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            quick.push_str(before);
            quick.push_str(&quickened_head(part).unwrap_or_else(|| part.to_owned()));
        }
        text = quick;
    }
    text
}

/// A text that begins with a duration in minutes or hours, with the shorter one.
fn quickened_head(text: &str) -> Option<String> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let minutes = match &text[unit..=unit] {
        "m" => 1,
        "h" => 60,
        _ => return None,
    };
    let length: u64 = text[..unit].parse().ok()?;
    Some(format!("{}ms{}", length * minutes * MINUTE_MS, &text[unit + 1..]))
}

#[test]
fn durations_of_the_rules_become_short() {
    let rules = "for: 5m\nexpr: x[1h] offset 15m > 10\n";
    assert_eq!(quickened(rules), "for: 1000ms\nexpr: x[12000ms] offset 3000ms > 10\n");
}

#[test]
fn a_gateway_that_ends_is_down_until_its_return() {
    let mut watched = Watched::start("");
    watched.gateway.end();
    watched.fires("WeirDown");
    watched.gateway.revive();
    watched.rests();
}

#[test]
fn an_upstream_that_ends_is_down_until_its_return() {
    let mut watched = Watched::start("");
    watched.upstream.end();
    watched.asks_until_it_fires("WeirUpstreamDown");
    watched.upstream.revive();
    watched.rests();
}

#[test]
fn a_refused_config_alerts_until_a_good_one() {
    let watched = Watched::start("");
    let text = std::fs::read_to_string(watched.gateway.config()).expect("a config");
    watched.gateway.reload("[listen]\nhttp = 3\n");
    watched.fires("WeirReloadFailed");
    watched.gateway.reload(&text);
    watched.rests();
}

#[test]
fn a_rejected_token_alerts_until_it_is_gone() {
    let watched = Watched::start("");
    let text = std::fs::read_to_string(watched.gateway.config()).expect("a config");
    let other = config::token("ada", "classic", UNKNOWN_TOKEN);
    watched.gateway.reload(&(text.clone() + &other));
    until("WeirTokenUnhealthy fires", || {
        // This path looks at the tokens.
        http::get(&watched.gateway.admin, "/readyz");
        let firing = watched.prometheus.firing();
        firing.iter().any(|alert| alert == "WeirTokenUnhealthy").then_some(())
    });
    watched.gateway.reload(&text);
    watched.rests();
}

#[test]
fn a_refusal_of_the_upstream_alerts_for_a_while() {
    let watched = Watched::start("");
    watched.upstream.fault(&json!({ "fault": "secondary", "match": { "times": 1 } }));
    watched.gateway.get("/users/ada");
    watched.fires("WeirUpstreamRefuses");
    watched.rests();
}

#[test]
fn a_budget_that_is_spent_fast_alerts_until_it_rests() {
    let watched = Watched::start("");
    watched.asks_until_it_fires("WeirBudgetRunsOut");
    watched.rests();
}

#[test]
fn a_lost_redis_alerts_until_its_return() {
    let mut redis = RedisServer::start(&[]);
    let state = format!("redis = \"{}\"\nreplicas_max = 2", redis.url());
    let watched = Watched::start(&config::section("state", &state));
    redis.kill();
    watched.fires("WeirRedisLost");
    redis.revive();
    watched.rests();
}

#[test]
fn the_alerts_name_the_token_and_not_its_secret() {
    let watched = Watched::start("");
    watched.prometheus.has("weir_token_healthy == 1");
    let samples = format!("{:?}", watched.prometheus.query("{job=\"weir\"}"));
    assert!(samples.contains("weir_token_healthy") && !samples.contains(TOKEN));
}
