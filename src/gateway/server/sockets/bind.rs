//! Sockets that this process opens itself.

use std::fmt::Display;
use std::fs::Permissions;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::net::listen;

/// Connections that the system holds for a listener, within its own bound. Chosen here: all clients
/// connect again at the end of another process.
const BACKLOG: i32 = 4096;

/// Opens a listening TCP socket.
pub fn bind_tcp(address: &SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).and_then(with_backlog);
    bound.map_err(|error| cannot_listen(address, &error))
}

/// Makes room for more connections than the standard library does.
fn with_backlog<L: AsFd>(listener: L) -> io::Result<L> {
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Opens a Unix socket with this mode, and replaces a stale one that no process listens on.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let failed = |error| cannot_listen(path.display(), &error);
    if socket_obstacle(path).map_err(failed)? {
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).and_then(with_backlog).map_err(failed)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    Ok(listener)
}

/// Fails if something is in the way of a Unix socket. True for a stale socket, which no
/// process listens on.
pub fn socket_obstacle(path: &Path) -> io::Result<bool> {
    if let Ok(there) = std::fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            let kind = io::ErrorKind::AlreadyExists;
            return Err(io::Error::new(kind, "it exists and is not a socket"));
        }
        if UnixStream::connect(path).is_ok() {
            let kind = io::ErrorKind::AddrInUse;
            return Err(io::Error::new(kind, "another process listens on it"));
        }
        return Ok(true);
    }
    Ok(false)
}

/// Names the address in an error.
pub fn cannot_listen(at: impl Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {at}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// Nobody accepts them.
    #[test]
    fn a_burst_of_connections_waits_in_the_backlog() {
        let listener = bind_tcp(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(500));
        let connections: io::Result<Vec<_>> = (0..200).map(connect).collect();
        assert_eq!(connections.unwrap().len(), 200);
    }
}
