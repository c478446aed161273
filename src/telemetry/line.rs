//! One event, one line: how a log record is written, as JSON or as text.
//!
//! Whatever a field holds, it cannot end the line early or start another: JSON escapes it, and text mode writes what is not plain the
//! way JSON would. Keys are flat: `time`, `level`, `target`, then `message` and the event's own. Left out: spans, which are not logged.

use std::fmt::{self, Debug, Write};

use serde::ser::{SerializeMap, Serializer};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

use super::init::LogFormat;

/// The longest value of a field; a dependency that logs a whole document is cut short.
const VALUE_BYTES_MAX: usize = 4096;

/// The target of every record that comes by way of the `log` crate; the real one is in its field `log.target`.
const BRIDGED: &str = "log";

/// Writes events in a [`LogFormat`].
pub(super) struct Line(pub(super) LogFormat);

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::with_capacity(32);
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        match self.0 {
            LogFormat::Json => write_json(&mut writer, &time, event)?,
            LogFormat::Text => write_text(&mut writer, &time, event)?,
        }
        writer.write_char('\n')
    }
}

fn write_json(writer: &mut Writer<'_>, time: &str, event: &Event<'_>) -> fmt::Result {
    let mut line = Vec::with_capacity(768);
    let mut serializer = serde_json::Serializer::new(&mut line);
    json_map(&mut serializer, time, event).map_err(|_| fmt::Error)?;
    writer.write_str(std::str::from_utf8(&line).map_err(|_| fmt::Error)?)
}

fn json_map<S: Serializer>(serializer: S, time: &str, event: &Event<'_>) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("time", time)?;
    map.serialize_entry("level", event.metadata().level().as_str())?;
    if event.metadata().target() != BRIDGED {
        map.serialize_entry("target", event.metadata().target())?;
    }
    let mut fields = JsonFields { map, result: Ok(()) };
    event.record(&mut fields);
    fields.result?;
    fields.map.end()
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

/// The key of a field in the line; `None` for those that say where in a dependency's source a record was made. An event's own field
/// with a name that every line has gets an underscore.
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

struct JsonFields<M: SerializeMap> {
    map: M,
    result: Result<(), M::Error>,
}

impl<M: SerializeMap> JsonFields<M> {
    fn entry(&mut self, field: &Field, value: &(impl serde::Serialize + ?Sized)) {
        if let (true, Some(key)) = (self.result.is_ok(), key(field)) {
            self.result = self.map.serialize_entry(key, value);
        }
    }
}

impl<M: SerializeMap> Visit for JsonFields<M> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.entry(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.entry(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.entry(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.entry(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.entry(field, bounded(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.entry(field, &debug_text(value));
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
            self.result =
                if key == "message" { write!(self.writer, " {}", Plain(value)) } else { write!(self.writer, " {key}={}", Plain(value)) };
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

/// A value as it is, unless it holds something that could be taken for the end of the line or that a terminal would obey.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.chars().all(|character| character == ' ' || character.is_alphanumeric() || character.is_ascii_graphic()) {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.escape_default())
    }
}
