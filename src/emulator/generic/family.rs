//! Routes below a prefix without documented templates (`/orgs/{org}/actions/secrets/{*rest}`): the
//! path itself decides the shape.
//!
//! A number, or a name after a list, is an item; a plural is a list; anything else is a setting.

use http::Method;

use super::Facts;
use super::address::{Address, Step, UNLISTED};
use super::shape::{Shape, usual_status};
use crate::emulator::http::ApiError;

/// The deepest path; no documented one is as deep.
const STEPS_MAX: usize = 12;

pub fn shape(facts: &Facts, address: &Address) -> Result<Shape, ApiError> {
    let is_readable = |text: &str| !text.is_empty() && text.len() <= 255;
    if address.steps.len() > STEPS_MAX || !address.steps.iter().all(|step| is_readable(&step.text))
    {
        return Err(ApiError::NotFound);
    }
    Ok(form(facts, address))
}

/// Listed routes name it, as in `issues/{issue_number}`. A number below `repositories` gets its
/// own.
pub fn recognise(facts: &Facts, address: &mut Address) {
    let takes_number = facts.item_param.ends_with("_id") || facts.item_param.ends_with("_number");
    let mut is_first = true;
    let mut before = "";
    for Step { text, param } in &mut address.steps {
        if *param == UNLISTED {
            if is_number(text) && is_first && takes_number {
                facts.item_param.clone_into(param);
            } else if is_number(text) && before == "repositories" {
                "repository_id".clone_into(param);
            }
            is_first = false;
        }
        before = text;
    }
}

pub fn is_item(address: &Address, index: usize) -> bool {
    let text = |index: usize| address.steps.get(index).map_or("", |step| step.text.as_str());
    !is_list(text(index))
        && (is_number(text(index))
            || index.checked_sub(1).is_some_and(|before| is_list(text(before))))
}

fn form(facts: &Facts, address: &Address) -> Shape {
    let last = address.steps.len().saturating_sub(1);
    let method = &facts.endpoint.method;
    if is_list(address.name()) {
        return match *method {
            Method::GET | Method::POST => Shape::List,
            Method::PUT => Shape::Choice,
            _ => Shape::Names,
        };
    }
    match *method {
        Method::POST => Shape::Action(usual_status(method)),
        // A numbered object exists already; a named one is created by PUT.
        Method::PUT if is_number(address.name()) => Shape::Chosen,
        _ if is_item(address, last) => Shape::Item,
        _ => Shape::Switch,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for a plural in the routes' spelling: lower case, with a final `s`.
fn is_list(word: &str) -> bool {
    let is_word = !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'_'));
    is_word && word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plural_in_lower_case_is_a_list() {
        for word in ["repositories", "deployment_statuses", "selected-users", "s"] {
            assert!(is_list(word), "{word}");
        }
        for word in ["", "status", "access", "7", "TOKENS", "key", "émus"] {
            assert!(!is_list(word), "{word}");
        }
    }
}
