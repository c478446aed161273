//! The spool of a shared body (`shared_body/mod.rs`): an anonymous temporary file with the bytes
//! that left memory before the slowest reader had them. An upload has one for its whole body.
//!
//! The file is a ring: a byte's place in it follows from its offset in the body. A repeated write
//! changes nothing, and what all readers have makes room. Reads and writes block, so they run on
//! threads beside the runtime's workers.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::decision::scheduler::shared_capacity::Holder;
use crate::gateway::shared_space::{Share, SharedSpace};

/// The bound of one spool, from the slowest reader to the window: 1 GiB. Chosen here: more than
/// clients of an API download at once.
const BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// The bound of all spools: 4 GiB, of which each client and each body has a fair share. Chosen
/// here: temporary folders usually have more.
const ALL_BYTES_MAX: u64 = 4 * BYTES_MAX;
/// The unit of that space: about a read.
const UNIT_BYTES: u64 = 64 * 1024;
/// The longest piece that a reader gets at once: one write to its client.
const READ_BYTES: u64 = 64 * 1024;
/// A disk that needs longer for a piece has failed. Chosen here: all readers wait for a write.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);

/// The threads that all spools may occupy. Chosen here: most pieces are copied to or from the page
/// cache, and each thread keeps memory.
static THREADS: Semaphore = Semaphore::const_new(2);

/// The space of all spools, whose file system outlives every config.
static SPACE: LazyLock<Arc<SharedSpace>> =
    LazyLock::new(|| SharedSpace::new(ALL_BYTES_MAX, UNIT_BYTES));
/// Numbers of the spools in [`SPACE`].
static SPOOLS: AtomicU64 = AtomicU64::new(0);

pub struct Spool {
    /// The size from which the file begins anew.
    ring_bytes: u64,
    /// Created by the first write.
    file: OnceLock<File>,
    /// The space of the file; `None`: it is bounded elsewhere.
    space: Option<Mutex<Share>>,
    is_closed: AtomicBool,
    /// A write that was given up still ends before the next one begins.
    writing: Mutex<()>,
}

impl Spool {
    /// A spool of a client's body, in the space of all spools.
    pub fn of_client(client: u32) -> Arc<Self> {
        Self::within(&SPACE, client)
    }

    fn within(space: &Arc<SharedSpace>, client: u32) -> Arc<Self> {
        let connection = SPOOLS.fetch_add(1, Ordering::Relaxed);
        let space = space.share(Holder { client, connection });
        Arc::new(Self::new(BYTES_MAX, Some(Mutex::new(space))))
    }

    /// A spool for the whole body of an upload, which bounds itself.
    pub fn of_upload() -> Arc<Self> {
        Arc::new(Self::new(u64::MAX, None))
    }

    fn new(ring_bytes: u64, space: Option<Mutex<Share>>) -> Self {
        let (file, is_closed, writing) = Default::default();
        Self { ring_bytes, file, space, is_closed, writing }
    }

    /// Takes the space to hold this range of the body; false if it may not have that much.
    pub fn make_room(&self, range: Range<u64>) -> bool {
        !self.is_closed()
            && range.end.saturating_sub(range.start) <= BYTES_MAX
            && self.space.as_ref().is_none_or(|space| {
                // The file begins anew at the end of the ring.
                space.lock().grow(range.end.min(self.ring_bytes))
            })
    }

    /// Takes nothing more; readers still get what it holds.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Writes a piece of the body. A write that timed out may still end later.
    pub async fn write(self: &Arc<Self>, offset: u64, piece: Bytes) -> io::Result<()> {
        let spool = Arc::clone(self);
        on_a_thread(move || spool.write_now(offset, &piece)).await
    }

    /// Reads the first bytes of this range.
    pub async fn read(self: &Arc<Self>, range: Range<u64>) -> io::Result<Bytes> {
        let position = range.start % self.ring_bytes;
        let bytes = (range.end - range.start).min(READ_BYTES).min(self.ring_bytes - position);
        let spool = Arc::clone(self);
        // From the memory of this thread, which lasts; those of the spools come and go.
        let mut piece = vec![0; usize::try_from(bytes).unwrap_or_default()];
        on_a_thread(move || {
            spool.file()?.read_exact_at(&mut piece, position)?;
            Ok(piece.into())
        })
        .await
    }

