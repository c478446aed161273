//! Format of log records, one line per event, as JSON or as text.
//!
//! No field can end a line early or start another: JSON escapes it, and text mode escapes what is
//! not plain like JSON does. Keys are flat: `time`, `level`, `target`, then `message` and the
//! event's own. Left out: spans, which are not logged.

use std::cell::RefCell;
use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use super::init::LogFormat;
use super::log::{FieldSink, RequestLine, with_line};
use crate::clock::{Timestamp, machine_micros};

/// Longest value of a field; documents that a dependency logs are truncated.
const VALUE_BYTES_MAX: usize = 4096;

/// Longest number, a float with all its digits; and `false`.
const NUMBER_BYTES_MAX: usize = 32;

/// Capacity for the line of a request.
const LINE_BYTES_USUAL: usize = 768;

/// Target of every record that comes through the `log` crate; its field `log.target` has the real
/// one.
pub(super) const BRIDGED: &str = "log";

thread_local! {
    static TIME: RefCell<Time> = RefCell::default();
}

/// Time of a line: RFC 3339 in UTC, to the microsecond. Caches the second, which most lines share
/// with the previous one.
#[derive(Default)]
struct Time {
    second: Option<u64>,
    text: String,
}

impl Time {
    fn at(&mut self, micros: u64) -> &str {
        let (second, micros) = (micros / 1_000_000, micros % 1_000_000);
        if self.second != Some(second) {
            self.second = Some(second);
            self.text = Timestamp::from_secs(second).rfc3339();
        }
        self.text.truncate(SECOND_BYTES);
        self.text.push('.');
        let digit = |divisor: u64| {
            char::from_digit(u32::try_from(micros / divisor % 10).unwrap_or(0), 10).unwrap_or('0')
        };
        self.text.extend([100_000, 10_000, 1_000, 100, 10, 1].map(digit));
        self.text.push('Z');
        &self.text
    }
}

/// Length of `2026-11-22T05:00:00`.
const SECOND_BYTES: usize = 19;

/// Formats events in a [`LogFormat`].
pub(super) struct LineFormat(pub(super) LogFormat);

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        with_line(event.metadata(), |line| {
            TIME.with_borrow_mut(|time| {
                let time = time.at(line.map_or_else(machine_micros, |line| line.micros));
                match self.0 {
                    LogFormat::Json => write_json(&mut writer, time, event, line),
                    LogFormat::Text => write_text(&mut writer, time, event, line),
                }
            })
        })?;
        writer.write_char('\n')
    }
}

fn write_json(
    writer: &mut Writer<'_>,
    time: &str,
    event: &Event<'_>,
    request: Option<&RequestLine>,
) -> fmt::Result {
    let mut fields = JsonFields(String::with_capacity(LINE_BYTES_USUAL));
    fields.push_str("time", time);
    fields.push_str("level", event.metadata().level().as_str());
    if event.metadata().target() != BRIDGED {
        fields.push_str("target", event.metadata().target());
    }
    match request {
        Some(request) => request.pass_to(&mut fields),
        None => event.record(&mut fields),
    }
    let JsonFields(mut line) = fields;
    line.push('}');
    writer.write_str(&line)
}

fn write_text(
    writer: &mut Writer<'_>,
    time: &str,
    event: &Event<'_>,
    request: Option<&RequestLine>,
) -> fmt::Result {
    write!(writer, "{time} {:5}", event.metadata().level().as_str())?;
    if event.metadata().target() != BRIDGED {
        write!(writer, " {}", event.metadata().target())?;
    }
    let mut fields = TextFields { writer: writer.by_ref(), result: Ok(()) };
    match request {
        Some(request) => request.pass_to(&mut fields),
        None => event.record(&mut fields),
    }
    fields.result
}

/// Returns the key of a field in the line; `None` for source positions in a dependency. An event's
/// own field with the name of a standard key gets an underscore.
pub(super) fn key(field: &Field) -> Option<&'static str> {
    match field.name() {
        "log.target" => Some("target"),
        "time" => Some("time_"),
        "level" => Some("level_"),
        "target" => Some("target_"),
        name if name.starts_with("log.") => None,
        name => Some(name),
    }
}

pub(super) fn bounded(value: &str) -> &str {
    &value[..value.floor_char_boundary(VALUE_BYTES_MAX)]
}

