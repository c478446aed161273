//! Bad files stop the start, and stay unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;
use redb::{Database, TableDefinition};
use tempfile::TempDir;

use super::super::{Fault, FileStore, OpenError, database};
use super::TestDisk;
use crate::cases::cases;
use crate::writes::conformance::{block_on, opened, stored};
use crate::writes::{Change, Store, Stored};

/// The bytes of a file, and its writes.
type Filled = (Vec<u8>, BTreeMap<u64, Stored>);

/// Creates a file with writes of many sizes, closed cleanly or not.
fn file(ended_well: bool) -> Filled {
    let disk = TestDisk::blank();
    let (store, _) = disk.open().unwrap();
    let mut expected = BTreeMap::new();
    for number in 0..40_u64 {
        let body =
            vec![u8::try_from(number).unwrap(); usize::try_from(number * number * 8).unwrap()];
        let write = stored(body, format!("queued {number}"));
        block_on(store.apply(Change::Insert(number, write.clone()))).unwrap();
        expected.insert(number, write);
    }
    for number in (0..40).step_by(3) {
        block_on(store.apply(Change::Progress(number, "done".into()))).unwrap();
        expected.get_mut(&number).unwrap().progress = "done".into();
    }
    block_on(store.apply(Change::Remove(vec![5, 6, 7]))).unwrap();
    expected.retain(|number, _| !(5..8).contains(number));
    let killed = disk.bytes();
    drop(store);
    (if ended_well { disk.bytes() } else { killed }, expected)
}

/// A damaged file is refused and stays unchanged, or nothing of it is missing.
fn refused_or_whole(bytes: &[u8], expected: &BTreeMap<u64, Stored>, label: &str) -> bool {
    let disk = TestDisk::with(bytes);
    match disk.open() {
        Ok((_, found)) => {
            assert!(
                found == *expected,
                "{label}: it was opened, and writes are missing or changed"
            );
            false
        }
        Err(fault) => {
            assert!(
                matches!(fault, Fault::Damaged(_) | Fault::Foreign(_) | Fault::Newer { .. }),
                "{label}: {fault}"
            );
            assert!(disk.bytes() == bytes, "{label}: the file was changed");
            true
        }
    }
}

#[test]
fn a_flipped_bit_in_the_head_of_the_file_is_noticed_or_harmless() {
    for ended_well in [true, false] {
        let (whole, expected) = file(ended_well);
        let mut refused = 0;
        // No checksum covers the bit (0 of byte 9) that selects the newer of the two heads.
        let flips = (0..320).map(|at| (at, at % 8)).chain((1..8).map(|bit| (9, bit)));
        for (at, bit) in flips {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            refused += usize::from(refused_or_whole(
                &bytes,
                &expected,
                &format!("bit {bit} of byte {at}"),
            ));
        }
        assert!(refused > 100, "{refused}");
    }
}

#[test]
fn a_file_that_was_cut_is_refused() {
    for ended_well in [true, false] {
        let (whole, expected) = file(ended_well);
        for len in (1..whole.len()).step_by(4099).chain([
            whole.len() - 1,
            whole.len() - 4096,
            whole.len() / 2,
        ]) {
            assert!(refused_or_whole(
                &whole[..len],
                &expected,
                &format!("{len} of {} bytes", whole.len())
            ));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(200), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits_are_noticed_or_harmless(
        ended_well in any::<bool>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..4),
    ) {
        let (whole, expected) = kept_file(ended_well);
        let mut bytes = whole.clone();
        for (at, bit) in &flips {
            // The head has a test of its own.
            let at = 4096 + at.index(bytes.len() - 4096);
            bytes[at] ^= 1 << bit;
        }
        refused_or_whole(&bytes, expected, &format!("{flips:?}"));
    }

    #[test]
    fn lost_and_exchanged_pages_are_noticed_or_harmless(ended_well in any::<bool>(), one in any::<prop::sample::Index>(), other in any::<prop::sample::Index>(), zeros in any::<bool>()) {
        let (whole, expected) = kept_file(ended_well);
        let mut pages = whole.chunks(4096).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (one, other) = (one.index(pages.len()), other.index(pages.len()));
        if zeros {
            pages[one].fill(0);
        } else {
            pages.swap(one, other);
        }
        refused_or_whole(&pages.concat(), expected, &format!("{one} {other} {zeros}"));
    }

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 1..9000), named in any::<bool>()) {
        let mut bytes = bytes;
        if named {
            bytes.splice(0..0, *b"redb\x1A\x0A\xA9\x0D\x0A");
        }
        let disk = TestDisk::with(&bytes);
        prop_assert!(disk.open().is_err());
        prop_assert_eq!(disk.bytes(), bytes);
    }
}

