//! The poll interval in answers to polling endpoints.

use http::HeaderName;

use super::call::Call;
use crate::emulator::http::Reply;

/// Adds the interval in force to the response of a poll, a 304 included.
pub fn paced(call: &mut Call<'_>, reply: Reply) -> Reply {
    let interval_secs =
        call.world.polls.note(call.now, call.caller.account, call.requested_path, call.limits);
    reply.with(HeaderName::from_static("x-poll-interval"), &interval_secs.to_string())
}
