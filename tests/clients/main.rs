//! Client libraries as their users have them: Octokit and `PyGithub`, with the gateway's URL and a
//! key and no other setting. The upstream of `weir serve` is the emulator with its seed world
//! (`emulated`), or with recorded traffic of the real service (`recorded`, from npm
//! `@octokit/fixtures`). `emulator_only` leaves the gateway out.
//!
//! `own_apps` has libraries that bring the JWT of an app of their own, by pass-through.
//!
//! `papers` runs every command and snippet of the README and the guides.
//!
//! `gh` is the command line client, from the package of the system.
//!
//! `over_tls` has clients that insist on HTTPS, or use it.
//!
//! `page` has the page of the admin listener in a browser.
//!
//! `http_cache` runs the public suite for HTTP caches with its own client and origin server.
//!
//! The tests install the libraries themselves (`install`), at the versions of
//! `octokit/package-lock.json` and `pygithub/requirements.txt`. Every scenario also proves that the
//! client contacts nobody but the gateway (`driver`). Other suites cover requests that no library
//! sends.

mod concurrent_writes;
#[expect(dead_code, reason = "one builder for all suites; this one needs no apps or rules")]
#[path = "../support/config.rs"]
mod config;
mod control;
mod driver;
mod emulated;
mod emulator_only;
mod gh;
mod http_cache;
mod install;
mod over_tls;
mod own_apps;
mod page;
mod papers;
mod processes;
mod recorded;
mod recording;
mod relay;
mod setup;
mod virtual_time;

/// Makes two tests of each function that takes a library: `name::octokit` and `name::pygithub`.
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

/// Lower case, two digits for each byte.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
