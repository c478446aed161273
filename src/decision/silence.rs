//! The cause of a wait that ended without its turn: a limit, or requests that got no answer.
//!
//! An upstream that hangs holds slots, turns and budgets for as long as it likes. A client that
//! waited behind such a request was held by no limit (SPECIFICATION, "Waiting").

use std::time::Duration;

use crate::clock::Timestamp;

/// Wait without an answer that is not blamed on a limit. Ours: longer than most answers take.
const SILENCE: Duration = Duration::from_secs(1);

/// Returns true if most of a wait since then passed without an answer to those before it. Answers
/// early in the wait leave the rest to the request that hangs.
pub fn is_unanswered(now: Timestamp, since: Timestamp, answered_at: Timestamp) -> bool {
    let silence = now.since(answered_at.max(since));
    silence >= SILENCE && silence * 2 >= now.since(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: Timestamp = Timestamp::from_secs(1_000);

    fn after(millis: u64) -> Timestamp {
        SINCE + Duration::from_millis(millis)
    }

    #[test]
    fn a_wait_without_any_answer_is_unanswered_after_a_second() {
        for answered_at in [Timestamp::EPOCH, SINCE] {
            assert!(!is_unanswered(after(999), SINCE, answered_at));
            assert!(is_unanswered(after(1_000), SINCE, answered_at));
        }
    }

    #[test]
    fn a_late_answer_leaves_the_wait_to_the_limit() {
        assert!(is_unanswered(after(10_000), SINCE, after(5_000)));
        assert!(!is_unanswered(after(10_000), SINCE, after(5_001)));
        assert!(!is_unanswered(after(10_000), SINCE, after(10_000)));
    }
}
