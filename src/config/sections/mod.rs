//! One file per section of the config: its type, its reader and its printer.

mod accounts;
mod allow;
mod apps;
mod cache;
mod check;
mod clients;
mod limits;
mod listen;
mod oidc;
mod passthrough;
mod pools;
mod proxy;
mod shadow;
mod state;
mod telemetry;
mod tls;
mod tokens;
mod upstream;
mod webhooks;
mod writes;

pub use accounts::{Account, Reach, Territory};
pub use allow::{Allow, AllowedMethod};
pub use apps::{App, Installation};
pub use cache::{Cache, CacheRule, Freshness};
pub use clients::certificate::CertificateName;
pub use clients::key::{ClientKey, KEY_PREFIX, digest, digest_hex, generate, parse_expiry};
pub use clients::{BudgetMode, Budgets, Client, Priority};
pub use limits::{Limits, Pace};
pub use listen::Listen;
pub use oidc::{FetchUrl, Issuer, IssuerKeys, OidcClient, PublicKey, parse_key_set};
pub use passthrough::{PASSTHROUGH_ACCOUNT, Passthrough};
pub use pools::Pool;
pub use proxy::{Proxies, Proxy};
pub use shadow::ShadowRules;
pub use state::{Redis, RedisUrl, State, Topology};
pub use telemetry::{
    LogFormat, Otlp, OtlpCompression, OtlpEndpoint, OtlpHeader, OtlpProtocol, OtlpSignal,
    OtlpTarget, Sampling, Telemetry, Temporality,
};
pub use tls::{
    CaFile, CaRoots, Certificate, CertificateFault, CertificateFiles, ClientAuth, Https, ServerTls,
    load_certificate,
};
pub use tokens::Token;
pub use upstream::Upstream;
pub use webhooks::{Hook, Webhooks};
pub use writes::{Durability, WriteStore, Writes};

pub(crate) use apps::Apps;
pub(crate) use check::{check_credentials, check_names};
pub(crate) use tokens::Tokens;
