//! `weir key`: makes a client key. It is shown once and stored nowhere; the config gets its hash.

use std::io::{self, Write};
use std::process::ExitCode;

use ring::rand::{SecureRandom, SystemRandom};
use secrecy::ExposeSecret;

use crate::config::{digest_hex, generate};

/// Prints a new key to standard output with the `key_sha256` line for the config.
pub fn run() -> ExitCode {
    // Standard error may be closed; key and exit code do not depend on it.
    match print_key(&SystemRandom::new(), &mut io::stdout().lock()) {
        Ok(()) => {
            let _ = writeln!(
                io::stderr(),
                "the first line is the client's key, shown this once; the second is for its entry in [[clients]]"
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot make a key: {error}");
            ExitCode::from(1)
        }
    }
}

fn print_key(random: &dyn SecureRandom, out: &mut dyn Write) -> io::Result<()> {
    let key = generate(random).map_err(|_| io::Error::other("the system has no random numbers"))?;
    let key = key.expose_secret();
    writeln!(out, "{key}")?;
    writeln!(out, "key_sha256 = \"{}\"", digest_hex(key.as_bytes()))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_printed_once_with_the_line_for_the_config() {
        let mut out = Vec::new();
        print_key(&SystemRandom::new(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let [key, line] = text.lines().collect::<Vec<_>>()[..] else { panic!("two lines") };
        assert!(key.starts_with("weir_"));
        assert_eq!(line, format!("key_sha256 = \"{}\"", digest_hex(key.as_bytes())));
    }
}