/// The same file, created once.
fn kept_file(ended_well: bool) -> &'static Filled {
    static FILES: OnceLock<[Filled; 2]> = OnceLock::new();
    &FILES.get_or_init(|| [file(false), file(true)])[usize::from(ended_well)]
}

/// Returns the error of opening a real file with these bytes, which must leave the file unchanged.
fn refusal(bytes: &[u8]) -> OpenError {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("weir.redb");
    fs::write(&path, bytes).unwrap();
    let error = FileStore::open(&path, |_, _| Ok(())).err().expect("it is refused");
    assert!(fs::read(&path).unwrap() == bytes, "the file was changed");
    assert_eq!(error.path, path.display().to_string());
    assert!(error.to_string().starts_with(&error.path), "{error}");
    error
}

#[test]
fn an_empty_file_is_not_taken_for_a_new_one() {
    assert!(matches!(refusal(b"").fault, Fault::Damaged(_)));
}

#[test]
fn a_text_is_not_taken_for_a_file_of_writes() {
    assert!(matches!(refusal(b"[writes]\nstore = \"memory\"\n").fault, Fault::Foreign(_)));
}

#[test]
fn another_programs_database_is_left_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("other.redb");
    let database = Database::create(&path).unwrap();
    let writing = database.begin_write().unwrap();
    writing
        .open_table(TableDefinition::<u64, &str>::new("requests"))
        .unwrap()
        .insert(1, "x")
        .unwrap();
    writing.commit().unwrap();
    drop(database);
    assert!(matches!(refusal(&fs::read(&path).unwrap()).fault, Fault::Foreign(_)));
}

#[test]
fn a_newer_format_is_left_to_the_version_that_wrote_it() {
    let disk = TestDisk::blank();
    database::spoil(Box::new(disk.clone()), database::FORMAT + 1, None);
    let error = refusal(&disk.bytes());
    assert_eq!(error.fault, Fault::Newer { found: database::FORMAT + 1, known: database::FORMAT });
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn a_text_with_a_wrong_checksum_is_damage() {
    for request in [b"".as_slice(), b"short", b"the checksum of this is another one"] {
        let disk = TestDisk::with(&file(true).0);
        database::spoil(Box::new(disk.clone()), database::FORMAT, Some(request));
        assert_eq!(
            refusal(&disk.bytes()).fault,
            Fault::Damaged("write 0: its checksum is wrong".into())
        );
    }
}

#[test]
fn a_write_that_its_reader_refuses_counts_as_damage() {
    let (bytes, _) = file(true);
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("weir.redb");
    fs::write(&path, &bytes).unwrap();
    let refused =
        FileStore::open(
            &path,
            |number, _| if number == 9 { Err("not a write".into()) } else { Ok(()) },
        );
    assert_eq!(refused.err().unwrap().fault, Fault::Damaged("write 9: not a write".into()));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn two_gateways_cannot_share_a_file() {
    let directory = TempDir::new().unwrap();
    let (first, _) = opened(&directory);
    let path = directory.path().join("weir.redb");
    let second = FileStore::open(&path, |_, _| Ok(()));
    assert_eq!(second.err().unwrap().fault, Fault::InUse);
    block_on(first.apply(Change::Insert(1, stored("a", "queued")))).unwrap();
    drop(first);
    assert_eq!(opened(&directory).1.len(), 1);
}

#[test]
fn a_new_file_is_alone_and_readable_to_its_owner_only() {
    let directory = TempDir::new().unwrap();
    drop(opened(&directory));
    let names = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect::<Vec<_>>();
    assert_eq!(names, ["weir.redb"]);
    let mode = fs::metadata(directory.path().join("weir.redb")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn no_missing_directory_is_created() {
    let directory = TempDir::new().unwrap();
    let missing = directory.path().join("missing");
    let error = FileStore::open(&missing.join("weir.redb"), |_, _| Ok(())).err().unwrap();
    assert_eq!(error.fault, Fault::NoDirectory(missing.display().to_string()));
    assert!(!missing.exists());
    assert!(matches!(
        FileStore::open(directory.path(), |_, _| Ok(())).err().unwrap().fault,
        Fault::Io(_)
    ));
    assert!(FileStore::open(Path::new("/"), |_, _| Ok(())).is_err());
}
