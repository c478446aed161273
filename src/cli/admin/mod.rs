//! The commands that operators type against the admin listener of a running gateway.

pub(crate) mod advise;
mod api;
mod budgets;
mod cache;
mod clients;
mod explain;
mod healthcheck;
mod paint;
mod reload;
mod replicas;
mod requests;
mod table;
mod telemetry;
mod tls;
mod tokens;
mod top;
mod writes;

pub use budgets::Budgets;
pub use cache::Cache;
pub use clients::Clients;
pub use explain::Explain;
pub use healthcheck::Healthcheck;
pub use reload::Reload;
pub use replicas::Replicas;
pub use requests::Requests;
pub use telemetry::Telemetry;
pub use tokens::Tokens;
pub use top::Top;
pub use writes::Writes;

/// Longest text shown in one place; some names come from the upstream.
const TEXT_CHARS_MAX: usize = 160;

/// Makes a text from outside safe for a terminal, and shortens it.
fn plain(text: &str) -> String {
    visible(text).chars().take(TEXT_CHARS_MAX).collect()
}

/// Makes a text from outside safe for a terminal.
fn visible(text: &str) -> String {
    let is_shown = |character: char| {
        character == ' ' || character.is_ascii_graphic() || character.is_alphanumeric()
    };
    text.chars().map(|character| if is_shown(character) { character } else { '?' }).collect()
}
