//! The side of the new process: it takes the sockets of a predecessor, gets ready, and takes what
//! the predecessor lets go of until that one has ended.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use socket2::{Domain, SockRef};
use tokio::net::UnixStream;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::channel::{Channel, Message, PassedSocket, VERSION};
use super::{ANSWER_WITHIN, TAKEOVER};
use crate::cli::stored_writes::with_stored_writes;
use crate::decision::Spent;
use crate::gateway::{Current, HandedKeys, Inherited, Socket};
use crate::writes::file::FileStore;
use crate::writes::handed::HandedStore;

/// The longest wait for the snapshot. Chosen here: hundreds of MiB take seconds.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(60);
/// The pause before the file of writes is tried again. Chosen here: writes of clients wait for it.
const STORE_PAUSE: Duration = Duration::from_millis(100);
/// Tries that fail before it is called a problem. Chosen here: the predecessor lets go of the file
/// within a fraction of a second after it says so.
const QUIET_TRIES: u32 = 10;
/// The time beyond its own bound in which a predecessor must end before it is called hung.
const END_SLACK: Duration = Duration::from_secs(5);

/// A process that serves the config's addresses.
pub struct Predecessor {
    channel: Channel,
    sockets: Vec<Inherited>,
    takeover: Option<UnixListener>,
}

/// The end of a predecessor that still drains, or its death.
pub struct Following {
    channel: Option<Channel>,
    within: Duration,
    /// The clients with writes that the predecessor has not done.
    pub clients: Vec<String>,
    /// Its spending since the snapshot.
    pub spent: Spent,
    /// The keys of issuers of tokens that it has fetched.
    pub issuer_keys: Vec<HandedKeys>,
}

/// The file of writes that a predecessor still has.
pub struct AwaitedStore {
    pub path: PathBuf,
    pub store: Arc<HandedStore>,
}

impl Predecessor {
    /// Asks the process at the takeover socket for its sockets. `None`: there is no process.
    pub async fn find(at: &Path) -> Result<Option<Self>, String> {
        let failed = |error: io::Error| {
            format!("cannot take over from the process at {}: {error}", at.display())
        };
        let stream = match UnixStream::connect(at).await {
            Ok(stream) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        let mut channel = Channel::new(stream).map_err(failed)?;
        channel.send(&Message::Hello { version: VERSION }, &[]).await.map_err(failed)?;
        let names = match channel.receive_within(ANSWER_WITHIN).await.map_err(failed)? {
            Message::Sockets(names) => names,
            Message::Busy => {
                let problem = "another takeover is not over yet";
                return Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, problem)));
            }
            other => return Err(failed(io::Error::other(format!("it sent {other:?}")))),
        };
        let descriptors = channel.take_descriptors();
        if descriptors.len() != names.len() {
            return Err(failed(io::Error::other("it passed other sockets than it names")));
        }
        let (mut sockets, mut takeover) = (Vec::new(), None);
        for (PassedSocket { name, is_activated }, descriptor) in names.into_iter().zip(descriptors)
        {
            match (name == TAKEOVER, socket_of(descriptor).map_err(failed)?) {
                (true, Socket::Unix(listener)) => takeover = Some(listener),
                (_, socket) => sockets.push(Inherited {
                    // Its address is asked of the system.
                    name: name.split(' ').next().unwrap_or_default().to_owned(),
                    is_limited: false,
                    is_activated,
                    socket,
                }),
            }
        }
        info!(sockets = sockets.len(), "a predecessor passed its sockets");
        Ok(Some(Self { channel, sockets, takeover }))
    }

    /// Takes its sockets, and the takeover socket.
    pub fn take_sockets(&mut self) -> (Vec<Inherited>, Option<UnixListener>) {
        (std::mem::take(&mut self.sockets), self.takeover.take())
    }

    /// Asks for what it knows of budgets, limits and stored answers. `None` if it cannot tell.
    pub async fn snapshot(&mut self) -> Option<PathBuf> {
        let asked = async {
            self.channel.send(&Message::AskSnapshot, &[]).await?;
            self.channel.receive_within(SNAPSHOT_WITHIN).await
        };
        match asked.await {
            Ok(Message::Snapshot(path)) => path,
            Ok(_) => None,
            Err(error) => {
                warn!(%error, "the predecessor gives no snapshot");
                None
            }
        }
    }

    /// Returns true if it has ended, which leaves the sockets to this process.
    pub fn has_ended(&mut self) -> bool {
        // It sends nothing unasked.
        self.channel.receive().now_or_never().is_some_and(|received| received.is_err())
    }

    /// Says that this process accepts, and on which of the sockets. Fails if the predecessor lives
    /// and does not answer: it may wake up and accept too.
    pub async fn succeed(mut self, kept: Vec<String>) -> Result<Following, String> {
        let asked = async {
            self.channel.send(&Message::Ready { kept }, &[]).await?;
            self.channel.receive_within(ANSWER_WITHIN).await
        };
        match asked.await {
            Ok(Message::Yours { within_ms, clients, spent, issuer_keys }) => {
                let within = Duration::from_millis(within_ms) + END_SLACK;
                Ok(Following { channel: Some(self.channel), within, clients, spent, issuer_keys })
            }
            Ok(other) => Err(format!("the predecessor answered {other:?}, and goes on")),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err("the predecessor hangs, and is left alone: end it, then start again".into())
            }
            Err(error) => {
                warn!(%error, "the predecessor has ended; this process goes on alone");
                Ok(Following {
                    channel: None,
                    within: Duration::ZERO,
                    clients: Vec::new(),
                    spent: Spent::default(),
                    issuer_keys: Vec::new(),
                })
            }
        }
    }
}

