//! The routes: access, cost class and handler.

use http::Method;

use super::call::Call;
use super::need::Need;
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::limits::{Content, Resource, TokenRequest};

pub type Outcome = Result<Reply, ApiError>;

/// A function that answers a route.
pub type Handler = fn(&mut Call<'_>) -> Outcome;

/// A method that has routes; `HEAD` counts as `GET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Verb {
    Get,
    Post,
    Patch,
    Put,
    Delete,
}

impl Verb {
    pub fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::POST => Some(Self::Post),
            Method::PATCH => Some(Self::Patch),
            Method::PUT => Some(Self::Put),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    One,
    /// A GraphQL query, by its size.
    Cost(u32),
    /// `GET /rate_limit` is free (SPECIFICATION, "Primary rate limits").
    Free,
}

#[derive(Debug)]
pub struct Route {
    pub verb: Verb,
    pub template: &'static str,
    pub need: Need,
    pub resource: Resource,
    pub charge: Charge,
    pub content: Content,
    pub tokens: TokenRequest,
    pub answer: Handler,
}

impl Route {
    const fn new(verb: Verb, template: &'static str, need: Need, answer: Handler) -> Self {
        Self {
            verb,
            template,
            need,
            resource: Resource::CORE,
            charge: Charge::One,
            content: Content::None,
            tokens: TokenRequest::No,
            answer,
        }
    }

    pub const fn get(template: &'static str, need: Need, answer: Handler) -> Self {
        Self::new(Verb::Get, template, need, answer)
    }

    pub const fn post(template: &'static str, need: Need, answer: Handler) -> Self {
        Self::new(Verb::Post, template, need, answer)
    }

    pub const fn patch(template: &'static str, need: Need, answer: Handler) -> Self {
        Self::new(Verb::Patch, template, need, answer)
    }

    pub const fn put(template: &'static str, need: Need, answer: Handler) -> Self {
        Self::new(Verb::Put, template, need, answer)
    }

    pub const fn delete(template: &'static str, need: Need, answer: Handler) -> Self {
        Self::new(Verb::Delete, template, need, answer)
    }

    /// The upstream publishes no list; here it is every POST that creates an object with an author.
    pub const fn content(self) -> Self {
        Self { content: Content::Generating, ..self }
    }

    /// Requests about access tokens of an app or OAuth app have an hourly limit.
    pub const fn about_tokens(self) -> Self {
        Self { tokens: TokenRequest::Counted, ..self }
    }

    pub const fn resource(self, resource: Resource) -> Self {
        Self { resource, ..self }
    }

    pub const fn free(self) -> Self {
        Self { charge: Charge::Free, ..self }
    }
}
