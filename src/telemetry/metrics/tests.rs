//! The text of `/metrics`, written out a second time (SPECIFICATION, "Metrics"), so that a renamed
//! metric fails.

use super::*;
use crate::telemetry::names::{ProcessMetric, SemanticMetric};
use crate::telemetry::outcome::{CacheOutcome, Fetch, Outcome};
use crate::telemetry::registry::Named as _;

fn outcome() -> Outcome {
    let mut outcome = Outcome::new(&http::Method::GET, "/repos/acme/widgets?token=x", "id-1");
    outcome.client = Some("ci".into());
    outcome.endpoint = "/repos/{owner}/{repo}";
    outcome.status = 200;
    outcome.cache = CacheOutcome::Fetched(Fetch::Revalidated);
    outcome.total = Duration::from_millis(3);
    outcome
}

/// Metrics in which every event has happened once.
pub(in crate::telemetry) fn everything_once() -> Metrics {
    let metrics = Metrics::new();
    metrics.record(&outcome());
    metrics.upstream(&UpstreamOutcome {
        account: "bot",
        resource: "core",
        endpoint: "/repos/{owner}/{repo}",
        method: (&http::Method::GET).into(),
        server_address: "api.example.com",
        status: Some(304),
        duration: Duration::from_millis(30),
        trace: None,
    });
    metrics.spent(&Spent {
        client: Some(&"ci".into()),
        account: "bot",
        resource: "core",
        endpoint: "/repos/{owner}/{repo}",
        units: 1,
        points: 5,
    });
    metrics.limited("bot", "primary");
    metrics.refused(None, "no_key");
    metrics.connection_accepted("http");
    metrics.connection_ended("evicted_idle");
    metrics.accept_paused("descriptors");
    metrics.wait("primary", Duration::from_secs(2));
    metrics.write_ended("unknown", 3, Duration::from_secs(40));
    metrics.evicted(3);
    metrics.spool_evicted();
    metrics.background_revalidation();
    metrics.synced("answered", 2, Duration::from_millis(1));
    metrics.leases_lost(3);
    metrics.looked_far("copy");
    metrics.write_taken_over();
    metrics.set_redis_up(true);
    metrics.reloaded(true, Timestamp::from_secs(1_700_000_000));
    metrics.predicted("/repos/{owner}/{repo}", "confirmed");
    metrics.webhook("push", "accepted");
    metrics.invariant_broken("lease_settled_twice", 1);
    draw(&metrics);
    metrics
}

fn draw(metrics: &Metrics) {
    metrics.set_part("bot", "budget core", 40);
    metrics.set_client_budget("ci", "core", 2_000, 30, Timestamp::from_secs(1_700_000_000));
    metrics.shadowed(Some(&"ci".into()), "client_budget", true);
    metrics.set_replicas_heard(3);
    metrics.set_budget("bot", "core", 5000, 4990, 2, Timestamp::from_secs(1_700_000_000));
    metrics.set_secondary("bot", "concurrency", 1.5);
    metrics.set_waiting("ci", 4);
    metrics.set_writes("queued", 5);
    metrics.set_oldest_write(Duration::from_millis(1_500));
    metrics.set_cache(6, 700);
    metrics.set_spools(8, 900);
    metrics.set_connections("http", "busy", 9);
    metrics.set_token_healthy("bot", "0", true);
    metrics.set_client_key_expiry("ci", 0, -60);
    metrics.set_issuer_keys("actions", Some(Timestamp::from_secs(1_700_000_000)));
    metrics.issuer_token(Some(&"actions".into()), "accepted");
    metrics.set_upstream_down("https://api.example.com", false);
    metrics.set_certificate("listen.https", Path::new("/etc/weir/tls.crt"), -0.5);
}

fn assert_line(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "no line `{line}` in:\n{text}");
}

