//! The gateway: listeners, the stages of a request, the upstream client, and the answer. It is the
//! I/O shell around `decision/` and the only importer of pingora.
//!
//! The modules, in the order in which a request meets them:
//!
//! | module | stage |
//! |---|---|
//! | [`generations`] | the current gateway, swapped on reload |
//! | [`door`], `connection` | deadlines of the request head, HTTP version, keep-alive |
//! | `hit`, `asking` | the fast path: reads served without a framework session |
//! | [`service`], `request` | the order of the stages, and the end of a request |
//! | [`intake`] | validation of the request |
//! | [`auth`], [`passthrough`] | the client's key, and its own upstream credential |
//! | [`route`], [`candidates`], [`graphql_prices`] | endpoint, view, accounts, cost |
//! | [`read`], [`flight`], [`store`] | cache lookup, single flight, store |
//! | `confirmation`, `predicted` | revalidation |
//! | [`stale`], `doubt`, [`deliveries`], `neighbours` | invalidation |
//! | [`write`], [`turns`], [`upload`], [`body`] | a write in its lane |
//! | [`asynchronous`], [`queue`] | a write that is accepted first and executed later |
//! | [`perform`], [`attempt`], [`rights`], [`admission`] | attempts on accounts |
//! | [`effort`], `waiting` | the progress of a request |
//! | `hooks`, `mint`, `watch` | in the background: webhook monitor, token mints, audit |
//! | `awaited` | requests that wait for a token mint |
//! | [`fetch`], `idle`, [`resolve`] | upstream connections |
//! | [`rewrite`], [`headers`], [`respond`], [`added`] | the answer as this client sees it |
//! | `range`, [`encoding`], [`refuse`], [`own`] | ranges, compression, errors, local pages |

mod active;
mod address;
mod assembly;
mod background;
mod cache;
mod counted;
mod dispatch;
mod environment;
mod error;
mod http;
mod random;
mod reload;
mod request;
mod response;
mod server;
mod upstream;
mod url_rewrite;
mod write;

pub use assembly::Gateway;
pub use cache::invalidation::purge::Prefix;
pub use reload::{Current, NotReloaded, Reloaded, tell_doubts};
pub use server::listen::{Drained, Listening};
pub use write::queue::{Class, Listed, New, NotChanged, Repetition, Selection, Standing};
pub use write::queued::NotRetried;
pub use write::recovery::Recovery;
