//! GraphQL: one schema over the same world as REST, with the same access rules.
//!
//! The upstream documents only its limits; the schema is the most used part of the real service's.
//! `apollo_compiler` parses, validates and executes queries. `size` computes the cost before
//! execution; the other files resolve fields. A request without mutations counts 1 point, with
//! mutations 5.

mod connection;
mod ids;
mod issue;
mod mutation;
mod object;
mod people;
mod problem;
mod pull;
mod pull_mutation;
mod query;
mod reactions;
mod record;
mod repository;
mod rollup;
mod size;

use std::cell::RefCell;
use std::sync::OnceLock;

use apollo_compiler::executable::Operation;
use apollo_compiler::parser::Parser;
use apollo_compiler::request::{RequestError, coerce_variable_values};
use apollo_compiler::resolvers::Execution;
use apollo_compiler::response::{ExecutionResponse, GraphQLError, JsonMap, JsonValue};
use apollo_compiler::validation::{DiagnosticList, Valid};
use apollo_compiler::{ExecutableDocument, Schema, introspection};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use self::object::{Budget, Node, Object};
use self::problem::{Kind, Problem};
use self::size::Size;
use crate::emulator::http::path::BODY_BYTES_MAX;
use crate::emulator::http::{ApiError, Body, Fields, Reply, Tag};
use crate::emulator::limits::Content;
use crate::emulator::routing::{Call, Outcome};

/// Points of a GraphQL request without and with mutations (SPECIFICATION, "Secondary rate limits").
const QUERY_POINTS: u32 = 1;
const MUTATION_POINTS: u32 = 5;
/// Bounds of length, tokens and nesting for parsing. Undocumented; all are far above real queries.
const QUERY_BYTES_MAX: usize = 1_048_576;
const TOKENS_MAX: usize = 20_000;
const NESTING_MAX: usize = 64;
const ERRORS_MAX: usize = 100;
/// The mutations that create content for people.
const CREATING: [&str; 3] = ["addComment", "createIssue", "createPullRequest"];

/// A parsed request, before access to the world.
#[derive(Debug)]
pub struct Plan {
    /// SPECIFICATION, "Secondary rate limits".
    pub points: u32,
    pub content: Content,
    /// Units charged to the primary budget.
    pub cost: u32,
    prepared: Result<Prepared, Rejection>,
}

#[derive(Debug)]
struct Prepared {
    document: Valid<ExecutableDocument>,
    operation: Option<String>,
    variables: Valid<JsonMap>,
    size: Size,
}

#[derive(Debug)]
enum Rejection {
    /// A malformed request, answered as in REST.
    Form(ApiError),
    /// An invalid query: 200 with errors.
    Query(Vec<Value>),
}

impl Plan {
    /// An unreadable body counts as a query of the least cost.
    pub fn of(body: &[u8]) -> Self {
        match prepare(body) {
            Ok(prepared) => Self::of_prepared(prepared),
            Err(rejection) => Self {
                points: QUERY_POINTS,
                content: Content::None,
                cost: 1,
                prepared: Err(rejection),
            },
        }
    }

    fn of_prepared(prepared: Prepared) -> Self {
        let operation = operation(&prepared.document, prepared.operation.as_deref()).ok();
        let is_mutation = operation.is_some_and(Operation::is_mutation);
        let creates = |operation: &Operation| {
            operation.is_mutation()
                && operation
                    .root_fields(&prepared.document)
                    .any(|field| CREATING.contains(&field.name.as_str()))
        };
        Self {
            points: if is_mutation { MUTATION_POINTS } else { QUERY_POINTS },
            content: if operation.is_some_and(creates) {
                Content::Generating
            } else {
                Content::None
            },
            cost: prepared.size.cost(),
            prepared: Ok(prepared),
        }
    }
}

