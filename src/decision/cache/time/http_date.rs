//! The dates of HTTP (RFC 9110 §5.6.7): the preferred format, and the two obsolete ones that every
//! recipient accepts.
//!
//! The case of names does not matter, nor does a day of the week that does not fit the date: old
//! servers send both. Everything else must be exact.

use std::fmt::{self, Write};
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use httpdate::HttpDate;

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// A two-digit year below it belongs to this century. RFC 9110 §5.6.7 moves the border with the
/// present; a fixed one is right until 2070.
const SHORT_YEARS_BEGIN: u64 = 70;

/// A date of the preferred format, as its seconds since the epoch; until the year 2106.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedDate(NonZeroU32);

impl PackedDate {
    /// The bytes of its text.
    pub const LENGTH: usize = 29;

    /// Packs a text that [`PackedDate::text`] restores; `None` for any other.
    pub fn of(text: &[u8]) -> Option<Self> {
        let time = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
        let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let packed = Self::from_seconds(u32::try_from(seconds).ok()?)?;
        (packed.text() == text).then_some(packed)
    }

    pub(in crate::decision::cache) fn from_seconds(seconds: u32) -> Option<Self> {
        NonZeroU32::new(seconds).map(Self)
    }

    pub(in crate::decision::cache) fn seconds(self) -> u32 {
        self.0.get()
    }

    /// For example `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn text(self) -> [u8; Self::LENGTH] {
        let mut text = Text { bytes: [0; Self::LENGTH], length: 0 };
        let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(self.0.get().into()));
        // It fits: the year has four digits.
        _ = write!(text, "{date}");
        text.bytes
    }
}

/// The text of a date while it is written, without an allocation: every hit has one.
struct Text {
    bytes: [u8; PackedDate::LENGTH],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let rest = self.bytes.get_mut(self.length..).unwrap_or_default();
        rest.get_mut(..part.len()).ok_or(fmt::Error)?.copy_from_slice(part.as_bytes());
        self.length += part.len();
        Ok(())
    }
}

/// Parses the date in a header.
pub(in crate::decision::cache) fn date(value: &HeaderValue) -> Option<SystemTime> {
    parse(value.to_str().ok()?)
}

fn parse(text: &str) -> Option<SystemTime> {
    match text.split_once(", ") {
        Some((day, rest)) if is_day(day, 3) => preferred(rest),
        Some((day, rest)) if is_day(day, usize::MAX) => rfc850(rest),
        Some(_) => None,
        None => asctime(text),
    }
}

/// `06 Nov 1994 08:49:37 GMT`
fn preferred(text: &str) -> Option<SystemTime> {
    let mut parts = text.split(' ');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let (time, zone) = (parts.next()?, parts.next()?);
    let is_whole = parts.next().is_none() && zone.eq_ignore_ascii_case("GMT");
    is_whole.then(|| point(number(year, 4)?, month, number(day, 2)?, time)).flatten()
}

/// `06-Nov-94 08:49:37 GMT`
fn rfc850(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_once(' ')?;
    let (time, zone) = rest.split_once(' ')?;
    let mut parts = date.split('-');
    let (day, month, year) = (parts.next()?, parts.next()?, number(parts.next()?, 2)?);
    let is_whole = parts.next().is_none() && zone.eq_ignore_ascii_case("GMT");
    let year = if year < SHORT_YEARS_BEGIN { 2000 + year } else { 1900 + year };
    is_whole.then(|| point(year, month, number(day, 2)?, time)).flatten()
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<SystemTime> {
    let (day_name, rest) = text.split_once(' ')?;
    let (month, rest) = rest.split_once(' ')?;
    let (day, rest) = rest.split_at_checked(2)?;
    let day = match day.strip_prefix(' ') {
        Some(day) => number(day, 1)?,
        None => number(day, 2)?,
    };
    let (time, year) = rest.strip_prefix(' ')?.split_once(' ')?;
    is_day(day_name, 3).then(|| point(number(year, 4)?, month, day, time)).flatten()
}

/// True for the name of a day, shortened to this length.
fn is_day(text: &str, length_max: usize) -> bool {
    DAYS.iter().any(|day| text.eq_ignore_ascii_case(day.get(..length_max).unwrap_or(day)))
}

/// A number of exactly this many digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    let is_plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

fn point(year: u64, month: &str, day: u64, time: &str) -> Option<SystemTime> {
    let month = (1_u64..).zip(MONTHS).find(|(_, name)| month.eq_ignore_ascii_case(name))?.0;
    let mut parts = time.split(':');
    let mut next = |max: u64| number(parts.next()?, 2).filter(|number| *number <= max);
    // A leap second is the 60th.
    let seconds = next(23)? * 3_600 + next(59)? * 60 + next(60)?;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_of_month = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(is_leap),
        _ => 31,
    };
    if parts.next().is_some() || year < 1970 || !(1..=days_of_month).contains(&day) {
        return None;
    }
    let days = days_before(year, month) + day - 1;
    UNIX_EPOCH.checked_add(Duration::from_secs(days * 86_400 + seconds))
}

