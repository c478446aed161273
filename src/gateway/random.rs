//! The shell's source of random numbers; `decision/` gets them as arguments.

use ring::rand::{SecureRandom, SystemRandom};

/// Between 0 and 1; 0.5 should the system have no randomness to give.
pub fn unit_random() -> f64 {
    let mut bytes = [0_u8; 4];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        return 0.5;
    }
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

/// A fresh `X-Request-Id`: 128 random bits in hex.
pub fn request_id() -> String {
    let mut bytes = [0_u8; 16];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        return "00000000000000000000000000000000".into();
    }
    bytes.iter().fold(String::with_capacity(32), |mut id, byte| {
        id.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        id.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
        id
    })
}
