//! Counters and gauges. A clone counts into the same cell.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Kind, Measured, Value};

/// A sum that only grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// Adds `count`.
    pub fn inc_by(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the sum.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Measured for Counter {
    const KIND: Kind = Kind::Counter;

    fn value(&self) -> Value {
        Value::Whole(self.get())
    }
}

/// A present value.
#[derive(Clone, Debug)]
pub(crate) struct Gauge<N = u64>(Arc<AtomicU64>, PhantomData<N>);

impl<N> Default for Gauge<N> {
    fn default() -> Self {
        Self(Arc::default(), PhantomData)
    }
}

/// A number in a gauge, kept as its 64 bits.
pub(crate) trait Number: Copy + Send + Sync + 'static {
    fn bits(self) -> u64;
    fn value(bits: u64) -> Value;
}

impl Number for u64 {
    fn bits(self) -> u64 {
        self
    }

    fn value(bits: u64) -> Value {
        Value::Whole(bits)
    }
}

impl Number for i64 {
    fn bits(self) -> u64 {
        self.cast_unsigned()
    }

    fn value(bits: u64) -> Value {
        Value::Signed(bits.cast_signed())
    }
}

impl Number for f64 {
    fn bits(self) -> u64 {
        self.to_bits()
    }

    fn value(bits: u64) -> Value {
        Value::Float(f64::from_bits(bits))
    }
}

impl<N: Number> Gauge<N> {
    /// Replaces the value.
    pub fn set(&self, value: N) {
        self.0.store(value.bits(), Ordering::Relaxed);
    }
}

impl<N: Number> Measured for Gauge<N> {
    const KIND: Kind = Kind::Gauge;

    fn value(&self) -> Value {
        N::value(self.0.load(Ordering::Relaxed))
    }
}
