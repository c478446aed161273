//! Log records that wait for their export.
//!
//! A record is written at once in the form of its message (Protocol Buffers), into memory that is
//! used again, so that it costs about as much as a line of the log: a copy, and no allocation once
//! the memory is there. Left out: the choice of the events (`init`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use parking_lot::Mutex;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::batches::{Batch, Queue};
use super::{SCOPE, Signal, counts};
use crate::clock::machine_micros;
use crate::telemetry::format::{BRIDGED, bounded, debug_text, key};
use crate::telemetry::log::{FieldSink, RequestLine, with_line};

/// Bytes of an export; collectors take 4 MiB by default.
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// Exports that wait: some ten thousand records.
const BATCHES_MAX: usize = 8;

/// Numbers of the fields in the messages of OTLP (`logs.proto`, `common.proto`).
mod number {
    pub const RESOURCE_LOGS: u32 = 1;
    pub const RESOURCE: u32 = 1;
    pub const SCOPE_LOGS: u32 = 2;
    pub const SCOPE: u32 = 1;
    pub const LOG_RECORDS: u32 = 2;
    pub const TIME: u32 = 1;
    pub const SEVERITY: u32 = 2;
    pub const SEVERITY_TEXT: u32 = 3;
    pub const BODY: u32 = 5;
    pub const ATTRIBUTES: u32 = 6;
    pub const TRACE_ID: u32 = 9;
    pub const SPAN_ID: u32 = 10;
    pub const OBSERVED_TIME: u32 = 11;
    pub const KEY: u32 = 1;
    pub const VALUE: u32 = 2;
    pub const STRING: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const INT: u32 = 3;
    pub const DOUBLE: u32 = 4;
}

/// The name and the version of the instrumentation.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: SCOPE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct LogQueue {
    waiting: Mutex<VecDeque<Records>>,
    filled: Notify,
    /// The resource as a field of its message.
    resource: Vec<u8>,
    /// The scope as a field of its message.
    scope: Vec<u8>,
}

/// Records of one export, each as a field of their message.
#[derive(Debug, Default)]
struct Records {
    bytes: Vec<u8>,
    count: u64,
}

impl LogQueue {
    pub fn new(resource: &Resource) -> Self {
        let (mut resource_field, mut scope_field) = (Vec::new(), Vec::new());
        push_bytes(&mut resource_field, number::RESOURCE, &resource.encode_to_vec());
        push_bytes(&mut scope_field, number::SCOPE, &scope().encode_to_vec());
        Self {
            waiting: Mutex::default(),
            filled: Notify::new(),
            resource: resource_field,
            scope: scope_field,
        }
    }

    /// Adds a record.
    fn push(&self, record: &[u8]) {
        let mut waiting = self.waiting.lock();
        let fits = |last: &Records| last.bytes.len() + record.len() <= BATCH_BYTES_MAX;
        let mut is_filled = false;
        if !waiting.back().is_some_and(fits) {
            if waiting.len() >= BATCHES_MAX {
                drop(waiting);
                counts::drop_records(Signal::Logs, 1);
                return;
            }
            is_filled = !waiting.is_empty();
            waiting.push_back(Records::default());
        }
        if let Some(last) = waiting.back_mut() {
            push_bytes(&mut last.bytes, number::LOG_RECORDS, record);
            last.count += 1;
        }
        drop(waiting);
        if is_filled {
            self.filled.notify_one();
        }
    }
}

impl Queue for LogQueue {
    fn take(&self) -> Option<Batch> {
        let Records { bytes, count } = self.waiting.lock().pop_front()?;
        let logs = self.scope.len() + bytes.len();
        let in_resource = self.resource.len() + field_len(number::SCOPE_LOGS, logs);
        let mut message = Vec::with_capacity(field_len(number::RESOURCE_LOGS, in_resource));
        push_head(&mut message, number::RESOURCE_LOGS, in_resource);
        message.extend_from_slice(&self.resource);
        push_head(&mut message, number::SCOPE_LOGS, logs);
        message.extend_from_slice(&self.scope);
        message.extend_from_slice(&bytes);
        Some(Batch { message: Bytes::from(message), records: count })
    }

    fn is_filled(&self) -> &Notify {
        &self.filled
    }
}

/// Takes events as log records.
pub(crate) struct LogRecords(pub(super) Arc<LogQueue>);

thread_local! {
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<S: Subscriber> Layer<S> for LogRecords {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Taken out, because a field's `Debug` form might log.
        let mut record = RECORD.take();
        record.clear();
        with_line(event.metadata(), |line| write_record(&mut record, event, line));
        self.0.push(&record);
        RECORD.set(record);
    }
}

