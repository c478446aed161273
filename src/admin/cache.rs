//! `GET /api/cache`: size and effect of the store. `POST /api/cache/purge {"prefix":
//! "/repos/acme/"}`: removes answers by path prefix (SPECIFICATION, "Admin listener").
//!
//! Both walk the stored answers shard by shard, beside the workers. Left out: single answers, their
//! queries, and paths below the second segment.

use std::collections::HashMap;
use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Reply, pages};
use crate::decision::cache::key::Scope;
use crate::gateway::{Gateway, Prefix};

/// Most path prefixes shown.
const SHOWN_MAX: usize = 20;
/// Most path prefixes counted; the rest counts as `other`.
const COUNTED_MAX: usize = 10_000;

#[derive(Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Stored answers.
    pub entries: u64,
    /// Their bytes in memory.
    pub bytes: u64,
    pub max_bytes: u64,
    /// Answers evicted for room since the start.
    pub evictions: u64,
    /// Temporary files of large answers, on their way or stored.
    pub files: Files,
    /// Reads since the start by cache outcome: the words of the metrics' label `cache`.
    pub answers: std::collections::BTreeMap<String, u64>,
    /// By scope, the largest first.
    pub scopes: Vec<Part>,
    /// By the first segments of the path, the largest first.
    pub prefixes: Vec<Part>,
}

/// Temporary files of large answers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Files {
    /// Answers stored on disk.
    pub entries: u64,
    /// Bytes that all files may take, also those of answers on their way.
    pub bytes: u64,
    pub max_bytes: u64,
    /// Answers on disk evicted for room since the start.
    pub evictions: u64,
}

/// A group of stored answers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    /// Their common scope or prefix.
    pub name: String,
    pub entries: u64,
    /// Their bytes in memory.
    pub bytes: u64,
}

/// Result of a purge.
#[derive(Debug, Serialize, Deserialize)]
pub struct Purged {
    pub prefix: String,
    /// Answers removed.
    pub entries: u64,
    /// Their bytes in memory.
    pub bytes: u64,
}

/// Body of a purge.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeRequest {
    prefix: String,
}

/// Takes a snapshot of the store.
pub fn figures(gateway: &Gateway) -> Figures {
    let (mut scopes, mut prefixes) = (HashMap::new(), HashMap::new());
    let add = |parts: &mut HashMap<Arc<str>, (u64, u64)>, name: &str, bytes: u64| {
        let name =
            if parts.len() >= COUNTED_MAX && !parts.contains_key(name) { "other" } else { name };
        match parts.get_mut(name) {
            Some(part) => *part = (part.0 + 1, part.1 + bytes),
            None => drop(parts.insert(name.into(), (1, bytes))),
        }
    };
    gateway.cache.store().each(|key, bytes| {
        add(&mut scopes, &scope_name(gateway, key.scope()), bytes);
        add(&mut prefixes, beginning(key.path_and_query()), bytes);
    });
    let (entries, bytes) = gateway.cache.store().size();
    let files = gateway.env.spool_space.figures();
    let answers = gateway.env.metrics.answers_by_cache().into_iter();
    Figures {
        entries,
        bytes,
        max_bytes: gateway.env.config.cache.max_size,
        evictions: gateway.env.metrics.evictions(),
        files: Files {
            entries: files.kept_files,
            bytes: files.bytes,
            max_bytes: files.bytes_max,
            evictions: gateway.env.metrics.spool_evictions(),
        },
        answers: answers.map(|(cache, count)| (cache.to_owned(), count)).collect(),
        scopes: largest(scopes),
        prefixes: largest(prefixes),
    }
}

/// Removes the answers that the body names, in all replicas.
pub fn purge(gateway: &Gateway, body: &[u8]) -> Reply {
    const EXAMPLE: &str = "{\"prefix\": \"/repos/acme/\"}";
    if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_err() {
        let message = format!("the body is not JSON; it is to be like {EXAMPLE}");
        return pages::error(StatusCode::BAD_REQUEST, &message);
    }
    let request: PurgeRequest = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(fault) => {
            return pages::unprocessable(&format!("{fault}; the body is to be like {EXAMPLE}"));
        }
    };
    let Some(prefix) = Prefix::new(&request.prefix) else {
        return pages::unprocessable("prefix is to begin with a slash; \"/\" alone is everything");
    };
    let purged = gateway.cache.purge(&prefix, gateway.env.clock.now());
    gateway.responder.compressed_forms().forget();
    tracing::info!(
        prefix = request.prefix,
        entries = purged.entries,
        bytes = purged.bytes,
        "stored answers were purged"
    );
    let (entries, bytes) = (purged.entries, purged.bytes);
    pages::json(StatusCode::OK, &Purged { prefix: request.prefix, entries, bytes })
}

fn scope_name(gateway: &Gateway, scope: Scope) -> String {
    match scope {
        Scope::Pool(pool) => match gateway.env.config.pools.get(pool as usize) {
            Some(pool) => format!("pool {}", pool.name),
            None => format!("pool {pool}"),
        },
        Scope::Account(account) => {
            format!("account {}", gateway.env.account_name(crate::decision::AccountId(account)))
        }
        // The owner of a client's credential is unknown on purpose.
        Scope::Credential(_) => "credentials of clients".into(),
        Scope::Public => "everyone".into(),
    }
}

/// Returns the first two segments of a path below `/repos`, else the first.
fn beginning(path_and_query: &str) -> &str {
    let path = path_and_query.split('?').next().unwrap_or_default();
    let segments = if path.starts_with("/repos/") { 3 } else { 2 };
    let end = path.match_indices('/').nth(segments).map_or(path.len(), |(end, _)| end);
    path.get(..end).unwrap_or(path)
}

fn largest(parts: HashMap<Arc<str>, (u64, u64)>) -> Vec<Part> {
    let mut parts: Vec<_> = parts
        .into_iter()
        .map(|(name, (entries, bytes))| Part { name: name.to_string(), entries, bytes })
        .collect();
    parts.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&other.name)));
    parts.truncate(SHOWN_MAX);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_counted_under_its_owner_or_repository() {
        for (path, counted) in [
            ("/repos/acme/widgets/issues/1?page=2", "/repos/acme/widgets"),
            ("/repos/acme/widgets?x=/y", "/repos/acme/widgets"),
            ("/users/octo/repos", "/users/octo"),
            ("/orgs/acme", "/orgs/acme"),
            ("/search?q=a/b/c", "/search"),
            ("/", "/"),
        ] {
            assert_eq!(beginning(path), counted, "{path}");
        }
    }
}
