//! Contents of a log line, and what it must not contain.

use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::clock::Timestamp;
use crate::telemetry::controls::LevelControl;
use crate::telemetry::init::{LogFormat, LogLevel, subscriber};
use crate::telemetry::outcome::{CacheOutcome, LogText, WaitCause};
use crate::telemetry::written::Written;

fn logged(log: LogFormat, act: impl FnOnce()) -> String {
    let written = Written::default();
    let level = LevelControl::new(LogLevel::default());
    tracing::subscriber::with_default(subscriber(log, &level, None, written.clone()), act);
    written.text()
}

/// Writes the line of a request that ended at the beginning of 2027.
fn record(outcome: &Outcome) {
    let outcome = outcome.clone();
    let story = Story { number: 0, finished_at: Timestamp::EPOCH, outcome, steps: Vec::new() };
    write_line(&Arc::new(story), 1_798_761_600_000_001);
}

fn outcome() -> Outcome {
    let mut outcome =
        Outcome::new(&http::Method::GET, "/repos/acme/widgets?access_token=hunter2", "id-1");
    outcome.client = Some("ci".into());
    outcome.endpoint = "/repos/{owner}/{repo}";
    outcome.status = 200;
    outcome.cache = CacheOutcome::Hit;
    outcome.total = Duration::from_micros(123);
    outcome.bytes_out = 9;
    outcome
}

fn json(line: &str) -> serde_json::Map<String, serde_json::Value> {
    serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault}: {line}"))
}

#[test]
fn a_request_is_one_line_of_flat_json() {
    let text = logged(LogFormat::Json, || record(&outcome()));
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    let line = json(&text);
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["message"], "request");
    assert_eq!(line["client"], "ci");
    assert_eq!(line["path"], "/repos/acme/widgets");
    assert_eq!(line["status"], 200);
    assert_eq!(line["cache"], "hit");
    assert_eq!(line["duration_ms"], 0.123);
    assert!(line.values().all(|value| !value.is_object() && !value.is_array()), "{text}");
    assert_eq!(line["time"], "2027-01-01T00:00:00.000001Z", "the end of the request");
}

fn full_outcome() -> Outcome {
    let mut full = outcome();
    full.cache_key = Some(0x2a);
    full.operation = Some(LogText::operation("OpenIssues"));
    full.account = Some("bot".into());
    full.resource = Some("core".into());
    full.refusal = Some("budget");
    full.held = Some(WaitCause {
        by: "primary",
        account: Some("bot".into()),
        until: Some(Timestamp::from_secs(1_800_000_000)),
    });
    full.error = Some(LogText::error("connection refused"));
    full.client_address = Some([192, 0, 2, 7].into());
    full.user_agent = Some(http::HeaderValue::from_static("bot/1.0"));
    full.trace = Some(TraceIds { trace: [0xaf; 16], span: Some([7; 8]), is_sampled: true });
    full.upstream_request_id = Some(LogText::request_id("1A2B:3C"));
    full
}

#[test]
fn a_request_line_has_these_keys_and_no_other() {
    let full = full_outcome();
    let line = json(&logged(LogFormat::Json, || record(&full)));
    let mut keys: Vec<&str> = line.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "account",
            "bytes_in",
            "bytes_out",
            "cache",
            "cache_key",
            "client",
            "client_address",
            "cost",
            "duration_ms",
            "endpoint",
            "error",
            "held_account",
            "held_by",
            "held_until",
            "level",
            "message",
            "method",
            "operation",
            "path",
            "protocol",
            "queue_ms",
            "refusal",
            "request_id",
            "resource",
            "span_id",
            "status",
            "target",
            "time",
            "trace_id",
            "upstream_attempts",
            "upstream_ms",
            "upstream_request_id",
            "user_agent",
        ]
    );
}

/// The names of an event's fields with a value, in their order.
#[derive(Clone, Default)]
struct Recorded(Arc<std::sync::Mutex<Vec<&'static str>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Recorded {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        struct Names<'n>(&'n mut Vec<&'static str>);
        impl tracing::field::Visit for Names<'_> {
            fn record_debug(&mut self, field: &tracing::field::Field, _: &dyn std::fmt::Debug) {
                self.0.push(field.name());
            }
        }
        event.record(&mut Names(&mut self.0.lock().unwrap()));
    }
}

