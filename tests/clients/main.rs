//! Two client libraries as their users have them, Octokit and `PyGithub`, set up with the gateway's
//! address and a key and nothing else, against `weir serve` in front of the emulator: with its seed
//! world (`emulated`), and with recorded traffic of the real service (`recorded`, from npm
//! `@octokit/fixtures`); and against the emulator alone (`alone`).
//!
//! Beside them the public suite of tests for HTTP caches, with its own client and origin server
//! (`http_cache`).
//!
//! The libraries are installed by the tests themselves (`install`), at the versions of
//! `octokit/package-lock.json` and `pygithub/requirements.txt`. Every scenario also proves that the
//! client spoke to the gateway and to nobody else (`driver`). What the gateway does with requests
//! that no library sends is left to the other tests.

mod concurrent_writes;
#[expect(dead_code, reason = "one builder for all suites; this one needs no apps or rules")]
#[path = "../support/config.rs"]
mod config;
mod control;
mod driver;
mod emulated;
mod emulator_only;
mod http_cache;
mod install;
mod processes;
mod recorded;
mod recording;
mod relay;
mod setup;
mod virtual_time;

/// Makes two tests of each function that takes a library: `sentence::octokit` and
/// `sentence::pygithub`.
macro_rules! with_each_library {
    ($($sentence:ident)*) => {
        $(mod $sentence {
            use crate::driver::Library;

            #[test]
            fn octokit() {
                super::$sentence(Library::Octokit);
            }

            #[test]
            fn pygithub() {
                super::$sentence(Library::PyGithub);
            }
        })*
    };
}
use with_each_library;

/// Lower case, two digits a byte.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
