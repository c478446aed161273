//! The side of the old process: it passes its sockets to a successor, and goes on as if nothing had
//! happened until that one is ready.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::channel::{Channel, DESCRIPTORS_MAX, Message, PassedSocket, VERSION};
use super::{ANSWER_WITHIN, TAKEOVER, TAKEOVER_MODE};
use crate::decision::SpendingMark;
use crate::gateway::{Current, Sockets, bind::bind_unix};
use crate::writes::handed::HandedStore;

/// The longest time in which a successor gets ready. Chosen here: it reads hundreds of MiB of
/// stored answers, and asks the upstream about its tokens.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// The pause between two looks at the queue of writes in a drain. Chosen here: queued writes of
/// clients wait for it.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);
/// The pause between two messages about what was spent. Chosen here: some requests may be sent in
/// it.
const SPENT_PAUSE: Duration = Duration::from_millis(100);
/// The pause after a failed accept: out of descriptors, mostly.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The takeover socket of this process.
pub struct Takeover {
    listener: UnixListener,
    path: PathBuf,
    sockets: Vec<(PassedSocket, OwnedFd)>,
    /// True while a process has the sockets that is not ready.
    are_passed: AtomicBool,
}

/// A successor that accepts connections.
pub struct Successor {
    /// The sockets that it goes on with.
    pub kept: Vec<String>,
    informed: Mutex<Informed>,
}

/// The channel to a successor.
struct Informed {
    channel: Channel,
    mark: SpendingMark,
}

impl Takeover {
    /// Listens at the path, or on the socket of the predecessor.
    pub fn open(
        path: &Path,
        inherited: Option<StdUnixListener>,
        sockets: &Sockets,
    ) -> io::Result<Self> {
        let listener = match inherited {
            Some(listener) => listener,
            None => bind_unix(path, TAKEOVER_MODE)?,
        };
        listener.set_nonblocking(true)?;
        let own = (TAKEOVER.to_owned(), false, listener.as_fd().try_clone_to_owned()?);
        let all = sockets.duplicates()?.into_iter().chain([own]);
        let sockets: Vec<_> = all
            .map(|(name, is_activated, handle)| (PassedSocket { name, is_activated }, handle))
            .collect();
        if sockets.len() > DESCRIPTORS_MAX {
            let problem = format!("more than {DESCRIPTORS_MAX} sockets cannot be handed over");
            return Err(io::Error::other(problem));
        }
        let listener = UnixListener::from_std(listener)?;
        Ok(Self { listener, path: path.to_owned(), sockets, are_passed: AtomicBool::new(false) })
    }

    /// Waits for a successor that is ready. Others are refused meanwhile, and until `own` is over,
    /// the takeover of this process.
    pub async fn successor(&self, current: &Arc<Current>, own: impl Future) -> Successor {
        let mut own = pin!(own);
        loop {
            tokio::select! {
                _ = &mut own => break,
                stream = self.accept() => drop(tokio::spawn(refuse(stream))),
            }
        }
        loop {
            let stream = self.accept().await;
            let mut talk = pin!(self.talk(stream, current));
            let talked = loop {
                tokio::select! {
                    talked = &mut talk => break talked,
                    stream = self.accept() => drop(tokio::spawn(refuse(stream))),
                }
            };
            match talked {
                Ok(successor) => return successor,
                Err(error) => {
                    self.are_passed.store(false, Ordering::Relaxed);
                    warn!(%error, "a successor did not get ready; this process goes on");
                }
            }
        }
    }

    /// The names of the sockets if another process has them, which goes on if this one ends.
    pub fn passed(&self) -> Option<Vec<String>> {
        let names = || self.sockets.iter().map(|(socket, _)| socket.name.clone()).collect();
        self.are_passed.load(Ordering::Relaxed).then(names)
    }

