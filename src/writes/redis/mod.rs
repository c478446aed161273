//! Writes in Redis, which all replicas share.
//!
//! A write belongs to the replica that accepted it. Others read it, or cancel it while it is
//! queued. Each replica renews a lease; the writes of one whose lease has ended go to another
//! replica. Every change names the replica that makes it, so that the one before can change nothing
//! any more.
//!
//! A lane is one list for all replicas. Its first write may be sent, and nobody else's. A write
//! that is not queued takes a place there too.

mod again;
mod ahead;
mod insert;
mod lease;
mod own;
mod scripts;
mod text;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redis::{Cmd, FromRedisValue, cmd};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc};
use tokio::time::timeout;

use super::record::WriteState;
use super::{Change, Progress, Store, StoreError, Stored};
use crate::clock::timer_now;
use crate::state::redis::{SHORT_BYTES_MAX, time_for};
use crate::state::{Content, Replica, WriteNews};
use own::{Copied, Own, OwnWrites};
pub use text::digest_text;
use text::{hex, millis, parsed};

/// The time after the last renewal for which a replica keeps its writes. Ours: as long as it keeps
/// its parts of the limits.
const LEASE: Duration = Duration::from_secs(10);

/// The distance of looks at the connection for short commands during a long one. Ours: two of them
/// outlast a connection that is opened anew.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The largest write that is loaded, as far as its time is concerned.
const LOADED_MAX: usize = 32 * 1024 * 1024;

/// The place of a write among those of all replicas.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The lane: the client's name and the resource; empty: none.
    pub lane: String,
    /// The client's name with the digest of its `Idempotency-Key` in hex; empty: none.
    pub key: String,
    /// The digest of the request that the key stands for.
    pub meaning: [u8; 32],
}

/// An event for the queue of this replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The turn of a write or a place has come. It may be said twice.
    Turn(u64),
    /// Another replica has this write, or it has ended.
    Lost(u64),
    /// A client of another replica has been promised this write.
    Joined(u64),
    /// This replica has the writes of one that is gone.
    Adopted(Vec<u64>),
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct SharedStore(Arc<Inner>);

struct Inner {
    replica: Arc<Replica>,
    /// The beginning of all keys. The braces put them into one slot of a cluster.
    base: String,
    me: String,
    retention: Duration,
    runtime: Handle,
    own: Mutex<OwnWrites>,
    events: mpsc::UnboundedSender<Event>,
    taken: Mutex<Option<mpsc::UnboundedReceiver<Event>>>,
}

/// The answer of a script: a word, and the head of a lane or what else there is to say.
type Said = (String, String);

