//! The writes in a file, as a start, a takeover and a check read them.

use crate::gateway::Recovery;
use crate::writes::Stored;
use crate::writes::file::OpenError;

/// Runs `read`, which passes each stored write to its argument, and collects the writes.
pub fn with_stored_writes<T>(
    read: impl FnOnce(&mut dyn FnMut(u64, Stored) -> Result<(), String>) -> Result<T, OpenError>,
) -> Result<(T, Recovery), String> {
    let mut recovery = Recovery::default();
    let mut each =
        |number, stored: Stored| recovery.take(number, &stored).map_err(|fault| fault.to_string());
    let done = read(&mut each).map_err(|fault| fault.to_string())?;
    Ok((done, recovery))
}