#[test]
fn every_metric_of_the_contract_has_exactly_its_name_and_labels() {
    let text = everything_once().encode();
    for line in [
        r#"weir_requests_total{client="ci",method="GET",endpoint="/repos/{owner}/{repo}",status="200",cache="revalidated"} 1"#,
        r#"weir_request_duration_seconds_count{endpoint="/repos/{owner}/{repo}",cache="revalidated"} 1"#,
        r#"weir_upstream_requests_total{account="bot",resource="core",endpoint="/repos/{owner}/{repo}",status="304"} 1"#,
        r#"weir_upstream_duration_seconds_count{endpoint="/repos/{owner}/{repo}"} 1"#,
        r#"weir_upstream_limited_total{account="bot",limit="primary"} 1"#,
        r#"weir_units_total{client="ci",account="bot",resource="core",endpoint="/repos/{owner}/{repo}"} 1"#,
        r#"weir_points_total{client="ci",account="bot",resource="core",endpoint="/repos/{owner}/{repo}"} 5"#,
        r#"weir_refused_total{client="_none",reason="no_key"} 1"#,
        r#"weir_shadowed_total{client="ci",rule="client_budget",effect="refused"} 1"#,
        r#"weir_client_budget_limit{client="ci",resource="core"} 2000"#,
        r#"weir_client_budget_used{client="ci",resource="core"} 30"#,
        r#"weir_client_budget_reset_timestamp_seconds{client="ci",resource="core"} 1700000000"#,
        r#"weir_connections{listener="http",state="busy"} 9"#,
        r#"weir_connections_accepted_total{listener="http"} 1"#,
        r#"weir_connections_ended_total{reason="evicted_idle"} 1"#,
        r#"weir_accept_pauses_total{reason="descriptors"} 1"#,
        r#"weir_budget_limit{account="bot",resource="core"} 5000"#,
        r#"weir_budget_remaining{account="bot",resource="core"} 4990"#,
        r#"weir_budget_reserved{account="bot",resource="core"} 2"#,
        r#"weir_budget_reset_timestamp_seconds{account="bot",resource="core"} 1700000000"#,
        r#"weir_secondary_in_use{account="bot",limit="concurrency"} 1.5"#,
        r#"weir_upstream_down{upstream="https://api.example.com"} 0"#,
        r#"weir_waiting{client="ci"} 4"#,
        r#"weir_wait_seconds_count{reason="primary"} 1"#,
        r#"weir_writes{state="queued"} 5"#,
        "weir_writes_oldest_seconds 1.5",
        r#"weir_write_attempts_sum{state="unknown"} 3.0"#,
        r#"weir_write_attempts_bucket{le="3.0",state="unknown"} 1"#,
        r#"weir_write_queue_seconds_sum{state="unknown"} 40.0"#,
        "weir_cache_entries 6",
        "weir_cache_bytes 700",
        "weir_cache_evictions_total 3",
        "weir_spool_files 8",
        "weir_spool_bytes 900",
        "weir_spool_evictions_total 1",
        "weir_background_revalidations_total 1",
        r#"weir_replica_syncs_total{result="answered"} 1"#,
        "weir_replica_sync_conflicts_total 2",
        "weir_replica_sync_seconds_count 1",
        "weir_replica_leases_lost_total 3",
        r#"weir_replica_part{account="bot",limit="budget core"} 40"#,
        "weir_replicas_heard 3",
        r#"weir_far_lookups_total{result="copy"} 1"#,
        "weir_writes_taken_over_total 1",
        "weir_redis_up 1",
        r#"weir_predicted_etags_total{endpoint="/repos/{owner}/{repo}",outcome="confirmed"} 1"#,
        r#"weir_token_healthy{account="bot",token="0"} 1"#,
        r#"weir_certificate_days_left{listener="listen.https",certificate="/etc/weir/tls.crt"} -0.5"#,
        r#"weir_client_key_expiry_seconds{client="ci",key="0"} -60"#,
        r#"weir_issuer_keys_timestamp_seconds{issuer="actions"} 1700000000"#,
        r#"weir_issuer_tokens_total{issuer="actions",outcome="accepted"} 1"#,
        r#"weir_webhook_deliveries_total{event="push",outcome="accepted"} 1"#,
        r#"weir_invariant_broken_total{invariant="lease_settled_twice"} 1"#,
        r#"weir_config_reloads_total{result="applied"} 1"#,
        "weir_config_reload_successful 1",
        "weir_config_timestamp_seconds 1700000000",
    ] {
        assert_line(&text, line);
    }
    let build = concat!("weir_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",commit=\"");
    assert!(text.contains(build), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn the_text_has_the_metrics_of_the_contract_and_no_other() {
    let text = everything_once().encode();
    let mut typed: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let own = Metric::ALL.iter().map(|metric| metric.description().name);
    let of_process = ProcessMetric::ALL.iter().map(|metric| metric.description().name);
    let without_suffix = |name: &'static str| {
        name.strip_suffix("_total").or_else(|| name.strip_suffix("_info")).unwrap_or(name)
    };
    let (own, of_process) = (own.map(without_suffix), of_process.map(without_suffix));
    let mut named: Vec<&str> = own.chain(of_process).collect();
    typed.sort_unstable();
    named.sort_unstable();
    assert_eq!(typed, named);
}

#[test]
fn a_path_or_query_is_never_in_the_metrics() {
    let text = everything_once().encode();
    assert!(!text.contains("widgets") && !text.contains("token=x"), "{text}");
}

#[test]
fn a_name_from_outside_cannot_add_a_line() {
    let metrics = Metrics::new();
    metrics.set_budget("bot", "odd\"} 1\nweir_fake{a=\"\\", 1, 1, 0, Timestamp::EPOCH);
    let text = metrics.encode();
    assert!(!text.lines().any(|line| line.starts_with("weir_fake")), "{text}");
    assert!(text.contains(r#"resource="odd\"} 1\nweir_fake{a=\"\\""#), "{text}");
}

#[test]
fn a_name_from_outside_is_cut_to_a_length() {
    let metrics = Metrics::new();
    metrics.webhook(&"é".repeat(500), "accepted");
    let line =
        metrics.encode().lines().find(|line| line.starts_with("weir_webhook")).unwrap().to_owned();
    assert!(line.len() < 250, "{line}");
}

#[test]
fn clients_cannot_make_up_methods_or_statuses() {
    let metrics = Metrics::new();
    for number in 0..1000_u16 {
        let method = http::Method::from_bytes(format!("M{number}").as_bytes()).unwrap();
        let mut outcome = Outcome::new(&method, "/", "id");
        outcome.status = 600 + number;
        metrics.record(&outcome);
    }
    let text = metrics.encode();
    assert_line(
        &text,
        r#"weir_requests_total{client="_none",method="_OTHER",endpoint="_none",status="_other",cache="none"} 1000"#,
    );
}

#[test]
fn label_sets_are_bounded_and_their_sum_stays_right() {
    let metrics = Metrics::new();
    let requests = SERIES_MAX + 500;
    for number in 0..requests {
        let mut outcome = outcome();
        outcome.client = Some(format!("client-{number}").into());
        metrics.record(&outcome);
    }
    let text = metrics.encode();
    let counts: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with("weir_requests_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    assert_eq!(counts.len(), SERIES_MAX + 1, "the full number and the overflow");
    assert_eq!(counts.iter().sum::<u64>(), u64::try_from(requests).unwrap());
    assert_eq!(metrics.handles.read().len(), SERIES_MAX);
}

#[test]
fn a_refused_request_is_counted_by_both_metrics() {
    let metrics = Metrics::new();
    let mut refused = outcome();
    refused.status = 403;
    refused.cache = CacheOutcome::None;
    refused.refusal = Some("budget");
    metrics.record(&refused);
    metrics.record(&refused);
    let text = metrics.encode();
    assert_line(&text, r#"weir_refused_total{client="ci",reason="budget"} 2"#);
    assert_line(
        &text,
        r#"weir_requests_total{client="ci",method="GET",endpoint="/repos/{owner}/{repo}",status="403",cache="none"} 2"#,
    );
}

#[test]
fn an_upstream_that_gave_no_answer_is_counted_as_none() {
    let metrics = Metrics::new();
    metrics.upstream(&UpstreamOutcome {
        account: "bot",
        resource: "core",
        endpoint: "/user",
        method: (&http::Method::GET).into(),
        server_address: "api.example.com",
        status: None,
        duration: Duration::ZERO,
        trace: None,
    });
    assert_line(
        &metrics.encode(),
        r#"weir_upstream_requests_total{account="bot",resource="core",endpoint="/user",status="none"} 1"#,
    );
}

#[test]
fn a_scrape_shows_only_the_gauges_drawn_for_it() {
    let metrics = everything_once();
    let text = metrics.scrape(|metrics| metrics.set_waiting("other", 1));
    assert_line(&text, r#"weir_waiting{client="other"} 1"#);
    assert!(
        !text.contains(r#"weir_waiting{client="ci"}"#) && !text.contains("weir_budget_limit{"),
        "{text}"
    );
    assert!(text.contains("weir_requests_total{"), "counters stay: {text}");
}

#[test]
fn a_scrape_never_sees_the_half_drawn_gauges_of_another() {
    let metrics = Metrics::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let text = metrics.scrape(draw);
                    assert_line(&text, r#"weir_token_healthy{account="bot",token="0"} 1"#);
                    assert_line(&text, r#"weir_waiting{client="ci"} 4"#);
                }
            });
        }
    });
}

/// Dashboards rely on these names, which follow from the names of variants.
#[test]
fn the_specification_lists_every_metric_and_no_other() {
    let paper = include_str!("../../../SPECIFICATION.md");
    let (_, section) = paper.split_once("\n## Metrics\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut listed: Vec<&str> = rows.collect();
    let own = Metric::ALL.iter().map(|metric| metric.description().name);
    let of_process = ProcessMetric::ALL.iter().map(|metric| metric.description().name);
    let semantic = SemanticMetric::ALL.iter().map(|metric| metric.description().name);
    let mut own: Vec<&str> = own.chain(of_process).chain(semantic).collect();
    listed.sort_unstable();
    own.sort_unstable();
    assert_eq!(listed, own);
}
