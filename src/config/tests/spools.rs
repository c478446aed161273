//! The temporary files of large answers in `[cache]`: their sizes and their folder.

use super::*;

fn with_keys(keys: &str) -> String {
    spoilt("\"64MiB\"", &format!("\"64MiB\"\n{keys}"))
}

#[test]
fn large_answers_have_files_and_none_stays() {
    let cache = accepted(VALID).cache;
    assert_eq!((cache.spool_max, cache.spool_keep, cache.spool_folder), (4 << 30, 0, None));
    let cache = accepted(&with_keys("spool_max = \"0B\"")).cache;
    assert_eq!(cache.spool_max, 0);
    let cache = accepted(&with_keys("spool_keep = \"9MiB\"\nspool_folder = \".\"")).cache;
    assert_eq!(cache.spool_keep, 9 << 20);
    assert!(cache.spool_folder.is_some_and(|folder| folder.is_dir()));
}

#[test]
fn sizes_and_folders_without_effect_are_refused() {
    for (keys, key, message) in [
        ("spool_keep = \"5GiB\"", "spool_keep", "larger than spool_max (accepted: at most 4GiB)"),
        (
            "spool_keep = \"8MiB\"",
            "spool_keep",
            "no effect: answers of that length are stored in memory (accepted: 0B, or more than 8MiB)",
        ),
        (
            "spool_folder = \"/dev/null\"",
            "spool_folder",
            "/dev/null is no folder (accepted: the path of a folder",
        ),
        ("spool_folder = \"missing\"", "spool_folder", "missing is no folder"),
    ] {
        let faults = parsed(&with_keys(keys)).unwrap_err();
        let [fault] = faults.0.as_slice() else { panic!("one fault of {keys}: {faults}") };
        assert_eq!(fault.key, format!("cache.{key}"));
        assert!(fault.to_string().contains(message), "{keys}: {fault}");
    }
}
