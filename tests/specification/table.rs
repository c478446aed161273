//! Rows of the documents' tables, each with its tests and the evidence that they must leave.
//!
//! A `const fn` makes each kind of row, so that tables are plain data. The audit reads them as
//! [`Row`]s.

use crate::evidence::{Evidence, Outcome, Trigger};
use crate::shape::Object;

/// A test by its path. `tests!` makes it, so that the compiler checks its existence.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    pub name: &'static str,
    pub run: fn(),
}

/// The tests of a row: `tests![limits::a_user_has_5000, limits::tokens_share]`.
#[macro_export]
macro_rules! tests {
    ($($path:path),* $(,)?) => {
        &[$($crate::table::Test { name: concat!(module_path!(), " → ", stringify!($path)), run: $path }),*]
    };
}

/// A unit of the audit: a line of a document's table, or a part of one.
#[derive(Clone, Debug)]
pub struct Row {
    /// The leading cell or cells of the line, as in the document without back-ticks. Rows that
    /// share it are parts of one line.
    pub line: String,
    /// The part of the line, for messages.
    pub part: String,
    pub tests: Vec<Test>,
    pub evidence: Vec<Evidence>,
}

/// A table, list or enumeration of a document.
#[derive(Clone, Debug)]
pub struct Table {
    pub document: u8,
    /// The headings above it.
    pub name: &'static str,
    /// The number of lines in the document, fixed here so that no row disappears unseen.
    pub lines: usize,
    pub rows: Vec<Row>,
}

impl Table {
    pub fn new<T: Copy + Into<Vec<Row>>>(
        document: u8,
        name: &'static str,
        lines: usize,
        rows: &[T],
    ) -> Self {
        Self { document, name, lines, rows: rows.iter().flat_map(|row| (*row).into()).collect() }
    }

    /// The table of an object's fields, which `tests` exercise together.
    pub fn fields(document: u8, lines: usize, object: &'static Object, tests: &[Test]) -> Self {
        let rows = object.fields.iter().map(|field| Row {
            line: field.line.to_owned(),
            part: field.name.to_owned(),
            tests: tests.to_vec(),
            evidence: vec![Evidence::Field { object: object.name, field: field.name }],
        });
        Self { document, name: object.name, lines, rows: rows.collect() }
    }
}

/// An endpoint and all its documented statuses.
#[derive(Clone, Copy, Debug)]
pub struct EndpointRow {
    line: &'static str,
    method: &'static str,
    template: &'static str,
    statuses: &'static [u16],
    tests: &'static [Test],
}

/// `line` is the document's cell without back-ticks; the template is complete where the document
/// shortens it.
pub const fn endpoint(
    line: &'static str,
    method: &'static str,
    template: &'static str,
    statuses: &'static [u16],
    tests: &'static [Test],
) -> EndpointRow {
    EndpointRow { line, method, template, statuses, tests }
}

impl From<EndpointRow> for Vec<Row> {
    fn from(row: EndpointRow) -> Self {
        let EndpointRow { line, method, template, statuses, tests } = row;
        let evidence =
            statuses.iter().map(|status| Evidence::Answer { method, template, status: *status });
        one(line, format!("{method} {template}"), tests, evidence.collect())
    }
}

/// A transition of a state machine.
#[derive(Clone, Copy, Debug)]
pub struct StateRow {
    line: &'static str,
    machine: &'static str,
    from: &'static [&'static str],
    trigger: Trigger,
    to: &'static str,
    tests: &'static [Test],
}

/// `line` is `State | Trigger` of the document, with ` | Condition` where these are not unique. A
/// state of `from` must be observed, then the trigger, then `to`.
pub const fn transition(
    line: &'static str,
    machine: &'static str,
    from: &'static [&'static str],
    trigger: Trigger,
    to: &'static str,
    tests: &'static [Test],
) -> StateRow {
    StateRow { line, machine, from, trigger, to, tests }
}

impl From<StateRow> for Vec<Row> {
    fn from(row: StateRow) -> Self {
        let StateRow { line, machine, from, trigger, to, tests } = row;
        let evidence = from.iter().map(|from| Evidence::Transition { machine, from, trigger, to });
        one(line, format!("{machine}: {from:?} to {to}"), tests, evidence.collect())
    }
}

/// A value of a closed set that must be observed in a field.
#[derive(Clone, Copy, Debug)]
pub struct ValueRow {
    object: &'static str,
    field: &'static str,
    value: &'static str,
    tests: &'static [Test],
}

pub const fn value(
    object: &'static str,
    field: &'static str,
    value: &'static str,
    tests: &'static [Test],
) -> ValueRow {
    ValueRow { object, field, value, tests }
}

impl From<ValueRow> for Vec<Row> {
    fn from(row: ValueRow) -> Self {
        let ValueRow { object, field, value, tests } = row;
        one(
            value,
            format!("{object}.{field} is {value}"),
            tests,
            vec![Evidence::Value { object, field, value }],
        )
    }
}

/// A rule about a credential: the callers that are accepted and those that are refused.
#[derive(Clone, Copy, Debug)]
pub struct CredentialRow {
    line: &'static str,
    rule: &'static str,
    /// Scheme and kind.
    accepted: &'static [(&'static str, &'static str)],
    refused: &'static [(&'static str, &'static str)],
    tests: &'static [Test],
}

pub const fn credential(
    line: &'static str,
    rule: &'static str,
    accepted: &'static [(&'static str, &'static str)],
    refused: &'static [(&'static str, &'static str)],
    tests: &'static [Test],
) -> CredentialRow {
    CredentialRow { line, rule, accepted, refused, tests }
}

impl From<CredentialRow> for Vec<Row> {
    fn from(row: CredentialRow) -> Self {
        let CredentialRow { line, rule, accepted, refused, tests } = row;
        let seen = |outcome| {
            move |(scheme, kind): &(&'static str, &'static str)| Evidence::Credential {
                scheme,
                kind,
                outcome,
            }
        };
        let evidence = accepted
            .iter()
            .map(seen(Outcome::Accepted))
            .chain(refused.iter().map(seen(Outcome::Refused)));
        one(line, rule.to_owned(), tests, evidence.collect())
    }
}

/// A rule in words, with the evidence of its tests.
#[derive(Clone, Copy, Debug)]
pub struct RuleRow {
    line: &'static str,
    rule: &'static str,
    evidence: &'static [Evidence],
    tests: &'static [Test],
}

/// A convention or another sentence. Without evidence of its own, any response to its tests
/// suffices.
pub const fn rule(
    line: &'static str,
    rule: &'static str,
    evidence: &'static [Evidence],
    tests: &'static [Test],
) -> RuleRow {
    RuleRow { line, rule, evidence, tests }
}

impl From<RuleRow> for Vec<Row> {
    fn from(row: RuleRow) -> Self {
        let RuleRow { line, rule, evidence, tests } = row;
        let evidence = if evidence.is_empty() { vec![Evidence::Ran] } else { evidence.to_vec() };
        one(line, rule.to_owned(), tests, evidence)
    }
}

/// A row that is a whole line.
pub fn one(line: &str, part: String, tests: &[Test], evidence: Vec<Evidence>) -> Vec<Row> {
    vec![Row { line: line.to_owned(), part, tests: tests.to_vec(), evidence }]
}
