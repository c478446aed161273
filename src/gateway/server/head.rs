//! Finds the end of an HTTP/1.1 request head whose bytes arrive piece by piece, or its first
//! impossible byte. A foreign protocol is so refused at once, without a wait for a whole line.
//!
//! It refuses no head that `request/validate/mod.rs` accepts. Left out: sockets, deadlines, and the
//! meaning of a head.

use crate::gateway::error::Malformed;
use crate::gateway::request::validate::{HEAD_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX};

/// The scheme of an absolute target; the whole request line is validated later.
const SCHEMES: [&[u8]; 2] = [b"http://", b"https://"];
/// Scheme and authority of an absolute target. Chosen here: the longest host has 253 bytes.
const AUTHORITY_BYTES_MAX: usize = 300;
/// The version before its last digit.
const VERSION: &[u8] = b"HTTP/1.";

/// The state of reading one head.
#[derive(Default)]
pub struct HeadReader {
    expected: Expected,
    seen: usize,
    /// The first byte of the part that is being read.
    part: usize,
    fields: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Expected {
    #[default]
    Method,
    Target,
    Version,
    /// The line feed of a line.
    LineFeed,
    /// A header line or the empty one.
    Line,
    Name,
    Value,
    /// The line feed of the empty line.
    LastLineFeed,
}

impl HeadReader {
    /// Reads on in `bytes`, which begin with those of earlier calls. Returns the length of the head
    /// once it is whole.
    pub fn length(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let bytes = bytes.get(..HEAD_BYTES_MAX).unwrap_or(bytes);
        loop {
            if self.expected == Expected::Value {
                self.seen += text_bytes(bytes.get(self.seen..).unwrap_or_default());
            }
            let Some(byte) = bytes.get(self.seen) else { break };
            let next = self.after(*byte, bytes.get(self.part..self.seen).unwrap_or_default())?;
            self.seen += 1;
            match next {
                None => return Ok(Some(self.seen)),
                Some(next) if next != self.expected => {
                    (self.expected, self.part) = (next, self.seen);
                }
                Some(_) => {}
            }
        }
        if self.seen < HEAD_BYTES_MAX { Ok(None) } else { Err(Malformed::HeadTooLarge) }
    }

    /// The part after this byte; `before` are the bytes of its own part. `None` at the end.
    fn after(&mut self, byte: u8, before: &[u8]) -> Result<Option<Expected>, Malformed> {
        use Expected::{LastLineFeed, Line, LineFeed, Method, Name, Target, Value, Version};
        let bad = |fault| Err(Malformed::Bad(fault));
        let next = match (self.expected, byte) {
            (Method, b' ') if !before.is_empty() => Target,
            (Method, byte) if is_token(byte) => Method,
            (Method, _) => return bad("a request line that is not three words"),
            (Target, b' ') if !before.is_empty() => Version,
            (Target, _) if is_longest(before) => return Err(Malformed::TargetTooLong),
            (Target, 0x21..=0x7e) if byte != b'#' && is_target(before, byte) => Target,
            (Target, _) => return bad("a request target that is no path"),
            (Version, b'\r') if before.len() > VERSION.len() => LineFeed,
            (Version, byte) if is_version(before.len(), byte) => Version,
            (Version, _) => return bad("an HTTP version that is not served"),
            (LineFeed, b'\n') => Line,
            (LastLineFeed, b'\n') => return Ok(None),
            (LineFeed | LastLineFeed, _) | (Value, b'\n') => {
                return bad("a line that does not end in CR LF");
            }
            (Line, b'\r') => LastLineFeed,
            (Line, b' ' | b'\t') => return bad("a folded header line"),
            (Line, byte) if is_token(byte) => {
                self.fields += 1;
                if self.fields > HEADERS_MAX {
                    return Err(Malformed::HeadTooLarge);
                }
                Name
            }
            (Name, b':') => Value,
            (Name, byte) if is_token(byte) => Name,
            (Line | Name, _) => return bad("a header name that is not a token"),
            (Value, b'\r') => LineFeed,
            (Value, byte) if is_text(byte) => Value,
            (Value, _) => return bad("control characters"),
        };
        Ok(Some(next))
    }
}

/// RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// RFC 9110 §5.5.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || byte >= 0x20 && byte != 0x7f
}

