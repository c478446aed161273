//! The file of a snapshot: a short head, then compressed frames, each with its length and checksum,
//! and a last frame that proves that nothing is missing. `mod.rs` knows the content of the frames.
//!
//! ```text
//! "weir.cache"  version: u16  mark: u8
//! frame:  kind: u8  packed bytes: u32  plain bytes: u32  checksum: 16 bytes  packed text
//! ```
//!
//! Numbers are in little-endian order. The checksum is the beginning of a SHA-256 of the number of
//! the frame, its kind, both lengths and the packed text. The mark alone is outside of every
//! checksum, because it changes in place (`invalidation/snapshot_mark.rs`).

use std::fs::{File, Permissions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use rustix::fs::{Mode, OFlags};
use zstd::bulk::{Compressor, Decompressor};

use crate::gateway::cache::invalidation::snapshot_mark::{Level, MARK_AT, SnapshotMark};

/// The first bytes of every snapshot.
const MAGIC: [u8; 10] = *b"weir.cache";
/// The version of the format. A change of the content of a frame is a change of the version.
pub const VERSION: u16 = 1;
const HEAD_BYTES: usize = 13;
const _: () = assert!(MARK_AT == HEAD_BYTES as u64 - 1);
const FRAME_HEAD_BYTES: usize = 9 + CHECKSUM_BYTES;
const CHECKSUM_BYTES: usize = 16;
/// The most plain bytes of a frame. Chosen here: the largest body that is kept, and its headers.
pub const FRAME_BYTES_MAX: usize = 65 * 1024 * 1024;
/// The usual number of plain bytes of a frame. Chosen here: larger ones hardly pack better.
pub const FRAME_BYTES: usize = 256 * 1024;
/// The level of compression. Chosen here: a hundred megabytes and more in a second on one core.
const LEVEL: i32 = 3;
/// The suffix of the file that is being written.
const UNFINISHED: &str = ".tmp";

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Head,
    Answers,
    Ledger,
    End,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Head, Self::Answers, Self::Ledger, Self::End];

    fn byte(self) -> u8 {
        match self {
            Self::Head => b'H',
            Self::Answers => b'A',
            Self::Ledger => b'L',
            Self::End => b'E',
        }
    }
}

/// The reason why a file is left alone.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("it is not a snapshot of this program")]
    Foreign,
    #[error("it has version {0} of the format, and this program reads version {VERSION}")]
    OtherVersion(u16),
    #[error("it is of a gateway with another upstream")]
    OtherUpstream,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

/// Names a file on its disk, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(file: &std::fs::Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }

    pub fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|file| Self::of(&file))
    }
}

/// A snapshot that is read frame by frame.
pub struct SnapshotReader {
    file: BufReader<File>,
    left: u64,
    frames: u64,
    unpacker: Decompressor<'static>,
    pub level: Level,
}

impl SnapshotReader {
    /// Opens a snapshot; `None` if there is no file.
    pub fn open(path: &Path) -> Result<Option<Self>, Unusable> {
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Before it is opened: a pipe would wait for its other end.
        if !found.is_file() {
            return Err(Unusable::Foreign);
        }
        let file = File::open(path)?;
        let mut file = BufReader::new(file);
        let level = read_head(&mut file)?;
        let left = found.len().saturating_sub(HEAD_BYTES as u64);
        Ok(Some(Self { file, left, frames: 0, unpacker: Decompressor::new()?, level }))
    }

    /// Reads the next frame into `plain`.
    pub fn next(&mut self, plain: &mut Vec<u8>) -> Result<Kind, Unusable> {
        let mut head = [0; FRAME_HEAD_BYTES];
        self.take(&mut head)?;
        let ([kind, sizes @ ..], checksum) = split_head(&head);
        let kind = Kind::ALL.into_iter().find(|known| known.byte() == kind);
        let kind = kind.ok_or(Unusable::Damaged("a frame is of an unknown kind"))?;
        let [packed_bytes, plain_bytes] = [0, 4].map(|at| {
            let size: [u8; 4] = std::array::from_fn(|byte| sizes[at + byte]);
            u32::from_le_bytes(size) as usize
        });
        // Checked before the memory is taken.
        if plain_bytes > FRAME_BYTES_MAX || packed_bytes as u64 > self.left {
            return Err(Unusable::Damaged("a frame is longer than it can be"));
        }
        let mut packed = vec![0; packed_bytes];
        self.take(&mut packed)?;
        if checksum_of(self.frames, &head[..9], &packed) != checksum {
            return Err(Unusable::Damaged("a checksum is wrong"));
        }
        self.frames += 1;
        plain.clear();
        plain.reserve(plain_bytes);
        let unpacked = self.unpacker.decompress_to_buffer(&packed, plain);
        if unpacked.ok() != Some(plain_bytes) {
            return Err(Unusable::Damaged("a frame cannot be unpacked"));
        }
        if kind == Kind::End && self.left > 0 {
            return Err(Unusable::Damaged("something follows its end"));
        }
        Ok(kind)
    }

