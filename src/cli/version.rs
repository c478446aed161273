//! `weir --version`: the version, and the commit of the sources.

use std::sync::LazyLock;

use crate::telemetry::BUILD_COMMIT;

/// Returns the version of this build, with its commit.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| format(BUILD_COMMIT));
    &TEXT
}

fn format(commit: Option<&str>) -> String {
    let commit =
        commit.map_or_else(|| "no commit recorded".to_owned(), |id| format!("commit {id}"));
    format!("{} ({commit})", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_names_the_commit_or_says_that_none_is_recorded() {
        assert!(format(Some("0123456789ab")).ends_with(" (commit 0123456789ab)"));
        assert!(format(None).ends_with(" (no commit recorded)"));
        assert!(text().starts_with(env!("CARGO_PKG_VERSION")));
    }
}
