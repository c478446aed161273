//! Packed URL offsets of a stored body. An answer of the service has a URL every hundred bytes, and
//! the store holds a hundred thousand answers.
//!
//! Each offset is one variable-length number with seven bits a byte, low bits first. It holds the
//! distance from the previous offset and the index of the upstream prefix.

/// Enough for the three upstream prefixes: API, GraphQL, uploads.
const PREFIX_BITS: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlOffset {
    pub at: usize,
    /// The index of the prefix, below four.
    pub prefix: usize,
}

#[derive(Clone, Debug, Default)]
pub struct UrlOffsets(Box<[u8]>);

#[derive(Default)]
pub struct Builder {
    packed: Vec<u8>,
    last: usize,
}

impl UrlOffsets {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.iter().filter(|byte| **byte < 0x80).count()
    }

    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = UrlOffset> {
        let (mut packed, mut at) = (self.0.iter(), 0);
        std::iter::from_fn(move || {
            let (mut number, mut shift) = (0, 0);
            loop {
                let byte = packed.next()?;
                number |= usize::from(byte & 0x7f) << shift;
                if *byte < 0x80 {
                    break;
                }
                shift += 7;
            }
            at += number >> PREFIX_BITS;
            Some(UrlOffset { at, prefix: number & ((1 << PREFIX_BITS) - 1) })
        })
    }
}

impl Builder {
    /// Adds an offset behind all others.
    pub fn push(&mut self, offset: UrlOffset) {
        debug_assert!(
            offset.at >= self.last && offset.prefix < 1 << PREFIX_BITS,
            "offsets come in order"
        );
        let mut number = (offset.at - self.last) << PREFIX_BITS | offset.prefix;
        while number >= 0x80 {
            self.packed.push(seven_bits(number) | 0x80);
            number >>= 7;
        }
        self.packed.push(seven_bits(number));
        self.last = offset.at;
    }

    /// Shrinks to the exact size.
    pub fn finish(self) -> UrlOffsets {
        UrlOffsets(self.packed.as_slice().into())
    }
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
        assert!(UrlOffsets::default().is_empty() && UrlOffsets::default().iter().next().is_none());
    }
}
