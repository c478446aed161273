//! Decodes answers of an upstream that compresses although `identity` is requested (RFC 9110 §8.4).
//! Without it, such a body could neither be rewritten nor be served to clients that lack the
//! coding.
//!
//! The memory is bounded: a piece of output, and the window of the coding, which is at most 16 MiB
//! for Brotli (RFC 7932 §9.1), 8 MiB for Zstandard (RFC 9659) and 32 KiB for the others. Left out:
//! several codings on top of each other, which no upstream is known to use.

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use http::header::{self, HeaderMap, HeaderValue};
use zstd::stream::raw::{DParameter, Decoder as Zstd, Operation};

use crate::decision::cache::freshness::Mode;
use crate::gateway::http::headers::{list_items, remove_digests};

/// The longest piece that a decoder returns: as long as one read of a body.
const PIECE_BYTES: usize = 64 * 1024;
/// The largest window of Zstandard, as a power of two (RFC 9659 §3).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// The largest window of DEFLATE, as a power of two (RFC 1951 §2).
const DEFLATE_WINDOW_BITS: u8 = 15;
/// The part of an unknown coding's name that an error quotes.
const NAME_CHARS_MAX: usize = 32;

/// The reason why a body cannot be decoded, for log and client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Undecodable(String);

/// Decodes one body.
pub struct Decoder {
    coding: Coding,
    /// Begins with the first byte, because an empty body has no coding.
    state: Option<State>,
    input: Bytes,
    has_all_input: bool,
    /// The coded content has ended. The body may go on with another gzip member or zstd frame.
    is_at_end: bool,
    output: Box<[u8]>,
}

pub enum Decoded {
    Piece(Bytes),
    NeedsInput,
    End,
}

enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
    /// With the reason why it is none that can be decoded.
    Unknown(String),
}

enum State {
    Inflate(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(Zstd<'static>),
}

struct Step {
    read: usize,
    written: usize,
    is_at_end: bool,
}

impl Decoder {
    /// Returns the decoder of an answer's body, and removes from its headers what describes the
    /// coded form. `None` if the body is not encoded. A plain HTTP cache passes unknown codings on.
    pub fn of(headers: &mut HeaderMap, mode: Mode) -> Option<Self> {
        if !headers.contains_key(header::CONTENT_ENCODING) {
            return None;
        }
        let coding = coding_of(headers);
        if matches!(coding, Some(Coding::Unknown(_))) && mode == Mode::Rfc9111 {
            return None;
        }
        headers.remove(header::CONTENT_ENCODING);
        let coding = coding?;
        headers.remove(header::CONTENT_LENGTH);
        remove_digests(headers);
        // A strong validator is of the coded bytes (RFC 9110 §8.8.1).
        if let Some(etag) = headers.get_mut(header::ETAG) {
            *etag = weak(etag);
        }
        Some(Self {
            coding,
            state: None,
            input: Bytes::new(),
            has_all_input: false,
            is_at_end: false,
            output: Box::default(),
        })
    }

    /// Adds the next piece of the encoded body, or its end, once [`Self::pull`] needs it.
    pub fn push(&mut self, piece: Option<Bytes>) {
        self.has_all_input = piece.is_none();
        self.input = piece.unwrap_or_default();
    }

    /// Returns the next piece of the decoded body.
    pub fn pull(&mut self) -> Result<Decoded, Undecodable> {
        loop {
            if self.input.is_empty() && (self.is_at_end || self.state.is_none()) {
                return Ok(if self.has_all_input { Decoded::End } else { Decoded::NeedsInput });
            }
            if self.is_at_end && matches!(self.coding, Coding::Deflate | Coding::Brotli) {
                return Err(self.broken("has bytes after its end"));
            }
            if self.is_at_end || self.state.is_none() {
                self.state = Some(self.coding.begin(&self.input)?);
                self.output = vec![0; PIECE_BYTES].into();
            }
            let Some(state) = &mut self.state else { return Ok(Decoded::NeedsInput) };
            let Some(step) = state.step(&self.input, &mut self.output) else {
                return Err(self.broken("is not well-formed"));
            };
            self.input.advance(step.read);
            self.is_at_end = step.is_at_end;
            if step.written > 0 {
                let piece = self.output.get(..step.written).unwrap_or_default();
                return Ok(Decoded::Piece(Bytes::copy_from_slice(piece)));
            }
            if self.is_at_end || step.read > 0 && !self.input.is_empty() {
                continue;
            }
            return match (self.input.is_empty(), self.has_all_input) {
                (true, false) => Ok(Decoded::NeedsInput),
                (true, true) => Err(self.broken("ends early")),
                (false, _) => Err(self.broken("is not well-formed")),
            };
        }
    }

    fn broken(&self, what: &str) -> Undecodable {
        Undecodable(format!("its content, encoded with {}, {what}", self.coding.name()))
    }
}

/// The coding of an answer; `None` for `identity` (RFC 9110 §8.4.1).
fn coding_of(headers: &HeaderMap) -> Option<Coding> {
    if headers.get_all(header::CONTENT_ENCODING).iter().any(|line| line.to_str().is_err()) {
        return Some(Coding::Unknown("its content coding is no text".into()));
    }
    let mut codings = list_items(headers, header::CONTENT_ENCODING)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"));
    let coding = codings.next()?;
    if codings.next().is_some() {
        return Some(Coding::Unknown("it has several content codings".into()));
    }
    Some(match coding.to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => Coding::Gzip,
        "deflate" => Coding::Deflate,
        "br" => Coding::Brotli,
        "zstd" => Coding::Zstd,
        other => {
            let name: String = other.chars().take(NAME_CHARS_MAX).collect();
            Coding::Unknown(format!("its content coding `{name}` is not known"))
        }
    })
}

impl Coding {
    fn begin(&self, input: &[u8]) -> Result<State, Undecodable> {
        Ok(match self {
            Self::Gzip => State::Inflate(Decompress::new_gzip(DEFLATE_WINDOW_BITS)),
            // Some servers leave out the zlib header (RFC 9110 §8.4.1.2), which ends in an 8. As a
            // raw block that would be a stored one with padding, which no encoder makes.
            Self::Deflate => {
                let has_header = input.first().is_some_and(|first| first & 0xf == 8);
                State::Inflate(Decompress::new(has_header))
            }
            // Strict: without the large windows that are not part of the content coding.
            Self::Brotli => {
                let alloc = StandardAlloc::default;
                State::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())))
            }
            Self::Zstd => {
                let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX);
                let begun = Zstd::new()
                    .and_then(|mut decoder| decoder.set_parameter(window).map(|()| decoder));
                State::Zstd(begun.map_err(|error| Undecodable(error.to_string()))?)
            }
            Self::Unknown(reason) => return Err(Undecodable(reason.clone())),
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Unknown(_) => "an unknown coding",
        }
    }
}