    fn write_now(&self, offset: u64, mut piece: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock();
        if self.file.get().is_none() {
            let file = tempfile::tempfile()?;
            self.file.get_or_init(|| file);
        }
        let mut position = offset % self.ring_bytes;
        while !piece.is_empty() {
            let fits =
                usize::try_from(self.ring_bytes - position).unwrap_or(usize::MAX).min(piece.len());
            let (part, rest) = piece.split_at(fits);
            self.file()?.write_all_at(part, position)?;
            (piece, position) = (rest, 0);
        }
        Ok(())
    }

    fn file(&self) -> io::Result<&File> {
        self.file.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Runs this beside the runtime's workers; fails if the disk does not answer.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let working = async {
        let permit = THREADS.acquire().await.map_err(io::Error::other)?;
        let work = spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        work.await.unwrap_or_else(|error| Err(error.into()))
    };
    timeout(DISK_TIMEOUT, working).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn write(spool: &Arc<Spool>, offset: u64, text: &'static str) {
        spool.write(offset, Bytes::from_static(text.as_bytes())).await.unwrap();
    }

    #[tokio::test]
    async fn each_reader_reads_at_its_own_offset() {
        let spool = Spool::of_client(0);
        assert!(spool.read(10..13).await.is_err(), "nothing was written");
        write(&spool, 10, "one").await;
        write(&spool, 13, "two").await;
        write(&spool, 10, "one").await;
        assert_eq!(spool.read(10..16).await.unwrap(), "onetwo");
        assert_eq!(spool.read(12..14).await.unwrap(), "et");
    }

    #[test]
    fn each_spool_and_all_together_have_a_bound() {
        let space = SharedSpace::new(2 * BYTES_MAX, UNIT_BYTES);
        let spool = |client| Spool::within(&space, client);
        let (one, other) = (spool(0), spool(1));
        assert!(one.make_room(5..BYTES_MAX) && !other.make_room(0..BYTES_MAX + 1));
        assert!(one.make_room(7 * BYTES_MAX..8 * BYTES_MAX), "the file begins anew");
        assert!(!other.make_room(0..BYTES_MAX + UNIT_BYTES) && other.make_room(0..BYTES_MAX / 2));
        assert_eq!(space.taken(), 3 * BYTES_MAX / 2 / UNIT_BYTES);
        assert!(!spool(2).make_room(0..BYTES_MAX));
        drop(one);
        assert!(spool(2).make_room(0..BYTES_MAX), "its space is free again");
    }

    #[test]
    fn a_client_at_its_share_leaves_room_to_others() {
        let space = SharedSpace::new(BYTES_MAX, UNIT_BYTES);
        // Many bodies, each as long as it may be.
        let greedy: Vec<_> = (0..200).map(|_| Spool::within(&space, 0)).collect();
        for spool in &greedy {
            let mut bytes = UNIT_BYTES;
            while spool.make_room(0..bytes) {
                bytes += UNIT_BYTES;
            }
        }
        let other = Spool::within(&space, 1);
        assert!(other.make_room(0..32 * 1024 * 1024), "the share of another client");
        assert!(!greedy.iter().any(|spool| spool.make_room(0..BYTES_MAX)));
    }

    #[tokio::test]
    async fn the_end_of_the_file_is_followed_by_its_beginning() {
        let spool = Spool::of_client(0);
        let begin = 3 * BYTES_MAX - 2;
        write(&spool, begin, "four").await;
        write(&spool, begin, "four").await;
        assert_eq!(spool.read(begin..begin + 4).await.unwrap(), "fo");
        assert_eq!(spool.read(begin + 2..begin + 4).await.unwrap(), "ur");
        assert_eq!(spool.file().unwrap().metadata().unwrap().len(), BYTES_MAX);
    }

    #[tokio::test]
    async fn a_closed_spool_takes_nothing_and_keeps_its_bytes() {
        let spool = Spool::of_client(0);
        write(&spool, 0, "one").await;
        spool.close();
        assert!(!spool.make_room(0..1));
        assert_eq!(spool.read(0..3).await.unwrap(), "one");
    }

    #[test]
    fn a_disk_that_hangs_is_given_up() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let spool = Spool::of_client(0);
        let hanging = spool.writing.lock();
        let fault = runtime.block_on(async {
            let mut write = Box::pin(spool.write(0, Bytes::from_static(b"one")));
            assert!(futures_util::poll!(&mut write).is_pending());
            tokio::time::advance(DISK_TIMEOUT).await;
            write.await.unwrap_err()
        });
        drop(hanging);
        assert_eq!(fault.kind(), io::ErrorKind::TimedOut);
    }
}