    async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    async fn talk(&self, stream: UnixStream, current: &Arc<Current>) -> io::Result<Successor> {
        let mut channel = Channel::new(stream)?;
        match channel.receive_within(ANSWER_WITHIN).await? {
            Message::Hello { version: VERSION } => {}
            _ => return Err(io::Error::other("it speaks another version of the handover")),
        }
        info!("a successor asks for the sockets");
        let names = self.sockets.iter().map(|(socket, _)| PassedSocket {
            name: socket.name.clone(),
            is_activated: socket.is_activated,
        });
        let handles: Vec<_> = self.sockets.iter().map(|(_, handle)| handle.as_fd()).collect();
        self.are_passed.store(true, Ordering::Relaxed);
        send(&channel, &Message::Sockets(names.collect()), &handles).await?;
        let mut mark = SpendingMark::beginning();
        loop {
            match channel.receive_within(READY_WITHIN).await? {
                Message::AskSnapshot => {
                    let before = current.gateway().dispatcher.spending_mark();
                    let handover = self.snapshot(current).await;
                    if handover.is_some() {
                        mark = before;
                    }
                    send(&channel, &Message::Snapshot(handover), &[]).await?;
                }
                Message::Ready { kept } => {
                    let gateway = current.gateway();
                    let drain = gateway.env.config.listen.drain;
                    let within_ms = u64::try_from(drain.as_millis()).unwrap_or(u64::MAX);
                    let clients = current.clients_with_writes();
                    let spent = gateway.dispatcher.spent_since(&mut mark);
                    let issuers = gateway.issuers().iter();
                    let issuer_keys = issuers.filter_map(|issuer| issuer.handed_keys()).collect();
                    let yours = Message::Yours { within_ms, clients, spent, issuer_keys };
                    send(&channel, &yours, &[]).await?;
                    let informed = Informed { channel, mark };
                    return Ok(Successor { kept, informed: Mutex::new(informed) });
                }
                other => return Err(io::Error::other(format!("it sent {other:?}"))),
            }
        }
    }

    async fn snapshot(&self, current: &Arc<Current>) -> Option<PathBuf> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".snapshot");
        let path = self.path.with_file_name(name);
        match current.write_handover(path.clone()).await {
            Ok(()) => Some(path),
            Err(error) => {
                warn!(path = %path.display(), %error, "a successor gets no snapshot");
                None
            }
        }
    }
}

impl Successor {
    /// Lets go of the file of writes once none is under way, and tells the successor. Ends with the
    /// drain at the latest.
    pub async fn pass_on_store(&self, current: &Arc<Current>, store: Option<&HandedStore>) {
        let gateway = current.gateway();
        if let Some(store) = store {
            // Until then requests of open connections are served.
            while !(gateway.env.active.refuses() && gateway.writes.queue().close_if_quiet()) {
                sleep(QUEUE_PAUSE).await;
            }
            store.release().await;
        }
        self.tell(&Message::StoreFree).await;
    }

    /// Tells the successor what this process spends, without an end.
    pub async fn keep_telling(&self, current: &Arc<Current>) -> Infallible {
        let mut was_idle = false;
        loop {
            sleep(SPENT_PAUSE).await;
            was_idle = self.tell_spent(current, was_idle).await;
        }
    }

    /// Tells it what was spent since the last time. Returns true if nothing was, which it hears
    /// only once.
    async fn tell_spent(&self, current: &Arc<Current>, was_idle: bool) -> bool {
        let mut informed = self.informed.lock().await;
        let dispatcher = &current.gateway().dispatcher;
        let spent = dispatcher.spent_since(&mut informed.mark);
        let is_idle = spent.is_empty();
        if !(is_idle && was_idle) {
            informed.tell(&Message::Spent(spent)).await;
        }
        is_idle
    }

    /// Tells the successor that this process ends.
    pub async fn end(&self, current: &Arc<Current>) {
        self.tell_spent(current, false).await;
        self.tell(&Message::Over { has_changed: current.has_changed_since_handover() }).await;
    }

    async fn tell(&self, message: &Message) {
        self.informed.lock().await.tell(message).await;
    }
}

impl Informed {
    async fn tell(&self, message: &Message) {
        if let Err(error) = send(&self.channel, message, &[]).await {
            warn!(%error, "the successor cannot be reached");
        }
    }
}

async fn send(
    channel: &Channel,
    message: &Message,
    descriptors: &[std::os::fd::BorrowedFd<'_>],
) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    timeout(ANSWER_WITHIN, channel.send(message, descriptors)).await.map_err(late)?
}

/// Starts the program of this process again, with its arguments: an upgrade may have replaced it.
/// The new process takes over once it is ready.
pub fn start_successor() {
    let mut arguments = std::env::args_os();
    let Some(program) = arguments.next() else { return };
    let mut command = Command::new(program);
    // The watchdog of the service manager is that of the successor once this process has ended.
    command.args(arguments).env_remove("WATCHDOG_PID").stdin(Stdio::null());
    match command.spawn() {
        Ok(mut child) => {
            info!(pid = child.id(), "a successor was started");
            // One that fails is not left as a zombie.
            std::thread::spawn(move || {
                if let Ok(status) = child.wait() {
                    warn!(%status, "the successor has ended");
                }
            });
        }
        Err(error) => warn!(%error, "no successor can be started"),
    }
}

async fn refuse(stream: UnixStream) {
    warn!("a second successor is refused");
    if let Ok(mut channel) = Channel::new(stream) {
        // A close with unread bytes would take the answer away. It may have left, too.
        let _ = channel.receive_within(ANSWER_WITHIN).await;
        let _ = send(&channel, &Message::Busy, &[]).await;
    }
}