/// Length of the text at the beginning. Whole blocks are tested at once, because the longest heads
/// are those that are refused.
fn text_bytes(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<64>();
    let is_whole =
        |block: &&[u8; 64]| block.iter().fold(true, |is_whole, byte| is_whole & is_text(*byte));
    let whole = blocks.iter().take_while(is_whole);
    let begin = 64 * whole.count();
    let rest = bytes.get(begin..).unwrap_or_default();
    begin + rest.iter().position(|byte| !is_text(*byte)).unwrap_or(rest.len())
}

/// True if a target may begin with `before` and this byte: a path, `*`, or an absolute one.
fn is_target(before: &[u8], byte: u8) -> bool {
    let at = before.len();
    match before.first().unwrap_or(&byte) {
        b'/' => true,
        b'*' => at == 0,
        _ => SCHEMES.iter().any(|scheme| {
            let (begin, rest) = scheme.split_at(at.min(scheme.len()));
            before.get(..begin.len()).is_some_and(|before| before.eq_ignore_ascii_case(begin))
                && rest.first().is_none_or(|next| next.eq_ignore_ascii_case(&byte))
        }),
    }
}

/// True if no byte may follow these of a target.
fn is_longest(target: &[u8]) -> bool {
    let path = |target: &[u8]| {
        let begin = target.get(..AUTHORITY_BYTES_MAX).unwrap_or(target);
        // Without a third slash, its authority is too long.
        memchr::memchr_iter(b'/', begin).nth(2).unwrap_or_default()
    };
    target.len() >= TARGET_BYTES_MAX
        && (target.starts_with(b"/") || target.len() - path(target) >= TARGET_BYTES_MAX)
}

