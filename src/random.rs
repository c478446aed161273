//! Pseudo-random numbers that follow from a seed: for the emulator's worlds, for simulations and
//! for tests.
//!
//! Left out: secrets, and numbers that differ from process to process (`gateway`).

/// A generator whose numbers depend on its seed alone: `SplitMix64` (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that begins at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for one purpose of a run. Purposes share no numbers: a further draw for one does
    /// not change what another draws.
    pub fn for_purpose(seed: u64, purpose: u64) -> Self {
        let mut rng = Self(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        rng.next_u64();
        rng
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        number
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end.max(1)
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// A number from 0 to 1, 1 not included.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True in `of_hundred` of a hundred cases.
    pub fn percent(&mut self, of_hundred: f64) -> bool {
        of_hundred > 0.0 && self.unit() * 100.0 < of_hundred
    }

    /// One of `from`; `None` when there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.below(from.len() as u64)).unwrap_or(0);
        from.get(index)
    }
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// One step of `SplitMix64`: a bijection, so different numbers stay different.
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(STEP);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_purpose_draw_the_same_numbers() {
        let draw = |seed, purpose| {
            let mut rng = Rng::for_purpose(seed, purpose);
            [(); 4].map(|()| rng.next_u64())
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
    }

    #[test]
    fn a_percentage_comes_out_about_as_often_as_it_says() {
        let mut rng = Rng::for_purpose(7, 0);
        let hits = (0..100_000).filter(|_| rng.percent(1.0)).count();
        assert!((800..1_200).contains(&hits), "{hits}");
        assert!(!rng.percent(0.0));
    }
}
