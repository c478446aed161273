//! `weir check`: validates a config and prints the effective one. It connects to nothing, so that
//! it can run before a deployment.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::config::{self, Config};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Valid,
    Faulty,
    /// The output could not be written, for example to a closed pager.
    Unwritten,
}

/// Checks the config at `path`. The effective one goes to standard output; faults, notes and
/// warnings go to standard error.
pub fn run(path: &Path) -> ExitCode {
    match check(path, &mut io::stdout().lock(), &mut io::stderr().lock()) {
        Outcome::Valid => ExitCode::SUCCESS,
        Outcome::Unwritten => ExitCode::from(1),
        Outcome::Faulty => ExitCode::from(2),
    }
}

fn check(path: &Path, out: &mut dyn Write, err: &mut dyn Write) -> Outcome {
    let (outcome, written) = match config::load(path) {
        Ok(config) => (Outcome::Valid, report(&config, &path.display().to_string(), out, err)),
        Err(faults) => (Outcome::Faulty, writeln!(err, "{faults}")),
    };
    if written.is_ok() { outcome } else { Outcome::Unwritten }
}

fn report(config: &Config, file: &str, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
    out.write_all(config.redacted_toml().as_bytes())?;
    out.flush()?;
    for inactive in config.inactive() {
        writeln!(
            err,
            "note: {file}: {}: accepted, not active yet: {}",
            inactive.key, inactive.why
        )?;
    }
    for warning in config.warnings() {
        writeln!(err, "warning: {file}: {}: {}", warning.key, warning.problem)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture;

    const SECTIONS: &str = r#"
        [upstream]
        url = "http://code.corp"
        [cache]
        predicted_etags = true
        [state]
        redis = { url = "redis://127.0.0.1:6379" }
    "#;

    fn checked(text: &str) -> (Outcome, String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.toml");
        std::fs::write(&path, text).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let outcome = check(&path, &mut out, &mut err);
        (outcome, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn a_valid_config_is_printed_with_notes_and_warnings() {
        let (outcome, out, err) = checked(&fixture::text(SECTIONS));
        assert_eq!(outcome, Outcome::Valid);
        assert!(out.starts_with("[listen]\n") && !out.contains("s3cret"), "{out}");
        assert!(err.contains("state.redis: accepted, not active yet"), "{err}");
        assert!(
            err.contains("warning: ")
                && err.contains("cache.predicted_etags: is used with `dialect = \"github\"` only"),
            "{err}"
        );
        assert!(
            err.contains("warning: ")
                && err.contains("upstream.url: http://code.corp is plain HTTP"),
            "{err}"
        );
    }

    #[test]
    fn a_faulty_config_prints_only_its_faults() {
        let (outcome, out, err) = checked("[upstream]\nurl = 3\ncolour = 1\n");
        assert_eq!((outcome, out.as_str()), (Outcome::Faulty, ""));
        assert!(
            err.contains("weir.toml:2: upstream.url: ")
                && err.contains("weir.toml:3: upstream.colour: unknown key"),
            "{err}"
        );
    }
}
