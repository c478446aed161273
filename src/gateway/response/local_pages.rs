//! Local pages: `GET /rate_limit` from the client's own view, and the help page of gateway errors.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Map, json};

use crate::api::ResourceName;
use crate::decision::ClientId;
use crate::gateway::dispatch::candidates::Accounts;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::error::HELP_PATH;
use crate::gateway::response::budget_headers::RateView;
use crate::gateway::response::reply::{Reply, ReplyBody};

/// The resources that clients expect in `/rate_limit`, requested before or not (SPECIFICATION,
/// "Client libraries" 12 and "Limits in practice").
const ALWAYS_LISTED: [&str; 12] = [
    "core",
    "search",
    "graphql",
    "integration_manifest",
    "source_import",
    "code_scanning_upload",
    "code_scanning_autofix",
    "actions_runner_registration",
    "scim",
    "dependency_snapshots",
    "dependency_sbom",
    "code_search",
];

const HELP: &str = "weir: what the gateway's own errors mean\n\n\
#rate-limit\n  403, message \"API rate limit exceeded...\": the budget of your pool is used up, or what is left of it is kept for clients of a higher priority. Ask again at x-ratelimit-reset.\n\n\
#secondary-rate-limits\n  403, message \"You have exceeded a secondary rate limit...\": too much at once, or too many requests wait already. Ask again after Retry-After seconds.\n\n\
#no_key #wrong_key #expired_key #other_certificate #ambiguous_certificate\n  401: send your key as Authorization: Bearer KEY, as the password of Basic, or as X-Weir-Key: KEY.\n\n\
#malformed_token #wrong_issuer #wrong_audience #expired_token #early_token #wrong_signer #forged_token #wrong_claims #ambiguous_token\n  401: your OIDC token is not one that this gateway accepts; the message says why.\n\n\
#issuer_unavailable\n  503: the keys of your token's issuer cannot be fetched at the moment. Ask again after Retry-After seconds.\n\n\
#misplaced_key\n  400: a key of this gateway stands where the upstream could see it, such as the query or another header. Nothing was sent.\n\n\
#wrong_signature #malformed_delivery #deliveries_full\n  401, 400, 503: a webhook delivery must be signed with sha256 and the secret in [webhooks], be JSON, and find memory beside those under way.\n\n\
#not_allowed #no_account #no_token\n  403: your client's entry in the gateway's config does not cover this request, has no account of its own, or no token of the gateway may carry it.\n\n\
#malformed #broken_body #body_too_large #body_timeout #head_timeout\n  400, 405, 408, 413, 414, 431: the request is not exactly one well-formed request, or did not arrive in time.\n\n\
#upstream_unreachable\n  502: no connection to the upstream. Nothing was executed.\n\n\
#tokens_rejected\n  502: the upstream rejects the gateway's tokens; its operator has to replace them. Nothing was executed.\n\n\
#token_unavailable\n  503: the gateway cannot get a token from the upstream at the moment; the message says why. Nothing was executed.\n\n\
#only_if_cached\n  504: you asked for what is stored and nothing else, and nothing stored may be served. The upstream was not asked.\n\n\
#upstream_undecodable\n  502: the upstream encoded its answer although asked not to, in a way that the gateway cannot undo; the message says why.\n\n\
#upstream_failed #upstream_timeout\n  502, 504: the upstream took a read and gave no proper answer.\n\n\
#outcome_unknown\n  502: a write was sent and its answer was lost. It may have been executed and was not repeated: look before you send it again.\n\n\
#draining\n  503: this gateway is shutting down.\n";

/// Answers `GET /rate_limit` without spending budget (SPECIFICATION, "Budget headers").
pub fn rate_limit(dispatcher: &Dispatcher, client: u32, accounts: &Accounts) -> Reply {
    let mut names: Vec<ResourceName> =
        ALWAYS_LISTED.iter().map(|name| ResourceName::new(name)).collect();
    names.extend(dispatcher.admissions().with_ledger(|ledger, _| ledger.resources_seen(accounts)));
    let shown = |name: &ResourceName| {
        let (view, now) = dispatcher.admissions().view(Some(ClientId(client)), accounts, name);
        (name.as_str().to_owned(), json!(RateView::plain(&view, now)))
    };
    let resources: Map<String, serde_json::Value> = names.iter().map(shown).collect();
    let rate = resources.get("core").cloned();
    Reply::json(StatusCode::OK, &json!({ "resources": resources, "rate": rate }))
}

/// Returns a page below `/_weir/` that needs no key; `None` for an unknown name.
pub fn public_page(path: &str) -> Option<Reply> {
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    let body = ReplyBody::Whole(Bytes::from_static(HELP.as_bytes()));
    let page = || Reply { body, ..Reply::empty(StatusCode::OK).with(CONTENT_TYPE, text) };
    (path == HELP_PATH).then(page)
}
