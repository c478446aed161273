//! Memory for the bodies of requests.

/// What all bodies that are held may take together, whether they are being read, wait or are under
/// way. Ours: room for thousands of ordinary ones, and for twenty-five of the largest that are
/// queued by default.
pub const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of bodies that requests waiting for admission may hold together: three quarters of the
/// memory there is for bodies. Ours: the last quarter stays free for those that need not wait,
/// whose bodies would else be refused at the door.
pub const WAITING_BYTES_MAX: u64 = (HELD_BYTES_MAX / 4 * 3) as u64;
