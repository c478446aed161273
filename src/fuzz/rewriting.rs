//! Rewriting of upstream URLs, and decoding before it: in pieces as in one.

use std::io::Write;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use serde_json::Value;

use super::pieces::{plans, rng_of};
use crate::decision::Mode;
use crate::gateway::address::Root;
use crate::gateway::http::decoding::{Decoded, Decoder};
use crate::gateway::url_rewrite::json_stream::JsonStream;
use crate::gateway::url_rewrite::map::{Origin, UrlMap, blank_secrets, is_secret_key, is_url_key};

const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];
/// The most bytes of one decoded piece.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Longer texts are not compared: a short input may decode to any length.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// A body is rewritten alike in any pieces, held or streamed, and only in values of URL keys. A
/// coded body is decoded alike in any pieces.
pub fn rewriting(input: &[u8]) {
    // Coded bodies do not begin as JSON does, and cost far more.
    if !matches!(input.first(), Some(b'[' | b'{' | b' ' | b'"')) {
        decoded(input);
    }
    for (map, origin) in maps() {
        rewritten(input, &map, &origin);
    }
}

fn maps() -> [(UrlMap, Origin); 2] {
    let hosted = UrlMap::new(
        "https://api.example.com",
        "https://api.example.com/graphql",
        "https://uploads.example.com",
    );
    let own = UrlMap::new("https://h/api/v3", "https://h/api/graphql", "https://h/api/uploads");
    let plain = Origin { base: "http://weir:8080".into(), root: Root::Plain };
    let v3 = Origin { base: "https://weir.internal/gateway".into(), root: Root::V3 };
    [(hosted, v3), (own, plain)]
}

fn rewritten(input: &[u8], map: &UrlMap, origin: &Origin) {
    let streamed = stream(&[input], map, origin);
    for plan in plans(input) {
        assert_eq!(stream(&plan, map, origin), streamed, "a stream depends on its pieces");
    }
    let held = map.with_url_offsets(blank_secrets(Bytes::copy_from_slice(input)));
    let whole = map.render(&held, origin);
    assert_eq!(map.rendered_bytes(&held, origin), whole.len());
    let mut rng = rng_of(input);
    let mut rendering = map.rendering(&held, origin);
    let mut pieces = Vec::new();
    while rendering.bytes_left() > 0 {
        let bytes_max = usize::try_from(rng.between(1, 64)).unwrap_or(1);
        let piece = rendering.piece(bytes_max);
        assert!(!piece.is_empty() && piece.len() <= bytes_max);
        pieces.extend_from_slice(&piece);
    }
    assert_eq!(pieces, whole, "a rendering depends on its pieces");
    part(&mut rng, &whole, |range| map.rendering(&held, origin).part(range).piece(usize::MAX));
    let Ok(before) = serde_json::from_slice::<Value>(input) else { return };
    assert_eq!(streamed, whole, "a stream differs from a held body");
    let after = serde_json::from_slice(&whole).expect("rewritten JSON stays JSON");
    same_apart_from_urls("", &before, &after, origin);
}

/// A part of a rendering is that part of the whole.
fn part(
    rng: &mut crate::random::Rng,
    whole: &[u8],
    of: impl Fn(&std::ops::RangeInclusive<usize>) -> Bytes,
) {
    let mut place = || usize::try_from(rng.below(whole.len() as u64)).unwrap_or(0);
    let (one, other) = (place(), place());
    let range = one.min(other)..=one.max(other);
    if let Some(expected) = whole.get(range.clone()) {
        assert_eq!(of(&range), expected, "{range:?}");
    }
}

fn stream(pieces: &[&[u8]], map: &UrlMap, origin: &Origin) -> Vec<u8> {
    let mut stream = JsonStream::new(map.clone(), origin.clone());
    let mut out: Vec<u8> = pieces.iter().flat_map(|piece| stream.push(piece)).collect();
    out.extend_from_slice(&stream.finish());
    out
}

fn same_apart_from_urls(key: &str, before: &Value, after: &Value, origin: &Origin) {
    match (before, after) {
        (Value::String(_), Value::String(after)) if is_secret_key(key.as_bytes()) => {
            assert!(after.is_empty() || before == after);
        }
        (Value::String(before), Value::String(after)) if before != after => {
            assert!(is_url_key(key.as_bytes()), "the value of {key:?} has changed");
            assert!(after.starts_with(&origin.base), "{before:?} became {after:?}");
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let items = before.iter().zip(after);
            items.for_each(|(before, after)| same_apart_from_urls("", before, after, origin));
        }
        (Value::Object(before), Value::Object(after)) if before.len() == after.len() => {
            for (name, before) in before {
                same_apart_from_urls(name, before, &after[name], origin);
            }
        }
        _ => assert_eq!(before, after),
    }
}

/// The result of decoding.
#[derive(Debug, PartialEq, Eq)]
enum Text {
    Whole(Vec<u8>),
    Broken,
    /// Longer than [`TEXT_BYTES_MAX`].
    Long,
}

fn decode(coding: &'static str, pieces: &[&[u8]]) -> Text {
    let coded = HeaderValue::from_static(coding);
    let mut headers = HeaderMap::from_iter([(CONTENT_ENCODING, coded)]);
    let mut decoder = Decoder::of(&mut headers, Mode::Revalidate).expect("a known coding");
    let mut pieces = pieces.iter().filter(|piece| !piece.is_empty());
    let mut text = Vec::new();
    while text.len() <= TEXT_BYTES_MAX {
        match decoder.pull() {
            Ok(Decoded::Piece(piece)) => {
                assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES_MAX);
                text.extend_from_slice(&piece);
            }
            Ok(Decoded::NeedsInput) => {
                decoder.push(pieces.next().map(|piece| Bytes::copy_from_slice(piece)));
            }
            Ok(Decoded::End) => return Text::Whole(text),
            Err(_) => return Text::Broken,
        }
    }
    Text::Long
}

/// The input as a coded body, and as the text of one. The first byte chooses the coding, because
/// all of them would take four times as long.
fn decoded(input: &[u8]) {
    let coding = CODINGS[usize::from(input.first().copied().unwrap_or(0)) % CODINGS.len()];
    let mut texts: Vec<_> = plans(input).iter().take(4).map(|plan| decode(coding, plan)).collect();
    if !texts.contains(&Text::Long) {
        texts.dedup();
        assert_eq!(texts.len(), 1, "{coding}: the text depends on the pieces");
    }
    let coded = encode(coding, input);
    for cut in [1, 7, coded.len().max(1)] {
        let pieces: Vec<_> = coded.chunks(cut).collect();
        assert!(decode(coding, &pieces) == Text::Whole(input.to_vec()), "{coding}");
    }
}

fn encode(coding: &str, text: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::fast();
    let done = match coding {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(text).and_then(|()| encoder.finish())
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(text).and_then(|()| encoder.finish())
        }
        "br" => {
            let params =
                brotli::enc::BrotliEncoderParams { quality: 1, lgwin: 16, ..Default::default() };
            let (mut coded, mut text) = (Vec::new(), text);
            brotli::BrotliCompress(&mut text, &mut coded, &params).map(|_| coded)
        }
        _ => zstd::encode_all(text, 1),
    };
    done.expect("memory can be written")
}
