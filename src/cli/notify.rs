//! Messages to the service manager: readiness, reloads, the end, signs of life (`sd_notify(3)`).
//!
//! Without `NOTIFY_SOCKET` in the environment, or where nobody listens there, nothing is sent.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::warn;

use crate::clock::monotonic_micros;

/// The service manager, if there is one.
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Finds the manager by the environment.
    pub fn from_environment() -> Arc<Self> {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|at| {
            let opened = address(&at).and_then(|to| Ok((UnixDatagram::unbound()?, to)));
            opened
                .inspect_err(|error| warn!(%error, "the socket in NOTIFY_SOCKET cannot be used"))
                .ok()
        });
        let watchdog = watchdog(
            env::var("WATCHDOG_USEC").ok().as_deref(),
            env::var("WATCHDOG_PID").ok().as_deref(),
            std::process::id(),
        );
        Arc::new(Self { socket, watchdog })
    }

    /// Says that requests are served, and by which process: it may have taken over from another.
    pub fn ready(&self) {
        self.tell(&format!("READY=1\nMAINPID={}\nSTATUS=serving", std::process::id()));
    }

    /// Says that the config is read again, until [`ServiceManager::ready`].
    pub fn reloading(&self) {
        let at = monotonic_micros();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={at}\nSTATUS=reading the config again"));
    }

    /// Says that the process ends, with the number of requests in flight.
    pub fn stopping(&self, in_flight: usize) {
        self.tell(&format!("STOPPING=1\nSTATUS=draining, {in_flight} requests in flight"));
    }

    /// Gives signs of life at half the time that the manager allows, from tasks of the runtime that
    /// serves requests: one that is stuck gives none.
    pub async fn keep_alive(self: Arc<Self>) {
        let Some(within) = self.watchdog.filter(|_| self.socket.is_some()) else { return };
        loop {
            // Any worker may take this task.
            if tokio::spawn(async {}).await.is_ok() {
                self.tell("WATCHDOG=1");
            }
            sleep(within / 2).await;
        }
    }

    fn tell(&self, message: &str) {
        let Some((socket, to)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), to) {
            warn!(%error, "the service manager cannot be reached");
        }
    }
}

/// The address of a path, or of a name that begins with `@` (unix(7), "Abstract").
fn address(at: &OsStr) -> io::Result<SocketAddr> {
    match at.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::linux::net::SocketAddrExt as _;
            SocketAddr::from_abstract_name(name)
        }
        [b'/', ..] => SocketAddr::from_pathname(OsString::from(at)),
        _ => Err(io::Error::other("it is neither an absolute path nor begins with @")),
    }
}

/// The time between two signs of life; `None` if the manager wants none from this process.
fn watchdog(micros: Option<&str>, of: Option<&str>, own: u32) -> Option<Duration> {
    let is_other = of.is_some_and(|pid| pid.parse() != Ok(own));
    let micros = micros?.parse().ok().filter(|micros| *micros > 0 && !is_other)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_of_another_process_is_not_answered() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(Some("1000000"), Some("7"), 7), second);
        assert_eq!(watchdog(Some("1000000"), None, 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("8"), 7), None);
        for none in [None, Some("0"), Some("soon"), Some("")] {
            assert_eq!(watchdog(none, Some("7"), 7), None);
        }
    }

    #[test]
    fn a_notify_socket_is_a_path_or_an_abstract_name() {
        assert!(address(OsStr::new("/run/a")).unwrap().as_pathname().is_some());
        assert!(address(OsStr::new("relative")).is_err());
        #[cfg(target_os = "linux")]
        assert!(address(OsStr::new("@a")).unwrap().as_pathname().is_none());
    }
}
