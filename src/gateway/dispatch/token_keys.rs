//! Tokens and their slots in the words of `decision`.

use crate::decision::TokenKey;
use crate::tokens::{SlotId, TokenId};

pub fn token_key(token: TokenId) -> TokenKey {
    TokenKey(token.0)
}

/// Permissions belong to the slot: a newly minted token has those of its predecessor.
pub fn key_of(slot: SlotId) -> TokenKey {
    TokenKey(slot.0)
}
