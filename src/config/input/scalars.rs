//! Syntax of single values: texts, numbers, durations, sizes, addresses and paths.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::reader::{Entry, Read};

/// Longest duration accepted: a year. Longer ones are typing errors and would overflow timers.
const DURATION_MAX: Duration = Duration::from_hours(366 * 24);
const TEXT_BYTES_MAX: usize = 256;

/// Bytes, written as in `"64MiB"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(in crate::config) u64);

impl Size {
    pub(crate) const fn kib(count: u64) -> Self {
        Self(count * 1024)
    }

    pub(crate) const fn mib(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }
}

/// A fraction from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio(pub(in crate::config) f64);

const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Parses a number with a unit, such as `30s`.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Formats `amount` in the greatest unit that divides it.
fn quantity_text(amount: u64, units: &[(&str, u64)]) -> String {
    let fits =
        |(_, factor): &&(&str, u64)| amount.is_multiple_of(*factor) && (amount > 0 || *factor == 1);
    units
        .iter()
        .rev()
        .find(fits)
        .map_or_else(String::new, |(name, factor)| format!("{}{name}", amount / factor))
}

/// Parses a duration of the config or the command line: `30s`, `500ms`, `2h`; at most a year.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = quantity(text, &DURATION_UNITS)
        .map(Duration::from_millis)
        .filter(|duration| *duration <= DURATION_MAX);
    duration.ok_or_else(|| {
        "accepted: a whole number and a unit, such as 30s, 500ms, 5m or 2h".to_owned()
    })
}

pub(crate) fn duration_text(duration: Duration) -> String {
    match u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) {
        0 => "0s".to_owned(),
        millis => quantity_text(millis, &DURATION_UNITS[..4]),
    }
}

pub(crate) fn size_text(bytes: u64) -> String {
    quantity_text(bytes, &SIZE_UNITS)
}

impl Read for Duration {
    fn accepted() -> String {
        "a duration such as \"30s\": a whole number and ms, s, m, h or d, at most a year".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.parsed("duration", |text| parse_duration(text).ok())
    }
}

impl Read for Size {
    fn accepted() -> String {
        "a size such as \"64MiB\": a whole number and B, KiB, MiB, GiB or TiB".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.parsed("size", |text| quantity(text, &SIZE_UNITS).map(Size))
    }
}

impl Read for Ratio {
    fn accepted() -> String {
        "a number from 0 to 1".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let number = entry.number::<Self>()?.parse::<f64>().ok();
        let number = number.filter(|number| (0.0..=1.0).contains(number));
        number.map(Ratio).or_else(|| entry.refuse("out of bounds", Self::accepted()))
    }
}

impl Read for u32 {
    fn accepted() -> String {
        format!("a whole number from 0 to {}", u32::MAX)
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.whole(|number| number.try_into().ok())
    }
}

impl Read for u64 {
    fn accepted() -> String {
        // The largest integer of TOML, which are signed.
        format!("a whole number from 1 to {}", i64::MAX)
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.whole(|number| (number > 0).then_some(number))
    }
}

impl Read for NonZeroU32 {
    fn accepted() -> String {
        format!("a whole number from 1 to {}", u32::MAX)
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.whole(|number| u32::try_from(number).ok().and_then(Self::new))
    }
}

impl Read for bool {
    fn accepted() -> String {
        "true or false".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.value.as_bool().or_else(|| entry.refuse_type())
    }
}

/// A text that is displayed and sent in headers: printable ASCII without spaces at its ends.
impl Read for Arc<str> {
    fn accepted() -> String {
        format!("1 to {TEXT_BYTES_MAX} printable ASCII characters, without spaces at the ends")
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.parsed("text", |text| parse_name(text).ok())
    }
}

/// Parses the name of a client or an account, of the config or the command line: 1 to 256 printable
/// ASCII characters, without spaces at the ends.
pub fn parse_name(text: &str) -> Result<Arc<str>, String> {
    let fits = (1..=TEXT_BYTES_MAX).contains(&text.len())
        && text.trim() == text
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if fits { Ok(text.into()) } else { Err(format!("accepted: {}", <Arc<str>>::accepted())) }
}

impl Read for SocketAddr {
    fn accepted() -> String {
        "an IP address and a port such as \"127.0.0.1:8080\"".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.parsed("address", |text| text.parse().ok())
    }
}

/// A single address is a network too. Bits beyond the prefix would be a misunderstanding.
impl Read for IpNet {
    fn accepted() -> String {
        "a network such as \"10.0.0.0/8\" or \"fd00::/8\", or an IP address".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.parsed("network", |text| {
            let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
            let network = text.parse::<IpNet>().ok().or_else(address)?;
            (network.trunc() == network).then_some(network)
        })
    }
}

/// Relative paths begin at the directory of the file that names them.
impl Read for PathBuf {
    fn accepted() -> String {
        "the path of a file, relative to the config file or absolute".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let text = entry.text::<Self>()?;
        if text.is_empty() || text.contains('\0') {
            return entry.refuse("bad path", Self::accepted());
        }
        Some(entry.document.folder(entry.at).join(text))
    }
}
