//! The gateway itself: listeners, the path of a request, the upstream client, the answer. The I/O
//! shell around `decision/`, and the only importer of pingora.
//!
//! In the order in which a request meets them:
//!
//! | module | stage |
//! |---|---|
//! | [`generations`] | the gateway by the config in force |
//! | [`door`], `connection` | deadlines of the head, HTTP/1.1 or HTTP/2, keep-alive |
//! | `hit`, `asking` | reads, read and written without a session of the framework |
//! | [`service`], `request` | the stages in order, and the one place where a request ends |
//! | [`intake`] | is it exactly one well-formed request |
//! | [`auth`], [`passthrough`] | whose key is it, and does it bring an upstream credential of its own |
//! | [`route`], [`candidates`], [`graphql_prices`] | endpoint, view, accounts, cost |
//! | [`read`], [`flight`], [`store`], `confirmation`, `predicted` | what is stored, one fetch for all askers |
//! | [`stale`], `doubt`, [`deliveries`], `neighbours` | what changed, by a write, as a webhook tells or as an answer shows, and what that makes doubtful |
//! | [`write`], [`turns`], [`upload`], [`body`] | a write in its lane; a body too large to hold |
//! | [`asynchronous`], [`queue`] | a write that is accepted and kept until it is done |
//! | [`perform`], [`attempt`], [`rights`], [`admission`], [`effort`], `waiting` | one attempt after another: account, credential, budget, settling |
//! | `hooks` | beside the requests: webhooks whose deliveries are looked through |
//! | `mint`, `awaited` | beside the requests: installation tokens, through the same admission; and who waits for them |
//! | [`fetch`], `idle`, [`resolve`] | the upstream's connections |
//! | `watch` | the invariants of the books, once a minute |
//! | [`rewrite`], [`headers`], [`respond`], [`added`], `range`, [`encoding`], [`refuse`], [`own`] | the answer as this client sees it |

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