fn is_version(at: usize, byte: u8) -> bool {
    VERSION.get(at).map_or(at == VERSION.len() && matches!(byte, b'0' | b'1'), |next| *next == byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gateway::request::validate::check_line;

    /// The result of reading `bytes` in pieces that end at `splits`, and the bytes read by then.
    fn read(bytes: &[u8], splits: &[usize]) -> (Result<Option<usize>, Malformed>, usize) {
        let mut reader = HeadReader::default();
        for end in splits.iter().copied().chain([bytes.len()]) {
            match reader.length(&bytes[..end.min(bytes.len())]) {
                Ok(None) => {}
                done => return (done, reader.seen),
            }
        }
        (Ok(None), reader.seen)
    }

    #[test]
    fn a_head_ends_at_its_empty_line() {
        let head = b"GET /a?b HTTP/1.1\r\nHost: a\r\nX:\t\xff \r\n\r\n";
        let more = [head.as_slice(), b"\r\nGET"].concat();
        for end in 0..more.len() {
            let expected = (end >= head.len()).then_some(head.len());
            assert_eq!(read(&more[..end], &[]).0, Ok(expected), "{end}");
        }
        assert_eq!(read(b"OPTIONS * HTTP/1.0\r\n\r\n", &[]).0, Ok(Some(22)));
        assert_eq!(read(b"M-SEARCH HTTP://a/ HTTP/1.1\r\n\r\n", &[]).0, Ok(Some(31)));
    }

    #[test]
    fn a_head_has_a_largest_size_and_number_of_fields() {
        let fill = |begin: &str, bytes| {
            begin.bytes().chain(std::iter::repeat(b'a')).take(bytes).collect::<Vec<u8>>()
        };
        for (begin, fault) in [
            ("GET / HTTP/1.1\r\nX: ", Malformed::HeadTooLarge),
            ("GET / HTTP/1.1\r\nX", Malformed::HeadTooLarge),
            ("", Malformed::HeadTooLarge),
        ] {
            assert_eq!(read(&fill(begin, HEAD_BYTES_MAX - 1), &[]).0, Ok(None));
            assert_eq!(read(&fill(begin, HEAD_BYTES_MAX), &[]).0, Err(fault));
        }
        for (method, host) in [("GET ", ""), ("GET ", "http://a"), ("POST ", "HTTPS://a.b:1")] {
            let longest = method.len() + host.len() + TARGET_BYTES_MAX;
            let begin = format!("{method}{host}/");
            assert_eq!(read(&fill(&begin, longest), &[]).0, Ok(None));
            let end = [fill(&begin, longest), b" HTTP/1.1\r\n\r\n".to_vec()].concat();
            assert_eq!(read(&end, &[]).0, Ok(Some(end.len())));
            let (fault, seen) = read(&fill(&begin, longest + 1), &[]);
            assert_eq!((fault, seen), (Err(Malformed::TargetTooLong), longest));
        }
        let endless = fill("GET http://", 9_000);
        assert_eq!(read(&endless, &[]).0, Err(Malformed::TargetTooLong));
        let fields = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(count));
        assert!(read(fields(HEADERS_MAX).as_bytes(), &[]).0.unwrap().is_some());
        assert_eq!(read(fields(HEADERS_MAX + 1).as_bytes(), &[]).0, Err(Malformed::HeadTooLarge));
    }

    const HEADS: [&str; 4] = [
        "GET /repos/acme/widgets?x=%20 HTTP/1.1\r\nHost: a:1\r\nAuthorization: Bearer k\r\n\r\n",
        "POST http://a/graphql HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "PUT https://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\nX:\r\n\r\n0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    ];

    /// A byte that replaces another, mostly one with a meaning.
    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![proptest::sample::select(b"\r\n \t:/*#\0\x7f\xffG1.h".to_vec()), any::<u8>()]
    }

    proptest! {
        #[test]
        fn mutated_heads_read_alike_at_any_split(
            head in proptest::sample::select(HEADS.to_vec()),
            changes in proptest::collection::vec((any::<usize>(), byte(), 0..4_u8), 0..4),
            splits in proptest::collection::vec(0..120_usize, 0..6),
        ) {
            let mut bytes = head.as_bytes().to_vec();
            for (at, byte, kind) in changes {
                let at = at % bytes.len().max(1);
                match kind {
                    0 => bytes.insert(at, byte),
                    1 if bytes.len() > 1 => drop(bytes.remove(at)),
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes[at] = byte,
                }
            }
            let mut splits = splits;
            splits.sort_unstable();
            let whole = read(&bytes, &[]);
            prop_assert_eq!(&read(&bytes, &splits), &whole);
            prop_assert_eq!(&read(&bytes, &(0..bytes.len()).collect::<Vec<_>>()), &whole);
            agrees_with_the_parsers(&bytes, whole)?;
        }
    }

    /// A whole head ends where the framework's parser ends it. A refused one is refused there too,
    /// or by the validation of its first line or its lines.
    fn agrees_with_the_parsers(
        bytes: &[u8],
        (result, seen): (Result<Option<usize>, Malformed>, usize),
    ) -> Result<(), TestCaseError> {
        let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        match result {
            Ok(Some(length)) => match request.parse(bytes) {
                Ok(parsed) => prop_assert_eq!(parsed, httparse::Status::Complete(length)),
                // Bytes of the target that it escapes; never the end of the head.
                Err(fault) => prop_assert_eq!(fault, httparse::Error::Token),
            },
            Ok(None) => prop_assert!(!bytes.windows(4).any(|end| end == b"\r\n\r\n")),
            // However it went on, no head that begins so was valid.
            Err(_) => {
                let begun = &bytes[..=seen];
                for end in ["\r\n\r\n", " HTTP/1.1\r\n\r\n", "\n\r\n\r\n", ": 1\r\n\r\n"] {
                    let head = [begun, end.as_bytes()].concat();
                    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
                    let is_parsed = httparse::Request::new(&mut fields).parse(&head).is_ok();
                    let is_strict = !head
                        .strip_suffix(b"\r\n\r\n")
                        .unwrap_or_default()
                        .split(|byte| *byte == b'\n')
                        .rev()
                        .skip(1)
                        .any(|line| !line.ends_with(b"\r"));
                    prop_assert!(
                        !(is_parsed && is_strict && check_line(&head).is_ok()),
                        "{:?}",
                        head.escape_ascii().to_string()
                    );
                }
            }
        }
        Ok(())
    }
}
