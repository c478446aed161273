//! Settings that would have no effect: refused, because they would be believed.

use super::*;

#[test]
fn a_setting_of_an_unbuilt_feature_is_refused() {
    let setting = "[telemetry]\notlp_endpoint = \"https://otel:4317\"\n[cache]";
    let faults = parsed(&spoilt("[cache]", setting)).unwrap_err();
    let [fault] = faults.0.as_slice() else { panic!("one fault: {faults}") };
    assert_eq!((fault.line, fault.key.as_str()), (Some(35), "telemetry.otlp_endpoint"));
    let message =
        "not built in this version: export over TLS (accepted: an address such as \"http://";
    assert!(fault.to_string().contains(message), "{fault}");
}

#[test]
fn writes_in_redis_need_a_redis() {
    let faults = parsed(&spoilt("store = \"memory\"", "store = \"redis\"")).unwrap_err();
    let [fault] = faults.0.as_slice() else { panic!("one fault: {faults}") };
    assert_eq!((fault.line, fault.key.as_str()), (Some(39), "writes.store"));
    assert!(fault.to_string().contains("there is no Redis for it"), "{fault}");
}
