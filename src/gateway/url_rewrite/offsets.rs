//! Packed URL offsets of a stored body. An answer of the service has a URL every hundred bytes, and
//! the store holds a hundred thousand answers.
//!
//! Each offset is one variable-length number with seven bits a byte, low bits first. It holds the
//! distance from the previous offset and the index of the upstream prefix. The number of offsets of
//! each prefix comes first, so that the length of a rendered body costs no walk.

use std::sync::Arc;

/// Enough for the three upstream prefixes: API, GraphQL, uploads.
const PREFIX_BITS: u32 = 2;
const PREFIXES: usize = 1 << PREFIX_BITS;
/// The reference counts of a shared allocation.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlOffset {
    pub at: usize,
    /// The index of the prefix, below four.
    pub prefix: usize,
}

/// Shared by all readers of a body; `None` if it has no URL.
#[derive(Clone, Debug, Default)]
pub struct UrlOffsets(Option<Arc<[u8]>>);

/// A position in the offsets of a body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    packed: usize,
    at: usize,
}

#[derive(Default)]
pub struct Builder {
    packed: Vec<u8>,
    counts: [usize; PREFIXES],
    last: usize,
}

impl UrlOffsets {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.counts().0.iter().sum()
    }

    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |packed| packed.len() + COUNTS_BYTES)
    }

    /// The number of offsets of each prefix, and the position of the first offset.
    pub fn counts(&self) -> ([usize; PREFIXES], Cursor) {
        let (mut counts, mut cursor) = ([0; PREFIXES], Cursor::default());
        for count in &mut counts {
            *count = self.number(&mut cursor).unwrap_or(0);
        }
        (counts, cursor)
    }

    /// Returns the offset at `cursor` and moves on.
    pub fn next(&self, cursor: &mut Cursor) -> Option<UrlOffset> {
        let number = self.number(cursor)?;
        cursor.at += number >> PREFIX_BITS;
        Some(UrlOffset { at: cursor.at, prefix: number & (PREFIXES - 1) })
    }

    pub fn iter(&self) -> impl Iterator<Item = UrlOffset> {
        let (_, mut cursor) = self.counts();
        std::iter::from_fn(move || self.next(&mut cursor))
    }

    fn number(&self, cursor: &mut Cursor) -> Option<usize> {
        let mut rest = self.0.as_ref()?.get(cursor.packed..)?.iter();
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = rest.next()?;
            cursor.packed += 1;
            number |= usize::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }
}

impl Builder {
    /// Adds an offset behind all others.
    pub fn push(&mut self, offset: UrlOffset) {
        debug_assert!(offset.at >= self.last && offset.prefix < PREFIXES, "offsets come in order");
        push_number(&mut self.packed, (offset.at - self.last) << PREFIX_BITS | offset.prefix);
        self.counts[offset.prefix] += 1;
        self.last = offset.at;
    }

    /// Shrinks to the exact size.
    pub fn finish(self) -> UrlOffsets {
        if self.packed.is_empty() {
            return UrlOffsets::default();
        }
        let mut packed = Vec::with_capacity(self.packed.len() + PREFIXES);
        for count in self.counts {
            push_number(&mut packed, count);
        }
        packed.extend_from_slice(&self.packed);
        UrlOffsets(Some(packed.into()))
    }
}

fn push_number(packed: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        packed.push(seven_bits(number) | 0x80);
        number >>= 7;
    }
    packed.push(seven_bits(number));
}

fn seven_bits(number: usize) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_offsets_are_read_back_unchanged() {
        let pairs = [
            (0, 0),
            (1, 3),
            (1, 2),
            (32, 1),
            (160, 0),
            (8_000, 2),
            (8 * 1024 * 1024, 1),
            (1 << 40, 3),
        ];
        let offsets = pairs.map(|(at, prefix)| UrlOffset { at, prefix });
        let mut builder = Builder::default();
        for offset in &offsets {
            builder.push(*offset);
        }
        let packed = builder.finish();
        assert_eq!(packed.iter().collect::<Vec<_>>(), offsets);
        assert_eq!(packed.count(), offsets.len());
        assert_eq!(packed.counts().0, [2, 2, 2, 2]);
        assert!(UrlOffsets::default().is_empty() && UrlOffsets::default().iter().next().is_none());
    }
}
