//! The listening sockets of a gateway, opened by this process or by another one.
//!
//! systemd passes sockets at the start (`activation`), a predecessor by its takeover socket
//! (`cli/handover/`). An inherited socket serves the listener of the config with its address, and
//! with its name if that is the kind of a listener.

mod activation;
pub mod bind;

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::config::Listen;
use crate::gateway::server::sockets::bind::{bind_tcp, bind_unix};

/// Owner and group may connect to a Unix socket; a client key is needed all the same.
pub const SOCKET_MODE: u32 = 0o660;

/// The listeners of a config. Their words are names of sockets for systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// An address of `listen.http`.
    Http,
    /// That of `listen.https`.
    Https,
    /// The path of `listen.unix`.
    Unix,
    /// The address of `listen.admin`.
    Admin,
}

/// A listening socket.
#[derive(Debug)]
pub enum Socket {
    /// Of any family.
    Tcp(TcpListener),
    /// With a path.
    Unix(UnixListener),
}

/// A listening socket of another process.
#[derive(Debug)]
pub struct Inherited {
    /// Its name there.
    pub name: String,
    /// True if the word of a kind as its name limits it to listeners of that kind: systemd's
    /// `FileDescriptorName=`. The config of a successor may have another kind at its address.
    pub is_limited: bool,
    /// True if systemd keeps it open after the end of this process.
    pub is_activated: bool,
    /// The socket itself.
    pub socket: Socket,
}

/// An open socket of a listener of the config.
pub struct Opened {
    kind: Kind,
    /// The address or the path in the config.
    at: String,
    /// The same for another process: the kind, and the bound address or the path.
    pub name: String,
    pub is_activated: bool,
    is_inherited: bool,
    pub socket: Socket,
}

/// The open sockets of a config that no listener serves yet.
#[derive(Default)]
pub struct Sockets(Vec<Opened>);

impl Socket {
    /// Creates a second handle.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Self::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Its address or path, for people.
    pub fn place(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(|address| address.to_string()),
            Self::Unix(listener) => listener.local_addr().map(|address| {
                let path = address.as_pathname().map(|path| path.display().to_string());
                path.unwrap_or_else(|| "a socket without a path".into())
            }),
        }
        .unwrap_or_default()
    }
}

impl Inherited {
    fn is_for(&self, kind: Kind) -> bool {
        !self.is_limited || self.name.parse::<Kind>().map_or(true, |named| named == kind)
    }

    fn has_address(&self, kind: Kind, wanted: &SocketAddr) -> bool {
        let Socket::Tcp(listener) = &self.socket else { return false };
        let is_same = |own: SocketAddr| {
            let (own_ip, wanted_ip) = (own.ip(), wanted.ip());
            // systemd opens `[::]` for a port alone, which takes IPv4 too.
            let is_same_ip =
                own_ip == wanted_ip || own_ip.is_unspecified() && wanted_ip.is_unspecified();
            // Port 0 means any, so only the name can tell.
            let is_any = wanted.port() == 0 && self.name.parse() == Ok(kind);
            is_same_ip && (own.port() == wanted.port() || is_any)
        };
        self.is_for(kind) && listener.local_addr().is_ok_and(is_same)
    }

    fn has_path(&self, wanted: &Path) -> bool {
        let Socket::Unix(listener) = &self.socket else { return false };
        let is_same = |path: &Path| {
            path == wanted
                || path
                    .canonicalize()
                    .is_ok_and(|path| wanted.canonicalize().is_ok_and(|wanted| wanted == path))
        };
        self.is_for(Kind::Unix)
            && listener.local_addr().is_ok_and(|own| own.as_pathname().is_some_and(is_same))
    }
}

impl Sockets {
    /// Opens the socket of each listener of the config, unless it is inherited. Returns the
    /// inherited ones that no listener has, too.
    pub fn open(
        listen: &Listen,
        mut inherited: Vec<Inherited>,
    ) -> io::Result<(Self, Vec<Inherited>)> {
        let mut opened = Vec::new();
        let http = listen.http.iter().map(|address| (Kind::Http, address));
        let https = listen.https.iter().map(|https| (Kind::Https, &https.address));
        let admin = listen.admin.iter().map(|address| (Kind::Admin, address));
        for (kind, address) in http.chain(https).chain(admin) {
            let there = inherited.iter().position(|socket| socket.has_address(kind, address));
            let there = there.map(|index| inherited.remove(index));
            let own = || {
                let bound = bind_tcp(address).map_err(|error| misnamed(&inherited, address, error));
                Ok(Socket::Tcp(bound?))
            };
            opened.push(Opened::new(kind, address, there, own)?);
        }
        if let Some(path) = &listen.unix {
            let there = inherited.iter().position(|socket| socket.has_path(path));
            let there = there.map(|index| inherited.remove(index));
            let own = || {
                let bound = bind_unix(path, SOCKET_MODE);
                Ok(Socket::Unix(
                    bound.map_err(|error| misnamed(&inherited, path.display(), error))?,
                ))
            };
            opened.push(Opened::new(Kind::Unix, path.display(), there, own)?);
        }
        Ok((Self(opened), inherited))
    }