/// Status 200, with REST's message.
pub fn exhausted(account: &str) -> Reply {
    let error = json!({ "type": "RATE_LIMITED", "message": format!("API rate limit exceeded for {account}.") });
    QueryResult { data: Some(JsonValue::Null), errors: vec![error] }.into_reply()
}

pub fn answer(call: &mut Call<'_>, method: &Method, plan: Plan) -> Outcome {
    if call.caller.is_anonymous() || call.caller.token().is_none() {
        return Err(ApiError::RequiresAuthentication);
    }
    if method != Method::POST {
        return Err(ApiError::NotFound);
    }
    let cost = plan.cost;
    match plan.prepared {
        Ok(prepared) => Ok(execute(call, &prepared, cost).into_reply()),
        Err(Rejection::Form(fault)) => Err(fault),
        Err(Rejection::Query(errors)) => Ok(QueryResult { data: None, errors }.into_reply()),
    }
}

#[derive(Debug, Serialize)]
struct QueryResult {
    /// Absent when nothing was executed; null when execution failed (GraphQL, section 7.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<JsonValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Value>,
}

impl QueryResult {
    /// Keeps the query's field order, as GraphQL requires. Responses to a POST have no validators.
    fn into_reply(self) -> Reply {
        let bytes = serde_json::to_vec(&self).unwrap_or_default();
        let body = Body::Raw(Some("application/json; charset=utf-8".to_owned()), bytes.into());
        Reply { tag: Tag::None, ..Reply::new(StatusCode::OK, body) }
    }
}

fn schema() -> &'static Valid<Schema> {
    static SCHEMA: OnceLock<Valid<Schema>> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        // A test proves the schema valid.
        Schema::parse_and_validate(include_str!("schema.graphql"), "schema.graphql")
            .unwrap_or_else(|faulty| Valid::assume_valid(faulty.partial))
    })
}

fn operation<'d>(
    document: &'d Valid<ExecutableDocument>,
    name: Option<&str>,
) -> Result<&'d Operation, RequestError> {
    document.operations.get(name).map(|operation| &**operation)
}

fn prepare(body: &[u8]) -> Result<Prepared, Rejection> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Rejection::Form(ApiError::TooLarge));
    }
    let (query, operation_name, variables) = form(body).map_err(Rejection::Form)?;
    if query.len() > QUERY_BYTES_MAX {
        return Err(Rejection::Query(vec![
            Problem::new(
                Kind::ResourceLimitsExceeded,
                "The query is too long; give its values as variables.",
            )
            .entry(),
        ]));
    }
    let mut parser = Parser::new().token_limit(TOKENS_MAX).recursion_limit(NESTING_MAX);
    let document = parser
        .parse_executable(schema(), query, "query")
        .map_err(|faulty| diagnosed("PARSE_ERROR", &faulty.errors))?;
    let document = validated(document)?;
    let rejected = |error: RequestError| {
        Rejection::Query(vec![entry("INVALID_REQUEST", &error.to_graphql_error(&document.sources))])
    };
    let operation = operation(&document, operation_name.as_deref()).map_err(rejected)?;
    let variables = coerce_variable_values(schema(), operation, &variables).map_err(rejected)?;
    introspection::check_max_depth(&document, operation).map_err(rejected)?;
    let size = Size::of(&document, operation, &variables)
        .map_err(|problem| Rejection::Query(vec![problem.entry()]))?;
    Ok(Prepared { operation: operation_name, variables, size, document })
}

/// The running service lets fields of one name differ in type where no object has both: `gh` asks
/// for `state` of an issue or pull request, whose enumerations differ.
fn validated(document: ExecutableDocument) -> Result<Valid<ExecutableDocument>, Rejection> {
    document.validate(schema()).or_else(|faulty| {
        let mut names = faulty.errors.iter().map(|error| error.error.unstable_error_name());
        if names.all(|name| name == Some("ConflictingFieldType")) {
            Ok(Valid::assume_valid(faulty.partial))
        } else {
            Err(diagnosed("VALIDATION_ERROR", &faulty.errors))
        }
    })
}

