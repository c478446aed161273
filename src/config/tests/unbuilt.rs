//! Settings that would have no effect: refused, because they would be believed.

use super::*;

#[test]
fn certificates_of_a_collector_need_tls() {
    let setting =
        "[telemetry]\notlp_endpoint = \"http://otel:4317\"\notlp_ca_file = \"ca.pem\"\n[cache]";
    let faults = parsed(&spoilt("[cache]", setting)).unwrap_err();
    let without_tls = faults.0.iter().find(|fault| fault.to_string().contains("without TLS"));
    let fault = without_tls.unwrap_or_else(|| panic!("{faults}"));
    assert_eq!((fault.line, fault.key.as_str()), (Some(36), "telemetry.otlp_ca_file"));
}

#[test]
fn writes_in_redis_need_a_redis() {
    let faults = parsed(&spoilt("store = \"memory\"", "store = \"redis\"")).unwrap_err();
    let [fault] = faults.0.as_slice() else { panic!("one fault: {faults}") };
    assert_eq!((fault.line, fault.key.as_str()), (Some(39), "writes.store"));
    assert!(fault.to_string().contains("there is no Redis for it"), "{fault}");
}
