//! A body on its way to one client, rendered piece by piece: all readers share the stored text, and
//! none has a copy of its own.

use std::ops::{Range, RangeInclusive};

use bytes::Bytes;

use crate::gateway::url_rewrite::offsets::{Cursor, UrlOffset, UrlOffsets};

pub struct Rendering {
    text: Bytes,
    offsets: UrlOffsets,
    /// By the index of the upstream prefix.
    replacements: Box<[Replacement]>,
    cursor: Cursor,
    next: Option<UrlOffset>,
    /// The rest of the current segment: of this replacement, or of the text.
    segment: (Option<usize>, Range<usize>),
    /// The end of the text that is in segments already.
    at: usize,
    bytes_left: usize,
}

/// The client's form of an upstream prefix.
pub struct Replacement {
    pub replaced_bytes: usize,
    pub by: Box<[u8]>,
}

impl Rendering {
    /// `bytes` is the length of the whole rendered body.
    pub fn new(
        text: Bytes,
        offsets: UrlOffsets,
        replacements: Box<[Replacement]>,
        bytes: usize,
    ) -> Self {
        let (_, mut cursor) = offsets.counts();
        let next = offsets.next(&mut cursor);
        let segment = (None, 0..0);
        Self { text, offsets, replacements, cursor, next, segment, at: 0, bytes_left: bytes }
    }

    /// A body that is equal for all clients.
    pub fn opaque(text: Bytes) -> Self {
        let bytes = text.len();
        Self::new(text, UrlOffsets::default(), Box::default(), bytes)
    }

    /// Only this part of the rendered body, which must not have begun.
    #[must_use]
    pub fn part(mut self, range: &RangeInclusive<usize>) -> Self {
        let (begin, end) = (*range.start(), range.end().saturating_add(1).min(self.bytes_left));
        self.each_segment(begin, |_| {});
        self.bytes_left = end.saturating_sub(begin);
        self
    }

    /// The text that it is rendered from.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    pub fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// Appends the next bytes, `bytes_max` at most.
    pub fn fill(&mut self, into: &mut Vec<u8>, bytes_max: usize) {
        into.reserve(bytes_max.min(self.bytes_left));
        self.each_segment(bytes_max, |part| into.extend_from_slice(part));
    }

    /// Returns the next bytes, `bytes_max` at most; none at the end.
    pub fn piece(&mut self, bytes_max: usize) -> Bytes {
        if !self.offsets.is_empty() {
            let mut piece = Vec::new();
            self.fill(&mut piece, bytes_max);
            return piece.into();
        }
        let bytes = bytes_max.min(self.bytes_left);
        self.begin_segment();
        let begin = self.segment.1.start;
        self.each_segment(bytes, |_| {});
        self.text.slice(begin..begin + bytes)
    }

    /// Passes on the next bytes, `bytes_max` at most.
    fn each_segment(&mut self, bytes_max: usize, mut pass_on: impl FnMut(&[u8])) {
        let mut room = bytes_max.min(self.bytes_left);
        self.bytes_left -= room;
        while room > 0 && self.begin_segment() {
            let (replacement, range) = &mut self.segment;
            let source = replacement.map_or(&self.text[..], |index| &self.replacements[index].by);
            let end = range.end.min(range.start + room);
            pass_on(&source[range.start..end]);
            room -= end - range.start;
            range.start = end;
        }
    }

    /// Moves on to the next segment if the current one has ended; false at the end of the body.
    fn begin_segment(&mut self) -> bool {
        while self.segment.1.is_empty() {
            let text_end = self.next.map_or(self.text.len(), |offset| offset.at);
            self.segment = if self.at < text_end {
                (None, std::mem::replace(&mut self.at, text_end)..text_end)
            } else if let Some(UrlOffset { prefix, .. }) = self.next {
                self.next = self.offsets.next(&mut self.cursor);
                self.at += self.replacements[prefix].replaced_bytes;
                (Some(prefix), 0..self.replacements[prefix].by.len())
            } else {
                return false;
            };
        }
        true
    }
}