fn form(body: &[u8]) -> Result<(String, Option<String>, JsonMap), ApiError> {
    let mut fields = Fields::parse("GraphQL", body)?;
    if fields.value("query").is_none_or(Value::is_null) {
        // Undocumented; the real service's words.
        return Err(ApiError::BadRequest(
            "A query attribute must be specified and must be a string.".to_owned(),
        ));
    }
    let query = fields.required_string("query");
    let operation_name =
        fields.nullable_string("operationName").value().filter(|name| !name.is_empty());
    let variables = match fields.value("variables") {
        None | Some(Value::Null) => JsonMap::new(),
        Some(Value::Object(map)) => {
            map.iter().map(|(name, value)| (name.as_str().into(), value.clone().into())).collect()
        }
        Some(_) => {
            fields.invalid("variables", "variables is not an object");
            JsonMap::new()
        }
    };
    fields.check()?;
    Ok((query, operation_name, variables))
}

fn diagnosed(kind: &str, errors: &DiagnosticList) -> Rejection {
    Rejection::Query(
        errors.iter().take(ERRORS_MAX).map(|error| entry(kind, &error.to_json())).collect(),
    )
}

/// The real service's form: with its type beside the message.
fn entry(kind: &str, error: &GraphQLError) -> Value {
    let mut value = json!({ "type": kind, "message": error.message, "locations": error.locations });
    if !error.path.is_empty() {
        crate::emulator::render::extend(&mut value, json!({ "path": error.path }));
    }
    value
}

fn execute(call: &mut Call<'_>, prepared: &Prepared, cost: u32) -> QueryResult {
    let invalid = |error: &RequestError| QueryResult {
        data: None,
        errors: vec![entry("INVALID_REQUEST", &error.to_graphql_error(&prepared.document.sources))],
    };
    let operation = match operation(&prepared.document, prepared.operation.as_deref()) {
        Ok(operation) => operation,
        Err(error) => return invalid(&error),
    };
    let budget = Budget::new(cost, prepared.size.nodes, call.limits);
    let node = if operation.is_mutation() { Node::Mutation } else { Node::Query };
    let root = Object { call: &RefCell::new(call), budget: &budget, node };
    let executed = Execution::new(schema(), &prepared.document)
        .operation(operation)
        .coerced_variable_values(&prepared.variables)
        .enable_schema_introspection(true)
        .execute_sync(&root);
    match executed {
        Ok(_) if budget.is_exhausted() => {
            QueryResult { data: Some(JsonValue::Null), errors: vec![problem::too_much().entry()] }
        }
        Ok(ExecutionResponse { data, errors }) => QueryResult {
            data: Some(data.map_or(JsonValue::Null, JsonValue::Object)),
            errors: errors.iter().take(ERRORS_MAX).map(problem::of_execution).collect(),
        },
        Err(error) => invalid(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_valid() {
        assert!(
            Schema::parse_and_validate(include_str!("schema.graphql"), "schema.graphql").is_ok()
        );
    }

    fn points(body: &Value) -> u32 {
        Plan::of(body.to_string().as_bytes()).points
    }

    #[test]
    fn a_query_counts_1_point_and_a_mutation_5() {
        let close = "mutation { closeIssue(input: { issueId: \"x\" }) { issue { id } } }";
        assert_eq!(points(&json!({ "query": "{ viewer { login } }" })), 1);
        assert_eq!(points(&json!({ "query": format!("# mutation\n{close}") })), 5);
        assert_eq!(points(&json!({ "query": "query mutation { viewer { login } }" })), 1);
        let both = format!(
            "query A {{ viewer {{ login }} }} {}",
            close.replacen("mutation", "mutation B", 1)
        );
        assert_eq!(points(&json!({ "query": both, "operationName": "A" })), 1);
        assert_eq!(points(&json!({ "query": both, "operationName": "B" })), 5);
        assert_eq!(points(&json!("nonsense")), 1);
    }
}
