//! Rewrites the URLs of JSON bodies that are too large to hold, with bounded memory. It also blanks
//! short-lived secrets, because several clients may share one body, and may do only that.
//!
//! A piece may end anywhere, even inside a URL or an escape. Undecided bytes wait for the next
//! piece.

use bytes::{Bytes, BytesMut};

use crate::gateway::url_rewrite::map::{Origin, UrlMap, is_secret_key, is_url_key};

/// Far longer than any key of the service's JSON; of a longer one only the end matters.
const KEY_BYTES_MAX: usize = 64;

pub struct JsonStream {
    /// The URLs to rewrite and their client's address; `None`: they stay.
    urls: Option<(UrlMap, Origin)>,
    position: Position,
    /// The previous string, which may be a key.
    last_string: Vec<u8>,
    is_url_next: bool,
    is_secret_next: bool,
    /// The beginning of a URL value, until its prefix is decided.
    held: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Outside,
    /// In a string that passes unchanged: a key, another value, or the rest of a decided URL.
    String {
        escaped: bool,
    },
    Url,
    /// In a secret, which is dropped.
    Secret {
        escaped: bool,
    },
}

impl JsonStream {
    pub fn new(map: UrlMap, origin: Origin) -> Self {
        Self { urls: Some((map, origin)), ..Self::for_secrets() }
    }

    /// Only blanks secrets.
    pub fn for_secrets() -> Self {
        Self {
            urls: None,
            position: Position::Outside,
            last_string: Vec::new(),
            is_url_next: false,
            is_secret_next: false,
            held: BytesMut::new(),
        }
    }

    pub fn push(&mut self, piece: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(piece.len() + self.held.len() + 64);
        for &byte in piece {
            self.take(byte, &mut out);
        }
        out.freeze()
    }

    /// Returns the rest at the end, for a body that broke off inside a URL.
    pub fn finish(mut self) -> Bytes {
        std::mem::take(&mut self.held).freeze()
    }

    fn take(&mut self, byte: u8, out: &mut BytesMut) {
        match self.position {
            Position::Outside => {
                out.extend_from_slice(&[byte]);
                self.outside(byte);
            }
            Position::String { escaped } => {
                out.extend_from_slice(&[byte]);
                self.position = match byte {
                    b'"' if !escaped => Position::Outside,
                    _ => Position::String { escaped: byte == b'\\' && !escaped },
                };
                if self.position != Position::Outside {
                    self.remember(byte);
                }
            }
            Position::Url => {
                self.held.extend_from_slice(&[byte]);
                self.decide(byte, out);
            }
            Position::Secret { escaped: false } if byte == b'"' => {
                out.extend_from_slice(&[byte]);
                self.position = Position::Outside;
            }
            Position::Secret { escaped } => {
                self.position = Position::Secret { escaped: byte == b'\\' && !escaped }
            }
        }
    }

    fn outside(&mut self, byte: u8) {
        match byte {
            b'"' if self.is_url_next => self.position = Position::Url,
            b'"' if self.is_secret_next => self.position = Position::Secret { escaped: false },
            b'"' => {
                self.last_string.clear();
                self.position = Position::String { escaped: false };
            }
            b':' => {
                self.is_url_next = self.urls.is_some() && is_url_key(&self.last_string);
                self.is_secret_next = is_secret_key(&self.last_string);
            }
            b',' | b'{' | b'}' | b'[' | b']' => {
                (self.is_url_next, self.is_secret_next) = (false, false);
                self.last_string.clear();
            }
            _ => {}
        }
    }

    fn remember(&mut self, byte: u8) {
        if self.last_string.len() == KEY_BYTES_MAX {
            self.last_string.remove(0);
        }
        self.last_string.push(byte);
    }

    /// Passes on the held beginning once no further byte can change the decision.
    fn decide(&mut self, byte: u8, out: &mut BytesMut) {
        let Some((map, origin)) = &self.urls else { return };
        let ended = byte == b'"';
        if !ended && byte != b'\\' && self.held.len() <= map.longest_prefix() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        match map.rewrite_beginning(&held, origin) {
            Some(rewritten) => out.extend_from_slice(&rewritten),
            None => out.extend_from_slice(&held),
        }
        self.is_url_next = false;
        self.last_string.clear();
        self.position =
            if ended { Position::Outside } else { Position::String { escaped: byte == b'\\' } };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::address::Root;

    const JSON: &str = r#"[{"url":"https://api.example.com/repos/a/b","body":"say \"url\": \"https://api.example.com/x\" \\","html_url":"https://api.example.com/h"},
        {"labels_url" : "https://api.example.com/l{/name}","url":null,"x":["https://api.example.com/y"],"a_url":"https://api.example.community/z","b_url":"","c_url":"https://api.example.com"}]"#;

    fn map() -> UrlMap {
        UrlMap::new(
            "https://api.example.com",
            "https://api.example.com/graphql",
            "https://uploads.example.com",
        )
    }

    fn origin() -> Origin {
        Origin { base: "http://weir:8080".into(), root: Root::V3 }
    }

    fn streamed(json: &str, piece_bytes: usize) -> String {
        let mut stream = JsonStream::new(map(), origin());
        let mut out = Vec::new();
        for piece in json.as_bytes().chunks(piece_bytes) {
            out.extend_from_slice(&stream.push(piece));
        }
        out.extend_from_slice(&stream.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_streamed_body_equals_a_held_one_at_any_piece_boundary() {
        let held =
            map().render(&map().with_url_offsets(Bytes::from_static(JSON.as_bytes())), &origin());
        for piece_bytes in [1, 2, 3, 7, 16, 64, 1_000] {
            assert_eq!(streamed(JSON, piece_bytes).as_bytes(), &held[..], "{piece_bytes}");
        }
    }

    #[test]
    fn short_lived_secrets_are_emptied_as_in_a_held_body() {
        use crate::gateway::url_rewrite::map::blank_secrets;
        for json in [
            r#"{"temp_clone_token":"AAA","name":"x"}"#,
            r#"[{"a":{"temp_clone_token" : "A\"\\","b":"temp_clone_token"}},{"temp_clone_token":null,"c":"d"},{"temp_clone_token":"","x_temp_clone_token":"y"}]"#,
        ] {
            let held = blank_secrets(Bytes::from_static(json.as_bytes()));
            for piece_bytes in [1, 3, 1_000] {
                assert_eq!(streamed(json, piece_bytes).as_bytes(), &held[..], "{piece_bytes}");
            }
        }
    }

    #[test]
    fn a_body_that_breaks_off_loses_nothing() {
        for end in 0..JSON.len() {
            let cut = &JSON[..end];
            let whole = streamed(cut, 5);
            assert!(whole.len() + 60 >= cut.len(), "{cut}");
            assert!(!whole.is_empty() || cut.is_empty());
        }
    }

    #[test]
    fn a_stream_that_blanks_secrets_alone_keeps_urls() {
        let json = "{\"temp_clone_token\":\"a\\\"b\",\"url\":\"https://upstream.test/x\",\"n\":1}";
        for cut in 0..json.len() {
            let mut stream = JsonStream::for_secrets();
            let (begun, rest) = json.as_bytes().split_at(cut);
            let sent = [stream.push(begun), stream.push(rest), stream.finish()].concat();
            assert_eq!(sent, json.replace("a\\\"b", "").as_bytes(), "cut at {cut}");
        }
    }
}
