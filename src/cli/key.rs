//! `weir key`: makes a client key. It is shown once and stored nowhere; the config gets its hash.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ring::rand::{SecureRandom, SystemRandom};
use secrecy::ExposeSecret;

use crate::clock::Clock;
use crate::config::{digest_hex, generate, parse_expiry, parse_name};

#[derive(Args)]
pub struct Key {
    /// The client: prints the whole entry for the config
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    client: Option<Arc<str>>,
    /// The last day of the key in UTC, such as 2027-01-31, or a time such as 2027-01-31T18:00:00Z
    #[arg(long, value_name = "DAY", value_parser = future)]
    expires: Option<String>,
}

/// Accepts the end of a key that is not over.
fn future(text: &str) -> Result<String, String> {
    match parse_expiry(text) {
        Some(end) if end > Clock::system().now() => Ok(text.to_owned()),
        Some(_) => Err("this is over".to_owned()),
        None => {
            Err("accepted: a day such as 2027-01-31, or a time such as 2027-01-31T18:00:00Z"
                .to_owned())
        }
    }
}

impl Key {
    /// Prints a new key to standard output, and what the config needs for it.
    pub fn run(&self) -> ExitCode {
        // Standard error may be closed; key and exit code do not depend on it.
        match self.print(&SystemRandom::new(), &mut io::stdout().lock()) {
            Ok(()) => {
                let _ = writeln!(io::stderr(), "{}", self.hint());
                ExitCode::SUCCESS
            }
            Err(error) => {
                let _ = writeln!(io::stderr(), "cannot make a key: {error}");
                ExitCode::from(1)
            }
        }
    }

    fn hint(&self) -> &'static str {
        match (&self.client, &self.expires) {
            (Some(_), _) => {
                "the first line is the client's key, shown this once; the others are its entry in the config. A further key goes into the list keys of the client's entry"
            }
            (None, Some(_)) => {
                "the first line is the client's key, shown this once; the second is for its entry in [[clients]]. A further key goes into the same list"
            }
            (None, None) => {
                "the first line is the client's key, shown this once; the second is for its entry in [[clients]]"
            }
        }
    }

    fn print(&self, random: &dyn SecureRandom, out: &mut dyn Write) -> io::Result<()> {
        let key =
            generate(random).map_err(|_| io::Error::other("the system has no random numbers"))?;
        let key = key.expose_secret();
        writeln!(out, "{key}")?;
        if let Some(client) = &self.client {
            writeln!(out, "[[clients]]\nname = {}", toml::Value::from(&**client))?;
        }
        let hash = digest_hex(key.as_bytes());
        match &self.expires {
            Some(end) => writeln!(out, "keys = [{{ sha256 = \"{hash}\", expires = \"{end}\" }}]")?,
            None if self.client.is_some() => writeln!(out, "keys = [{{ sha256 = \"{hash}\" }}]")?,
            None => writeln!(out, "key_sha256 = \"{hash}\"")?,
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::fixture;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        _key: Key,
    }

    fn printed(client: Option<&str>, expires: Option<&str>) -> (String, String) {
        let key = Key { client: client.map(Into::into), expires: expires.map(Into::into) };
        let mut out = Vec::new();
        key.print(&SystemRandom::new(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (key, rest) = text.split_once('\n').unwrap();
        assert!(key.starts_with("weir_"));
        (key.to_owned(), rest.to_owned())
    }

    #[test]
    fn a_key_is_printed_once_with_the_line_for_the_config() {
        let (key, line) = printed(None, None);
        assert_eq!(line, format!("key_sha256 = \"{}\"\n", digest_hex(key.as_bytes())));
    }

    #[test]
    fn a_key_with_an_end_is_printed_with_its_entry_for_the_config() {
        let (key, entry) = printed(Some("night \"ly\""), Some("2127-01-31"));
        let text = fixture::text("[upstream]\nurl = \"http://127.0.0.1:9\"\n") + &entry;
        let config = fixture::parsed(&text);
        let client = config.clients.last().unwrap();
        assert_eq!(&*client.name, "night \"ly\"");
        assert_eq!(client.keys[0].sha256, crate::config::digest(key.as_bytes()));
        assert_eq!(client.keys[0].expires.unwrap().rfc3339(), "2127-02-01T00:00:00Z");
        let (_, line) = printed(None, Some("2127-01-31"));
        assert!(line.starts_with("keys = [{ sha256 = ") && line.lines().count() == 1, "{line}");
    }

    #[test]
    fn a_client_has_a_name_that_the_config_accepts() {
        let parsed = |name: &str| Command::try_parse_from(["key", "--client", name]);
        assert!(parsed("build bot").is_ok());
        for name in ["", " bot", "bot ", "b\u{f6}t", "bot\n", &"b".repeat(257)] {
            let refused = parsed(name).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains("1 to 256 printable ASCII characters"), "{name:?}: {refused}");
        }
    }

    #[test]
    fn an_end_in_the_past_or_of_no_day_is_refused() {
        assert!(future("2127-01-31").is_ok() && future("2127-01-31T18:00:00Z").is_ok());
        for text in ["2020-01-31", "next year"] {
            assert!(future(text).is_err(), "{text}");
        }
    }
}
