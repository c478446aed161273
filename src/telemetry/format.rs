//! One event, one line: how a log record is written, as JSON or as text.
//!
//! Whatever a field holds, it cannot end the line early or start another: JSON escapes it, and text
//! mode writes what is not plain the way JSON would. Keys are flat: `time`, `level`, `target`, then
//! `message` and the event's own. Left out: spans, which are not logged.

use std::cell::RefCell;
use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use super::init::LogFormat;
use crate::clock::{Timestamp, machine_micros};

/// The longest value of a field; a dependency that logs a whole document is cut short.
const VALUE_BYTES_MAX: usize = 4096;

/// The longest number, a float with all its digits; and `false`.
const NUMBER_BYTES_MAX: usize = 32;

/// Room for the line of a request.
const LINE_BYTES_USUAL: usize = 768;

/// The target of every record that comes by way of the `log` crate; the real one is in its field
/// `log.target`.
const BRIDGED: &str = "log";

thread_local! {
    static TIME: RefCell<Time> = RefCell::default();
}

/// The time of a line: RFC 3339 in UTC, to the microsecond. Its second is kept, which most lines
/// share with the one before.
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

/// The bytes of `2026-11-22T05:00:00`.
const SECOND_BYTES: usize = 19;

/// Writes events in a [`LogFormat`].
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
        TIME.with_borrow_mut(|time| {
            let time = time.at(machine_micros());
            match self.0 {
                LogFormat::Json => write_json(&mut writer, time, event),
                LogFormat::Text => write_text(&mut writer, time, event),
            }
        })?;
        writer.write_char('\n')
    }
}

fn write_json(writer: &mut Writer<'_>, time: &str, event: &Event<'_>) -> fmt::Result {
    let mut fields = JsonFields(String::with_capacity(LINE_BYTES_USUAL));
    fields.push_str("time", time);
    fields.push_str("level", event.metadata().level().as_str());
    if event.metadata().target() != BRIDGED {
        fields.push_str("target", event.metadata().target());
    }
    event.record(&mut fields);
    let JsonFields(mut line) = fields;
    line.push('}');
    writer.write_str(&line)
}

fn write_text(writer: &mut Writer<'_>, time: &str, event: &Event<'_>) -> fmt::Result {
    write!(writer, "{time} {:5}", event.metadata().level().as_str())?;
    if event.metadata().target() != BRIDGED {
        write!(writer, " {}", event.metadata().target())?;
    }
    let mut fields = TextFields { writer: writer.by_ref(), result: Ok(()) };
    event.record(&mut fields);
    fields.result
}

/// The key of a field in the line; `None` for those that say where in a dependency's source a
/// record was made. An event's own field with a name that every line has gets an underscore.
fn key(field: &Field) -> Option<&'static str> {
    match field.name() {
        "log.target" => Some("target"),
        "time" => Some("time_"),
        "level" => Some("level_"),
        "target" => Some("target_"),
        name if name.starts_with("log.") => None,
        name => Some(name),
    }
}

fn bounded(value: &str) -> &str {
    &value[..value.floor_char_boundary(VALUE_BYTES_MAX)]
}

/// The text of a value that has only a `Debug` form; no more of it is made than is kept.
fn debug_text(value: &dyn Debug) -> String {
    struct Bounded(String);
    impl Write for Bounded {
        fn write_str(&mut self, piece: &str) -> fmt::Result {
            let room = VALUE_BYTES_MAX - self.0.len();
            self.0.push_str(&piece[..piece.floor_char_boundary(room)]);
            if piece.len() > room { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut text = Bounded(String::new());
    // An error here means that the value was longer than what is kept.
    let _ = write!(text, "{value:?}");
    text.0
}

/// An object that is being written.
struct JsonFields(String);

impl JsonFields {
    /// `name` is a field's: an identifier, in which nothing needs escaping.
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

    fn number(&mut self, field: &Field, value: &(impl serde::Serialize + ?Sized)) {
        if let Some(name) = key(field) {
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
    }

    fn text(&mut self, field: &Field, value: &str) {
        if let Some(name) = key(field) {
            self.push_str(name, value);
        }
    }
}

/// The inside of a JSON string (RFC 8259 §7). Nearly every value is plain, and is copied in one
/// piece.
fn push_escaped(line: &mut String, value: &str) {
    // All bytes, without stopping at the first that is not plain: several at once are compared so.
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
                // A string takes whatever is written to it.
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
        self.text(field, bounded(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, &debug_text(value));
    }
}

struct TextFields<'a> {
    writer: Writer<'a>,
    result: fmt::Result,
}

impl TextFields<'_> {
    fn entry(&mut self, field: &Field, value: &str) {
        let Some(key) = key(field) else { return };
        if self.result.is_ok() {
            self.result = if key == "message" {
                write!(self.writer, " {}", Plain(value))
            } else {
                write!(self.writer, " {key}={}", Plain(value))
            };
        }
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

/// A value as it is, unless it holds something that could be taken for the end of the line or that
/// a terminal would obey.
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