    fn take(&mut self, into: &mut [u8]) -> Result<(), Unusable> {
        let Some(left) = self.left.checked_sub(into.len() as u64) else {
            return Err(Unusable::Damaged("its end is missing"));
        };
        self.left = left;
        Ok(self.file.read_exact(into)?)
    }
}

/// Reads the head of a file, which says if it is a snapshot that this program understands.
fn read_head(file: &mut impl Read) -> Result<Level, Unusable> {
    let mut head = [0; HEAD_BYTES];
    match file.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(Unusable::Foreign),
        Err(error) => return Err(error.into()),
    }
    let [magic @ .., low, high, mark] = head;
    if magic != MAGIC {
        return Err(Unusable::Foreign);
    }
    match u16::from_le_bytes([low, high]) {
        VERSION => Level::of(mark).ok_or(Unusable::Damaged("its mark is unknown")),
        other => Err(Unusable::OtherVersion(other)),
    }
}

/// Says why the file at this path must not be replaced; nothing if there is none. `unusable` is one
/// whose content turned out to be so.
pub fn obstacle(path: &Path, unusable: Option<Identity>) -> Result<(), Unusable> {
    if unusable.is_some() && Identity::at(path) == unusable {
        return Err(Unusable::Damaged("it could not be read at the start"));
    }
    SnapshotReader::open(path).map(drop)
}

fn split_head(head: &[u8; FRAME_HEAD_BYTES]) -> ([u8; 9], [u8; CHECKSUM_BYTES]) {
    (std::array::from_fn(|at| head[at]), std::array::from_fn(|at| head[9 + at]))
}

fn checksum_of(number: u64, head: &[u8], packed: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut digest = Context::new(&SHA256);
    for part in [&number.to_le_bytes()[..], head, packed] {
        digest.update(part);
    }
    let digest = digest.finish();
    std::array::from_fn(|at| digest.as_ref()[at])
}

/// A snapshot that is being written beside the one before.
pub struct SnapshotWriter {
    file: BufWriter<File>,
    unfinished: PathBuf,
    frames: u64,
    bytes: u64,
    packer: Compressor<'static>,
}

