//! Tokens created, replaced and revoked at run time. A token keeps its position, which the
//! transcript names, while it is valid.

use std::sync::Arc;

use super::World;
use crate::clock::Timestamp;
use crate::emulator::accounts::{Token, TokenStatus};
use crate::emulator::http::ApiError;

/// Beyond it expired tokens make room. Five times the hourly limit of one app (SPECIFICATION,
/// "Secondary rate limits"); such a token lives an hour.
const MINTED_MAX: usize = 10_000;

impl World {
    /// Adds an expiring token; callers add them in the order of expiry.
    pub fn mint(&mut self, token: Token, now: Timestamp) -> Result<(), ApiError> {
        if self.minted.len() < MINTED_MAX {
            self.minted.push_back(self.tokens.len());
            self.add_token(token);
            return Ok(());
        }
        let oldest = self.minted.front().copied();
        let dead = |position: &usize| {
            self.tokens.get(*position).is_some_and(|token| !token.status.is_good_at(now))
        };
        let Some(position) = oldest.filter(dead) else {
            return Err(ApiError::invalid("Token", "base", "there are too many tokens already"));
        };
        self.minted.rotate_left(1);
        self.replace_token(position, token);
        Ok(())
    }

    /// Replaces a token at its position; the old one becomes invalid.
    pub fn replace_token(&mut self, position: usize, token: Token) {
        let Some(slot) = self.tokens.get_mut(position) else { return };
        self.token_positions.remove(&slot.value);
        self.token_positions.insert(token.value.clone(), position);
        *slot = Arc::new(token);
    }

    pub fn revoke(&mut self, position: usize) {
        if let Some(token) = self.tokens.get_mut(position) {
            Arc::make_mut(token).status = TokenStatus::Revoked;
        }
    }

    pub fn good_token(&self, secret: &str, now: Timestamp) -> Option<usize> {
        let position = *self.token_positions.get(secret)?;
        self.tokens.get(position).filter(|token| token.status.is_good_at(now))?;
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn minted(world: &World, number: u64, end: Timestamp) -> Token {
        Token {
            value: format!("minted-{number}"),
            status: TokenStatus::ValidUntil(end),
            ..(*world.tokens[0]).clone()
        }
    }

    #[test]
    fn expired_tokens_make_room_for_new_ones() {
        let mut world = seed::world(&Options::default(), NOW);
        let before = world.tokens.len();
        let (early, late) =
            (NOW + std::time::Duration::from_hours(1), NOW + std::time::Duration::from_hours(2));
        for number in 0..MINTED_MAX as u64 {
            let token = minted(&world, number, early);
            world.mint(token, NOW).expect("there is place");
        }
        let one_more = minted(&world, 99_999, late);
        assert!(world.mint(one_more.clone(), NOW).is_err(), "all of them are good");
        world.mint(one_more, early).expect("the oldest has expired");
        assert_eq!(world.tokens.len(), before + MINTED_MAX);
        assert_eq!(world.good_token("minted-99999", early), Some(before));
        assert_eq!(world.good_token("minted-0", NOW), None, "the evicted token is unknown");
    }

    #[test]
    fn a_revoked_token_is_invalid() {
        let mut world = seed::world(&Options::default(), NOW);
        let secret = world.tokens[0].value.clone();
        assert_eq!(world.good_token(&secret, NOW), Some(0));
        world.revoke(0);
        assert_eq!(world.good_token(&secret, NOW), None);
    }
}
