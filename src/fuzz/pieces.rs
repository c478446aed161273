//! Inputs cut into pieces, and read as headers.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::random::Rng;

/// Inputs up to this length are also cut at each single place.
const CUT_EVERYWHERE_MAX: usize = 48;
/// Plans with several cuts at random.
const RANDOM_PLANS: usize = 3;

/// Ways to cut an input: byte by byte, once at each place of a short one, and at random places that
/// follow from the input.
pub fn plans(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut plans: Vec<Vec<&[u8]>> = vec![input.chunks(1).collect(), vec![input]];
    if input.len() <= CUT_EVERYWHERE_MAX {
        plans.extend((1..input.len()).map(|at| <[_; 2]>::from(input.split_at(at)).to_vec()));
    }
    let mut rng = rng_of(input);
    for _ in 0..RANDOM_PLANS {
        let piece_max = 1 + rng.below(1 + input.len() as u64 / 2);
        let (mut rest, mut pieces) = (input, Vec::new());
        while !rest.is_empty() {
            let bytes = usize::try_from(rng.between(1, piece_max)).unwrap_or(1).min(rest.len());
            let (piece, after) = rest.split_at(bytes);
            pieces.push(piece);
            rest = after;
        }
        plans.push(pieces);
    }
    plans
}

/// Random numbers that follow from the input, so that a finding repeats.
pub fn rng_of(input: &[u8]) -> Rng {
    let seed = input.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    Rng::new(seed)
}

/// Header lines up to an empty line, and the rest. Lines that are no headers are left out.
pub fn headers_and_rest(input: &[u8]) -> (HeaderMap, &[u8]) {
    let mut headers = HeaderMap::new();
    let mut rest = input;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let value = line.get(name.len() + 1..).unwrap_or_default().trim_ascii();
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    (headers, rest)
}
