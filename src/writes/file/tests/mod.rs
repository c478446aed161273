//! Properties of a durable store: its contents after any end, bad files, and a full disk.

mod damage;
mod end;
mod full;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

use super::worker::Disk;
use super::{Fault, FileStore};
use crate::writes::Stored;

/// Allocation unit of a file system.
const BLOCK_BYTES: u64 = 4096;

/// A disk in memory that may be full or fail, and records its operations. Files on it are sparse:
/// only written blocks take room.
#[derive(Clone, Debug, Default)]
struct TestDisk(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    blocks: BTreeSet<u64>,
    /// Number of blocks; `None`: unlimited.
    blocks_max: Option<usize>,
    /// Result of [`Disk::room`].
    room: Option<u64>,
    syncs_fail: bool,
    /// After this many further syncs, one fails.
    syncs_before_one_fails: Option<usize>,
    reads_fail: bool,
    /// All operations in order.
    done: Vec<Done>,
}

#[derive(Clone, Debug)]
enum Done {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

impl TestDisk {
    /// Creates a disk with a file of these bytes.
    fn with(bytes: &[u8]) -> Self {
        let disk = Self::default();
        disk.0.lock().write(0, bytes).unwrap();
        disk
    }

    /// Creates a disk with a new file.
    fn blank() -> Self {
        let disk = Self::default();
        super::database::blank(Box::new(disk.clone())).unwrap();
        disk
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().bytes.clone()
    }

    /// Opens the file and returns its writes too.
    fn open(&self) -> Result<(FileStore, BTreeMap<u64, Stored>), Fault> {
        let mut found = BTreeMap::new();
        let store = FileStore::open_on(Box::new(self.clone()), &mut |number, stored| {
            found.insert(number, stored);
            Ok(())
        })?;
        Ok((store, found))
    }
}

impl Contents {
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        for block in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            if !self.blocks.contains(&block)
                && self.blocks_max.is_some_and(|most| self.blocks.len() >= most)
            {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.blocks.insert(block);
        }
        let (from, to) = (usize::try_from(offset).unwrap(), usize::try_from(end).unwrap());
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(data);
        Ok(())
    }

    fn set_len(&mut self, len: u64) {
        self.bytes.resize(usize::try_from(len).unwrap(), 0);
        self.blocks.retain(|block| block * BLOCK_BYTES < len);
    }
}

impl Disk for TestDisk {
    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.clone()))
    }

    fn room(&self) -> Option<u64> {
        self.0.lock().room
    }

    fn length(&self) -> u64 {
        self.0.lock().bytes.len() as u64
    }

    fn path(&self) -> String {
        "weir.redb".into()
    }
}

impl StorageBackend for TestDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let contents = self.0.lock();
        if contents.reads_fail {
            return Err(io::Error::other("a bad sector"));
        }
        let from = usize::try_from(offset).unwrap();
        let bytes = contents.bytes.get(from..).and_then(|bytes| bytes.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let contents = &mut *self.0.lock();
        contents.set_len(len);
        contents.done.push(Done::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let contents = &mut *self.0.lock();
        if contents.syncs_fail {
            return Err(io::Error::other("the disk is gone"));
        }
        contents.done.push(Done::Sync);
        match contents.syncs_before_one_fails.take() {
            Some(0) => return Err(io::Error::other("the disk was gone for a moment")),
            left => contents.syncs_before_one_fails = left.map(|left| left - 1),
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let contents = &mut *self.0.lock();
        contents.write(offset, data)?;
        contents.done.push(Done::Write(offset, data.to_vec()));
        Ok(())
    }
}
