//! Settings of features that are not built: refused, because one without effect would be believed.

use super::*;

#[test]
fn a_setting_of_an_unbuilt_feature_is_refused() {
    for (from, to, line, key, message) in [(
        "[cache]",
        "[telemetry]\notlp_endpoint = \"https://otel:4317\"\n[cache]",
        35,
        "telemetry.otlp_endpoint",
        "not built in this version: export over TLS (accepted: an address such as \"http://",
    )] {
        let faults = parsed(&spoilt(from, to)).unwrap_err();
        let [fault] = faults.0.as_slice() else { panic!("one fault of {to}: {faults}") };
        assert_eq!((fault.line, fault.key.as_str()), (Some(line), key));
        assert!(fault.to_string().contains(message), "{fault}");
    }
}
