//! The config: valid and printable, or with clear faults; never with a secret in a text.

use std::path::Path;

use crate::config::{Config, Faults, parse};

/// The value of each environment variable.
const SECRET: &str = "env-s3cret-0123456789";
/// The value of the variable `APP_KEY`.
const KEY: &str = include_str!("../emulator/seed/app_key.pem");
/// The value of secrets in the seeds.
const INLINE: &str = "value-s3cret-9876543210";
/// A folder with the files that the seeds name.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/certificates");

/// A text is a config whose effective form is itself valid, or it has faults in its lines. None of
/// its texts shows a secret.
pub fn config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // Paths below these may block, or change from call to call.
    if ["/dev", "/proc", "/sys"].iter().any(|folder| text.contains(folder)) {
        return;
    }
    // A value that stands elsewhere too is no secret there.
    let inline = text.contains(&format!("secret = {{ value = \"{INLINE}\" }}"))
        && text.matches(INLINE).count() == 1;
    // Outside of secrets, values of the environment are shown.
    let refers = text.contains("${");
    let shows_none = |shown: &str| {
        assert!(refers || !shown.contains(SECRET), "a secret of the environment is shown: {shown}");
        assert!(!inline || !shown.contains(INLINE), "a secret of the file is shown: {shown}");
    };
    match read(text) {
        Ok(config) => {
            let effective = config.redacted_toml();
            shows_none(&effective);
            shows_none(&format!("{config:?} {:?}", config.warnings()));
            let again = restored(&effective);
            let again = read(&again)
                .unwrap_or_else(|faults| panic!("its own text is refused: {faults}\n{again}"));
            assert_eq!(again.redacted_toml(), effective, "another config than its own text");
            assert_eq!(again.warnings(), config.warnings());
        }
        Err(faults) => {
            shows_none(&faults.to_string());
            clear(text, &faults);
        }
    }
}

fn read(text: &str) -> Result<Config, Faults> {
    let environment = |name: &str| match name {
        "APP_KEY" => Some(KEY.to_owned()),
        // Addresses, which are no secrets.
        _ if name.to_ascii_lowercase().ends_with("_proxy") => None,
        // Of OpenTelemetry's variables, headers alone are secrets.
        _ if name.starts_with("OTEL_") && !name.ends_with("_HEADERS") => None,
        _ => Some(SECRET.to_owned()),
    };
    parse(text, "weir.toml", &environment, Path::new(FOLDER))
}

/// The effective config with secrets in place of what it hides.
fn restored(effective: &str) -> String {
    let line = |(position, line): (usize, &str)| match line {
        "key_sha256 = \"<redacted>\"" => format!("key_sha256 = \"{position:064}\""),
        "private_key = { value = \"<redacted>\" }" => {
            let key = KEY.trim().replace('\n', "\\n");
            format!("private_key = {{ value = '{key}' }}")
        }
        keys if keys.starts_with("keys = [") => {
            let mut parts = keys.split("\"<redacted>\"");
            let first = parts.next().unwrap_or_default().to_owned();
            let hashed = |(index, part)| format!("\"{:064}\"{part}", position * 1_000 + index);
            first + &parts.enumerate().map(hashed).collect::<String>()
        }
        other => other.replace("<redacted>", &format!("id:{position}")),
    };
    effective.lines().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// Each fault has a line of the file, and one line of text.
fn clear(text: &str, faults: &Faults) {
    assert!(!faults.0.is_empty(), "refused without a fault");
    let lines = text.split('\n').count();
    for fault in faults {
        assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{fault:?}");
        assert!(!fault.problem.is_empty());
        let shown = fault.to_string();
        assert!(!shown.contains(['\n', '\r']), "a fault of several lines: {shown:?}");
    }
}
