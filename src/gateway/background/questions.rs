//! Sends the questions of accounts' states that are due: of a window that nobody knows, and of a
//! budget that is used up.
//!
//! `decision/quota/asks.rs` decides when; `dispatch/ask.rs` has the exchange.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::gateway::dispatch::dispatcher::Dispatcher;

/// Questions under way at once. Chosen here: thousands of used-up accounts are asked within their
/// distances.
const QUESTIONS_MAX: usize = 32;

/// Asks under the current config while the gateway lives.
pub async fn keep_asking(current: impl Fn() -> Option<Arc<Dispatcher>> + Send) {
    let free = Arc::new(Semaphore::new(QUESTIONS_MAX));
    loop {
        // Before the question begins: one that waits for its turn here would be old.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let (admissions, clock, question) = {
            let Some(dispatcher) = current() else { return };
            let admissions = Arc::clone(dispatcher.admissions());
            let clock = dispatcher.env().clock.clone();
            let question = admissions.due_question().map(|question| (dispatcher, question));
            (admissions, clock, question)
        };
        if let Some((dispatcher, question)) = question {
            tokio::spawn(async move {
                dispatcher.ask_due(question).await;
                drop(permit);
            });
            continue;
        }
        drop(permit);
        // Subscribed before the check, so that no change is missed in between.
        let moved = admissions.question_moved();
        match admissions.next_question() {
            Some(at) => tokio::select! {
                () = moved => {}
                () = clock.reach(at.max(clock.now() + Duration::from_millis(1))) => {}
            },
            None => moved.await,
        }
    }
}
