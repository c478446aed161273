//! The storage address of a route's objects, derived from the objects that its path names.
//!
//! Repositories, organisations, teams and users appear by id. So a renamed repository keeps its
//! objects, case does not matter, and addresses by name and by id agree.

use serde_json::Value;

use super::admission::{enterprise_of_path, organization_of_path};
use super::rule::{Rule, SUBJECTS, Subject, below};
use super::seeds;
use crate::emulator::auth::access::path_of;
use crate::emulator::http::path::decode_segment;
use crate::emulator::http::{ApiError, segment};
use crate::emulator::routing::Call;
use crate::emulator::world::{Organization, Owner, StoredItem};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub text: String,
    /// Empty for a literal word of the template, [`UNLISTED`] for an undocumented step.
    pub param: String,
}

/// Marks a step that no documented template has.
pub const UNLISTED: &str = "*";

/// A resolved path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address of the subject itself.
    root: String,
    /// The path of the subject, as responses name it.
    path: String,
    pub steps: Vec<Step>,
}

impl Address {
    pub fn leading(&self, steps: usize) -> String {
        self.steps
            .iter()
            .take(steps)
            .fold(self.root.clone(), |address, step| format!("{address}/{}", step.text))
    }

    pub fn whole(&self) -> String {
        self.leading(self.steps.len())
    }

    pub fn parent(&self) -> String {
        self.leading(self.steps.len().saturating_sub(1))
    }

    pub fn name(&self) -> &str {
        self.steps.last().map_or("", |step| &step.text)
    }

    pub fn last_param(&self) -> &str {
        self.steps.last().map_or("", |step| &step.param)
    }

    pub fn sibling(&self, own: &str) -> String {
        format!("{}{own}", self.root)
    }

    /// Returns the path, as responses name it, of an address of the same subject.
    pub fn path_of(&self, address: &str) -> String {
        format!("{}{}", self.path, address.strip_prefix(&self.root).unwrap_or(address))
    }

    pub fn value(&self, param: &str) -> Option<&str> {
        self.steps.iter().find(|step| step.param == param).map(|step| step.text.as_str())
    }

    /// The steps below the subject: words as they are, parameters in braces.
    pub fn pattern(&self, steps: usize) -> String {
        let step = |step: &Step| match step.param.as_str() {
            "" | UNLISTED => format!("/{}", step.text),
            param => format!("/{{{param}}}"),
        };
        self.steps.iter().take(steps).map(step).collect()
    }
}

/// `rest` is the unlisted end of a family's path, as sent. Unknown repositories are a 404.
pub fn of(call: &Call<'_>, template: &str, rest: &str, rule: &Rule) -> Result<Address, ApiError> {
    let (root, path) = root_and_path(call, template, rule)?;
    let mut steps = Vec::new();
    let mut segments = own_part(template).split('/').skip(1).peekable();
    while let Some(word) = segments.next() {
        let mut step =
            |text: String, param: &str| steps.push(Step { text, param: param.to_owned() });
        match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
            None => step(word.to_owned(), ""),
            Some("owner") if segments.next_if_eq(&"{repo}").is_some() => {
                let (owner, name) = (call.params.get("owner"), call.params.get("repo"));
                let found = call.world.repository_named(owner, name).ok_or(ApiError::NotFound)?;
                step(found.id.to_string(), "repository_id");
            }
            // Undocumented steps are taken word by word.
            Some("*rest") => {
                rest.split('/').for_each(|word| step(segment(&decode_segment(word)), UNLISTED));
            }
            Some(param) => {
                let param = param.trim_start_matches('*');
                step(value(call, param), param);
            }
        }
    }
    Ok(Address { root, path, steps })
}

/// Names of people and organisations are case-insensitive.
fn value(call: &Call<'_>, param: &str) -> String {
    let value = call.params.get(param);
    match param {
        "username" | "assignee" | "target_user" | "org" | "enterprise-team" => {
            segment(&value.to_lowercase())
        }
        "workflow_id" => workflow(call, value).unwrap_or_else(|| segment(value)),
        _ => segment(value),
    }
}

/// A workflow has the name of its file as a second id.
fn workflow(call: &Call<'_>, name: &str) -> Option<String> {
    let workflows =
        seeds::items(call.world, &format!("repository/{}/actions/workflows", call.repository));
    let is_named = |item: &StoredItem| {
        let path = item.fields.get("path").and_then(Value::as_str);
        path.is_some_and(|path| path.rsplit('/').next() == Some(name))
    };
    workflows.into_iter().find(|(_, item)| is_named(item)).map(|(id, _)| id)
}

fn root_and_path(
    call: &Call<'_>,
    template: &str,
    rule: &Rule,
) -> Result<(String, String), ApiError> {
    let of_caller = |root: String| match call.caller.user() {
        Some(user) if rule.about_caller => format!("{root}/of/{user}"),
        _ => root,
    };
    Ok(match rule.subject {
        Subject::Repository => (
            of_caller(format!("repository/{}", call.repository)),
            path_of(call.world, call.repository()?),
        ),
        Subject::Organization | Subject::Team => {
            let (Organization { id, login, .. }, team) = organization_of_path(call)?;
            let path = format!("/orgs/{}", segment(login));
            match team.filter(|_| rule.subject == Subject::Team) {
                Some(team) => (
                    format!("organization/{id}/teams/{}", team.id),
                    format!("{path}/teams/{}", segment(&team.slug)),
                ),
                None => (of_caller(format!("organization/{id}")), path),
            }
        }
        Subject::Enterprise => {
            let id = enterprise_of_path(call).ok_or(ApiError::NotFound)?;
            let path = match call.params.get("enterprise") {
                "" => String::new(),
                slug => format!("/enterprises/{}", segment(slug)),
            };
            (format!("enterprise/{id}"), path)
        }
        Subject::Account => {
            let path = format!("/users/{}", segment(call.params.get("username")));
            match call.world.owner(call.params.get("username")).ok_or(ApiError::NotFound)? {
                Owner::User(id) => (format!("user/{id}"), path),
                Owner::Organization(id) => (format!("organization/{id}"), path),
            }
        }
        Subject::Caller => {
            let path = if template.starts_with("/user/") { "/user" } else { "" };
            (format!("user/{}", call.caller.user().unwrap_or(0)), path.to_owned())
        }
        Subject::App | Subject::Installation | Subject::OauthApp => {
            (format!("account/{}", call.world.account_name(call.caller.account)), String::new())
        }
        Subject::Service => ("service".to_owned(), String::new()),
    })
}

/// Returns the part of a template below the subject.
fn own_part(template: &str) -> &str {
    let subjects = SUBJECTS.iter().map(|(prefix, _)| *prefix);
    subjects.chain(["/user"]).find_map(|prefix| below(template, prefix)).unwrap_or(template)
}
