//! A small part of GraphQL: `viewer` and `rateLimit`, what a query costs, and exhaustion as 200 with errors.

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::call::Call;
use super::fault::Fault;
use super::limits::Resource;
use super::render::Renderer;
use super::reply::{Reply, Tag};
use super::route::Outcome;
use super::timestamps::iso;

/// Document 1: points of a GraphQL request without and with mutations.
const QUERY_POINTS: u32 = 1;
const MUTATION_POINTS: u32 = 5;
/// A query nested deeper than this is refused; nothing here is.
const DEPTH_MAX: usize = 20;

/// The points a request counts for. What cannot be read counts as a query.
pub fn points(body: &[u8]) -> u32 {
    let Ok(query) = query_text(body) else { return QUERY_POINTS };
    if query.trim_start().starts_with("mutation") { MUTATION_POINTS } else { QUERY_POINTS }
}

/// The refusal of an exhausted budget: status 200, the message as everywhere.
pub fn exhausted(whose: &str) -> Reply {
    errors("RATE_LIMITED", &format!("API rate limit exceeded for {whose}."))
}

pub fn answer(call: &mut Call<'_>, method: &Method) -> Outcome {
    if call.caller.is_anonymous() || call.caller.token().is_none() {
        return Err(Fault::RequiresAuthentication);
    }
    if method != Method::POST {
        return Err(Fault::NotFound);
    }
    let query = query_text(call.body)?;
    let Some(selection) = Parser::new(&query).document() else {
        return Ok(errors("PARSE_ERROR", "the query could not be parsed"));
    };
    let root = root(call);
    match pick(&root, &selection) {
        Ok(data) => Ok(untagged(json!({ "data": data }))),
        Err(unknown) => Ok(errors("undefinedField", &format!("Field '{unknown}' doesn't exist"))),
    }
}

fn errors(kind: &str, message: &str) -> Reply {
    untagged(json!({ "data": null, "errors": [{ "type": kind, "message": message }] }))
}

/// Answers to a POST have no validators.
fn untagged(value: Value) -> Reply {
    Reply { tag: Tag::None, ..Reply::json(StatusCode::OK, value) }
}

fn query_text(body: &[u8]) -> Result<String, Fault> {
    let value: Value = serde_json::from_slice(body).map_err(|_| Fault::MalformedJson)?;
    value
        .get("query")
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| Fault::BadRequest("A query attribute must be specified and must be a string.".to_owned()))
}

fn root(call: &Call<'_>) -> Value {
    let view = call.budget(Resource::GRAPHQL);
    let viewer = call.caller.user().and_then(|id| call.world.users.get(&id)).map_or(Value::Null, |user| {
        let summary = Renderer::of(call).user_summary(user.id);
        json!({
            "__typename": "User", "id": summary["node_id"], "databaseId": user.id, "login": user.login, "name": user.name,
            "url": summary["html_url"], "createdAt": iso(user.created_at), "updatedAt": iso(user.updated_at),
        })
    });
    json!({
        "__typename": "Query",
        "viewer": viewer,
        "rateLimit": {
            "__typename": "RateLimit", "limit": view.limit, "cost": 1, "nodeCount": 0,
            // This request is counted once it is answered.
            "remaining": view.remaining().saturating_sub(1), "used": view.used + 1, "resetAt": iso(view.reset),
        },
    })
}

/// One field of a selection: the name to answer under, the field, what is selected inside.
#[derive(Debug)]
struct Field {
    alias: String,
    name: String,
    inside: Vec<Field>,
}

fn pick(from: &Value, selection: &[Field]) -> Result<Value, String> {
    if from.is_null() || selection.is_empty() {
        return Ok(from.clone());
    }
    let mut picked = Map::new();
    for field in selection {
        let value = from.get(&field.name).ok_or_else(|| field.name.clone())?;
        picked.insert(field.alias.clone(), pick(value, &field.inside)?);
    }
    Ok(Value::Object(picked))
}

/// Reads operations without fragments and directives. Arguments are skipped.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// The selection of the first operation.
    fn document(mut self) -> Option<Vec<Field>> {
        // What precedes the first brace is the kind, the name and the variables of the operation.
        let brace = self.rest.find('{')?;
        self.rest = &self.rest[brace..];
        self.selection(0)
    }

    fn selection(&mut self, depth: usize) -> Option<Vec<Field>> {
        if depth > DEPTH_MAX || !self.take('{') {
            return None;
        }
        let mut fields = Vec::new();
        while !self.take('}') {
            let first = self.name()?;
            let name = if self.take(':') { self.name()? } else { first.clone() };
            self.skip_arguments()?;
            self.skip_blanks();
            let inside = if self.rest.starts_with('{') { self.selection(depth + 1)? } else { Vec::new() };
            fields.push(Field { alias: first, name, inside });
        }
        Some(fields)
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        while let Some(comment) = self.rest.strip_prefix('#') {
            let line = comment.split_once('\n').map_or("", |(_, after)| after);
            self.rest = line.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn name(&mut self) -> Option<String> {
        self.skip_blanks();
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn skip_arguments(&mut self) -> Option<()> {
        if self.take('(') {
            let (_, after) = self.rest.split_once(')')?;
            self.rest = after;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_costs_1_point_and_a_mutation_5() {
        assert_eq!(points(br#"{"query":"{ viewer { login } }"}"#), 1);
        assert_eq!(points(br#"{"query":" mutation { addStar }"}"#), 5);
        assert_eq!(points(b"nonsense"), 1);
    }

    #[test]
    fn aliases_arguments_and_comments_are_understood() {
        let fields = Parser::new("query Q($n: Int) { me: viewer { login # who\n } rateLimit(dryRun: true) { cost, remaining } }")
            .document()
            .expect("it parses");
        assert_eq!((fields[0].alias.as_str(), fields[0].name.as_str()), ("me", "viewer"));
        assert_eq!(fields[1].inside.len(), 2);
        assert!(Parser::new("{ viewer {").document().is_none());
        assert!(Parser::new(&"{a".repeat(1_000)).document().is_none());
    }
}
