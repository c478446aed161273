//! The gateway: listeners, the stages of a request, the upstream client, and the answer. It is the
//! I/O shell around `decision/` and the only importer of pingora.
//!
//! The rooms, from the top down; each imports only from those below it:
//!
//! | room | holds |
//! |---|---|
//! | `server` | listeners, HTTP/1.1 and HTTP/2 sessions, the fast path, the stages in their order |
//! | `reload`, `assembly` | the current gateway, and the parts that it is built of |
//! | `background` | audit, webhook monitor, token minting, questions of accounts' states |
//! | `response` | the one renderer of answers, compression, errors, local pages, the writers |
//! | `write` | a write in its lane, uploads, the queue of accepted writes |
//! | `cache` | lookup, single flight, store, revalidation, invalidation |
//! | `request` | validation, clients, routes, bodies of requests |
//! | `dispatch` | attempts: account, credential, admission, settling, retry |
//! | `upstream` | connections to the upstream, and the exchange on them |
//! | `environment` | config, clock, metrics |
//! | `url_rewrite`, `http` | upstream URLs in answers; headers, chunks, ranges |
//! | `spool` | temporary files of large bodies |
//! | `shared_space` | memory and files that clients share fairly |
//! | `session` | one request of a client, and the way back for its answer |
//! | `connections` | open connections: their number, and those that make room |
//! | `error`, `address` | the gateway's errors; shapes of addresses |

mod active;
pub(crate) mod address;
mod assembly;
mod background;
mod cache;
mod certificates;
pub(crate) mod connections;
mod counted;
pub(crate) mod dispatch;
mod environment;
pub(crate) mod error;
pub(crate) mod http;
mod random;
mod reload;
pub(crate) mod request;
mod response;
pub(crate) mod server;
mod session;
mod shared_space;
mod spool;
pub(crate) mod upstream;
pub(crate) mod url_rewrite;
mod write;

pub use assembly::Gateway;
pub use background::token_check::{CheckedState, TokenCheck, check_tokens};
pub use cache::invalidation::log::InvalidationLog;
pub use cache::invalidation::purge::Prefix;
pub use cache::snapshot::{folder_problem, obstacle};
pub use certificates::{CertificateProblem, certificate_problems};
pub use connections::descriptors::raise_limit as raise_descriptor_limit;
pub use dispatch::dispatcher::WithoutToken;
pub use reload::{Current, LastReload, NotReloaded, Reloaded, log_warnings};
pub use request::oidc::issuer::HandedKeys;
pub use server::listen::{Drained, Leaving, Listening, listen_problems};
pub use server::sockets::{Inherited, Kind, Socket, Sockets, bind};
pub use server::tls::{ADMIN as ADMIN_TLS, Tls};
pub use upstream::trust::{client_tls, missing_authorities};
pub use write::queue::{Listed, New, NotChanged, Repetition, Selection, WriteGroup, WriteStatus};
pub use write::queued::NotRetried;
pub use write::recovery::Recovery;
