//! What a GraphQL request does, read off the request itself: whether it only reads, and what people
//! notice of it when it does not.
//!
//! Facts of the language and of the service's mutations. The document is parsed, not validated: the
//! schema is the upstream's. Whatever is not plainly a query is said to be something else, for a
//! mutation that passes for a query would be repeated after a lost answer (CONTRACT §4, 3). Who may
//! carry a request, and what it has to wait for, is decided elsewhere.

mod envelope;
mod mutations;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use apollo_compiler::ast::{
    Definition, Document, FragmentDefinition, OperationDefinition, OperationType, Selection,
};
use apollo_compiler::parser::Parser;
use apollo_compiler::{Name, Node};
use http::{HeaderMap, Method};

use envelope::Envelope;

/// A longer document is not read. Ours: far above what clients send, whose values travel as
/// variables. Measured: 2 KiB take 0.15 ms, 100 KiB of ordinary queries 6 ms, and the worst within
/// these bounds 25 ms.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// A document of more tokens is not read. The parser keeps about half a kilobyte of each.
const TOKENS_MAX: usize = 50_000;
/// A document nested deeper is not read: the parser recurses. Ours: three times the depth of any
/// query seen, and a small part of a thread's stack.
const NESTING_MAX: usize = 64;

/// A GraphQL request as far as it could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphqlRequest {
    /// What it does.
    pub effect: GraphqlEffect,
    /// Names the operation, whatever its variables are, where its answer will say what it cost: it
    /// selects `rateLimit { cost }`.
    pub priced: Option<OperationKey>,
}

/// What a request changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GraphqlEffect {
    /// Nothing: it is plainly a query.
    Query,
    /// Something that nobody is told of.
    Plain,
    /// Something that people are notified of (UPSTREAM.md, Limits).
    Notifies,
    /// It makes something that people see, and are notified of.
    Creates,
    /// It could not be read, and may do anything.
    Unclear,
}

/// One operation of one document, by its hash. Equal operations have equal keys; different ones
/// almost never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationKey(u64);

impl GraphqlRequest {
    /// What cannot be read.
    pub const UNCLEAR: Self = Self { effect: GraphqlEffect::Unclear, priced: None };

    /// Reads a request for the GraphQL address.
    ///
    /// Only a POST without a query string can be plainly a query: a server may take the document,
    /// or the operation's name, from the address too.
    pub fn read(
        method: &Method,
        url_query: Option<&str>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Self {
        if method != Method::POST || url_query.is_some_and(|query| !query.is_empty()) {
            return Self::UNCLEAR;
        }
        Envelope::open(headers, body)
            .and_then(|envelope| Self::of(&envelope))
            .unwrap_or(Self::UNCLEAR)
    }

    fn of(envelope: &Envelope<'_>) -> Option<Self> {
        let text = &*envelope.document;
        if text.len() > DOCUMENT_BYTES_MAX {
            return None;
        }
        let mut parser = Parser::new().token_limit(TOKENS_MAX).recursion_limit(NESTING_MAX);
        let document = parser.parse_ast(text, "query").ok()?;
        let executable = Executable::of(&document)?;
        let candidates = executable.candidates(envelope.operation_name.as_deref());
        let effect = candidates.iter().map(|operation| executable.effect(operation)).max()?;
        let is_priced = candidates.iter().all(|operation| executable.asks_its_cost(operation));
        Some(Self {
            effect,
            priced: is_priced.then(|| OperationKey::of(text, envelope.operation_name.as_deref())),
        })
    }
}

impl OperationKey {
    fn of(document: &str, operation_name: Option<&str>) -> Self {
        let mut hasher = DefaultHasher::new();
        (document, operation_name).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The parts of a document that can be executed.
struct Executable<'d> {
    operations: Vec<&'d OperationDefinition>,
    fragments: HashMap<&'d Name, &'d FragmentDefinition>,
}

impl<'d> Executable<'d> {
    /// `None` when it has other parts too: what a server makes of those is not known.
    fn of(document: &'d Document) -> Option<Self> {
        let mut operations = Vec::new();
        let mut fragments = HashMap::new();
        for definition in &document.definitions {
            match definition {
                Definition::OperationDefinition(operation) => operations.push(&**operation),
                // A name given twice is refused by the upstream, whichever of the two it looks at.
                Definition::FragmentDefinition(fragment) => {
                    fragments.insert(&fragment.name, &**fragment);
                }
                _ => return None,
            }
        }
        Some(Self { operations, fragments })
    }

    /// The operations of which one may run. Without a name that fits, the upstream answers with an
    /// error unless there is only one (GraphQL, section 6.1); a more forgiving one may run any.
    fn candidates(&self, operation_name: Option<&str>) -> Vec<&'d OperationDefinition> {
        let wanted = operation_name.filter(|name| !name.is_empty());
        let named: Vec<_> = self
            .operations
            .iter()
            .copied()
            .filter(|operation| wanted.is_some() && operation.name.as_deref() == wanted)
            .collect();
        if named.is_empty() { self.operations.clone() } else { named }
    }

    fn effect(&self, operation: &'d OperationDefinition) -> GraphqlEffect {
        match operation.operation_type {
            OperationType::Query => GraphqlEffect::Query,
            // Not served over HTTP; no query.
            OperationType::Subscription => GraphqlEffect::Plain,
            OperationType::Mutation => self
                .top_fields(operation)
                .into_iter()
                .map(|field| mutations::effect_of(&field.name))
                .max()
                .unwrap_or(GraphqlEffect::Plain),
        }
    }

    fn asks_its_cost(&self, operation: &'d OperationDefinition) -> bool {
        let has_cost = |field: &apollo_compiler::ast::Field| {
            let selects = |selection: &Selection| {
                selection
                    .as_field()
                    .is_some_and(|field| field.name == "cost" && field.response_name() == "cost")
            };
            field.name == "rateLimit"
                && field.response_name() == "rateLimit"
                && field.selection_set.iter().any(selects)
        };
        self.top_fields(operation).into_iter().any(|field| has_cost(field))
    }

    /// The fields of the root, those in fragments included; each fragment is looked into once.
    /// Takes no longer than the document is long.
    fn top_fields(
        &self,
        operation: &'d OperationDefinition,
    ) -> Vec<&'d Node<apollo_compiler::ast::Field>> {
        let mut fields = Vec::new();
        let mut seen = HashSet::new();
        let mut open: Vec<_> = operation.selection_set.iter().collect();
        while let Some(selection) = open.pop() {
            match selection {
                Selection::Field(field) => fields.push(field),
                Selection::InlineFragment(inline) => open.extend(&inline.selection_set),
                Selection::FragmentSpread(spread) if seen.insert(&spread.fragment_name) => {
                    open.extend(
                        self.fragments
                            .get(&spread.fragment_name)
                            .map(|fragment| &*fragment.selection_set)
                            .unwrap_or_default(),
                    );
                }
                Selection::FragmentSpread(_) => {}
            }
        }
        fields
    }
}