    /// Takes the socket of a listener with this address or path. Fails only if it was taken.
    pub fn take(&mut self, kind: Kind, at: impl Display) -> io::Result<Opened> {
        let at = at.to_string();
        let index = self.0.iter().position(|opened| opened.kind == kind && opened.at == at);
        let gone = || io::Error::other(format!("no socket was opened for {at}"));
        index.map(|index| self.0.remove(index)).ok_or_else(gone)
    }

    /// Creates second handles of all sockets, for a successor.
    pub fn duplicates(&self) -> io::Result<Vec<(String, bool, OwnedFd)>> {
        let duplicate = |opened: &Opened| {
            Ok((opened.name.clone(), opened.is_activated, opened.socket.duplicate()?))
        };
        self.0.iter().map(duplicate).collect()
    }

    /// The names of the inherited sockets.
    pub fn inherited(&self) -> Vec<String> {
        let inherited = self.0.iter().filter(|opened| opened.is_inherited);
        inherited.map(|opened| opened.name.clone()).collect()
    }
}

impl Opened {
    fn new(
        kind: Kind,
        at: impl Display,
        inherited: Option<Inherited>,
        own: impl FnOnce() -> io::Result<Socket>,
    ) -> io::Result<Self> {
        let is_inherited = inherited.is_some();
        let (socket, is_activated) = match inherited {
            Some(Inherited { socket, is_activated, .. }) => (socket, is_activated),
            None => (own()?, false),
        };
        match &socket {
            Socket::Tcp(listener) => listener.set_nonblocking(true)?,
            Socket::Unix(listener) => listener.set_nonblocking(true)?,
        }
        let name = format!("{kind} {}", socket.place());
        Ok(Self { kind, at: at.to_string(), name, is_activated, is_inherited, socket })
    }
}

/// The reason why a listener cannot be opened: an inherited socket has its place, and the name of
/// another listener.
fn misnamed(inherited: &[Inherited], at: impl Display, error: io::Error) -> io::Error {
    let at = at.to_string();
    let has_its_place = |it: &&Inherited| it.is_limited && it.socket.place() == at;
    match inherited.iter().find(has_its_place) {
        Some(Inherited { name, .. }) => io::Error::other(format!(
            "the socket of systemd at {at} is named {name} (FileDescriptorName=), which is another listener"
        )),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture;

    #[test]
    fn a_socket_with_the_name_of_another_listener_is_named() {
        let (socket, at) = inherited("admin");
        let upstream = "[upstream]\nurl = \"http://127.0.0.1:9\"\n";
        let text = fixture::text(&format!("[listen]\nhttp = [\"{at}\"]\n{upstream}"));
        let listen = fixture::parsed(&text).listen;
        let Err(error) = Sockets::open(&listen, vec![socket]) else { panic!("it is taken") };
        let error = error.to_string();
        assert!(error.contains(&at.to_string()) && error.contains("named admin"), "{error}");
    }

    fn inherited(name: &str) -> (Inherited, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (name, socket) = (name.into(), Socket::Tcp(listener));
        (Inherited { name, is_limited: true, is_activated: true, socket }, at)
    }

    #[test]
    fn a_predecessors_socket_may_change_its_kind() {
        let (mut socket, at) = inherited("https");
        socket.is_limited = false;
        assert!(socket.has_address(Kind::Http, &at));
        let any = SocketAddr::new(at.ip(), 0);
        assert!(!socket.has_address(Kind::Http, &any) && socket.has_address(Kind::Https, &any));
    }

    #[test]
    fn an_inherited_socket_is_found_by_its_address_and_its_name() {
        for (name, is_found) in
            [("http", true), ("weir.socket", true), ("", true), ("admin", false)]
        {
            let (socket, at) = inherited(name);
            assert_eq!(socket.has_address(Kind::Http, &at), is_found, "{name}");
            let other = SocketAddr::new(at.ip(), at.port() ^ 1);
            assert!(!socket.has_address(Kind::Http, &other), "{name}");
            let any = SocketAddr::new(at.ip(), 0);
            assert_eq!(socket.has_address(Kind::Http, &any), name == "http", "{name}");
        }
    }

    #[test]
    fn a_socket_of_all_addresses_serves_both_families() {
        let (mut socket, _) = inherited("");
        let Ok(all) = TcpListener::bind("[::]:0") else { return };
        let port = all.local_addr().unwrap().port();
        socket.socket = Socket::Tcp(all);
        assert!(socket.has_address(Kind::Http, &SocketAddr::from(([0, 0, 0, 0], port))));
        assert!(!socket.has_address(Kind::Http, &SocketAddr::from(([127, 0, 0, 1], port))));
    }
}
