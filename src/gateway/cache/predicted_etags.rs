//! Predicted `ETag`s for tokens without one (SPECIFICATION D3, `predicted_etags`), and the
//! evaluation of their results.
//!
//! `decision/cache/predicted.rs` has the form and the routes on which it proved right. A credential
//! enters the hash and nothing else. The upstream already knows the credential, and a 304 turns the
//! prediction into the token's own `ETag`. Clients get another validator.
//!
//! With `If-None-Match` the upstream ignores the date (RFC 9110 §13.1.3), so the prediction alone
//! decides. A 304 to it means that the token would get exactly the stored bytes. An upstream that
//! weighs the date too grants no more 304s than without the prediction.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;

use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::config::Config;
use crate::decision::cache::conditional::weakly_equal;
use crate::decision::cache::key::Accept;
use crate::decision::cache::pagination::begins_list;
use crate::decision::cache::predicted::{
    BODY_BYTES_MAX, EMPTY_LIST, Evidence, Predictions, Turn, predict,
};
use crate::tokens::{Credential, TokenId};

use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::answer::{AnswerBody, UpstreamAnswer};
use crate::gateway::dispatch::job::Job;
use crate::gateway::environment::Environment;
use crate::gateway::http::headers;
use crate::gateway::http::media_type::is_json;
use crate::gateway::url_rewrite::map::may_hold_secrets;

pub struct Predictor(Mutex<Predictions>);

/// The predicted conditions of a request. Holds a credential and is dropped with its fetch.
pub struct Sent {
    token: TokenId,
    authorization: Option<HeaderValue>,
    predicted: Option<Predicted>,
}

struct Predicted {
    etag: HeaderValue,
    has_date: bool,
    of_empty_list: bool,
}

/// The body that a prediction is made for.
#[derive(Clone, Copy)]
pub enum Basis<'e> {
    /// That of the stored answer to revalidate.
    Entry(&'e Entry),
    /// Nothing is stored: an empty list, where lists are answered.
    Unknown,
    /// The upstream is to send the answer in any case.
    Unpredictable,
}

impl Sent {
    /// True if a 304 says that the list is empty.
    pub fn tries_empty(&self) -> bool {
        self.predicted.as_ref().is_some_and(|predicted| predicted.of_empty_list)
    }
}

impl Predictor {
    /// `None` if the setting is off. The form is known for the github dialect only.
    pub fn of(config: &Config) -> Option<Arc<Self>> {
        (config.cache.predicted_etags && config.upstream.dialect == Dialect::Github)
            .then(|| Arc::new(Self(Mutex::default())))
    }

    /// Adds a predicted `ETag` to `conditions` without one.
    pub fn add_prediction(
        &self,
        conditions: &mut HeaderMap,
        job: &Job,
        credential: &Credential,
        basis: Basis<'_>,
        now: Timestamp,
    ) -> Sent {
        let has_date = conditions.contains_key(header::IF_MODIFIED_SINCE);
        let is_owned = conditions.contains_key(header::IF_NONE_MATCH);
        let route = job.route.endpoint.id;
        let body = match basis {
            Basis::Entry(entry) if !is_owned && is_kept_as_sent(entry) => {
                let may_be_sent = self.0.lock().may_be_sent(route, has_date, now);
                may_be_sent.then(|| entry.body.text())
            }
            Basis::Unknown if begins_list(&job.request.target) && accepts_json(job) => {
                self.0.lock().may_try_empty(route, now).then_some(EMPTY_LIST)
            }
            _ => None,
        };
        let etag = body.and_then(|body| of_request(job, credential.authorization.as_ref(), body));
        conditions.extend(etag.clone().map(|etag| (header::IF_NONE_MATCH, etag)));
        let of_empty_list = matches!(basis, Basis::Unknown);
        let predicted = etag.map(|etag| Predicted { etag, has_date, of_empty_list });
        Sent { token: credential.token, authorization: credential.authorization.clone(), predicted }
    }

    /// Evaluates the prediction before the answer is used. A 304 without an `ETag` gets the
    /// predicted one, so that it is recorded like any other. Returns true if the answer is worth
    /// nothing: the only condition was a prediction, and the 304 names another `ETag`.
    pub fn is_void(
        &self,
        env: &Environment,
        job: &Job,
        sent: &Sent,
        entry: Option<&Entry>,
        answer: &mut UpstreamAnswer,
    ) -> bool {
        if sent.token != answer.token {
            return false;
        }
        let now = env.clock.now();
        let count = |outcome| env.metrics.predicted(&job.route.endpoint.template, outcome);
        match (answer.status, &sent.predicted) {
            (StatusCode::NOT_MODIFIED, Some(predicted)) => {
                // A 304 without an `ETag` may be about the date.
                let is_conclusive =
                    answer.headers.contains_key(header::ETAG) || !predicted.has_date;
                let named =
                    answer.headers.entry(header::ETAG).or_insert_with(|| predicted.etag.clone());
                if weakly_equal(named.as_bytes(), predicted.etag.as_bytes()) {
                    count("confirmed");
                    if is_conclusive {
                        self.note(job, Evidence::Right, now);
                    }
                    return false;
                }
                count("wrong");
                self.note(job, Evidence::Wrong, now);
                !predicted.has_date
            }
            (StatusCode::OK, predicted) => {
                let evidence = self.evidence(job, sent, entry, answer, now);
                if let Some(evidence) = evidence {
                    self.note(job, evidence, now);
                }
                if let Some(predicted) = predicted {
                    count(match evidence {
                        Some(Evidence::Wrong) => "wrong",
                        _ if predicted.of_empty_list => "not_empty",
                        _ => "changed",
                    });
                    let date = entry
                        .filter(|_| predicted.has_date)
                        .and_then(|entry| entry.stored.last_modified());
                    if date.is_some() && date.as_ref() == answer.headers.get(header::LAST_MODIFIED)
                    {
                        self.note(job, Evidence::Dearer, now);
                    }
                }
                false
            }
            _ => false,
        }
    }