impl State {
    /// Decodes as much as the output takes; `None` if the input is broken.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Option<Step> {
        match self {
            Self::Inflate(inflate) => {
                let before = (inflate.total_in(), inflate.total_out());
                let status = inflate.decompress(input, output, FlushDecompress::None).ok()?;
                Some(Step {
                    read: usize::try_from(inflate.total_in() - before.0).ok()?,
                    written: usize::try_from(inflate.total_out() - before.1).ok()?,
                    is_at_end: status == Status::StreamEnd,
                })
            }
            Self::Brotli(state) => {
                let (mut left, mut read) = (input.len(), 0);
                let (mut room, mut written, mut total) = (output.len(), 0, 0);
                let result = BrotliDecompressStream(
                    &mut left,
                    &mut read,
                    input,
                    &mut room,
                    &mut written,
                    output,
                    &mut total,
                    state,
                );
                let is_at_end = match result {
                    BrotliResult::ResultSuccess => true,
                    BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => false,
                    BrotliResult::ResultFailure => return None,
                };
                Some(Step { read, written, is_at_end })
            }
            Self::Zstd(zstd) => {
                let done = zstd.run_on_buffers(input, output).ok()?;
                let (read, written) = (done.bytes_read, done.bytes_written);
                Some(Step { read, written, is_at_end: done.remaining == 0 })
            }
        }
    }
}

