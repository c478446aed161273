//! The shell's source of random numbers; `decision/` gets them as arguments.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use ring::rand::{SecureRandom, SystemRandom};

use crate::random::mix;

/// Where this process's request ids begin: different for each process, so that theirs do not meet.
static SEED: LazyLock<[u64; 2]> = LazyLock::new(|| [system_random(), system_random()]);
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Between 0 and 1. For jitter: asking the system for each would be one of its calls for each
/// answer.
pub fn unit_random() -> f64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let high = u32::try_from(mix(SEED[0] ^ number) >> 32).unwrap_or_default();
    f64::from(high) / f64::from(u32::MAX)
}

/// A fresh `X-Request-Id`: 128 bits in hex, unique and without a visible order. Not a secret:
/// asking the system for each would cost more than all else about it.
pub fn request_id() -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = *SEED;
    let bits = u128::from(mix(high ^ number)) << 64 | u128::from(mix(low.wrapping_add(number)));
    let text: [u8; 32] =
        std::array::from_fn(|place| DIGITS[(bits >> (124 - 4 * place)) as usize & 15]);
    // Hex digits make a header's value.
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("none"))
}

/// 256 bits for a key that is as old as this process.
pub fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    // Should the system have none to give, what is made with it is a plain digest.
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes
}

/// Tells apart what got the same number in different runs of the program.
pub fn salt() -> u64 {
    mix(SEED[1] ^ NEXT.fetch_add(1, Ordering::Relaxed).rotate_left(32))
}

fn system_random() -> u64 {
    let mut bytes = [0_u8; 8];
    // Should the system have none to give, jitter is lost and nothing else.
    let _ = SystemRandom::new().fill(&mut bytes);
    u64::from_ne_bytes(bytes)
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