/// Formats a value that has only a `Debug` form, up to the length that is kept.
pub(super) fn debug_text(value: &dyn Debug) -> String {
    struct Bounded(String);
    impl Write for Bounded {
        fn write_str(&mut self, piece: &str) -> fmt::Result {
            let room = VALUE_BYTES_MAX - self.0.len();
            self.0.push_str(&piece[..piece.floor_char_boundary(room)]);
            if piece.len() > room { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut text = Bounded(String::new());
    // An error means that the value exceeds the length that is kept.
    let _ = write!(text, "{value:?}");
    text.0
}

/// A JSON object under construction.
struct JsonFields(String);

impl JsonFields {
    /// A field's `name` is an identifier, which needs no escaping.
    fn name(&mut self, name: &'static str) {
        self.0.push_str(if self.0.is_empty() { "{\"" } else { ",\"" });
        self.0.push_str(name);
        self.0.push_str("\":");
    }

    fn push_str(&mut self, name: &'static str, value: &str) {
        self.name(name);
        self.0.push('"');
        push_escaped(&mut self.0, value);
        self.0.push('"');
    }

    fn push_number(&mut self, name: &'static str, value: &(impl serde::Serialize + ?Sized)) {
        self.name(name);
        let mut digits = [0; NUMBER_BYTES_MAX];
        let mut room = digits.as_mut_slice();
        let written =
            serde_json::to_writer(&mut room, value).map_or(NUMBER_BYTES_MAX, |()| room.len());
        self.0.push_str(
            digits
                .get(..NUMBER_BYTES_MAX - written)
                .and_then(|digits| std::str::from_utf8(digits).ok())
                .unwrap_or_default(),
        );
    }

    fn number(&mut self, field: &Field, value: &(impl serde::Serialize + ?Sized)) {
        if let Some(name) = key(field) {
            self.push_number(name, value);
        }
    }

    fn value(&mut self, field: &Field, value: &str) {
        if let Some(name) = key(field) {
            self.push_str(name, value);
        }
    }
}

impl FieldSink for JsonFields {
    fn text(&mut self, name: &'static str, value: &str) {
        self.push_str(name, value);
    }

    fn number(&mut self, name: &'static str, value: u64) {
        self.push_number(name, &value);
    }

    fn millis(&mut self, name: &'static str, value: f64) {
        self.push_number(name, &value);
    }
}

/// Appends the inside of a JSON string (RFC 8259 §7). Nearly every value is plain and is copied at
/// once.
fn push_escaped(line: &mut String, value: &str) {
    // Checks all bytes without an early exit, so that the compiler compares several at once.
    let is_plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if value.bytes().fold(true, |all, byte| all & is_plain(byte)) {
        line.push_str(value);
        return;
    }
    for character in value.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\0'..='\u{1f}' => {
                // Writing to a string cannot fail.
                let _ = write!(line, "\\u{:04x}", u32::from(character));
            }
            _ => line.push(character),
        }
    }
}

impl Visit for JsonFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.number(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.value(field, bounded(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.value(field, &debug_text(value));
    }
}

struct TextFields<'a> {
    writer: Writer<'a>,
    result: fmt::Result,
}

impl TextFields<'_> {
    fn entry(&mut self, field: &Field, value: &str) {
        if let Some(key) = key(field) {
            self.put(key, value);
        }
    }

    fn put(&mut self, key: &'static str, value: &str) {
        if self.result.is_ok() {
            self.result = if key == "message" {
                write!(self.writer, " {}", Plain(value))
            } else {
                write!(self.writer, " {key}={}", Plain(value))
            };
        }
    }
}

impl FieldSink for TextFields<'_> {
    fn text(&mut self, name: &'static str, value: &str) {
        self.put(name, value);
    }

    fn number(&mut self, name: &'static str, value: u64) {
        self.put(name, &value.to_string());
    }

    fn millis(&mut self, name: &'static str, value: f64) {
        self.put(name, &format!("{value:?}"));
    }
}

impl Visit for TextFields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.entry(field, bounded(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.entry(field, &debug_text(value));
    }
}

/// A value as it is, unless it could end the line or control a terminal.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.chars().all(|character| {
            character == ' ' || character.is_alphanumeric() || character.is_ascii_graphic()
        }) {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.escape_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_value_is_one_json_string(value in any::<String>()) {
            let mut fields = JsonFields(String::new());
            fields.push_str("a", &value);
            let read: serde_json::Value = serde_json::from_str(&(fields.0 + "}")).unwrap();
            prop_assert_eq!(&read["a"], &serde_json::Value::from(value));
        }
    }

    #[test]
    fn the_time_of_a_line_is_exact_to_the_microsecond() {
        let mut time = Time::default();
        for (micros, text) in [
            (1_709_164_799_000_001, "2024-02-28T23:59:59.000001Z"),
            (1_709_164_799_999_999, "2024-02-28T23:59:59.999999Z"),
            (1_709_164_800_020_000, "2024-02-29T00:00:00.020000Z"),
            (1_709_164_799_500_000, "2024-02-28T23:59:59.500000Z"),
        ] {
            assert_eq!(time.at(micros), text);
        }
    }
}
