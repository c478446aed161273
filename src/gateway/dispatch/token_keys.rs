//! Tokens and their slots in the words of `decision`.

use crate::decision::TokenKey;
use crate::tokens::{SlotId, TokenId};

pub fn token_key(token: TokenId) -> TokenKey {
    TokenKey(token.0)
}

/// Rights belong to the place: a token that is minted anew has those of the one before.
pub fn key_of(slot: SlotId) -> TokenKey {
    TokenKey(slot.0)
}
