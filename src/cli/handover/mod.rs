//! The handover from one process to the next without a refused connection (SPECIFICATION,
//! "Commands").
//!
//! `successor` is the side of the old process, `predecessor` that of the new one. They talk over
//! the socket of `listen.takeover`:
//!
//! 1. The new process has read its config and says hello. The old one passes its listening sockets.
//! 2. The new one asks for a snapshot: the budgets, limits and stored answers of the old one.
//! 3. The new one is ready. From then on it accepts, and the old one drains. It says what it still
//!    spends, until its end.
//! 4. The old one lets go of the file of writes after its last write, and says so.
//! 5. The old one has drained, says so, and ends.
//!
//! Before step 3 a failure of the new process changes nothing, and a death of the old one leaves
//! the sockets to the new one.

mod channel;
pub mod predecessor;
pub mod successor;

use std::time::Duration;

/// The longest wait for an answer of the other process. Chosen here: it needs milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The name of the takeover socket among those that are passed.
const TAKEOVER: &str = "takeover";

/// Only the user of the process may connect.
const TAKEOVER_MODE: u32 = 0o600;
