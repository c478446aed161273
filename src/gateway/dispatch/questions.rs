//! The state of questions to the upstream about accounts and tokens: their last answers, and the
//! looks at all tokens. `ask.rs` and `suspected_tokens.rs` send the questions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::tokens::{Credential, TokenId};

/// The meaning of an answer for the token that asked.
#[derive(Clone, Debug)]
pub enum Acceptance {
    Accepted,
    /// The upstream does not accept it: the headers and the words of its answer.
    Rejected(Box<HeaderMap>, String),
    /// No answer, or one that says nothing about the token; with the reason.
    Unknown(String),
}

/// The choice between a question of its own and the answer to a recent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recent {
    Suffices,
    /// If its question began after the one with this number.
    SufficesAfter(u64),
    IsTooOld,
}

/// A 401 whose cause is unclear.
pub struct Suspicion {
    pub credential: Credential,
    pub account: AccountId,
    pub headers: HeaderMap,
    /// The status and the message of the answer.
    pub text: String,
}

/// The questions of all accounts, with their last answers.
#[derive(Default)]
pub struct Asking {
    /// Bounded by the number of accounts.
    by_account: Mutex<HashMap<AccountId, Arc<Turn>>>,
}

/// The turn of the questions about one account: one goes at a time.
#[derive(Default)]
pub struct Turn {
    /// Number of the question that began last.
    pub begun: AtomicU64,
    pub last: tokio::sync::Mutex<Option<LastAnswer>>,
}

pub struct LastAnswer {
    /// Number of its question.
    pub number: u64,
    pub token: TokenId,
    pub at: Timestamp,
    pub acceptance: Acceptance,
}

impl Asking {
    pub fn turn(&self, account: AccountId) -> Arc<Turn> {
        Arc::clone(self.by_account.lock().entry(account).or_default())
    }

    /// An answer to a question that begins from now on.
    pub fn after_now(&self, account: AccountId) -> Recent {
        Recent::SufficesAfter(self.turn(account).begun.load(Ordering::Relaxed))
    }
}

/// The looks at all tokens.
#[derive(Default)]
pub struct Looks {
    pub state: Mutex<LookState>,
    pub ended: Notify,
}

#[derive(Clone, Copy, Default)]
pub struct LookState {
    pub is_under_way: bool,
    pub ended_at: Option<Timestamp>,
    /// True once a look has ended, under this config or an earlier one.
    pub has_ended: bool,
    /// True once a look has found everything ready, in the same way.
    pub was_ready: bool,
}

impl Looks {
    /// The looks of the next config, which has other tokens.
    pub fn next(&self) -> Self {
        let LookState { has_ended, was_ready, .. } = *self.state.lock();
        let state = LookState { has_ended, was_ready, ..LookState::default() };
        Self { state: Mutex::new(state), ended: Notify::new() }
    }
}
