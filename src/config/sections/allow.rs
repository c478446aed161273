//! Permissions of clients: `"GET *"`, `"POST /repos/acme/*/issues"`.
//!
//! Only the form is checked here; `decision/access` matches requests.

use std::fmt;
use std::sync::Arc;

use http::Method;

use crate::config::input::document::quoted;
use crate::config::input::reader::{Entry, Read};
use crate::decision::access::Rule;

/// One entry of a client's `allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// Permitted methods.
    pub method: AllowedMethod,
    /// Permitted paths: `*` alone for every path, else a path whose segments may be `*`, the last
    /// one also `**`.
    pub path: Arc<str>,
}

/// Methods of an [`Allow`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedMethod {
    /// Written `*`.
    Any,
    /// A single method.
    Only(Method),
}

impl Allow {
    /// Permits every request, which is the default.
    pub fn everything() -> Self {
        Self { method: AllowedMethod::Any, path: "*".into() }
    }
}

/// The methods of clients (SPECIFICATION, "Client interface"); `OPTIONS` needs no permission.
const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = match &self.method {
            AllowedMethod::Any => "*",
            AllowedMethod::Only(method) => method.as_str(),
        };
        write!(f, "{method} {}", self.path)
    }
}

impl Read for Allow {
    fn accepted() -> String {
        "a method or * and a path or *, such as \"GET *\" or \"POST /repos/acme/*/issues\""
            .to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let text = entry.text::<Self>()?;
        match parse(text) {
            Ok(allow) => Some(allow),
            Err(problem) => {
                entry.refuse(format!("bad pattern {}: {problem}", quoted(text)), Self::accepted())
            }
        }
    }
}

fn parse(text: &str) -> Result<Allow, String> {
    // The parser of the deciding rule checks the syntax, so that every accepted pattern works
    // later.
    Rule::parse(text).map_err(|error| error.to_string())?;
    let (method, path) =
        text.trim().split_once(|space: char| space.is_ascii_whitespace()).unwrap_or_default();
    let method = match method {
        "*" => AllowedMethod::Any,
        name => AllowedMethod::Only(
            METHODS
                .into_iter()
                .find(|known| known.as_str() == name)
                .ok_or("clients may use GET, HEAD, POST, PUT, PATCH and DELETE")?,
        ),
    };
    let path = path.trim_start();
    if path == "/api/v3" || path.starts_with("/api/v3/") {
        // Requests are matched by their canonical path.
        return Err("paths are written without /api/v3, whichever way the client asks".to_owned());
    }
    Ok(Allow { method, path: path.into() })
}
