//! Numbers, times and limits in words.

use std::time::Duration;

use maud::{Markup, html};

use crate::clock::Timestamp;
use crate::decision::LimitKind;

/// A number with its thousands apart.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part from 0 to 1 in percent.
pub fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent > 0.0 && percent < 1.0 { "< 1 %".to_owned() } else { format!("{percent:.0} %") }
}

/// A duration in its two largest units; less than a minute in seconds.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    match seconds {
        0 if !duration.is_zero() => "< 1 s".to_owned(),
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min"),
        3_600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
    }
}

/// Bytes in the largest binary unit.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1_024 {
        return format!("{bytes} bytes");
    }
    let power = (bytes.ilog2() / 10).min(4);
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let amount = bytes as f64 / (1_u64 << (10 * power)) as f64;
    format!("{amount:.1} {}", UNITS[power as usize - 1])
}

/// A number with its noun.
pub fn count(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { many })
}

/// A time of this day, or one with its date; both of UTC.
pub fn time(at: Timestamp, now: Timestamp) -> Markup {
    written_time(&at.rfc3339_past(), now)
}

/// The same for a time in the form of RFC 3339.
pub fn written_time(text: &str, now: Timestamp) -> Markup {
    let today = now.rfc3339_past();
    let (Some((day, time)), Some((this_day, _))) = (text.split_once('T'), today.split_once('T'))
    else {
        return html! { (text) };
    };
    let clock = time.get(..8).unwrap_or(time);
    html! {
        time datetime=(text) {
            @if day != this_day { (day) " " }
            (clock)
        }
    }
}

/// A time to come with its distance.
pub fn until(at: Timestamp, now: Timestamp) -> Markup {
    if at >= Timestamp::FAR_FUTURE {
        return html! { "never" };
    }
    html! { (time(at, now)) " " span.dim { "in " (duration(at.since(now))) } }
}

/// A limit, and the reason of a wait for it.
pub fn limit(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::Primary => "the budget is spent",
        LimitKind::Probe => "the budget is unknown, and a first request asks",
        LimitKind::Cooldown => "the upstream has closed the account for a secondary limit",
        LimitKind::Concurrency => "all slots of the account are taken",
        LimitKind::ClientShare => "the client has its share of the slots",
        LimitKind::Points => "the points of this endpoint for a minute are spent",
        LimitKind::GraphqlPoints => "the GraphQL points for a minute are spent",
        LimitKind::ContentPerMinute => "as much content was created as a minute allows",
        LimitKind::ContentPerHour => "as much content was created as an hour allows",
        LimitKind::Cpu => "the CPU time of a minute is spent",
        LimitKind::GraphqlCpu => "the CPU time of GraphQL for a minute is spent",
        LimitKind::OauthTokens => "the requests for OAuth tokens of an hour are spent",
        LimitKind::Spacing => "writes keep their distance",
        LimitKind::Pace => "the budget is spread over its window",
        LimitKind::BatchFloor => "batch clients leave the rest to others",
        LimitKind::ClientBudget => "the client's own budget is spent",
        LimitKind::QueueFull => "the wait queue is full",
        LimitKind::NoAccount => "no account may send it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_thousands_apart() {
        for (count, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(count), text);
        }
    }

    #[test]
    fn a_duration_has_its_largest_units() {
        for (millis, text) in [
            (0, "0 s"),
            (10, "< 1 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn bytes_have_their_largest_unit() {
        for (count, text) in [(0, "0 bytes"), (1_023, "1023 bytes"), (1_536, "1.5 KiB")] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }

    #[test]
    fn a_time_of_another_day_has_its_date() {
        let now = Timestamp::from_secs(1_800_000_000);
        assert!(time(now, now).into_string().ends_with(">08:00:00</time>"));
        let before = Timestamp::from_secs(1_800_000_000 - 86_400);
        assert!(time(before, now).into_string().contains(">2027-01-14 08:00:00<"));
    }
}