impl SharedStore {
    /// The writes of this replica, and those of all others. A finished write is kept for
    /// `retention`. Must run on a tokio runtime.
    pub fn begin(replica: &Arc<Replica>, retention: Duration) -> Self {
        let (events, taken) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            base: format!("{}:{{writes}}:", replica.prefix()),
            me: hex(replica.id().0),
            replica: Arc::clone(replica),
            retention,
            runtime: Handle::current(),
            own: Mutex::default(),
            events,
            taken: Mutex::new(Some(taken)),
        });
        tokio::spawn(lease::keep(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// The events; `None` after the first call.
    pub fn events(&self) -> Option<mpsc::UnboundedReceiver<Event>> {
        self.0.taken.lock().take()
    }

    /// True if writes can be added: Redis was reached once.
    pub fn is_open(&self) -> bool {
        !self.0.own.lock().numbers.is_empty()
    }

    /// A number that no replica has used; `None` before Redis was reached.
    pub fn next_number(&self) -> Option<u64> {
        self.0.own.lock().numbers.next()
    }

    /// Takes a place at the end of a lane. The turn comes as an event.
    pub fn enter(&self, number: u64, lane: String) {
        self.0.own.lock().add(number, Own::place(lane));
        let this = Arc::clone(&self.0);
        drop(self.0.spawn(async move { this.enter(number).await }));
    }

    /// Leaves a place.
    pub fn leave(&self, number: u64) {
        if self.0.own.lock().leave(number) {
            let this = Arc::clone(&self.0);
            drop(self.0.spawn(async move { this.leave(number).await }));
        }
    }

    /// Notes that the turn of a write was passed on to it.
    pub fn called(&self, number: u64) {
        self.0.own.lock().called(number);
    }

    /// Lets a finished write of this replica go on, with this progress.
    pub fn again(
        &self,
        number: u64,
        progress: Bytes,
    ) -> BoxFuture<'static, Result<(), StoreError>> {
        let this = Arc::clone(&self.0);
        self.0.spawn(async move {
            let look = this.script(scripts::LOOK, number);
            let (_, changes, lane) = this.run::<Looked>(&look).await?;
            let lane = lane.ok_or(StoreError::Elsewhere)?;
            this.own.lock().add(number, Own::write(lane, changes.unwrap_or_default()));
            let kept = this.progress(number, progress, true).await;
            if kept.is_err() {
                this.own.lock().take(number);
            } else if let Ok(Some(loaded)) = this.load(number).await {
                let mut own = this.own.lock();
                own.copy(number, loaded.copy);
                own.placed(number, loaded.place);
            }
            kept
        })
    }

    /// Ends a write of any replica, if it is still queued. `ended` makes its last progress of the
    /// present one. `Elsewhere`: it is not queued, or there is none.
    pub async fn cancel(
        &self,
        number: u64,
        ended: impl Fn(Progress) -> Progress,
    ) -> Result<(), StoreError> {
        let this = &self.0;
        this.take_back(number).await?;
        loop {
            let look = this.script(scripts::LOOK, number);
            let (progress, changes, ..) = this.run::<Looked>(&look).await?;
            let progress = progress.map(Bytes::from).ok_or(StoreError::Elsewhere)?;
            let progress = Progress::decode(&this.opened(PROGRESS, number, progress)?)?;
            if progress.state != WriteState::Queued {
                return Err(StoreError::Elsewhere);
            }
            let ended = ended(progress);
            let cancel = this
                .script(scripts::CANCEL, number)
                .arg(changes.unwrap_or_default())
                .arg(&*this.sealed(PROGRESS, number, ended.encode())?)
                .arg(ended.state.name())
                .arg(millis(this.retention))
                .to_owned();
            let (word, head) = this.run::<Said>(&cancel).await?;
            if word == "kept" {
                this.say(WriteNews::Ended(number));
                this.pass_on(&head);
                return Ok(());
            }
        }
    }

    /// Loads a write of which this replica knows nothing, with true if a client of another one was
    /// promised it.
    pub async fn load_adopted(&self, number: u64) -> Result<Option<(Stored, bool)>, StoreError> {
        let Some(loaded) = self.0.load(number).await? else { return Ok(None) };
        let mut own = self.0.own.lock();
        own.copy(number, loaded.copy.clone());
        own.placed(number, loaded.place);
        let Copied { request, progress, .. } = loaded.copy;
        Ok(Some((Stored { request, progress }, loaded.is_joined)))
    }

    /// True if Redis has lost its data, and replicas may still have to add writes again.
    pub fn has_just_lost(&self) -> bool {
        self.0.has_just_lost()
    }

    /// An own write that has not ended, if there is a copy of it here.
    pub fn copied(&self, number: u64) -> Option<Stored> {
        let own = self.0.own.lock();
        let Copied { request, progress, .. } = own.copy_of(number)?.clone();
        Some(Stored { request, progress })
    }

    /// Adds a write of this replica again that has ended, if Redis has lost it. `Elsewhere`: there
    /// is no copy of it here.
    pub async fn add_again(&self, number: u64) -> Result<(), StoreError> {
        self.0.add_again(number).await
    }

    /// Takes a finished write from the replica that had it. False: it has not finished.
    pub async fn take(&self, number: u64) -> Result<bool, StoreError> {
        let taken = self.0.run::<u8>(&self.0.script(scripts::TAKE, number)).await?;
        Ok(taken == 1)
    }

    /// Says that a client here has been promised a write of another replica.
    pub fn join(&self, number: u64) {
        self.0.say(WriteNews::Joined(number));
    }

    /// News of writes, of all replicas.
    pub fn news(&self) -> broadcast::Receiver<WriteNews> {
        self.0.replica.write_news.subscribe()
    }

    /// Ends the lease, so that the others take the writes that are left.
    pub async fn end(&self) -> Result<(), StoreError> {
        self.0.own.lock().has_ended = true;
        self.0.take_all_back().await;
        let end = self.0.command(scripts::END);
        self.0.run::<u64>(&end).await.map(drop)
    }
}

