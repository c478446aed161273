//! What a client may ask for: `"GET *"`, `"POST /repos/acme/*/issues"`.
//!
//! Only the form is checked here; what a pattern means and whether it permits a request is the
//! decision core's (`decision/access.rs`).

use std::fmt;
use std::sync::Arc;

use http::Method;

use crate::config::input::document::quoted;
use crate::config::input::reader::{Entry, Read};
use crate::decision::access::Rule;

/// One entry of a client's `allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// The methods it permits.
    pub method: AllowedMethod,
    /// The paths it permits: `*` alone for every path, else one in which a segment may be `*`, the
    /// last also `**`.
    pub path: Arc<str>,
}

/// The methods that an [`Allow`] permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedMethod {
    /// Written `*`.
    Any,
    /// This one.
    Only(Method),
}

impl Allow {
    /// Permits every request, which is the default.
    pub fn everything() -> Self {
        Self { method: AllowedMethod::Any, path: "*".into() }
    }
}

/// The methods that clients may use at all (CONTRACT.md, 3); `OPTIONS` needs no permission.
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
    // Its syntax is that of the rule which decides, so that no accepted pattern is later found to
    // be none.
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
        // Requests are compared by their canonical path.
        return Err("paths are written without /api/v3, whichever way the client asks".to_owned());
    }
    Ok(Allow { method, path: path.into() })
}
