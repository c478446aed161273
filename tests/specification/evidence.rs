//! Evidence that a test must leave in its record for a row to count as exercised.

use crate::recorder::{Answered, Event};
use crate::routes::METHODS;
use crate::template;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// At least one response of any kind.
    Ran,
    /// This status from this route.
    Answer { method: &'static str, template: &'static str, status: u16 },
    /// Any response from this route, if the emulator knows the route; the method may be `ANY`.
    Known { method: &'static str, template: &'static str },
    /// This status from any route.
    Status(u16),
    /// The field was compared in a response.
    Field { object: &'static str, field: &'static str },
    /// The field was compared and had this value.
    Value { object: &'static str, field: &'static str, value: &'static str },
    /// The machine was observed in the first state, then after the trigger in the second, and in no
    /// other between.
    Transition { machine: &'static str, from: &'static str, trigger: Trigger, to: &'static str },
    /// A credential in this form was accepted or refused.
    Credential { scheme: &'static str, kind: &'static str, outcome: Outcome },
    /// A response to a caller of this kind named this primary limit for this resource.
    PrimaryLimit { kind: &'static str, resource: &'static str, limit: u64 },
    /// This many requests passed, and the next was refused.
    Refusal { limit: &'static str, after: u64 },
    /// The header was present and read.
    Header(&'static str),
    /// A token of this kind with these permissions (by the names of the matrix test) passed to the
    /// route, or got 403.
    Grant {
        method: &'static str,
        template: &'static str,
        kind: &'static str,
        granted: Granted,
        outcome: Outcome,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// None but repository metadata.
    Nothing,
    /// Some, but not all.
    Something,
    Everything,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// For a credential: 2xx or 304. For a grant: anything but 401 and 403, from a known route.
    Accepted,
    /// For a credential: 401 or 403. For a grant: 403.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A successful request (2xx).
    Request(&'static str, &'static str),
    /// At least this many seconds.
    Passing(u64),
}

impl Evidence {
    /// True if the record contains the evidence.
    pub fn is_in(self, record: &[Event]) -> bool {
        let answers = || record.iter().filter_map(Event::answered);
        match self {
            Self::Ran => answers().next().is_some(),
            Self::Status(status) => answers().any(|answer| answer.status == status),
            Self::Answer { method, template, status } => {
                answers().any(|answer| answer.status == status && is_from(answer, method, template))
            }
            Self::Known { method: "ANY", template } => {
                answers().any(|answer| is_known(answer) && METHODS.iter().any(|method| is_from(answer, method, template)))
            }
            Self::Known { method, template } => answers().any(|answer| is_known(answer) && is_from(answer, method, template)),
            Self::Field { object, field } => record
                .iter()
                .any(|event| matches!(event, Event::Compared { object: seen, field: name, .. } if *seen == object && *name == field)),
            Self::Value { object, field, value } => record.iter().any(|event| {
                matches!(event, Event::Compared { object: seen, field: name, text: Some(text) } if *seen == object && *name == field && text == value)
            }),
            Self::Transition { machine, from, trigger, to } => has_transition(record, machine, from, trigger, to),
            Self::Credential { scheme, kind, outcome } => answers().any(|answer| {
                answer.caller.scheme == scheme && answer.caller.kind == kind && is_outcome_of_credential(answer.status, outcome)
            }),
            Self::PrimaryLimit { kind, resource, limit } => {
                answers().any(|answer| answer.caller.kind == kind && answer.resource == resource && answer.limit == Some(limit))
            }
            Self::Refusal { limit, after } => {
                record.iter().any(|event| matches!(event, Event::Refused { limit: seen, after: count } if *seen == limit && *count == after))
            }
            Self::Header(name) => record.iter().any(|event| matches!(event, Event::Header(seen) if seen.eq_ignore_ascii_case(name))),
            Self::Grant { method, template, kind, granted, outcome } => answers().any(|answer| {
                let is_outcome = match outcome {
                    Outcome::Accepted => is_known(answer) && ![401, 403].contains(&answer.status),
                    Outcome::Refused => answer.status == 403,
                };
                is_outcome
                    && answer.caller.kind == kind
                    && granted_by(&answer.caller.grants) == granted
                    && is_from(answer, method, template)
            }),
        }
    }

    pub fn route(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Answer { method, template, .. }
            | Self::Known { method, template }
            | Self::Grant { method, template, .. } => Some((method, template)),
            Self::Transition { trigger: Trigger::Request(method, template), .. } => {
                Some((method, template))
            }
            _ => None,
        }
    }
}

fn is_known(answer: &Answered) -> bool {
    names_a_route(&answer.endpoint)
}

/// The emulator's transcript names a request without a route `GET (unknown)`.
pub fn names_a_route(endpoint: &str) -> bool {
    !endpoint.is_empty() && !endpoint.ends_with("(unknown)")
}

fn is_from(answer: &Answered, method: &str, template: &str) -> bool {
    answer.method == method && template::is_best(method, template, &answer.path)
}

fn is_outcome_of_credential(status: u16, outcome: Outcome) -> bool {
    match outcome {
        Outcome::Accepted => (200..300).contains(&status) || status == 304,
        Outcome::Refused => status == 401 || status == 403,
    }
}

fn granted_by(grants: &str) -> Granted {
    match grants {
        "" | "metadata=read" => Granted::Nothing,
        "*" => Granted::Everything,
        _ => Granted::Something,
    }
}

fn has_transition(record: &[Event], machine: &str, from: &str, trigger: Trigger, to: &str) -> bool {
    let mut last: Option<&str> = None;
    let mut triggered = false;
    for event in record {
        match event {
            Event::Observed { machine: seen, state } if *seen == machine => {
                if last == Some(from) && triggered && state == to {
                    return true;
                }
                (last, triggered) = (Some(state.as_str()), false);
            }
            Event::Answered(answer) => {
                triggered |= matches!(trigger, Trigger::Request(method, template)
                    if (200..300).contains(&answer.status) && is_from(answer, method, template));
            }
            Event::Passed { seconds } => {
                triggered |= matches!(trigger, Trigger::Passing(needed) if *seconds >= needed);
            }
            _ => {}
        }
    }
    false
}
