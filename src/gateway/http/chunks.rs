//! Chunked bodies, parsed strictly (RFC 9112 §7.1).
//!
//! The framework's reader of request bodies takes an empty size for zero, and a bare line feed for
//! the end of a line. Request smuggling needs two parsers that disagree about the end of a body.
//! The framework therefore hands over the raw bytes, and this parser decodes them. The same parser
//! finds the next request on the connection.

use bytes::{Bytes, BytesMut};

/// Far more than a real size line or trailer line.
const LINE_BYTES_MAX: usize = 4 * 1024;
const TRAILERS_BYTES_MAX: usize = 8 * 1024;
/// Up to 2^60 bytes, without overflow.
const SIZE_DIGITS_MAX: usize = 15;

/// The body violates the framing of RFC 9112.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChunk;

/// Incremental decoder of a chunked body.
#[derive(Debug, Default)]
pub struct ChunkReader {
    expected: Expected,
    line: Vec<u8>,
    trailers_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expected {
    #[default]
    Size,
    Data(u64),
    /// After a chunk's data: exactly CR LF.
    DataEnd,
    Trailers,
    Done,
}

impl ChunkReader {
    /// Returns the data among these bytes, and the bytes after the end of the body.
    pub fn push(&mut self, mut bytes: Bytes) -> Result<(Bytes, Bytes), BadChunk> {
        let mut out = BytesMut::new();
        let length = self.read(&bytes, |data| out.extend_from_slice(data))?;
        let rest = bytes.split_off(length);
        Ok((out.freeze(), rest))
    }

    /// Reads over these bytes. Returns how many of them belong to the body.
    pub fn skip(&mut self, bytes: &[u8]) -> Result<usize, BadChunk> {
        self.read(bytes, |_| {})
    }

    fn read(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, BadChunk> {
        let mut rest = bytes;
        while !rest.is_empty() && self.expected != Expected::Done {
            match self.expected {
                Expected::Data(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let (piece, after) = rest.split_at(here);
                    data(piece);
                    rest = after;
                    let left = left - here as u64;
                    self.expected =
                        if left == 0 { Expected::DataEnd } else { Expected::Data(left) };
                }
                _ => {
                    if let Some(line) = self.take_line(&mut rest)? {
                        self.expected = self.after_line(&line)?;
                    }
                }
            }
        }
        Ok(bytes.len() - rest.len())
    }

    pub fn is_done(&self) -> bool {
        self.expected == Expected::Done
    }

    /// The next whole line, without its CR LF.
    fn take_line(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, BadChunk> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        *bytes = rest;
        self.line.extend_from_slice(part);
        if self.line.len() > LINE_BYTES_MAX {
            return Err(BadChunk);
        }
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.line);
        if !line.ends_with(b"\r\n") {
            return Err(BadChunk);
        }
        line.truncate(line.len() - 2);
        let is_plain = line.iter().all(|byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f));
        if is_plain { Ok(Some(line)) } else { Err(BadChunk) }
    }

    fn after_line(&mut self, line: &[u8]) -> Result<Expected, BadChunk> {
        match self.expected {
            Expected::Size => match size(line)? {
                0 => Ok(Expected::Trailers),
                size => Ok(Expected::Data(size)),
            },
            Expected::DataEnd if line.is_empty() => Ok(Expected::Size),
            Expected::Trailers if line.is_empty() => Ok(Expected::Done),
            Expected::Trailers => {
                self.trailers_bytes += line.len();
                let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
                let is_field =
                    name.len() < line.len() && http::HeaderName::from_bytes(name).is_ok();
                if is_field && self.trailers_bytes <= TRAILERS_BYTES_MAX {
                    Ok(Expected::Trailers)
                } else {
                    Err(BadChunk)
                }
            }
            _ => Err(BadChunk),
        }
    }
}

/// Parses the size; a chunk extension is ignored.
fn size(line: &[u8]) -> Result<u64, BadChunk> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    if digits.is_empty()
        || digits.len() > SIZE_DIGITS_MAX
        || !(rest.is_empty() || rest.starts_with(b";"))
    {
        return Err(BadChunk);
    }
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or(BadChunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, piece_bytes: usize) -> Result<(String, bool), BadChunk> {
        let mut reader = ChunkReader::default();
        let mut body = Vec::new();
        for piece in text.as_bytes().chunks(piece_bytes) {
            body.extend_from_slice(&reader.push(Bytes::copy_from_slice(piece))?.0);
        }
        Ok((String::from_utf8_lossy(&body).into_owned(), reader.is_done()))
    }

    #[test]
    fn a_chunked_body_is_decoded_at_any_piece_boundary() {
        let text = "5\r\nhello\r\n6;name=\"v\"\r\n world\r\n0\r\nX-Sum: 1\r\n\r\nGET /next";
        for piece_bytes in [1, 2, 3, 7, 100] {
            assert_eq!(read(text, piece_bytes), Ok(("hello world".into(), true)), "{piece_bytes}");
        }
    }

    #[test]
    fn a_body_that_breaks_off_is_not_done() {
        assert_eq!(read("5\r\nhel", 9), Ok(("hel".into(), false)));
        assert_eq!(read("5\r\nhello\r\n0\r\n", 9), Ok(("hello".into(), false)));
    }

    #[test]
    fn ambiguous_chunk_framing_is_rejected() {
        for text in [
            "\r\nhello\r\n0\r\n\r\n",
            " \r\n\r\n",
            ";a=b\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "5;a=\0\r\nhello\r\n0\r\n\r\n",
            "5\r\nhelloX\r\n0\r\n\r\n",
            "5\r\nhello\r\n\r\n\r\n",
            "fffffffffffffffff\r\n",
            "0\r\nfoo bar\r\n\r\n",
            "0\r\nGET /smuggled HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(read(text, 3).err(), Some(BadChunk), "{text:?}");
        }
    }
}
