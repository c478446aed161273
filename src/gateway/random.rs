//! The shell's source of random numbers; `decision/` gets them as arguments.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use ring::rand::{SecureRandom, SystemRandom};

use crate::random::mix;

/// The seed of this process's request ids; differs per process, so that ids do not collide.
static SEED: LazyLock<[u64; 2]> = LazyLock::new(|| [system_number(), system_number()]);
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A number between 0 and 1, for jitter. A system call per answer would cost too much.
pub fn unit_random() -> f64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let high = u32::try_from(mix(SEED[0] ^ number) >> 32).unwrap_or_default();
    f64::from(high) / f64::from(u32::MAX)
}

/// A fresh `X-Request-Id`: 128 bits in hex, unique and without visible order. Not a secret; a
/// system call per id would cost more than the rest of it.
pub fn request_id() -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = *SEED;
    let bits = u128::from(mix(high ^ number)) << 64 | u128::from(mix(low.wrapping_add(number)));
    let text: [u8; 32] =
        std::array::from_fn(|place| DIGITS[(bits >> (124 - 4 * place)) as usize & 15]);
    // Hex digits are valid in a header.
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("none"))
}

/// 256 bits for a key with the lifetime of this process.
pub fn secret() -> [u8; 32] {
    system_bytes()
}

/// Distinguishes equal numbers of different runs of the program.
pub fn salt() -> u64 {
    mix(SEED[1] ^ NEXT.fetch_add(1, Ordering::Relaxed).rotate_left(32))
}

fn system_number() -> u64 {
    u64::from_ne_bytes(system_bytes())
}

/// Zeros if the system provides none: then jitter is lost, and keyed digests become plain ones.
fn system_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn request_ids_do_not_repeat() {
        let ids: HashSet<HeaderValue> = (0..10_000).map(|_| request_id()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.len() == 32));
    }
}
