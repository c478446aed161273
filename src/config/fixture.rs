//! A config for unit tests: one account with one token, and one client.

use std::path::Path;

use super::{Config, parse};

const ONE_ACCOUNT: &str = r#"
[[accounts]]
name = "bot"
kind = "user"
[[tokens]]
account = "bot"
kind = "classic"
secret = { value = "s3cret" }
[[clients]]
name = "ci"
key_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
"#;

/// Returns the text of the config; `sections` holds `[upstream]` and any others.
pub(crate) fn text(sections: &str) -> String {
    format!("{sections}{ONE_ACCOUNT}")
}

/// Parses a valid text that needs no environment.
pub(crate) fn parsed(text: &str) -> Config {
    parse(text, "test", &|_| None, Path::new(".")).unwrap_or_else(|faults| panic!("{faults}"))
}
