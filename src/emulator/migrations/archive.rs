//! The archive of a migration: a tar.gz of JSON files, an `attachments` and a `repositories`
//! directory with Git data (SPECIFICATION, "User migrations"). It is reproducible to the byte.
//!
//! Every documented kind of record has a file, which may hold an empty list; an excluded kind has
//! none. The emulator has no projects and no uploaded files, so those stay empty.

use std::io::{self, Write};
use std::iter;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::git::Bare;
use super::records::Subject;
use crate::clock::Timestamp;
use crate::emulator::world::{Flag, Migration, Organization, Owner, World};

/// The version of the record format, as in the real service's archives.
const SCHEMA_VERSION: &str = "1.2.0";
/// As in the real service's archives; further records go to the next numbered file.
const RECORDS_PER_FILE: usize = 100;

/// `at` is the end of the export; `unpacked_bytes_max` bounds the work. `None` when a repository is
/// gone, or the archive would exceed the limit or contain a name that tar cannot hold.
pub fn make(
    world: &World,
    migration: &Migration,
    at: Timestamp,
    unpacked_bytes_max: usize,
) -> Option<Bytes> {
    let repositories: Option<Vec<_>> =
        migration.repositories.iter().map(|id| world.repositories.get(id)).collect();
    let repositories = repositories?;
    let concerned = |organization: &&Organization| {
        // Without repositories, the organisations that the account owns.
        let is_own = migration.wants(Flag::OrgMetadataOnly)
            && organization.owners.contains(&migration.owner);
        let owner = Owner::Organization(organization.id);
        is_own || repositories.iter().any(|repository| repository.owner == owner)
    };
    let organizations = world.organizations.values().filter(concerned).collect();
    let subject = Subject { world, repositories, organizations };

    let gzip = GzEncoder::new(Vec::new(), Compression::default());
    let mut pack =
        Pack { tar: Builder::new(Bounded { inner: gzip, left: unpacked_bytes_max }), at };
    // This flag leaves only the Git data.
    if !migration.wants(Flag::ExcludeMetadata) {
        metadata(&mut pack, &subject, migration).ok()?;
    }
    if !migration.wants(Flag::ExcludeGitData) {
        git(&mut pack, &subject).ok()?;
    }
    let gzip = pack.tar.into_inner().ok()?.inner;
    Some(gzip.finish().ok()?.into())
}

fn metadata<W: Write>(
    pack: &mut Pack<W>,
    subject: &Subject<'_>,
    migration: &Migration,
) -> io::Result<()> {
    pack.file("schema.json", json!({ "version": SCHEMA_VERSION }).to_string().as_bytes())?;
    pack.records("users", subject.users())?;
    pack.records("organizations", subject.organizations())?;
    if !migration.wants(Flag::ExcludeAttachments) {
        pack.directory("attachments")?;
    }
    // These records belong to repositories, which such a migration does not have.
    if migration.wants(Flag::OrgMetadataOnly) {
        return Ok(());
    }
    pack.records("repositories", subject.repositories())?;
    pack.records("protected_branches", subject.of_each(Subject::protected_branches))?;
    pack.records("milestones", subject.of_each(Subject::milestones))?;
    pack.records("issues", subject.of_each(Subject::only_issues))?;
    pack.records("pull_requests", subject.of_each(Subject::pulls))?;
    pack.records("bases", subject.of_each(Subject::bases))?;
    pack.records("issue_comments", subject.of_each(Subject::issue_comments))?;
    pack.records("issue_events", subject.of_each(Subject::issue_events))?;
    pack.records("commit_comments", subject.of_each(Subject::commit_comments))?;
    pack.records("pull_request_reviews", subject.of_each(Subject::reviews))?;
    pack.records("review_comments", subject.of_each(Subject::review_comments))?;
    if !migration.wants(Flag::ExcludeReleases) {
        pack.records("releases", subject.of_each(Subject::releases))?;
    }
    if !migration.wants(Flag::ExcludeOwnerProjects) {
        pack.records("projects", iter::empty())?;
    }
    if !migration.wants(Flag::ExcludeAttachments) {
        // Release assets are not attachments.
        pack.records("attachments", iter::empty())?;
    }
    Ok(())
}

fn git<W: Write>(pack: &mut Pack<W>, subject: &Subject<'_>) -> io::Result<()> {
    pack.directory("repositories")?;
    for repository in &subject.repositories {
        let path = subject.git_path(repository);
        for directory in Bare::DIRECTORIES {
            pack.directory(&format!("{path}/{directory}"))?;
        }
        for file in Bare::of(subject.world, repository).files() {
            let (name, content) = file?;
            pack.file(&format!("{path}/{name}"), &content)?;
        }
    }
    Ok(())
}

/// A tar with one fixed time for every entry.
struct Pack<W: Write> {
    tar: Builder<W>,
    at: Timestamp,
}

impl<W: Write> Pack<W> {
    fn header(&self, kind: EntryType, mode: u32, size_bytes: usize) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(self.at.as_secs());
        header.set_size(size_bytes as u64);
        header
    }

    fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        let mut header = self.header(EntryType::Regular, 0o644, content.len());
        self.tar.append_data(&mut header, path, content)
    }

    fn directory(&mut self, path: &str) -> io::Result<()> {
        let mut header = self.header(EntryType::Directory, 0o755, 0);
        self.tar.append_data(&mut header, format!("{path}/"), io::empty())
    }

    /// Writes numbered files of bounded length; without records, one file with an empty list.
    fn records(&mut self, name: &str, records: impl Iterator<Item = Value>) -> io::Result<()> {
        let mut records = records.peekable();
        for number in 1.. {
            let batch: Vec<Value> = records.by_ref().take(RECORDS_PER_FILE).collect();
            let content = Value::Array(batch).to_string();
            self.file(&format!("{name}_{number:06}.json"), content.as_bytes())?;
            if records.peek().is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// A writer that fails beyond a number of bytes.
struct Bounded<W> {
    inner: W,
    left: usize,
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self
            .left
            .checked_sub(bytes.len())
            .ok_or_else(|| io::Error::other("the archive is too large"))?;
        self.inner.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