/// Days from 1970 to the beginning of a month, in the Gregorian calendar. A year begins in March
/// here, so that a leap day is its last.
fn days_before(year: u64, month: u64) -> u64 {
    /// Days from March of the year 0 to 1970.
    const EPOCH: u64 = 719_468;
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 - EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_date_comes_out_as_it_came_in() {
        for text in [
            "Thu, 01 Jan 1970 00:00:01 GMT",
            "Tue, 29 Feb 2000 23:59:59 GMT",
            "Sun, 07 Feb 2106 06:28:15 GMT",
        ] {
            assert_eq!(PackedDate::of(text.as_bytes()).unwrap().text(), text.as_bytes());
        }
        for text in [
            "",
            "Thu, 01 Jan 1970 00:00:00 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 gmt",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 07 Feb 2106 06:28:16 GMT",
        ] {
            assert_eq!(PackedDate::of(text.as_bytes()), None, "{text}");
        }
    }

    fn seconds(text: &str) -> Option<u64> {
        let since = parse(text)?.duration_since(SystemTime::UNIX_EPOCH);
        Some(since.expect("not before 1970").as_secs())
    }

    #[test]
    fn a_recipient_accepts_all_three_formats() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(seconds(text), Some(784_111_777), "{text}");
        }
        assert_eq!(seconds("Thursday, 18-Aug-50 02:01:18 GMT"), Some(2_544_400_878));
        assert_eq!(seconds("Thu Aug 18 02:01:18 2050"), Some(2_544_400_878));
    }

    #[test]
    fn case_and_the_day_of_the_week_do_not_matter() {
        for text in [
            "THU, 18 Aug 2050 02:01:18 GMT",
            "Thu, 18 AUG 2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18 gMT",
            "Mon, 18 Aug 2050 02:01:18 GMT",
        ] {
            assert_eq!(seconds(text), Some(2_544_400_878), "{text}");
        }
    }

    #[test]
    fn every_other_deviation_is_no_date() {
        for text in [
            "",
            "0",
            "Thu, 18 Aug 2050 02:01:18 UTC",
            "Thu, 18 Aug 2050 02:01:18 AEST",
            "Thu, 18 Aug 2050 02:01:18",
            "Thu, 18 Aug 50 02:01:18 GMT",
            "Thu 18 Aug 2050 02:01:18 GMT",
            "Thu, 18  Aug  2050 02:01:18 GMT",
            "Thu, 18-Aug-2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02.01.18 GMT",
            "Thu, 18 Aug 2050 2:01:18 GMT",
            "Thu, 18 Aug 2050 02:01 GMT",
            "Thu, 18 Aug 2050 02:01:18:00 GMT",
            "Thu, 18 Aug 2050 24:00:00 GMT",
            "Thu, 18 Aug 2050 02:01:61 GMT",
            "Thu, 31 Apr 2050 02:01:18 GMT",
            "Thu, 29 Feb 2050 02:01:18 GMT",
            "Thu, 00 Aug 2050 02:01:18 GMT",
            "Thu, 18 Aux 2050 02:01:18 GMT",
            "Thu, 18 Aug 1969 02:01:18 GMT",
            "Thu, +8 Aug 2050 02:01:18 GMT",
            "Thu Aug 8 02:01:18 2050",
            "Thu Aug  8 02:01:18 2050 GMT",
            "Thu Aug ü8 02:01:18 2050",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_of_400_years_is_the_day_of_a_second_reader() {
        for day in (0..146_097).step_by(13) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(day * 86_400 + 86_399);
            assert_eq!(parse(&httpdate::fmt_http_date(time)), Some(time));
        }
    }
}
