//! Objects that are complete when they are found: releases, milestones, refs, commits, reviews.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::object::{Field, FieldValue, Node, Result};
use super::{connection, rollup};
use crate::emulator::http::{SITE, iso, segment};
use crate::emulator::render::node_id;
use crate::emulator::world::{Commit, Milestone, Release, Repository, World};

/// The prefix of a branch's full name.
pub const BRANCHES: &str = "refs/heads/";

/// The fields of an object, by name.
#[derive(Debug)]
pub struct Record {
    pub kind: &'static str,
    /// Its place in a list, for cursors.
    pub key: u64,
    fields: BTreeMap<&'static str, FieldValue>,
}

impl Record {
    pub fn node<const N: usize>(
        kind: &'static str,
        key: u64,
        fields: [(&'static str, FieldValue); N],
    ) -> Node {
        Node::Record(Rc::new(Self { kind, key, fields: fields.into() }))
    }

    /// A field without a value is null.
    pub fn field(&self, name: &str) -> FieldValue {
        self.fields.get(name).cloned().unwrap_or_else(FieldValue::null)
    }
}

fn page(world: &World, repository: &Repository) -> String {
    format!("{SITE}/{}", world.full_name(repository))
}

pub fn release(world: &World, repository: &Repository, release: &Release) -> Node {
    let is_latest = repository.releases.keys().next_back() == Some(&release.id);
    let url = format!("{}/releases/tag/{}", page(world, repository), segment(&release.tag));
    let fields = [
        ("id", FieldValue::text(&node_id("Release", release.id))),
        ("databaseId", FieldValue::number(release.id)),
        ("name", FieldValue::text(&release.name)),
        ("tagName", FieldValue::text(&release.tag)),
        ("description", FieldValue::maybe_text(release.body.as_deref())),
        ("isDraft", FieldValue::value(false)),
        ("isPrerelease", FieldValue::value(false)),
        ("isLatest", FieldValue::value(is_latest)),
        ("immutable", FieldValue::value(false)),
        ("url", FieldValue::text(&url)),
        ("author", FieldValue::One(Node::User(release.author))),
        ("createdAt", FieldValue::text(&iso(release.created_at))),
        ("publishedAt", FieldValue::text(&iso(release.created_at))),
    ];
    Record::node("Release", release.id, fields)
}

pub fn milestone(world: &World, repository: &Repository, milestone: &Milestone) -> Node {
    let url = format!("{}/milestone/{}", page(world, repository), milestone.number);
    let fields = [
        ("id", FieldValue::text(&node_id("Milestone", milestone.id))),
        ("number", FieldValue::number(milestone.number)),
        ("title", FieldValue::text(&milestone.title)),
        ("description", FieldValue::maybe_text(milestone.description.as_deref())),
        ("state", FieldValue::text(&milestone.state.into_str().to_uppercase())),
        ("url", FieldValue::text(&url)),
    ];
    Record::node("Milestone", milestone.number, fields)
}

/// The list of a commit's authors, which is its one author.
pub fn authors(field: Field<'_, '_>, commit: &Record) -> Result {
    let authors = match commit.field("authors") {
        FieldValue::One(author) => vec![author],
        _ => Vec::new(),
    };
    connection::of(field, connection::AUTHORS, authors)
}

/// `key` is the place of the commit in its list.
pub fn commit(world: &World, repository: &Repository, commit: &Commit, key: u64) -> Node {
    let (headline, body) = commit.message.split_once('\n').unwrap_or((&commit.message, ""));
    let author = [
        ("name", FieldValue::text(&commit.author.name)),
        ("email", FieldValue::text(&commit.author.email)),
        ("date", FieldValue::text(&iso(commit.at))),
        ("user", FieldValue::One(Node::User(commit.author.user))),
    ];
    let fields = [
        ("id", FieldValue::text(&commit.sha)),
        ("oid", FieldValue::text(&commit.sha)),
        ("message", FieldValue::text(&commit.message)),
        ("messageHeadline", FieldValue::text(headline)),
        ("messageBody", FieldValue::text(body.trim_start())),
        ("authors", FieldValue::One(Record::node("GitActor", 1, author))),
        ("authoredDate", FieldValue::text(&iso(commit.at))),
        ("committedDate", FieldValue::text(&iso(commit.at))),
        ("statusCheckRollup", FieldValue::maybe(rollup::of_commit(world, repository, &commit.sha))),
    ];
    Record::node("Commit", key, fields)
}

/// A branch or tag; `key` is its place in its list.
pub fn reference(
    world: &World,
    repository: &Repository,
    (prefix, name): (&str, &str),
    target: Option<&Commit>,
    key: u64,
) -> Node {
    let is_branch = prefix == BRANCHES;
    let rule = is_branch.then(|| rollup::protection_rule(world, repository, name)).flatten();
    let target = target.map(|target| commit(world, repository, target, 0));
    let fields = [
        ("name", FieldValue::text(name)),
        ("prefix", FieldValue::text(prefix)),
        ("target", FieldValue::maybe(target)),
        ("branchProtectionRule", FieldValue::maybe(rule)),
    ];
    Record::node("Ref", key, fields)
}
