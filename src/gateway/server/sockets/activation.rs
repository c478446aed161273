//! Sockets that systemd passes to the process (`sd_listen_fds(3)`).

use listenfd::ListenFd;
use socket2::SockRef;

use crate::gateway::server::sockets::{Inherited, Socket};

/// The number of the sockets.
const COUNT_VARIABLE: &str = "LISTEN_FDS";
/// The process that they are for.
const PROCESS_VARIABLE: &str = "LISTEN_PID";
/// The names of the sockets, in their order.
const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";

impl Inherited {
    /// Takes the sockets that the environment promises to this process, and the promise itself, so
    /// that no child finds it. Call it before the first thread. Fails for a number of sockets that
    /// is none, and for a descriptor that is no listening stream socket.
    pub fn from_environment() -> Result<Vec<Self>, String> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let (count, process) = (variable(COUNT_VARIABLE), variable(PROCESS_VARIABLE));
        let is_promised = process.is_empty() || process == std::process::id().to_string();
        if is_promised && !count.is_empty() && count.parse::<u16>().is_err() {
            return Err(format!("LISTEN_FDS is {count:?}, which is no number of sockets"));
        }
        let mut passed = ListenFd::from_env();
        let names = variable(NAMES_VARIABLE);
        let mut names = names.split(':').map(str::to_owned);
        (0..passed.len())
            .map(|index| {
                let socket = match passed.take_tcp_listener(index) {
                    Ok(Some(listener)) => Socket::Tcp(listener),
                    Ok(None) | Err(_) => match passed.take_unix_listener(index) {
                        Ok(Some(listener)) => Socket::Unix(listener),
                        Ok(None) | Err(_) => return Err(unusable(index)),
                    },
                };
                let is_listener = match &socket {
                    Socket::Tcp(listener) => SockRef::from(listener).is_listener(),
                    Socket::Unix(listener) => SockRef::from(listener).is_listener(),
                };
                if !is_listener.unwrap_or(false) {
                    return Err(unusable(index));
                }
                let name = names.next().unwrap_or_default();
                Ok(Self { name, is_limited: true, is_activated: true, socket })
            })
            .collect()
    }
}

fn unusable(index: usize) -> String {
    format!(
        "socket {} of LISTEN_FDS is no listening stream socket; Accept=yes is not supported",
        index + 1
    )
}
