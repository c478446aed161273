//! Parts of a body: the range that a request names, the range that an answer has, and the piece of
//! one within the other (RFC 9110 §14, RFC 9111 §3.3). One byte range at a time.

use std::ops::Range;

/// A range that a request names. For several ranges, and for an invalid one, the whole body is
/// sent, as RFC 9110 §14.2 allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// From the first position to the last one; without an end, the last is the largest number.
    Between(u64, u64),
    /// The last bytes, this many.
    Suffix(u64),
}

impl ByteRange {
    /// Parses a `Range`; `None` unless it is one valid byte range.
    pub fn parse(line: &str) -> Option<Self> {
        let (unit, set) = line.split_once('=')?;
        let (first, last) =
            set.trim().split_once('-').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
        if first.is_empty() {
            return number(last).map(Self::Suffix);
        }
        let first = number(first)?;
        let last = if last.is_empty() { u64::MAX } else { number(last)? };
        (first <= last).then_some(Self::Between(first, last))
    }
}

/// The range of a partial answer: `Content-Range: bytes 4-9/10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    first: u64,
    last: u64,
    /// The length of the whole body, if it is known.
    total: Option<u64>,
}

/// A piece of a partial answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its place in the body of the partial answer.
    pub bytes: Range<u64>,
    /// Its position in the whole body.
    pub first: u64,
}

impl ContentRange {
    pub fn parse(line: &str) -> Option<Self> {
        let (unit, rest) = line.trim().split_once(' ')?;
        let (range, total) = rest.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        let total = if total == "*" { None } else { Some(number(total)?) };
        let is_valid = unit.eq_ignore_ascii_case("bytes")
            && first <= last
            && total.is_none_or(|total| last < total);
        is_valid.then_some(Self { first, last, total })
    }

    /// Returns the requested piece of a partial answer with this many bytes; `None` if it has not
    /// all of it. A suffix is taken from the end.
    pub fn piece(self, body_bytes: u64, requested: ByteRange) -> Option<Piece> {
        let reaches_end = self.total.is_some_and(|total| self.last.checked_add(1) == Some(total));
        match requested {
            ByteRange::Between(first, last) => {
                let last = if reaches_end { last.min(self.last) } else { last };
                if first < self.first || last > self.last || first > last {
                    return None;
                }
                let begin = first - self.first;
                let end = (last - self.first).saturating_add(1).min(body_bytes);
                (begin < end).then_some(Piece { bytes: begin..end, first })
            }
            ByteRange::Suffix(bytes) => {
                let total = self.total.filter(|_| reaches_end)?;
                let bytes = bytes.min(total);
                let first = total - bytes;
                let begin = body_bytes.checked_sub(bytes)?;
                let is_held = bytes > 0 && first >= self.first;
                is_held.then_some(Piece { bytes: begin..body_bytes, first })
            }
        }
    }

    /// The `Content-Range` of a piece.
    pub fn of_piece(self, piece: &Piece) -> String {
        let last = piece.first + (piece.bytes.end - piece.bytes.start) - 1;
        match self.total {
            Some(total) => format!("bytes {}-{last}/{total}", piece.first),
            None => format!("bytes {}-{last}/*", piece.first),
        }
    }
}

/// A position or a count. A number beyond the range becomes the largest one.
fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(content_range: &str, body_bytes: u64, range: &str) -> Option<(Range<u64>, String)> {
        let held = ContentRange::parse(content_range).unwrap();
        let piece = held.piece(body_bytes, ByteRange::parse(range).unwrap())?;
        Some((piece.bytes.clone(), held.of_piece(&piece)))
    }

    #[test]
    fn a_part_serves_ranges_within_it() {
        for (range, bytes, named) in [
            ("bytes=5-9", 0..5, "bytes 5-9/10"),
            ("bytes=6-8", 1..4, "bytes 6-8/10"),
            ("bytes=6-", 1..5, "bytes 6-9/10"),
            ("bytes=6-99", 1..5, "bytes 6-9/10"),
            ("bytes=-1", 4..5, "bytes 9-9/10"),
            ("bytes=-5", 0..5, "bytes 5-9/10"),
        ] {
            assert_eq!(piece("bytes 5-9/10", 5, range), Some((bytes, named.to_owned())), "{range}");
        }
        let middle = Some((0..1, "bytes 2-2/*".to_owned()));
        assert_eq!(piece("bytes 2-4/*", 3, "bytes=2-2"), middle);
    }

    #[test]
    fn a_part_serves_no_range_beyond_it() {
        for range in ["bytes=4-9", "bytes=0-", "bytes=-6", "bytes=10-", "bytes=-0"] {
            assert_eq!(piece("bytes 5-9/10", 5, range), None, "{range}");
        }
        for range in ["bytes=2-", "bytes=2-5", "bytes=-1"] {
            assert_eq!(piece("bytes 2-4/*", 3, range), None, "{range}");
            assert_eq!(piece("bytes 2-4/10", 3, range), None, "{range}");
        }
        assert_eq!(piece("bytes 0-9/10", 3, "bytes=5-6"), None, "a body that broke off");
        let endless = format!("bytes 0-{}/*", u64::MAX);
        assert_eq!(piece(&endless, 3, "bytes=1-2"), Some((1..3, "bytes 1-2/*".to_owned())));
        let all = format!("bytes=0-{}", u64::MAX);
        assert_eq!(piece(&endless, 3, &all), Some((0..3, "bytes 0-2/*".to_owned())));
    }

    #[test]
    fn an_invalid_content_range_is_none() {
        for line in [
            "bytes */10",
            "bytes 4-3/10",
            "bytes 4-10/10",
            "bytes 4-9",
            "lines 4-9/10",
            "bytes -4/10",
            "bytes 4-/10",
            "bytes=4-9/10",
            "",
        ] {
            assert_eq!(ContentRange::parse(line), None, "{line}");
        }
    }

    #[test]
    fn several_or_invalid_ranges_are_none() {
        for range in [
            "bytes=0-1,3-4",
            "bytes=2-1",
            "bytes=-",
            "bytes=",
            "bytes",
            "lines=0-1",
            "bytes=a-b",
            "bytes=0x1-2",
            "bytes=+1-2",
        ] {
            assert_eq!(ByteRange::parse(range), None, "{range}");
        }
    }
}