impl SnapshotWriter {
    /// Begins a file. Fails if another process writes the same one.
    pub fn begin(path: &Path, level: Level) -> io::Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(UNFINISHED);
        let unfinished = path.with_file_name(name);
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&unfinished, flags, Mode::RUSR | Mode::WUSR)?);
        file.try_lock().map_err(|_| io::Error::other("another process writes it"))?;
        let locked = file.metadata()?;
        // Another process may have finished it between the two calls: it is the snapshot now.
        if !locked.is_file() || Identity::at(&unfinished) != Some(Identity::of(&locked)) {
            return Err(io::Error::other("another process writes it"));
        }
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(0)?;
        let packer = Compressor::new(LEVEL)?;
        let file = BufWriter::with_capacity(FRAME_BYTES, file);
        let mut writer = Self { file, unfinished, frames: 0, bytes: 0, packer };
        writer.put(&MAGIC)?;
        writer.put(&VERSION.to_le_bytes())?;
        writer.put(&[level.byte()])?;
        Ok(writer)
    }

    /// Adds a frame. Returns false for one that is too long for a snapshot, which is left out.
    pub fn frame(&mut self, kind: Kind, plain: &[u8]) -> io::Result<bool> {
        let packed = self.packer.compress(plain)?;
        let sizes = (u32::try_from(packed.len()), u32::try_from(plain.len()));
        let (Ok(packed_bytes), Ok(plain_bytes)) = sizes else { return Ok(false) };
        if plain.len() > FRAME_BYTES_MAX {
            return Ok(false);
        }
        let mut head = vec![kind.byte()];
        head.extend_from_slice(&packed_bytes.to_le_bytes());
        head.extend_from_slice(&plain_bytes.to_le_bytes());
        let checksum = checksum_of(self.frames, &head, &packed);
        self.frames += 1;
        for part in [&head[..], &checksum, &packed] {
            self.put(part)?;
        }
        Ok(true)
    }

    /// Puts the file into the place of the one before. Returns its bytes.
    pub fn finish(mut self, path: &Path, mark: &SnapshotMark, least: Level) -> io::Result<u64> {
        self.file.flush()?;
        let file = self.file.get_ref();
        file.sync_all()?;
        mark.end(file, least, || std::fs::rename(&self.unfinished, path))?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(self.bytes)
    }

    /// Puts a file that serves once into its place: no later change is marked in it.
    pub fn finish_once(mut self, path: &Path, level: Level) -> io::Result<u64> {
        self.file.flush()?;
        self.file.get_ref().write_all_at(&[level.byte()], MARK_AT)?;
        std::fs::rename(&self.unfinished, path)?;
        Ok(self.bytes)
    }

    /// Removes the unfinished file.
    pub fn abandon(self) {
        // A file that stays is overwritten by the next snapshot.
        let _ = std::fs::remove_file(&self.unfinished);
    }

    fn put(&mut self, part: &[u8]) -> io::Result<()> {
        self.bytes += part.len() as u64;
        self.file.write_all(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small snapshot of three frames.
    fn written(path: &Path) -> Vec<u8> {
        let mut writer = SnapshotWriter::begin(path, Level::Unchanged).unwrap();
        for (kind, plain) in [(Kind::Head, "head"), (Kind::Answers, "answers"), (Kind::End, "end")]
        {
            assert!(writer.frame(kind, plain.as_bytes()).unwrap());
        }
        let mark = SnapshotMark::default();
        mark.begin();
        let bytes = writer.finish(path, &mark, Level::Unchanged).unwrap();
        let file = std::fs::read(path).unwrap();
        assert_eq!(file.len() as u64, bytes);
        file
    }

    /// All frames of a file, up to its end.
    fn read(path: &Path) -> Result<Vec<(Kind, Vec<u8>)>, Unusable> {
        let mut reader = SnapshotReader::open(path)?.unwrap();
        let (mut frames, mut plain) = (Vec::new(), Vec::new());
        loop {
            let kind = reader.next(&mut plain)?;
            frames.push((kind, plain.clone()));
            if kind == Kind::End {
                return Ok(frames);
            }
        }
    }

    #[test]
    fn a_snapshot_returns_its_frames_and_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.cache");
        written(&path);
        let frames = read(&path).unwrap();
        let expected = [(Kind::Head, "head"), (Kind::Answers, "answers"), (Kind::End, "end")];
        assert_eq!(frames, expected.map(|(kind, plain)| (kind, plain.as_bytes().to_vec())));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside");
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.cache");
        let whole = written(&path);
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                std::fs::write(&path, &damaged).unwrap();
                let found = read(&path);
                let is_found = match at {
                    0..10 => matches!(found, Err(Unusable::Foreign)),
                    10 | 11 => matches!(found, Err(Unusable::OtherVersion(_))),
                    _ => matches!(found, Err(Unusable::Damaged(_))),
                };
                assert!(is_found, "bit {bit} of byte {at}: {found:?}");
            }
        }
    }

    #[test]
    fn a_truncated_or_continued_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.cache");
        let whole = written(&path);
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            let found = read(&path);
            assert!(matches!(found, Err(Unusable::Foreign | Unusable::Damaged(_))), "{end}");
        }
        std::fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert!(matches!(read(&path), Err(Unusable::Damaged(_))));
    }

    #[test]
    fn an_impossible_length_takes_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.cache");
        let whole = written(&path);
        for at in [HEAD_BYTES + 1, HEAD_BYTES + 5] {
            let mut damaged = whole.clone();
            damaged[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            std::fs::write(&path, &damaged).unwrap();
            let found = read(&path);
            let expected = "it is damaged: a frame is longer than it can be";
            assert_eq!(found.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_file_of_another_kind_is_no_place_for_a_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.cache");
        assert!(obstacle(&path, None).is_ok());
        std::fs::write(&path, "a letter").unwrap();
        assert!(matches!(obstacle(&path, None), Err(Unusable::Foreign)));
        assert!(obstacle(folder.path(), None).is_err());
        written(&path);
        assert!(obstacle(&path, None).is_ok());
        assert!(obstacle(&path, Identity::at(&path)).is_err(), "it was found unusable");
    }

    #[test]
    fn a_second_writer_of_one_file_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.cache");
        let first = SnapshotWriter::begin(&path, Level::Unchanged).unwrap();
        assert!(SnapshotWriter::begin(&path, Level::Unchanged).is_err());
        first.abandon();
        written(&path);
    }

    #[test]
    fn the_mark_shows_the_worst_change_since_the_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.cache");
        let level = || SnapshotReader::open(&path).unwrap().unwrap().level;
        let mark = SnapshotMark::default();
        let write = |while_written: Option<Level>, least| {
            let writer = SnapshotWriter::begin(&path, least).unwrap();
            mark.begin();
            if let Some(level) = while_written {
                mark.note(level);
            }
            writer.finish(&path, &mark, least).unwrap();
        };
        write(None, Level::Unchanged);
        assert_eq!(level(), Level::Unchanged);
        mark.note(Level::Changed);
        assert_eq!(level(), Level::Changed);
        mark.note(Level::Void);
        mark.note(Level::Changed);
        assert_eq!(level(), Level::Void);
        write(Some(Level::Changed), Level::Last);
        assert_eq!(level(), Level::Changed, "it may have missed the change");
        write(None, Level::Last);
        assert_eq!(level(), Level::Last);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        mark.resume(file, Level::Last).unwrap();
        assert_eq!(level(), Level::Unchanged, "the budgets are used again");
        mark.write_begins();
        assert_eq!(level(), Level::Changed, "the process may end before the write does");
        write(None, Level::Last);
        assert_eq!(level(), Level::Changed, "the write is still on its way");
        mark.write_ended();
        write(None, Level::Last);
        assert_eq!(level(), Level::Last);
    }

    #[test]
    fn a_pipe_is_no_snapshot_and_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.cache");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(matches!(SnapshotReader::open(&path), Err(Unusable::Foreign)));
    }
}
