//! An anonymous temporary file with a body, or the part of it that is needed.
//!
//! A byte's place in the file is its place in the body, so a repeated write changes nothing. What
//! nobody needs any more is punched out of the file. Reads and writes block, so they run on threads
//! beside the runtime's workers. `space.rs` bounds all spools together.

use std::fs::{File, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::gateway::spool::space::{Room, SpoolSpace};

/// The longest piece that a reader gets at once: one write to its client.
const READ_BYTES: u64 = 64 * 1024;
/// The unit in which the beginning of a file is given back: a multiple of any file system's block.
const PUNCHED_BYTES: u64 = 1024 * 1024;
/// A disk that needs longer for a piece has failed. Chosen here: longer than a busy disk holds a
/// writer up.
const DISK_TIMEOUT: Duration = Duration::from_secs(15);

/// The threads that all spools may occupy. Chosen here: most pieces are copied to or from the page
/// cache, and each thread keeps memory. Readers do not wait for a disk that writes slowly.
static READING: Semaphore = Semaphore::const_new(2);
static WRITING: Semaphore = Semaphore::const_new(2);

pub struct Spool {
    /// The folder of the file; `None`: the system's folder for temporary files.
    folder: Option<PathBuf>,
    /// Created by the first write.
    file: OnceLock<File>,
    /// The space of the file; `None`: it is bounded elsewhere.
    room: Option<Mutex<Room>>,
    /// The end of the bytes that are, or are about to be, punched out.
    begin: AtomicU64,
    is_closed: AtomicBool,
    /// A write that was given up still ends before the next one begins. Holds the end of what was
    /// punched out.
    writing: Mutex<u64>,
}

impl Spool {
    /// A spool of a client's body, in the space of all spools.
    pub fn of_client(space: &Arc<SpoolSpace>, client: u32) -> Arc<Self> {
        Arc::new(Self::new(space.folder(), Some(Mutex::new(space.room(client)))))
    }

    /// A spool for the whole body of an upload, which bounds itself.
    pub fn of_upload() -> Arc<Self> {
        Arc::new(Self::new(None, None))
    }

    fn new(folder: Option<PathBuf>, room: Option<Mutex<Room>>) -> Self {
        let (file, begin, is_closed, writing) = Default::default();
        Self { folder, file, room, begin, is_closed, writing }
    }

    /// Takes the space to hold this range of the body; false if it may not have that much. What is
    /// before the range may be dropped then.
    pub fn make_room(&self, range: &Range<u64>) -> bool {
        if self.is_closed() {
            return false;
        }
        let Some(room) = &self.room else { return true };
        let mut room = room.lock();
        let unneeded = range.start - range.start % PUNCHED_BYTES;
        let begin = self.begin.load(Ordering::Relaxed).max(unneeded);
        let may_have = room.resize(range.end.saturating_sub(begin));
        if may_have {
            self.begin.store(begin, Ordering::Relaxed);
        }
        may_have
    }

    /// Takes nothing more; readers still get what it holds.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Writes pieces of the body that follow each other. A write that timed out may still end
    /// later.
    pub async fn write(self: &Arc<Self>, offset: u64, pieces: Vec<Bytes>) -> io::Result<()> {
        let spool = Arc::clone(self);
        on_a_thread(&WRITING, move || spool.write_now(offset, &pieces)).await
    }

    /// Reads the first bytes of this range, which it has.
    pub async fn read(self: &Arc<Self>, range: Range<u64>) -> io::Result<Bytes> {
        let bytes = range.end.saturating_sub(range.start).min(READ_BYTES);
        let spool = Arc::clone(self);
        // From the memory of this thread, which lasts; those of the spools come and go.
        let mut piece = vec![0; usize::try_from(bytes).unwrap_or_default()];
        on_a_thread(&READING, move || {
            spool.file()?.read_exact_at(&mut piece, range.start)?;
            Ok(piece.into())
        })
        .await
    }

    /// The space that it is in.
    pub(super) fn space(&self) -> Option<Arc<SpoolSpace>> {
        self.room.as_ref().map(|room| Arc::clone(room.lock().space()))
    }

    fn write_now(&self, mut offset: u64, pieces: &[Bytes]) -> io::Result<()> {
        let mut punched = self.writing.lock();
        if self.file.get().is_none() {
            // Without a name from the start, where the file system can do that.
            let file = match &self.folder {
                Some(folder) => tempfile::tempfile_in(folder)?,
                None => tempfile::tempfile()?,
            };
            file.set_permissions(Permissions::from_mode(0o600))?;
            self.file.get_or_init(|| file);
        }
        let begin = self.begin.load(Ordering::Relaxed);
        if begin > *punched {
            punch_out(self.file()?, *punched..begin)?;
            *punched = begin;
        }
        for piece in pieces {
            self.file()?.write_all_at(piece, offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    fn file(&self) -> io::Result<&File> {
        self.file.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for Spool {
    /// The end of a large file takes a disk some time, in which no client is to wait.
    fn drop(&mut self) {
        let (file, runtime) = (self.file.take(), Handle::try_current());
        if let (Some(file), Ok(runtime)) = (file, runtime) {
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

#[cfg(target_os = "linux")]
fn punch_out(file: &File, range: Range<u64>) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, range.start, range.end - range.start)?)
}

#[cfg(not(target_os = "linux"))]
fn punch_out(_: &File, _: Range<u64>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Runs this beside the runtime's workers; fails if the disk does not answer.
async fn on_a_thread<T: Send + 'static>(
    threads: &'static Semaphore,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let working = async {
        let permit = threads.acquire().await.map_err(io::Error::other)?;
        let work = spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        work.await.unwrap_or_else(|error| Err(error.into()))
    };
    timeout(DISK_TIMEOUT, working).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

pub fn warn_of_fault(error: &io::Error) {
    tracing::warn!(%error, "the temporary file of a large answer failed");
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// A spool in space of this many MiB.
    fn spool(mib: u64) -> Arc<Spool> {
        Spool::of_client(&SpoolSpace::of_mib(mib), 0)
    }

    async fn write(spool: &Arc<Spool>, offset: u64, text: &'static str) {
        spool.write(offset, vec![Bytes::from_static(text.as_bytes())]).await.unwrap();
    }

    #[tokio::test]
    async fn each_reader_reads_at_its_own_offset() {
        let spool = spool(1);
        assert!(spool.read(10..13).await.is_err(), "nothing was written");
        write(&spool, 10, "one").await;
        write(&spool, 13, "two").await;
        write(&spool, 10, "one").await;
        assert_eq!(spool.read(10..16).await.unwrap(), "onetwo");
        assert_eq!(spool.read(12..14).await.unwrap(), "et");
        let mode = spool.file().unwrap().metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "others may read it");
    }

    #[tokio::test]
    async fn a_file_gives_back_the_beginning_that_nobody_needs() {
        let spool = spool(8);
        let piece = Bytes::from(vec![b'x'; 1024 * 1024]);
        let mut end = 0;
        while spool.make_room(&(0..end + MIB)) {
            spool.write(end, vec![piece.clone()]).await.unwrap();
            end += MIB;
        }
        assert!((4..=8).contains(&(end / MIB)), "{end} bytes fit");
        assert!(!spool.make_room(&(MIB - 1..end + MIB)), "all of it is needed");
        assert!(spool.make_room(&(2 * MIB + 1..end + MIB)));
        spool.write(end, vec![piece.clone()]).await.unwrap();
        let file = spool.file().unwrap().metadata().unwrap();
        assert!(file.blocks() * 512 <= end - MIB + 64 * 1024, "{} blocks", file.blocks());
        assert_eq!(spool.read(2 * MIB..2 * MIB + 3).await.unwrap(), "xxx");
    }

    #[tokio::test]
    async fn a_closed_spool_takes_nothing_and_keeps_its_bytes() {
        let spool = spool(1);
        write(&spool, 0, "one").await;
        spool.close();
        assert!(!spool.make_room(&(0..1)));
        assert_eq!(spool.read(0..3).await.unwrap(), "one");
    }

    #[test]
    fn a_disk_that_hangs_is_given_up() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let spool = spool(1);
        let hanging = spool.writing.lock();
        let fault = runtime.block_on(async {
            let mut write = Box::pin(spool.write(0, vec![Bytes::from_static(b"one")]));
            assert!(futures_util::poll!(&mut write).is_pending());
            tokio::time::advance(DISK_TIMEOUT).await;
            write.await.unwrap_err()
        });
        drop(hanging);
        assert_eq!(fault.kind(), io::ErrorKind::TimedOut);
    }
}
