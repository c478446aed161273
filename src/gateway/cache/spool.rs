//! The spool of a shared body (`shared_body.rs`): an anonymous temporary file with the bytes that
//! left memory before the slowest reader had them.
//!
//! The file is a ring: a byte's place in it follows from its offset in the body. A repeated write
//! changes nothing, and what all readers have makes room.
//! Reads and writes block; callers run them beside the runtime's workers.

use bytes::Bytes;
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The bound of one spool, from the slowest reader to the window: 1 GiB. Chosen here: more than
/// clients of an API download at once.
const BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// The bound of all spools: 4 GiB. Chosen here: temporary folders usually have more.
const ALL_BYTES_MAX: u64 = 4 * BYTES_MAX;
/// The longest piece that a reader gets at once: one write to its client.
const READ_BYTES: u64 = 64 * 1024;

static ALL_BYTES: AtomicU64 = AtomicU64::new(0);

pub struct Spool {
    /// Created by the first write.
    file: OnceLock<File>,
    /// The size of the file.
    bytes: AtomicU64,
    all_bytes: &'static AtomicU64,
    is_closed: AtomicBool,
    /// A write that was given up still ends before the next one begins.
    writing: Mutex<()>,
}

impl Default for Spool {
    fn default() -> Self {
        let (file, bytes, is_closed, writing) = Default::default();
        Self { file, bytes, all_bytes: &ALL_BYTES, is_closed, writing }
    }
}

impl Spool {
    /// True if it may hold `bytes` of the body at once.
    pub fn has_room(&self, bytes: u64) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
            && bytes <= BYTES_MAX
            && self.all_bytes.load(Ordering::Relaxed) < ALL_BYTES_MAX
    }

    /// Takes nothing more; readers still get what it holds.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    pub fn write(&self, offset: u64, piece: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock();
        if self.file.get().is_none() {
            let file = tempfile::tempfile()?;
            self.file.get_or_init(|| file);
        }
        let mut piece = piece;
        let mut place = offset % BYTES_MAX;
        while !piece.is_empty() {
            let fits = usize::try_from(BYTES_MAX - place).unwrap_or(usize::MAX).min(piece.len());
            let (part, rest) = piece.split_at(fits);
            self.file()?.write_all_at(part, place)?;
            let size = place + part.len() as u64;
            let before = self.bytes.fetch_max(size, Ordering::Relaxed);
            self.all_bytes.fetch_add(size.saturating_sub(before), Ordering::Relaxed);
            (piece, place) = (rest, 0);
        }
        Ok(())
    }

    /// Reads the first bytes of this range.
    pub fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let place = range.start % BYTES_MAX;
        let bytes = (range.end - range.start).min(READ_BYTES).min(BYTES_MAX - place);
        let mut piece = vec![0; usize::try_from(bytes).unwrap_or_default()];
        self.file()?.read_exact_at(&mut piece, place)?;
        Ok(piece.into())
    }

    fn file(&self) -> io::Result<&File> {
        self.file.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(all_bytes: &'static AtomicU64) -> Spool {
        let mut spool = Spool::default();
        spool.all_bytes = all_bytes;
        spool
    }

    #[test]
    fn each_reader_reads_at_its_own_offset() {
        let spool = Spool::default();
        assert!(spool.read(10..13).is_err(), "nothing was written");
        spool.write(10, b"one").unwrap();
        spool.write(13, b"two").unwrap();
        spool.write(10, b"one").unwrap();
        assert_eq!(
            (spool.read(10..16).unwrap(), spool.read(12..14).unwrap()),
            ("onetwo".into(), "et".into())
        );
    }

    #[test]
    fn each_spool_and_all_together_have_a_bound() {
        static ALL: AtomicU64 = AtomicU64::new(ALL_BYTES_MAX - 3);
        let (one, other) = (spool(&ALL), spool(&ALL));
        one.write(0, b"one").unwrap();
        assert!(!one.has_room(1) && !other.has_room(1));
        drop(one);
        assert!(other.has_room(BYTES_MAX), "its space is free again");
        assert!(!other.has_room(BYTES_MAX + 1));
    }

    #[test]
    fn the_end_of_the_file_is_followed_by_its_beginning() {
        static ALL: AtomicU64 = AtomicU64::new(0);
        let spool = spool(&ALL);
        let begin = 3 * BYTES_MAX - 2;
        spool.write(begin, b"four").unwrap();
        spool.write(begin, b"four").unwrap();
        assert_eq!(spool.read(begin..begin + 4).unwrap(), "fo");
        assert_eq!(spool.read(begin + 2..begin + 4).unwrap(), "ur");
        assert_eq!(ALL.load(Ordering::Relaxed), BYTES_MAX);
        drop(spool);
        assert_eq!(ALL.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_closed_spool_takes_nothing_and_keeps_what_it_has() {
        let spool = Spool::default();
        spool.write(0, b"one").unwrap();
        spool.close();
        assert!(!spool.has_room(1));
        assert_eq!(spool.read(0..3).unwrap(), "one");
    }
}
