//! HTTP/2 frames on their way to the framework: marked alike at any cut, and hardly longer.

use bytes::BytesMut;

use super::pieces::plans;
use crate::gateway::server::connection::trailers::TrailerMarker;

/// RFC 9113 §4.1.
const HEAD_BYTES: usize = 9;
/// RFC 9113 §3.4.
const PREFACE_BYTES: usize = 24;
/// The field that goes before the fields of trailers.
const FIELD: [u8; 4] = [0, 1, b'x', 0];

/// The marked bytes do not depend on the pieces. They are the input, with one field in each block
/// of trailers and the length that belongs to it.
pub fn http2_frames(input: &[u8]) {
    let whole = mark(&[input]);
    for plan in plans(input) {
        assert_eq!(mark(&plan), whole, "the frames depend on the pieces");
    }
    let (out, left) = whole;
    assert!(left < HEAD_BYTES, "{left} bytes wait for others");
    let taken = &input[..input.len() - left];
    match (taken.split_at_checked(PREFACE_BYTES), out.split_at_checked(PREFACE_BYTES)) {
        (Some((preface, frames)), Some((passed, marked))) => {
            assert_eq!(preface, passed);
            same_frames(frames, marked);
        }
        _ => assert_eq!(taken, out),
    }
}

/// The bytes for the framework, and the number of those that wait.
fn mark(pieces: &[&[u8]]) -> (Vec<u8>, usize) {
    let (mut marker, mut read, mut out) =
        (TrailerMarker::default(), BytesMut::new(), BytesMut::new());
    for piece in pieces {
        read.extend_from_slice(piece);
        let passed = marker.pass(&mut read, &mut out, |_| Ok::<_, ()>(()));
        assert_eq!(passed, Ok(()));
    }
    (out.to_vec(), read.len())
}

/// Both hold the same frames, apart from the field in trailers.
fn same_frames(mut before: &[u8], mut after: &[u8]) {
    while let Some((head, rest)) = before.split_at_checked(HEAD_BYTES) {
        let (marked_head, marked) =
            after.split_at_checked(HEAD_BYTES).expect("each frame is passed on");
        assert_eq!(head[3..], marked_head[3..], "type, flags or stream have changed");
        let growth = length(marked_head).checked_sub(length(head)).expect("none is shorter");
        assert!(growth <= FIELD.len(), "a frame grows by {growth} bytes");
        let Some((payload, next)) = rest.split_at_checked(length(head)) else {
            // The length stays if it is the largest, which the framework refuses by itself.
            assert!(marked.len() <= rest.len() + FIELD.len(), "more than the field is added");
            return;
        };
        let (marked, marked_next) =
            marked.split_at_checked(length(marked_head)).expect("a whole frame stays whole");
        let has_field = |at: usize| {
            let after = marked[at..].strip_prefix(&FIELD);
            marked[..at] == payload[..at] && after == Some(&payload[at..])
        };
        let is_same =
            if growth == 0 { marked == payload } else { (0..=payload.len()).any(has_field) };
        assert!(is_same, "{payload:?} became {marked:?}");
        (before, after) = (next, marked_next);
    }
    assert_eq!(before, after);
}

fn length(head: &[u8]) -> usize {
    head[..3].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}
