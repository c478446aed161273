//! The one source of chance of a run: everything drawn follows from the seed, so that a run can be
//! repeated exactly.

/// Numbers that look random and depend on their seed alone: `SplitMix64` (Steele, Lea and Flood,
/// 2014).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice for one purpose of a run. Purposes do not share numbers: a further draw for one does
    /// not change what another draws.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        dice.roll();
        dice
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// A number from 0 to 1, 1 not included.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
    pub fn unit(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, of_hundred: f64) -> bool {
        of_hundred > 0.0 && self.unit() * 100.0 < of_hundred
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_purpose_draw_the_same_numbers_and_others_do_not() {
        let draw = |seed, purpose| {
            (0..4)
                .map(|_| 0)
                .scan(Dice::new(seed, purpose), |dice, _| Some(dice.roll()))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
    }

    #[test]
    fn a_percentage_comes_out_about_as_often_as_it_says() {
        let mut dice = Dice::new(7, 0);
        let hits = (0..100_000).filter(|_| dice.percent(1.0)).count();
        assert!((800..1_200).contains(&hits), "{hits}");
        assert!(!dice.percent(0.0));
    }
}
