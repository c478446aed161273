//! The cost of a query, computed before execution, and its limits.
//!
//! The upstream does not document the cost of a query; this is the real service's published rule.
//! Each connection is a request for each of its parent nodes, as if every page were full. The cost
//! is a hundredth of all requests, rounded, and at least 1.

use std::collections::BTreeSet;

use apollo_compiler::ExecutableDocument;
use apollo_compiler::ast;
use apollo_compiler::executable::{Directive, Field, Operation, Selection, SelectionSet};
use apollo_compiler::response::JsonMap;
use apollo_compiler::validation::Valid;

use super::problem::{Kind, Problem};

/// The real service's published limits of one query: nodes, and items of one page.
const NODES_MAX: u64 = 500_000;
const PAGE_MAX: i64 = 100;
/// Selections with fragments expanded, aliases included, and their nesting. Undocumented.
const SELECTIONS_MAX: u64 = 10_000;
const DEPTH_MAX: usize = 30;
/// The most introspection values, and the assumed length of the schema's lists.
const SCHEMA_VALUES_MAX: u64 = 1_000_000;
const SCHEMA_LIST: u64 = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Nodes, if every page were full.
    pub nodes: u64,
    requests: u64,
}

impl Size {
    pub fn cost(self) -> u32 {
        u32::try_from((self.requests + 50) / 100).unwrap_or(u32::MAX).max(1)
    }

    pub fn of(
        document: &Valid<ExecutableDocument>,
        operation: &Operation,
        variables: &JsonMap,
    ) -> Result<Self, Problem> {
        let mut walk =
            Walk { document, variables, size: Self::default(), selections: 0, schema_values: 0 };
        walk.set(&operation.selection_set, Position { parents: 1, schema_parents: 0, depth: 0 })?;
        Ok(walk.size)
    }
}

struct Walk<'d> {
    document: &'d Valid<ExecutableDocument>,
    variables: &'d JsonMap,
    size: Size,
    selections: u64,
    schema_values: u64,
}

#[derive(Clone, Copy)]
struct Position {
    parents: u64,
    /// The number of schema entries that it is selected on; 0 outside introspection.
    schema_parents: u64,
    depth: usize,
}

