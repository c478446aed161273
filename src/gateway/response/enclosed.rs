//! A body within a JSON text, rendered piece by piece as it is sent: as JSON, as the content of a
//! string, or in Base64. A slow reader of it has no copy of its own.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;

use crate::gateway::url_rewrite::rendering::Rendering;

pub struct Enclosed {
    before: Bytes,
    body: Rendering,
    form: Enclosing,
    /// Bytes of the body that do not fill a unit of the form: an incomplete character, or less than
    /// Base64 takes at once.
    carry: Vec<u8>,
    after: Bytes,
    bytes_left: usize,
}

/// The form of the body in the text around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enclosing {
    /// As it is.
    Json,
    /// UTF-8 between quotes.
    Text,
    Base64,
}

impl Enclosing {
    /// The form for a body with this text.
    pub fn of(text: &[u8]) -> Self {
        if serde_json::from_slice::<&serde_json::value::RawValue>(text).is_ok() {
            Self::Json
        } else if std::str::from_utf8(text).is_ok() {
            Self::Text
        } else {
            Self::Base64
        }
    }

    /// The texts right before and after the body in this form.
    pub const fn brackets(self) -> (&'static str, &'static str) {
        match self {
            Self::Json => ("", ""),
            Self::Text => ("\"", "\""),
            Self::Base64 => ("{\"base64\":\"", "\"}"),
        }
    }

    /// The length of the body in this form. It reads all of a text.
    pub fn length(self, body: Rendering) -> usize {
        match self {
            Self::Json => body.bytes_left(),
            Self::Base64 => body.bytes_left().div_ceil(3) * 4,
            Self::Text => {
                let mut text = Enclosed::new(Bytes::new(), body, self, usize::MAX, Bytes::new());
                let mut length = 0;
                while text.body.bytes_left() > 0 {
                    length += text.embedded(PIECE_BYTES).len();
                }
                length
            }
        }
    }
}

/// Bytes of a text that are looked at together for its length.
const PIECE_BYTES: usize = 64 * 1024;
/// The most bytes that JSON needs for one byte of a text: `\u001f`.
const ESCAPED_BYTES_MAX: usize = 6;
/// The longest character in UTF-8.
const CHAR_BYTES_MAX: usize = 4;

impl Enclosed {
    /// Puts a body, which takes `length` bytes in this form, between two texts.
    pub fn new(
        before: Bytes,
        body: Rendering,
        form: Enclosing,
        length: usize,
        after: Bytes,
    ) -> Self {
        let bytes_left = length.saturating_add(before.len() + after.len());
        Self { before, body, form, carry: Vec::new(), after, bytes_left }
    }

    pub fn body(&self) -> &Rendering {
        &self.body
    }

    pub fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// Returns the next bytes, not many more than `bytes_max`; none at the end.
    pub fn piece(&mut self, bytes_max: usize) -> Bytes {
        let piece = if !self.before.is_empty() {
            self.before.split_to(self.before.len().min(bytes_max))
        } else if self.body.bytes_left() > 0 {
            self.embedded(bytes_max)
        } else {
            self.after.split_to(self.after.len().min(bytes_max))
        };
        self.bytes_left -= piece.len().min(self.bytes_left);
        if piece.is_empty() && self.body.bytes_left() == 0 {
            // Shorter than promised: the session notices.
            self.bytes_left = 0;
        }
        piece
    }

    /// The next bytes of the body in its form.
    fn embedded(&mut self, bytes_max: usize) -> Bytes {
        let taken = match self.form {
            Enclosing::Json => return self.body.piece(bytes_max),
            Enclosing::Text => (bytes_max / ESCAPED_BYTES_MAX).max(CHAR_BYTES_MAX),
            Enclosing::Base64 => (bytes_max / 4 * 3).max(3),
        };
        let mut bytes = std::mem::take(&mut self.carry);
        self.body.fill(&mut bytes, taken);
        if self.form == Enclosing::Base64 {
            let whole = if self.body.bytes_left() > 0 { bytes.len() / 3 * 3 } else { bytes.len() };
            self.carry = bytes.split_off(whole);
            return BASE64_STANDARD.encode(bytes).into();
        }
        let whole = std::str::from_utf8(&bytes).map_or_else(|fault| fault.valid_up_to(), str::len);
        self.carry = bytes.split_off(whole);
        // Writing to memory does not fail, and a string is quoted.
        let Ok(quoted) = serde_json::to_vec(&String::from_utf8_lossy(&bytes)) else {
            return Bytes::new();
        };
        let quoted_bytes = quoted.len();
        Bytes::from(quoted).slice(1..quoted_bytes - 1)
    }

    /// All of it at once.
    pub fn whole(mut self) -> Bytes {
        let mut whole = Vec::with_capacity(self.bytes_left);
        while self.bytes_left > 0 {
            whole.extend_from_slice(&self.piece(PIECE_BYTES));
        }
        whole.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn enclosed(body: &[u8]) -> (Enclosed, usize) {
        let rendering = || Rendering::opaque(Bytes::copy_from_slice(body));
        let form = Enclosing::of(body);
        let [before, after] = match form {
            Enclosing::Json => ["[", "]"],
            Enclosing::Text | Enclosing::Base64 => ["[\"", "\"]"],
        };
        let length = form.length(rendering());
        let (before, after) = (Bytes::from(before), Bytes::from(after));
        let enclosed = Enclosed::new(before, rendering(), form, length, after);
        let bytes = enclosed.bytes_left();
        (enclosed, bytes)
    }

    /// All pieces of at most about this length, the value in them, and their promised length.
    fn in_pieces(body: &[u8], bytes_max: usize) -> (serde_json::Value, usize, usize) {
        let (mut enclosed, bytes) = enclosed(body);
        let mut all = Vec::new();
        while enclosed.bytes_left() > 0 {
            let piece = enclosed.piece(bytes_max);
            assert!(piece.len() <= bytes_max.max(4 * ESCAPED_BYTES_MAX + 12));
            all.extend_from_slice(&piece);
        }
        (serde_json::from_slice(&all).unwrap(), all.len(), bytes)
    }

    proptest! {
        #[test]
        fn a_text_in_pieces_is_that_text(body in "(?s).{1,200}", bytes_max in 1_usize..300) {
            let (value, length, promised) = in_pieces(body.as_bytes(), bytes_max);
            prop_assert_eq!(length, promised);
            if Enclosing::of(body.as_bytes()) == Enclosing::Json {
                let whole: serde_json::Value = serde_json::from_str(&body).unwrap();
                prop_assert_eq!(&value[0], &whole);
            } else {
                prop_assert_eq!(value[0].as_str(), Some(&*body));
            }
        }

        #[test]
        fn other_bytes_in_pieces_are_their_base64(body in prop::collection::vec(128_u8..=255, 1..200), bytes_max in 1_usize..300) {
            prop_assume!(Enclosing::of(&body) == Enclosing::Base64);
            let (value, length, promised) = in_pieces(&body, bytes_max);
            prop_assert_eq!(length, promised);
            prop_assert_eq!(value[0].as_str(), Some(&*BASE64_STANDARD.encode(&body)));
        }
    }
}
