//! `ETag`s for tokens that have received none (DESIGN D3, `predicted_etags`): put beside what is
//! sent otherwise, and judged by what comes back.
//!
//! Only fetches come here, and only where the config asks for it; a hit never does. The form and
//! the routes it has proved right on are `decision/freshness/predicted.rs`. A credential goes into
//! the hash and nowhere else: what is computed from it is sent to the upstream that knows it, and
//! is learned as the token's own when the upstream has confirmed it; clients know an answer by
//! another validator (`read.rs`).
//!
//! With `If-None-Match` the upstream does not look at a date (RFC 9110 §13.1.3), so a prediction
//! decides alone, and a 304 to it says that the token would get the very bytes that are stored.
//! Upstreams that look at the date all the same confirm no more with it than they would without the
//! prediction.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;

use crate::api::Dialect;
use crate::clock::Timestamp;
use crate::config::Config;
use crate::decision::cache::conditional::weakly_equal;
use crate::decision::cache::predicted::{BODY_BYTES_MAX, Evidence, Predictions, Turn, predict};
use crate::tokens::{Credential, TokenId};

use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::answer::{Answer, AnswerBody};
use crate::gateway::dispatch::job::Job;
use crate::gateway::environment::Environment;
use crate::gateway::url_rewrite::map::may_hold_secrets;

/// Where predictions have proved right.
pub struct Predictor(Mutex<Predictions>);

/// What a request was sent with, as far as predictions go. Holds a credential and is gone with its
/// fetch.
pub struct Sent {
    token: TokenId,
    authorization: Option<HeaderValue>,
    predicted: Option<Predicted>,
}

struct Predicted {
    etag: HeaderValue,
    has_date: bool,
}

/// What a 304 is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// What it would be without predictions.
    Usual,
    /// It answers something else than what was asked: the condition was a prediction alone, and it
    /// names another `ETag`.
    Nothing,
}

impl Predictor {
    /// `None` where nothing is to be predicted. Of other dialects' upstreams no form is known.
    pub fn of(config: &Config) -> Option<Arc<Self>> {
        (config.cache.predicted_etags && config.upstream.dialect == Dialect::Github)
            .then(|| Arc::new(Self(Mutex::default())))
    }

    /// Adds the `ETag` that is likely to be the credential's to `conditions`, if they have none.
    /// `entry` is what a 304 would confirm.
    pub fn accompany(
        &self,
        conditions: &mut HeaderMap,
        job: &Job,
        credential: &Credential,
        entry: Option<&Entry>,
        now: Timestamp,
    ) -> Sent {
        let has_date = conditions.contains_key(header::IF_MODIFIED_SINCE);
        let is_owned = conditions.contains_key(header::IF_NONE_MATCH);
        let may_be_sent = || self.0.lock().may_be_sent(job.route.endpoint.id, has_date, now);
        let etag =
            entry.filter(|entry| !is_owned && is_kept_as_sent(entry) && may_be_sent()).and_then(
                |entry| of_request(job, credential.authorization.as_ref(), entry.body.text()),
            );
        conditions.extend(etag.clone().map(|etag| (header::IF_NONE_MATCH, etag)));
        let predicted = etag.map(|etag| Predicted { etag, has_date });
        Sent { token: credential.token, authorization: credential.authorization.clone(), predicted }
    }

    /// Draws from an answer what it says about predictions, before anything else is made of it. A
    /// 304 that leaves out the `ETag` it confirms gets it, so that it is learned like every other.
    pub fn judge(
        &self,
        env: &Environment,
        job: &Job,
        sent: &Sent,
        entry: Option<&Entry>,
        answer: &mut Answer,
    ) -> Worth {
        if sent.token != answer.token {
            return Worth::Usual;
        }
        let now = env.clock.now();
        let count = |outcome| env.metrics.predicted(&job.route.endpoint.template, outcome);
        match (answer.status, &sent.predicted) {
            (StatusCode::NOT_MODIFIED, Some(predicted)) => {
                // Without an `ETag` of its own it may be the date that it is about.
                let is_telling = answer.headers.contains_key(header::ETAG) || !predicted.has_date;
                let named =
                    answer.headers.entry(header::ETAG).or_insert_with(|| predicted.etag.clone());
                if weakly_equal(named.as_bytes(), predicted.etag.as_bytes()) {
                    count("confirmed");
                    if is_telling {
                        self.note(job, Evidence::Right, now);
                    }
                    return Worth::Usual;
                }
                count("wrong");
                self.note(job, Evidence::Wrong, now);
                if predicted.has_date { Worth::Usual } else { Worth::Nothing }
            }
            (StatusCode::OK, predicted) => {
                let evidence = self.evidence(job, sent, entry, answer, now);
                if let Some(evidence) = evidence {
                    self.note(job, evidence, now);
                }
                if let Some(predicted) = predicted {
                    count(if evidence == Some(Evidence::Wrong) { "wrong" } else { "changed" });
                    let date = entry
                        .filter(|_| predicted.has_date)
                        .and_then(|entry| entry.stored.last_modified());
                    if date.is_some() && date.as_ref() == answer.headers.get(header::LAST_MODIFIED)
                    {
                        self.note(job, Evidence::Dearer, now);
                    }
                }
                Worth::Usual
            }
            _ => Worth::Usual,
        }
    }

    fn note(&self, job: &Job, evidence: Evidence, now: Timestamp) {
        let endpoint = &job.route.endpoint.template;
        match self.0.lock().note(job.route.endpoint.id, evidence, now) {
            Some(Turn::Proved) => {
                tracing::info!(endpoint, "ETags are predicted for this route from now on")
            }
            Some(Turn::Closed) => {
                tracing::warn!(endpoint, "ETags of this route do not have the predicted form")
            }
            None => {}
        }
    }

    /// The evidence in a whole answer: none when it has no `ETag`, or need not be looked at.
    fn evidence(
        &self,
        job: &Job,
        sent: &Sent,
        entry: Option<&Entry>,
        answer: &Answer,
        now: Timestamp,
    ) -> Option<Evidence> {
        let AnswerBody::Whole(bytes) = &answer.body else { return None };
        if let (Some(_), Some(entry)) = (&sent.predicted, entry)
            && entry.body.text() == bytes
        {
            // It has changed nothing, and should have been a 304.
            return Some(Evidence::Wrong);
        }
        let etag = answer.headers.get(header::ETAG)?;
        if bytes.len() > BODY_BYTES_MAX || answer.headers.contains_key(header::CONTENT_ENCODING) {
            return None;
        }
        if sent.predicted.is_none() && !self.0.lock().wants_check(job.route.endpoint.id, now) {
            return None;
        }
        let expected = of_request(job, sent.authorization.as_ref(), bytes)?;
        Some(if weakly_equal(expected.as_bytes(), etag.as_bytes()) {
            Evidence::Right
        } else {
            Evidence::Wrong
        })
    }
}

/// Whether the body is what the upstream sent, uncompressed, and not too much to hash.
fn is_kept_as_sent(entry: &Entry) -> bool {
    let text = entry.body.text();
    entry.status() == StatusCode::OK
        && text.len() <= BODY_BYTES_MAX
        && entry.head.get("content-encoding").is_none()
        && !may_hold_secrets(text)
}

/// The `ETag` of `body` for a request of this job; `None` when it is not known what the upstream
/// makes of its headers.
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
    fn nothing_is_predicted_but_of_the_one_dialect_and_on_request() {
        assert!(predicts("github", true));
        assert!(!predicts("github", false) && !predicts("service", true));
    }
}
