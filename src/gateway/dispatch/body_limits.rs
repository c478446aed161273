//! Memory for the bodies of requests.

/// The memory of all held bodies, from the first byte to the answer. Chosen here: thousands of
/// ordinary bodies, or twenty-five of the largest that are queued by default.
pub const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The most bytes of bodies that wait for admission: three quarters of the memory for bodies.
/// Chosen here: the rest stays free for requests that need no wait.
pub const WAITING_BYTES_MAX: u64 = (HELD_BYTES_MAX / 4 * 3) as u64;