    fn note(&self, job: &Job, evidence: Evidence, now: Timestamp) {
        let endpoint = &job.route.endpoint.template;
        match self.0.lock().note(job.route.endpoint.id, evidence, now) {
            Some(Turn::Proved) => {
                tracing::info!(endpoint, "ETags are predicted for this route from now on");
            }
            Some(Turn::Closed) => {
                tracing::warn!(endpoint, "ETags of this route do not have the predicted form");
            }
            None => {}
        }
    }

    /// The evidence of a 200; `None` without an `ETag` or without need of a check.
    fn evidence(
        &self,
        job: &Job,
        sent: &Sent,
        entry: Option<&Entry>,
        answer: &UpstreamAnswer,
        now: Timestamp,
    ) -> Option<Evidence> {
        let AnswerBody::Whole(bytes) = &answer.body else { return None };
        let expected = match (&sent.predicted, entry) {
            (Some(predicted), _) if predicted.of_empty_list => Some(EMPTY_LIST),
            (Some(_), Some(entry)) if entry.body.file().is_none() => Some(entry.body.text()),
            _ => None,
        };
        if expected.is_some_and(|expected| expected == bytes) {
            // The body is the expected one, so a right prediction would have caused a 304.
            return Some(Evidence::Wrong);
        }
        let etag = answer.headers.get(header::ETAG)?;
        if bytes.len() > BODY_BYTES_MAX || answer.headers.contains_key(header::CONTENT_ENCODING) {
            return None;
        }
        let route = job.route.endpoint.id;
        let is_sample = sent.predicted.is_none() || sent.tries_empty();
        if is_sample && !self.0.lock().wants_check(route, now) {
            return None;
        }
        let expected = of_request(job, sent.authorization.as_ref(), bytes)?;
        if !weakly_equal(expected.as_bytes(), etag.as_bytes()) {
            return Some(Evidence::Wrong);
        }
        self.0.lock().note_kind(route, bytes.starts_with(b"[") && is_json(&answer.headers));
        Some(Evidence::Right)
    }
}

/// Makes a 304 to the predicted `ETag` of an empty list the answer that it stands for. Beside the
/// body, a 304 may lack the type; the first page of an empty list has no `Link`.
pub fn become_empty_list(answer: &mut UpstreamAnswer) {
    answer.status = StatusCode::OK;
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    answer.headers.entry(header::CONTENT_TYPE).or_insert(json);
    answer.headers.remove(header::CONTENT_LENGTH);
    answer.body = AnswerBody::Whole(Bytes::from_static(EMPTY_LIST));
}

fn accepts_json(job: &Job) -> bool {
    headers::accept_of(&job.request.headers) == Accept::Json
}

/// True if the body is as the upstream sent it, uncompressed, and short enough to hash.
fn is_kept_as_sent(entry: &Entry) -> bool {
    let text = entry.body.text();
    entry.status() == StatusCode::OK
        && entry.body.file().is_none()
        && text.len() <= BODY_BYTES_MAX
        && entry.head.get("content-encoding").is_none()
        && !may_hold_secrets(text)
}

/// Predicts the `ETag` of `body` for this request; `None` if the effect of its headers is unknown.
fn of_request(job: &Job, authorization: Option<&HeaderValue>, body: &[u8]) -> Option<HeaderValue> {
    let mut accept = job.request.headers.get_all(header::ACCEPT).iter();
    match (accept.next(), accept.next()) {
        (accept, None) => predict(accept, authorization, body),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture;

    fn predicts(dialect: &str, predicted_etags: bool) -> bool {
        let sections = format!(
            "[upstream]
url = \"https://api.example.com\"
dialect = \"{dialect}\"
\
             [cache]
predicted_etags = {predicted_etags}
"
        );
        Predictor::of(&fixture::parsed(&fixture::text(&sections))).is_some()
    }

    #[test]
    fn prediction_needs_the_setting_and_the_github_dialect() {
        assert!(predicts("github", true));
        assert!(!predicts("github", false) && !predicts("service", true));
    }
}
