//! Descriptors of the process: the limit, and the part of it that clients' connections may use.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The least reserve. Chosen here: the admin listener's 64 connections and its own reserve, and
/// what a process opens at its start.
const RESERVE_MIN: u64 = 128;
/// The largest reserve. Chosen here: 1,024 temporary files of answers, and as many connections to
/// the upstream.
const RESERVE_MAX: u64 = 2_048;

/// Raises the limit of descriptors to the most that the process may set. Systems start programs
/// with a low limit for the sake of old ones, which cannot use high numbers.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.current.is_some() && limit.maximum.is_none() {
        // The lower limit holds as well; `warning` says so.
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// The descriptors that the process may have; `None`: any number.
fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The connections that fit beside the reserve for the admin listener, upstream and files.
pub fn connections_max() -> u32 {
    limit().map_or(u32::MAX, fitting)
}

fn fitting(limit: u64) -> u32 {
    // A process with very few keeps half of them.
    let reserve = (limit / 8).clamp(RESERVE_MIN, RESERVE_MAX).min(limit / 2);
    u32::try_from(limit - reserve).unwrap_or(u32::MAX)
}

/// The problem with this number of connections, if the process has too few descriptors for it.
pub fn warning(connections_max: u32) -> Option<String> {
    let limit = limit()?;
    let fitting = fitting(limit);
    (fitting < connections_max).then(|| {
        format!(
            "{connections_max} connections do not fit into the process's limit of {limit} \
             descriptors: {fitting} are taken at most, the rest is for the upstream and files"
        )
    })
}

/// True if a descriptor or memory of the system was missing, which another connection may free.
pub fn is_lack(error: &std::io::Error) -> bool {
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| lacks.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_of_descriptors_is_left() {
        for (limit, connections) in
            [(96, 48), (1_024, 896), (20_000, 17_952), (65_536, 63_488), (1 << 40, u32::MAX)]
        {
            assert_eq!(fitting(limit), connections, "{limit}");
        }
    }
}
