//! The file of `weir emulate --config`: the flags as keys, plus limits, and faults armed from the
//! start.
//!
//! The gateway's own config reader reads it, equally strictly: an unknown key is a fault, and all
//! faults are listed at once.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};
use toml::de::DeValue;

use crate::api::Dialect;
use crate::config::Faults;
use crate::config::input::document::quoted;
use crate::config::input::load_as;
use crate::config::input::reader::{Entry, Read, Reader};
use crate::emulator::{Conditions, FaultSpec, Options};

/// Settings of the file; flags and defaults supply the rest.
#[derive(Debug, Default)]
pub struct Settings {
    pub listen: Option<SocketAddr>,
    pub dialect: Option<Dialect>,
    pub seed: Option<u64>,
    pub repositories: Option<u32>,
    pub speed: Option<f64>,
    pub latency: Option<Duration>,
    pub replay: Option<PathBuf>,
    pub conditions: Conditions,
}

/// Loads the file at `path`; relative paths in it begin at its directory.
pub fn load(path: &Path) -> Result<Settings, Faults> {
    load_as(path, read)
}

#[expect(clippy::unnecessary_wraps, reason = "every function that reads a file has this form")]
fn read(root: &mut Reader<'_>) -> Option<Settings> {
    let mut conditions = Conditions::default();
    let settings = Settings {
        listen: root.optional("listen"),
        dialect: root.optional("dialect"),
        seed: root.optional("seed").map(|WholeNumber(seed)| seed),
        repositories: root.optional("repositories").map(|Repositories(count)| count),
        speed: root.optional("speed").map(|Speed(factor)| factor),
        latency: root.optional("latency"),
        replay: root.optional("replay"),
        conditions: Conditions::default(),
    };
    if let Some(entry) = root.entry("limits") {
        limits(&entry, &mut conditions);
    }
    let faults = root.optional::<Vec<FaultSpec>>("faults");
    faults.into_iter().flatten().for_each(|fault| conditions.fault(fault));
    Some(Settings { conditions, ..settings })
}

/// Reads `limits = { "core.user" = 50 }`, with the names of `GET /_emulator/limits`.
fn limits(entry: &Entry<'_>, conditions: &mut Conditions) {
    for (name, value) in entry.members::<Limits>().into_iter().flatten() {
        let Some(WholeNumber(limit)) = WholeNumber::read(&value) else { continue };
        if let Err(wrong) = conditions.limit(name, limit) {
            value.refuse::<()>(&wrong.to_string(), &wrong.accepted());
        }
    }
}

struct Limits;

impl Read for Limits {
    fn accepted() -> String {
        "a table of names and whole numbers, such as { \"core.user\" = 50 }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.members::<Self>().map(|_| Self)
    }
}

impl Read for FaultSpec {
    fn accepted() -> String {
        "a table such as { fault = \"status\", status = 502, match = { method = \"POST\", nth = 3 } }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.members::<Self>()?;
        let Value::Object(given) = json(entry.value) else { return None };
        let wrong = match Self::read(&given) {
            Ok(spec) => return Some(spec),
            Err(wrong) => wrong,
        };
        for one in wrong {
            entry.refuse_inside(&one.member, one.problem, one.accepted);
        }
        None
    }
}

/// Converts a value to JSON. A value that JSON lacks becomes a text, which no fault takes for a
/// number.
fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
            number.map_or_else(|| Value::String(integer.to_string()), Value::from)
        }
        DeValue::Float(float) => {
            let number = float.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            number.map_or_else(|| Value::String(float.to_string()), Value::Number)
        }
        DeValue::Datetime(at) => Value::String(at.to_string()),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let members: Map<String, Value> = table
                .iter()
                .map(|(name, value)| (name.get_ref().to_string(), json(value.get_ref())))
                .collect();
            Value::Object(members)
        }
    }
}

/// Any non-negative TOML integer.
struct WholeNumber(u64);

impl Read for WholeNumber {
    fn accepted() -> String {
        format!("a whole number from 0 to {}", i64::MAX)
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.whole(|number| Some(Self(number)))
    }
}

struct Repositories(u32);

impl Read for Repositories {
    fn accepted() -> String {
        let (least, most) = Options::REPOSITORIES.into_inner();
        format!("a whole number from {least} to {most}")
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.whole(|number| {
            let count = u32::try_from(number).ok();
            count.filter(|count| Options::REPOSITORIES.contains(count)).map(Self)
        })
    }
}

struct Speed(f64);

impl Read for Speed {
    fn accepted() -> String {
        "a number from 0.01 to 100000".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let text = entry.number::<Self>()?;
        let speed = speed(text).ok().map(Self);
        speed.or_else(|| entry.refuse(format!("bad speed {}", quoted(text)), Self::accepted()))
    }
}