/// The weak form of an `ETag`.
pub fn weak(etag: &HeaderValue) -> HeaderValue {
    if etag.as_bytes().starts_with(b"W/") {
        return etag.clone();
    }
    // The original was a valid header value.
    HeaderValue::from_bytes(&[b"W/", etag.as_bytes()].concat()).unwrap_or_else(|_| etag.clone())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    fn encoded(coding: &str, text: &[u8]) -> Vec<u8> {
        let level = Compression::default();
        match coding {
            "gzip" => {
                let mut encoder = GzEncoder::new(Vec::new(), level);
                encoder.write_all(text).and_then(|()| encoder.finish()).unwrap()
            }
            "deflate" => {
                let mut encoder = ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(text).and_then(|()| encoder.finish()).unwrap()
            }
            "raw deflate" => {
                let mut encoder = DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(text).and_then(|()| encoder.finish()).unwrap()
            }
            "br" => {
                let mut bytes = Vec::new();
                let (params, mut text) = (brotli::enc::BrotliEncoderParams::default(), text);
                brotli::BrotliCompress(&mut text, &mut bytes, &params).unwrap();
                bytes
            }
            _ => zstd::encode_all(text, 3).unwrap(),
        }
    }

    const CODINGS: [&str; 5] = ["gzip", "deflate", "raw deflate", "br", "zstd"];

    fn headers(coding: &str) -> HeaderMap {
        let coding = coding.strip_prefix("raw ").unwrap_or(coding);
        HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap())])
    }

    /// Decodes a body that comes in pieces of this length.
    fn decoded(coding: &str, body: &[u8], piece_bytes: usize) -> Result<Vec<u8>, Undecodable> {
        let mut decoder = Decoder::of(&mut headers(coding), Mode::Revalidate).expect("a coding");
        let mut pieces = body.chunks(piece_bytes);
        let mut text = Vec::new();
        loop {
            match decoder.pull()? {
                Decoded::Piece(piece) => {
                    assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES);
                    text.extend_from_slice(&piece);
                }
                Decoded::NeedsInput => decoder.push(pieces.next().map(Bytes::copy_from_slice)),
                Decoded::End => return Ok(text),
            }
        }
    }

    #[test]
    fn a_body_without_bytes_has_no_coding() {
        for coding in ["gzip", "br", "x-unknown", "gzip, br"] {
            assert_eq!(decoded(coding, b"", 1), Ok(Vec::new()), "{coding}");
        }
    }

    #[test]
    fn members_and_frames_follow_each_other() {
        for coding in ["gzip", "zstd"] {
            let body = [encoded(coding, b"one, "), encoded(coding, b"two")].concat();
            assert_eq!(decoded(coding, &body, 7).as_deref(), Ok(&b"one, two"[..]), "{coding}");
        }
    }

    #[test]
    fn a_bomb_is_decoded_in_small_pieces() {
        let zeros = vec![0; 8 << 20];
        for coding in CODINGS {
            let body = encoded(coding, &zeros);
            assert!(body.len() < 64 * 1024);
            assert_eq!(decoded(coding, &body, usize::MAX).map(|text| text.len()), Ok(zeros.len()));
        }
    }

    #[test]
    fn a_broken_body_is_an_error_with_its_reason() {
        for coding in CODINGS {
            let whole = encoded(coding, b"a text that is long enough to be cut in two halves");
            let half = decoded(coding, &whole[..whole.len() / 2], 9).unwrap_err().to_string();
            assert!(half.contains("ends early"), "{coding}: {half}");
            let longer = [&whole[..], b"and more"].concat();
            assert!(decoded(coding, &longer, 9).is_err(), "{coding}");
            // The first byte of DEFLATE decides on its form.
            let other = decoded(coding, b"\xff\xff{\"json\": \"in fact\"}", 9).unwrap_err();
            assert!(other.to_string().contains("not well-formed"), "{coding}: {other}");
        }
        let unknown = decoded("x-unknown", b"x", 1).unwrap_err().to_string();
        assert_eq!(unknown, "its content coding `x-unknown` is not known");
        assert!(decoded("gzip, br", b"x", 1).unwrap_err().to_string().contains("several"));
    }

    #[test]
    fn a_window_beyond_the_contents_limit_is_refused() {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&vec![7; 1 << 20]).unwrap();
        assert!(decoded("zstd", &encoder.finish().unwrap(), 100).is_err());
        // Large-window Brotli begins with 0x11 (draft-vandevenne-shared-brotli-format, section 2).
        assert!(decoded("br", b"\x11\x1e\x03", 100).is_err());
    }

    #[test]
    fn headers_of_the_coded_form_are_removed_and_unknown_ones_pass() {
        let mut some = headers("gzip");
        for (name, value) in [
            (header::ETAG, "\"a\""),
            (header::CONTENT_LENGTH, "5"),
            (header::CONTENT_TYPE, "text/plain"),
        ] {
            some.insert(name, HeaderValue::from_static(value));
        }
        some.insert("content-digest", HeaderValue::from_static("sha-256=:x=:"));
        assert!(Decoder::of(&mut some, Mode::Revalidate).is_some());
        let mut names: Vec<_> = some.keys().map(header::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            (names, &some["etag"]),
            (vec!["content-type", "etag"], &"W/\"a\"".parse().unwrap())
        );
        let mut identity = headers("identity");
        assert!(Decoder::of(&mut identity, Mode::Revalidate).is_none() && identity.is_empty());
        let mut unknown = headers("x-unknown");
        assert!(Decoder::of(&mut unknown, Mode::Rfc9111).is_none() && unknown.len() == 1);
    }

    proptest! {
        #[test]
        fn any_text_survives_its_coding(
            text in prop::collection::vec(any::<u8>(), 0..2_000),
            coding in prop::sample::select(&CODINGS[..]),
            piece_bytes in 1..300_usize,
        ) {
            let body = encoded(coding, &text);
            prop_assert_eq!(decoded(coding, &body, piece_bytes), Ok(text));
        }

        #[test]
        fn mutated_bytes_end_in_a_text_or_an_error(
            text in "[a-z]{0,200}",
            coding in prop::sample::select(&CODINGS[..]),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut body = encoded(coding, text.as_bytes());
            let at = at.index(body.len());
            body[at] = byte;
            let _ = decoded(coding, &body, 50);
        }
    }
}