impl Following {
    /// Takes the file of writes as soon as the predecessor lets go of it, and waits for its end.
    pub async fn follow(mut self, current: Arc<Current>, mut awaited: Option<AwaitedStore>) {
        let mut has_changed = true;
        let mut hung = pin!(sleep(self.within));
        let mut is_hung = self.channel.is_none();
        while let Some(channel) = &mut self.channel {
            let message = tokio::select! {
                message = channel.receive() => message,
                () = &mut hung, if !is_hung => {
                    is_hung = true;
                    error!("the predecessor has not ended in time; its writes wait for it");
                    continue;
                }
            };
            match message {
                Ok(Message::StoreFree) => open_store(&current, awaited.take()).await,
                Ok(Message::Spent(spent)) => current.gateway().dispatcher.add_spent(&spent),
                Ok(Message::Over { has_changed: changed }) => has_changed = changed,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        open_store(&current, awaited.take()).await;
        current.predecessor_ended(has_changed).await;
        info!("the predecessor has ended");
    }
}

/// Opens the file of writes, however long that takes: queued writes are not lost. Returns when it
/// is open, or when it will take longer, so that a further process may take over and repair it.
async fn open_store(current: &Arc<Current>, awaited: Option<AwaitedStore>) {
    let Some(awaited) = awaited else { return };
    let mut problem = None;
    for _ in 0..QUIET_TRIES {
        match awaited.try_open(current).await {
            Ok(()) => return,
            Err(fault) => problem = Some(fault),
        }
        sleep(STORE_PAUSE).await;
    }
    let current = Arc::clone(current);
    tokio::spawn(async move {
        let mut said = None;
        while !awaited.store.is_released() {
            if problem != said {
                let error = problem.as_deref().unwrap_or_default();
                error!(error, "the queued writes of the predecessor wait");
                said.clone_from(&problem);
            }
            sleep(STORE_PAUSE).await;
            match awaited.try_open(&current).await {
                Ok(()) => return,
                Err(fault) => problem = Some(fault),
            }
        }
    });
}

impl AwaitedStore {
    async fn try_open(&self, current: &Arc<Current>) -> Result<(), String> {
        let path = self.path.clone();
        let open = move || with_stored_writes(|each| FileStore::open(&path, each));
        let opened = tokio::task::spawn_blocking(open).await;
        let (file, mut recovery) = opened.unwrap_or_else(|error| Err(error.to_string()))?;
        recovery.next_number = file.first_number();
        if !self.store.open(Arc::new(file)) {
            // Another process has taken over meanwhile, and opens it.
            return Ok(());
        }
        // An hour's writes take a while.
        let current = Arc::clone(current);
        let open = move || current.open_writes(recovery);
        match tokio::task::spawn_blocking(open).await {
            Ok(()) => info!("queued writes go on"),
            Err(error) => error!(%error, "the queued writes of the predecessor do not go on"),
        }
        Ok(())
    }
}

fn socket_of(descriptor: OwnedFd) -> io::Result<Socket> {
    let socket = SockRef::from(&descriptor);
    if !socket.is_listener()? {
        return Err(io::Error::other("it passed a descriptor that does not listen"));
    }
    let is_unix = socket.local_addr()?.domain() == Domain::UNIX;
    Ok(if is_unix {
        Socket::Unix(UnixListener::from(descriptor))
    } else {
        Socket::Tcp(TcpListener::from(descriptor))
    })
}