/// Parses a positive factor: with time standing still or running backwards no window would ever
/// end.
pub fn speed(text: &str) -> Result<f64, String> {
    let factor = text
        .parse()
        .ok()
        .filter(|factor: &f64| factor.is_finite() && (0.01..=100_000.0).contains(factor));
    factor.ok_or_else(|| format!("{} is accepted", Speed::accepted()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, Faults> {
        crate::config::input::parse_as(text, "emulate.toml", Path::new("base"), read)
    }

    const WHOLE: &str = r#"
listen = "127.0.0.1:9999"
dialect = "github"
seed = 0
repositories = 10_000
speed = 60
latency = "20ms"
replay = "recorded"

[limits]
core = 100
"core.user" = 50
"core@ada" = 7

[[faults]]
fault = "status"
status = 503
executed = true
body = { message = "down" }
headers = { retry-after = "5" }
match = { method = "POST", path = "/repos/*", nth = 3 }

[[faults]]
fault = "stall"
seconds = 0.5
"#;

    #[test]
    fn every_setting_can_be_given_in_the_file() {
        let settings = parse(WHOLE).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(settings.listen, "127.0.0.1:9999".parse().ok());
        assert_eq!(
            (settings.dialect, settings.seed, settings.repositories),
            (Some(Dialect::Github), Some(0), Some(10_000))
        );
        assert_eq!(
            (settings.speed, settings.latency),
            (Some(60.0), Some(Duration::from_millis(20)))
        );
        assert_eq!(settings.replay, Some(PathBuf::from("base/recorded")));
        let empty = parse("").unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!((empty.listen, empty.seed, empty.replay), (None, None, None));
    }

    #[test]
    fn the_example_is_valid_and_has_every_key() {
        let example = include_str!("../../../config/emulate.toml").replace("# replay", "replay");
        let settings = parse(&example).unwrap_or_else(|faults| panic!("{faults}"));
        let is_given = (
            settings.listen.is_some(),
            settings.dialect.is_some(),
            settings.seed.is_some(),
            settings.repositories.is_some(),
        );
        assert_eq!(is_given, (true, true, true, true));
        assert!(
            settings.speed.is_some() && settings.latency.is_some() && settings.replay.is_some()
        );
    }

    #[test]
    fn all_errors_of_the_file_are_reported_at_once() {
        let text = "listen = 5\ndialect = \"other\"\nseed = -1\nrepositories = 5\nspeed = \"fast\"\nlatency = 20\ncolour = 1\n\n[limits]\n\
            \"core.user\" = \"x\"\nno-such = 1\n\n[[faults]]\nfault = \"stall\"\nseconds = nan\n\n[faults.match]\nnth = 0\ntimes = 2\nmethdo = \"GET\"\n\n\
            [[faults]]\nstatus = 500\n\n[[faults]]\nfault = \"flood\"\n";
        let Err(faults) = parse(text) else { panic!("nothing in it is right") };
        let report = faults.to_string();
        for expected in [
            "emulate.toml:1: listen: wrong type: an integer (accepted: an IP address and a port",
            "emulate.toml:2: dialect: unknown value `other` (accepted: service, github)",
            "emulate.toml:3: seed: out of bounds (accepted: a whole number from 0",
            "emulate.toml:4: repositories: out of bounds (accepted: a whole number from 6 to 1000000)",
            "emulate.toml:5: speed: wrong type: a string (accepted: a number from 0.01",
            "emulate.toml:6: latency: wrong type: an integer (accepted: a duration",
            "emulate.toml:7: colour: unknown key",
            "emulate.toml:10: limits.\"core.user\": wrong type: a string (accepted: a whole number",
            "emulate.toml:11: limits.no-such: there is no such limit (accepted: a name that",
            "emulate.toml:15: faults[0].seconds: wrong type (accepted: a number of seconds from 0.001",
            "emulate.toml:18: faults[0].match.nth: out of bounds (accepted: a whole number from 1",
            "emulate.toml:20: faults[0].match.methdo: unknown member (accepted: one of method, path, account, token, nth, times)",
            "emulate.toml:22: faults[1].fault: missing (accepted: one of status, stall, ",
            "emulate.toml:26: faults[2].fault: unknown value (accepted: one of status, stall, ",
        ] {
            assert!(report.contains(expected), "{expected}\nnot in\n{report}");
        }
        assert_eq!(faults.iter().count(), 14, "{report}");
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused() {
        for (text, expected) in [
            ("limits = 3", "limits: wrong type: an integer (accepted: a table of names"),
            ("faults = {}", "faults: wrong type: a table (accepted: a list"),
            ("faults = [1]", "faults[0]: wrong type: an integer (accepted: a table such as"),
            ("speed = 0.001", "speed: bad speed `0.001`"),
            ("speed = inf", "speed: bad speed `inf`"),
            ("[limits\n", "not TOML"),
        ] {
            let Err(faults) = parse(text) else { panic!("{text}") };
            assert!(faults.to_string().contains(expected), "{expected} not in {faults}");
        }
    }

    #[test]
    fn a_speed_that_stops_time_is_refused() {
        assert_eq!(speed("60"), Ok(60.0));
        for wrong in ["0", "-1", "NaN", "inf", "fast"] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }
}