impl Walk<'_> {
    fn set(&mut self, set: &SelectionSet, position: Position) -> Result<(), Problem> {
        if position.depth > DEPTH_MAX {
            return Err(Problem::new(
                Kind::ResourceLimitsExceeded,
                format!("The query is nested deeper than {DEPTH_MAX}."),
            ));
        }
        for selection in &set.selections {
            if !self.is_included(selection) {
                continue;
            }
            self.selections += 1;
            self.schema_values = self.schema_values.saturating_add(position.schema_parents);
            if self.selections > SELECTIONS_MAX || self.schema_values > SCHEMA_VALUES_MAX {
                return Err(Problem::new(
                    Kind::ResourceLimitsExceeded,
                    format!("The query has more than {SELECTIONS_MAX} selections."),
                ));
            }
            let below = Position { depth: position.depth + 1, ..position };
            match selection {
                Selection::Field(field) => self.field(field, below)?,
                Selection::InlineFragment(inline) => self.set(&inline.selection_set, below)?,
                Selection::FragmentSpread(spread) => {
                    if let Some(fragment) = self.document.fragments.get(&spread.fragment_name) {
                        self.set(&fragment.selection_set, below)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, position: Position) -> Result<(), Problem> {
        let kind = field.definition.ty.inner_named_type().as_str();
        let inside = if kind.ends_with("Connection") {
            let page = match self.page(field) {
                // Counting alone needs no page.
                Err(problem)
                    if problem.kind == Kind::MissingPaginationBoundaries
                        && !self.lists(&field.selection_set, &mut BTreeSet::new()) =>
                {
                    0
                }
                page => page?,
            };
            self.size.requests = self.size.requests.saturating_add(position.parents);
            Position { parents: self.counted(position.parents.saturating_mul(page))?, ..position }
        } else if let Some(ids) = field.specified_argument_by_name("ids") {
            let length = self.length(ids);
            if length > PAGE_MAX.unsigned_abs() {
                return Err(Problem::new(
                    Kind::ExcessivePagination,
                    format!("You may not provide more than {PAGE_MAX} node ids."),
                ));
            }
            Position { parents: self.counted(length)?, ..position }
        } else if kind.starts_with("__") {
            let entries = if field.definition.ty.is_list() { SCHEMA_LIST } else { 1 };
            Position {
                schema_parents: position.schema_parents.max(1).saturating_mul(entries),
                ..position
            }
        } else {
            position
        };
        self.set(&field.selection_set, inside)
    }

    fn counted(&mut self, nodes: u64) -> Result<u64, Problem> {
        self.size.nodes = self.size.nodes.saturating_add(nodes);
        if self.size.nodes > NODES_MAX {
            let message = format!(
                "This query requests up to {} possible nodes which exceeds the maximum limit of {NODES_MAX}.",
                self.size.nodes
            );
            return Err(Problem::new(Kind::MaxNodeLimitExceeded, message));
        }
        Ok(nodes)
    }

    /// True when a connection's nodes or edges are selected, in fragments included. Each fragment
    /// is looked into once, so that fragments within fragments cost no more than their text.
    fn lists<'s>(&'s self, set: &'s SelectionSet, seen: &mut BTreeSet<&'s str>) -> bool {
        set.selections.iter().any(|selection| match selection {
            Selection::Field(field) => matches!(&*field.name, "nodes" | "edges" | "pageInfo"),
            Selection::InlineFragment(inline) => self.lists(&inline.selection_set, seen),
            Selection::FragmentSpread(spread) => {
                let fragment = self.document.fragments.get(&spread.fragment_name);
                seen.insert(&spread.fragment_name)
                    && fragment.is_some_and(|found| self.lists(&found.selection_set, seen))
            }
        })
    }

    /// One of `first` and `last` is required.
    fn page(&self, field: &Field) -> Result<u64, Problem> {
        let mut smallest: Option<i64> = None;
        for name in ["first", "last"] {
            let Some(size) = self.integer(field, name) else { continue };
            if !(0..=PAGE_MAX).contains(&size) {
                let message = format!(
                    "Requesting {size} records on the `{}` connection exceeds the `{name}` limit of {PAGE_MAX} records.",
                    field.name
                );
                return Err(Problem::new(Kind::ExcessivePagination, message));
            }
            smallest = Some(smallest.map_or(size, |smallest| smallest.min(size)));
        }
        smallest.and_then(|size| u64::try_from(size).ok()).ok_or_else(|| {
            let message = format!("You must provide a `first` or `last` value to properly paginate the `{}` connection.", field.name);
            Problem::new(Kind::MissingPaginationBoundaries, message)
        })
    }

    fn integer(&self, field: &Field, name: &str) -> Option<i64> {
        match field.specified_argument_by_name(name)?.as_ref() {
            ast::Value::Int(value) => value.try_to_i32().ok().map(i64::from),
            ast::Value::Variable(name) => self.variables.get(name.as_str())?.as_i64(),
            _ => None,
        }
    }

    fn length(&self, list: &ast::Value) -> u64 {
        let length = match list {
            ast::Value::List(items) => items.len(),
            ast::Value::Variable(name) => self
                .variables
                .get(name.as_str())
                .and_then(|value| value.as_array())
                .map_or(1, Vec::len),
            _ => 1,
        };
        length as u64
    }

    fn is_included(&self, selection: &Selection) -> bool {
        let condition = |directive: Option<&apollo_compiler::Node<Directive>>| match directive?
            .specified_argument_by_name("if")?
            .as_ref()
        {
            ast::Value::Boolean(value) => Some(*value),
            ast::Value::Variable(name) => self.variables.get(name.as_str())?.as_bool(),
            _ => None,
        };
        let directives = selection.directives();
        condition(directives.get("include")) != Some(false)
            && condition(directives.get("skip")) != Some(true)
    }
}
