//! The poll interval in answers to polling endpoints.

use http::HeaderName;

use super::call::Call;
use crate::emulator::http::Reply;

/// The answer to a poll, with the interval in force after it. A 304 says it too.
pub fn paced(call: &mut Call<'_>, reply: Reply) -> Reply {
    let interval_secs =
        call.world.polls.note(call.now, call.caller.account, call.requested_path, call.limits);
    reply.with(HeaderName::from_static("x-poll-interval"), &interval_secs.to_string())
}
