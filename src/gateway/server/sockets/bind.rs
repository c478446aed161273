//! Sockets that this process opens itself.

use std::fmt::Display;
use std::fs::Permissions;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Opens a listening TCP socket.
pub fn bind_tcp(address: &SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| cannot_listen(address, &error))
}

/// Opens a Unix socket with this mode, and replaces a stale one that no process listens on.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let failed = |error| cannot_listen(path.display(), &error);
    if socket_obstacle(path).map_err(failed)? {
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
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