fn write_record(record: &mut Vec<u8>, event: &Event<'_>, request: Option<&RequestLine>) {
    let metadata = event.metadata();
    let nanos = request.map_or_else(machine_micros, |line| line.micros).saturating_mul(1_000);
    push_fixed(record, number::TIME, nanos);
    push_fixed(record, number::OBSERVED_TIME, nanos);
    encode_key(number::SEVERITY, WireType::Varint, record);
    encode_varint(severity(*metadata.level()), record);
    push_bytes(record, number::SEVERITY_TEXT, metadata.level().as_str().as_bytes());
    let mut fields = Fields(record);
    if metadata.target() != BRIDGED {
        fields.put("target", metadata.target());
    }
    match request {
        Some(request) => request.pass_to(&mut fields),
        None => event.record(&mut fields),
    }
}

/// The numbers of the levels (OpenTelemetry, "Log Data Model", Severity Fields).
fn severity(level: Level) -> u64 {
    match level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    }
}

/// Writes the fields of an event.
struct Fields<'a>(&'a mut Vec<u8>);

impl Fields<'_> {
    fn put(&mut self, name: &str, value: &str) {
        match name {
            "message" => {
                push_head(self.0, number::BODY, field_len(number::STRING, value.len()));
                push_bytes(self.0, number::STRING, value.as_bytes());
            }
            "trace_id" => push_digits(self.0, number::TRACE_ID, value),
            "span_id" => push_digits(self.0, number::SPAN_ID, value),
            _ => {
                self.attribute(name, field_len(number::STRING, value.len()));
                push_bytes(self.0, number::STRING, value.as_bytes());
            }
        }
    }

    /// Begins an attribute whose value follows in `bytes`.
    fn attribute(&mut self, name: &str, bytes: usize) {
        let length = field_len(number::KEY, name.len()) + field_len(number::VALUE, bytes);
        push_head(self.0, number::ATTRIBUTES, length);
        push_bytes(self.0, number::KEY, name.as_bytes());
        push_head(self.0, number::VALUE, bytes);
    }

    fn integer(&mut self, name: &str, of_value: u32, value: u64) {
        self.attribute(name, key_len(of_value) + encoded_len_varint(value));
        encode_key(of_value, WireType::Varint, self.0);
        encode_varint(value, self.0);
    }

    fn double(&mut self, name: &str, value: f64) {
        self.attribute(name, key_len(number::DOUBLE) + size_of::<u64>());
        push_fixed(self.0, number::DOUBLE, value.to_bits());
    }

    fn varint(&mut self, field: &Field, of_value: u32, value: u64) {
        if let Some(name) = key(field) {
            self.integer(name, of_value, value);
        }
    }
}

impl FieldSink for Fields<'_> {
    fn text(&mut self, name: &'static str, value: &str) {
        self.put(name, value);
    }

    fn number(&mut self, name: &'static str, value: u64) {
        self.integer(name, number::INT, value.min(i64::MAX.cast_unsigned()));
    }

    fn millis(&mut self, name: &'static str, value: f64) {
        self.double(name, value);
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        if let Some(name) = key(field) {
            self.double(name, value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.varint(field, number::INT, value.cast_unsigned());
    }

    /// The largest integer of OTLP stands for larger ones.
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.varint(field, number::INT, value.min(i64::MAX.cast_unsigned()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.varint(field, number::BOOL, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(name) = key(field) {
            self.put(name, bounded(value));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if let Some(name) = key(field) {
            self.put(name, &debug_text(value));
        }
    }
}

/// Length of a field with this many bytes of content.
fn field_len(field: u32, content: usize) -> usize {
    key_len(field) + encoded_len_varint(content as u64) + content
}

/// Begins a field whose content follows.
fn push_head(to: &mut Vec<u8>, field: u32, content: usize) {
    encode_key(field, WireType::LengthDelimited, to);
    encode_varint(content as u64, to);
}

fn push_bytes(to: &mut Vec<u8>, field: u32, content: &[u8]) {
    push_head(to, field, content.len());
    to.extend_from_slice(content);
}

fn push_fixed(to: &mut Vec<u8>, field: u32, value: u64) {
    encode_key(field, WireType::SixtyFourBit, to);
    to.extend_from_slice(&value.to_le_bytes());
}

/// Writes hexadecimal digits as bytes.
fn push_digits(to: &mut Vec<u8>, field: u32, digits: &str) {
    push_head(to, field, digits.len() / 2);
    let value =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = digits.as_bytes().chunks_exact(2);
    to.extend(pairs.map(|pair| {
        let [high, low] = [pair[0], pair[1]].map(|digit| value(digit).unwrap_or_default());
        high << 4 | low
    }));
}
