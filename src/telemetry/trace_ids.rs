//! The trace and the span of a request, for the log, for exemplars and for exported records.

use std::fmt;

use opentelemetry::trace::SpanContext;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIds {
    /// The trace.
    pub trace: [u8; 16],
    /// The gateway's own span in it, if it makes spans.
    pub span: Option<[u8; 8]>,
    /// True if the spans of the trace are exported.
    pub is_sampled: bool,
}

/// Bytes as hexadecimal digits, `N` in number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex<const N: usize>([u8; N]);

impl TraceIds {
    /// Reads the ids of a valid context; its span counts only if the gateway made it.
    pub(super) fn of(context: &SpanContext) -> Option<Self> {
        context.is_valid().then(|| Self {
            trace: context.trace_id().to_bytes(),
            span: (!context.is_remote()).then(|| context.span_id().to_bytes()),
            is_sampled: context.is_sampled(),
        })
    }

    /// Returns the 32 digits of the trace.
    pub fn trace_id(&self) -> Hex<32> {
        Hex::of(&self.trace)
    }

    /// Returns the 16 digits of the span.
    pub fn span_id(&self) -> Option<Hex<16>> {
        self.span.as_ref().map(|span| Hex::of(span))
    }
}

impl<const N: usize> Hex<N> {
    fn of(bytes: &[u8]) -> Self {
        let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        let mut digits = [b'0'; N];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        Self(digits)
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_lower_case_digits() {
        let mut trace = [0; 16];
        trace[0] = 0x0a;
        trace[15] = 0xff;
        let ids = TraceIds { trace, span: Some([1; 8]), is_sampled: true };
        assert_eq!(ids.trace_id().as_str(), "0a0000000000000000000000000000ff");
        assert_eq!(ids.span_id().unwrap().to_string(), "0101010101010101");
    }
}