#[test]
fn another_subscriber_gets_the_same_fields() {
    struct Names(Vec<&'static str>);
    impl FieldSink for Names {
        fn text(&mut self, name: &'static str, _: &str) {
            self.0.push(name);
        }
        fn number(&mut self, name: &'static str, _: u64) {
            self.0.push(name);
        }
        fn millis(&mut self, name: &'static str, _: f64) {
            self.0.push(name);
        }
    }
    for outcome in [outcome(), full_outcome()] {
        let recorded = Recorded::default();
        let subscriber = tracing_subscriber::registry().with(recorded.clone());
        tracing::subscriber::with_default(subscriber, || record(&outcome));
        let story = Story { number: 0, finished_at: Timestamp::EPOCH, outcome, steps: Vec::new() };
        let mut own = Names(Vec::new());
        RequestLine::new(Arc::new(story), 0).pass_to(&mut own);
        assert_eq!(*recorded.0.lock().unwrap(), own.0);
    }
}

#[test]
fn unknown_fields_are_omitted_from_the_line() {
    let line = json(&logged(LogFormat::Json, || record(&outcome())));
    assert!(
        ["account", "resource", "refusal", "held_by", "held_account", "held_until", "error"]
            .iter()
            .all(|key| !line.contains_key(*key)),
        "{line:?}"
    );
}

#[test]
fn the_line_of_a_held_request_names_its_wait_cause() {
    let mut held = outcome();
    held.queue = Duration::from_secs(20);
    held.held = Some(WaitCause {
        by: "cooldown",
        account: Some("bot".into()),
        until: Some(Timestamp::from_secs(1_800_000_000)),
    });
    let line = json(&logged(LogFormat::Json, || record(&held)));
    let fields =
        ["queue_ms", "held_by", "held_account", "held_until"].map(|key| line[key].to_string());
    assert_eq!(fields, ["20000.0", "\"cooldown\"", "\"bot\"", "\"2027-01-15T08:00:00Z\""]);
}

#[test]
fn a_hostile_user_agent_stays_in_its_field() {
    let mut request = outcome();
    let raw = format!("x\t\u{fffd}\" ghp_{} {}", "a".repeat(36), "b".repeat(300));
    request.user_agent = Some(http::HeaderValue::from_bytes(raw.as_bytes()).unwrap());
    let line = json(&logged(LogFormat::Json, || record(&request)));
    let shown = line["user_agent"].as_str().unwrap();
    assert!(shown.starts_with("x\\u{9}\\u{fffd}\" [redacted] bbb"), "{shown}");
    assert!(shown.len() <= 256, "{shown}");
}

#[test]
fn a_query_is_not_logged() {
    for log in [LogFormat::Json, LogFormat::Text] {
        let text = logged(log, || record(&outcome()));
        assert!(!text.contains("hunter2") && !text.contains("access_token"), "{text}");
    }
}

#[test]
fn nothing_a_client_sends_can_break_the_line() {
    let hostile = "/a\r\n{\"level\":\"ERROR\"}\u{2028}\u{1b}[31m\"\\";
    let mut request = Outcome::new(&http::Method::GET, hostile, "id\n\"x");
    request.error = Some(LogText::error("bad\nthing"));
    for log in [LogFormat::Json, LogFormat::Text] {
        let text = logged(log, || record(&request));
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(
            text.trim_end()
                .chars()
                .all(|character| character == ' ' || character.is_ascii_graphic()),
            "{text:?}"
        );
    }
    let line = json(&logged(LogFormat::Json, || record(&request)));
    assert_eq!(line["level"], "INFO");
}

#[test]
fn a_message_of_any_module_stays_on_its_line() {
    for log in [LogFormat::Json, LogFormat::Text] {
        let text = logged(log, || {
            tracing::warn!(note = "a\nb\u{7}", level = "fake", "first\nsecond {}", "\u{1b}[2J");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text:?}");
    }
    let line = json(&logged(LogFormat::Json, || tracing::warn!(level = "fake", "odd")));
    assert_eq!((&line["level"], &line["level_"]), (&"WARN".into(), &"fake".into()));
}

#[test]
fn an_overlong_value_is_truncated() {
    let text = logged(LogFormat::Json, || {
        tracing::warn!(long = "x".repeat(100_000).as_str(), "{}", "é".repeat(100_000));
    });
    assert!(text.len() < 9_000, "{} bytes", text.len());
    json(&text);
}

#[test]
fn a_record_of_the_log_crate_shows_its_own_target() {
    let text = logged(LogFormat::Json, || {
        tracing::warn!(target: "log", { log.target = "pingora_core::server", log.file = "src/x.rs" }, "shutting down");
    });
    let line = json(&text);
    assert_eq!(line["target"], "pingora_core::server");
    assert!(!line.contains_key("log.file"), "{text}");
}

#[test]
fn text_mode_reads_as_a_line() {
    let text = logged(LogFormat::Text, || record(&outcome()));
    assert!(
        text.contains(" INFO ")
            && text.contains(" request ")
            && text.contains(" status=200 ")
            && text.contains(" cache=hit "),
        "{text}"
    );
}
