//! The meaning of errors from Redis.

use redis::{RedisError, RetryMethod};

use crate::state::Away;

/// True if no operation of this connection will succeed again, or of another server than this one.
pub(super) fn is_spoiling(fault: &RedisError) -> bool {
    const ELSEWHERE: [&str; 3] = ["READONLY", "MASTERDOWN", "LOADING"];
    fault.is_io_error()
        || fault.is_unrecoverable_error()
        || fault.code() == Some("NOAUTH")
        || is_forbidden(fault)
        || ELSEWHERE.iter().any(|code| says(fault, code))
        || matches!(fault.retry_method(), RetryMethod::Reconnect)
}

/// True if a server takes no changes. In a cluster the other ones may.
pub(super) fn is_refusing_changes(fault: &RedisError) -> bool {
    says(fault, "NOREPLICAS") || says(fault, "MISCONF")
}

/// True if the user lacks a right, here or in a script.
pub(super) fn is_forbidden(fault: &RedisError) -> bool {
    says(fault, "NOPERM") || fault.to_string().contains("The user executing the script can't")
}

/// True for this code, also of a command in a script: Redis 6.2 has it in the text.
pub(super) fn says(fault: &RedisError, code: &str) -> bool {
    fault.code() == Some(code) || fault.to_string().contains(&format!("-{code} "))
}

pub(super) fn away(fault: &RedisError) -> Away {
    Away(fault.to_string())
}