/// The parts of a write that are sealed.
const REQUEST: &str = "request";
const PROGRESS: &str = "progress";

/// A write as Redis has it.
struct Loaded {
    copy: Copied,
    place: String,
    /// A client of another replica was promised it.
    is_joined: bool,
}

/// Progress, changes and lane of a write.
type Looked = (Option<Vec<u8>>, Option<u64>, Option<String>);

impl Inner {
    fn command(&self, script: &str) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(script).arg(1).arg(&self.base).arg(&self.base).arg(&self.me);
        command
    }

    fn script(&self, script: &str, number: u64) -> Cmd {
        let mut command = self.command(script);
        command.arg(hex(number));
        command
    }

    fn sealed(&self, part: &str, number: u64, text: Bytes) -> Result<Bytes, StoreError> {
        Ok(self.replica.seal().seal(&format!("{part}:{}", hex(number)), text)?)
    }

    fn opened(&self, part: &str, number: u64, text: Bytes) -> Result<Bytes, StoreError> {
        Ok(self.replica.seal().open(&format!("{part}:{}", hex(number)), text)?)
    }

    async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let bytes: usize = command
            .args_iter()
            .map(|arg| if let redis::Arg::Simple(text) = arg { text.len() } else { 0 })
            .sum();
        if bytes > SHORT_BYTES_MAX {
            return self.run_long(bytes, command).await;
        }
        let ran = self.replica.connection().run(command).await;
        ran.map_err(|away| StoreError::Failed(away.0))
    }

    /// Runs a command that moves so many bytes, apart from the short ones.
    async fn run_long<T: FromRedisValue>(
        &self,
        bytes: usize,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        if let Some(reason) = self.replica.home().away() {
            return Err(StoreError::Failed(reason));
        }
        let connection = self.replica.long_connection();
        let mut running = pin!(connection.run_long(time_for(bytes), command));
        let mut was_away = false;
        loop {
            if let Ok(ran) = timeout(LOOK_EVERY, running.as_mut()).await {
                return ran.map_err(|away| StoreError::Failed(away.0));
            }
            // Short commands find out within their own time that nobody answers.
            match self.replica.home().away() {
                Some(reason) if was_away => return Err(StoreError::Failed(reason)),
                away => was_away = away.is_some(),
            }
        }
    }

    /// Runs a future to its end, even if nobody waits for it. Commands are sent in the order of
    /// these calls.
    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let mut future: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(future);
        let entered = self.runtime.enter();
        if let Some(ended) = future.as_mut().now_or_never() {
            return Box::pin(std::future::ready(ended));
        }
        let task = self.runtime.spawn(future);
        drop(entered);
        Box::pin(async move {
            let interrupted = || StoreError::Failed("it was interrupted".into());
            task.await.unwrap_or_else(|_| Err(interrupted()))
        })
    }

    async fn enter(&self, number: u64) -> Result<(), StoreError> {
        let Some((lane, place)) = self.own.lock().try_place(number) else { return Ok(()) };
        let mut enter = self.script(scripts::ENTER, number);
        enter.arg(lane).arg(millis(LEASE)).arg(place);
        let (head, place, born) = self.run::<(String, String, String)>(&enter).await?;
        self.seen(&born);
        self.own.lock().placed(number, place);
        self.placed(number, &head);
        Ok(())
    }

    async fn leave(&self, number: u64) -> Result<(), StoreError> {
        let Some(lane) = self.own.lock().left_lane(number) else { return Ok(()) };
        let leave = self.script(scripts::LEAVE, number).arg(lane).to_owned();
        let head = self.run::<String>(&leave).await?;
        self.own.lock().has_left(number);
        self.pass_on(&head);
        Ok(())
    }

    async fn load(&self, number: u64) -> Result<Option<Loaded>, StoreError> {
        type Parts = (Option<Vec<u8>>, Option<Vec<u8>>, Option<u8>, String, String, String, String);
        let load = self.script(scripts::LOAD, number);
        let (request, progress, joined, key, meaning, place, born) =
            self.run_long::<Parts>(LOADED_MAX, &load).await?;
        self.seen(&born);
        let (Some(request), Some(progress)) = (request, progress) else { return Ok(None) };
        let copy = Copied {
            request: self.opened(REQUEST, number, request.into())?,
            progress: self.opened(PROGRESS, number, progress.into())?,
            key,
            meaning,
        };
        Ok(Some(Loaded { copy, place, is_joined: joined.is_some() }))
    }

    async fn remove(&self, number: u64) -> Result<(), StoreError> {
        let (word, head) = self.run::<Said>(&self.script(scripts::REMOVE, number)).await?;
        self.own.lock().removed(number, word == "kept");
        self.pass_on(&head);
        Ok(())
    }

    async fn progress(
        self: &Arc<Self>,
        number: u64,
        progress: Bytes,
        is_again: bool,
    ) -> Result<(), StoreError> {
        if self.is_ahead(number, &progress) {
            return Ok(());
        }
        let change = self.own.lock().next_change(number, &progress).ok_or(StoreError::Elsewhere)?;
        let state = Progress::decode_state(&progress).map(|progress| progress.state);
        let state = state.unwrap_or(WriteState::Queued);
        let command = self
            .script(scripts::PROGRESS, number)
            .arg(change)
            .arg(&*self.sealed(PROGRESS, number, progress)?)
            .arg(state.name())
            .arg(if state.is_final() { "final" } else { "" })
            .arg(millis(self.retention))
            .arg(if is_again { "again" } else { "" })
            .to_owned();
        let begun = timer_now();
        let (word, head) = self.run::<Said>(&command).await?;
        let is_again = is_again && word == "kept";
        if word == "gone" {
            self.own.lock().must_look = true;
            if let Err(fault) = self.add_again(number).await {
                if fault == StoreError::Elsewhere {
                    self.lost(number, false);
                }
                return Err(fault);
            }
        } else if word != "kept" {
            self.lost(number, true);
            return Err(StoreError::Elsewhere);
        }
        if timer_now() - begun > LEASE / 2 {
            // This process has stood still, and may have lost the write since.
            return Err(StoreError::Failed("the answer was taken up too late".into()));
        }
        if state.is_final() {
            self.own.lock().ended(number);
            self.say(WriteNews::Ended(number));
        }
        if is_again {
            self.placed(number, &head);
        } else {
            self.pass_on(&head);
        }
        Ok(())
    }

    fn lost(&self, number: u64, is_elsewhere: bool) {
        self.own.lock().take(number);
        if !is_elsewhere {
            tracing::error!(
                write = number,
                "Redis has lost a queued write, which will not be executed"
            );
        }
        // The queue outlives its events only at the end of the process.
        let _ = self.events.send(Event::Lost(number));
    }

    /// Says that it is the turn of a write, if it has come to the head of its lane.
    fn placed(&self, number: u64, head: &str) {
        if parsed(head).is_some_and(|(owner, first)| owner == self.me && first == number) {
            self.turn(number);
        }
    }

    /// Says to the replica of the new head of a lane that its turn has come.
    fn pass_on(&self, head: &str) {
        let Some((owner, number)) = parsed(head) else { return };
        if owner == self.me {
            self.turn(number);
        } else {
            self.say(WriteNews::Turn(number));
        }
    }

    fn say(&self, news: WriteNews) {
        let _ = self.replica.write_news.send(news);
        let replica = Arc::clone(&self.replica);
        // A message that is lost costs the others a second.
        self.runtime.spawn(async move { replica.tell(Content::Write(news)).await });
    }
}

impl Store for SharedStore {
    fn apply(&self, change: Change) -> BoxFuture<'static, Result<(), StoreError>> {
        let this = Arc::clone(&self.0);
        match change {
            Change::Insert(number, stored) => self.insert(number, &stored, &Place::default(), None),
            Change::Progress(number, progress) => {
                self.0.spawn(async move { this.progress(number, progress, false).await })
            }
            Change::Remove(numbers) => {
                // Finished ones end by themselves.
                let own = self.0.own.lock().remove(&numbers);
                self.0.spawn(async move {
                    for number in own {
                        this.remove(number).await?;
                    }
                    Ok(())
                })
            }
        }
    }

    fn load(&self, number: u64) -> BoxFuture<'static, Result<Option<Stored>, StoreError>> {
        let this = Arc::clone(&self.0);
        self.0.spawn(async move {
            Ok(this.load(number).await?.map(|Loaded { copy, .. }| Stored {
                request: copy.request,
                progress: copy.progress,
            }))
        })
    }

    fn room(&self, _: u64) -> Option<u64> {
        self.0.own.lock().room
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn shared(&self) -> Option<&SharedStore> {
        Some(self)
    }
}
