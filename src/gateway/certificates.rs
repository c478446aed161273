//! The certificates of the listeners, and the one for the upstream, as operators see them: the days
//! that are left, and what the other side will stumble over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::config::{Certificate, CertificateFiles, Config, ServerTls};

/// A certificate that ends earlier gets a warning. Chosen here: usual renewals come a month before.
const RENEWAL_DUE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
const DAY_S: u64 = 24 * 60 * 60;

type Served = Vec<(PathBuf, Arc<Certificate>)>;

/// A problem of a certificate that can be read, with its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateProblem {
    /// The other side refuses it.
    Refused(String),
    /// The other side will refuse it soon.
    EndsSoon(String),
}

/// The served certificates by the key of their listener. Outlives a reload.
#[derive(Default)]
pub struct InForce(Mutex<BTreeMap<&'static str, Served>>);

impl InForce {
    /// Replaces the certificate for the upstream, and warns of its problem.
    pub(super) fn put_for_upstream(&self, files: Option<&CertificateFiles>, now: Timestamp) {
        let loaded = files.and_then(|files| Some((files.cert.clone(), files.loaded.clone()?)));
        self.put(FOR_UPSTREAM, loaded.into_iter().collect());
        for problem in self.problems(FOR_UPSTREAM, now) {
            match problem {
                CertificateProblem::Refused(problem) => {
                    tracing::error!(
                        problem,
                        "an upstream refuses the certificate of {FOR_UPSTREAM}"
                    );
                }
                CertificateProblem::EndsSoon(problem) => {
                    tracing::warn!(problem, "the certificate of {FOR_UPSTREAM} must be renewed");
                }
            }
        }
    }

    /// Replaces the certificates of a listener.
    pub(super) fn put(&self, key: &'static str, certificates: Served) {
        self.0.lock().insert(key, certificates);
    }

    /// Calls `each` with the key of the listener, the file and the days that are left, negative
    /// after the end.
    pub fn days_left(&self, now: Timestamp, mut each: impl FnMut(&'static str, &Path, f64)) {
        for (key, certificates) in &*self.0.lock() {
            for (path, certificate) in certificates {
                each(key, path, days_left(certificate, now));
            }
        }
    }

    /// The problems that the clients of a listener have at this time, or soon.
    pub fn problems(&self, key: &str, now: Timestamp) -> Vec<CertificateProblem> {
        let served = self.0.lock();
        let certificates = served.get(key).into_iter().flatten();
        certificates
            .filter_map(|(path, certificate)| problem(key, path, certificate, now))
            .collect()
    }
}

/// The key of the certificate for the upstream.
const FOR_UPSTREAM: &str = "upstream.client_certificate";

/// The problems of the configured certificates at this time, or soon, each with its key.
pub fn certificate_problems(
    config: &Config,
    now: Timestamp,
) -> impl Iterator<Item = (&'static str, CertificateProblem)> {
    let listen = &config.listen;
    let https = listen.https.iter().map(|https| ("listen.https", &https.tls));
    let admin = listen.admin_tls.iter().map(|tls| ("listen.admin_tls", tls));
    let files = |(key, tls): (_, &'_ ServerTls)| {
        let certificates = tls.certificates.clone();
        certificates.into_iter().map(move |files| (key, files))
    };
    let upstream = config.upstream.client_certificate.clone().map(|files| (FOR_UPSTREAM, files));
    https.chain(admin).flat_map(files).chain(upstream).filter_map(move |(key, files)| {
        Some((key, problem(key, &files.cert, files.loaded.as_deref()?, now)?))
    })
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a century are exact")]
fn days_left(certificate: &Certificate, now: Timestamp) -> f64 {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    certificate.valid_until.saturating_sub(now) as f64 / DAY_S as f64
}

fn problem(
    key: &str,
    path: &Path,
    certificate: &Certificate,
    now: Timestamp,
) -> Option<CertificateProblem> {
    let at = |seconds: i64| Timestamp::from_secs(u64::try_from(seconds).unwrap_or(0));
    let (from, until) = (at(certificate.valid_from), at(certificate.valid_until));
    let path = path.display();
    let refused = |problem: String| Some(CertificateProblem::Refused(format!("{path}: {problem}")));
    let which = if certificate.is_issuer_first {
        "an issuer's certificate in it"
    } else {
        "the certificate"
    };
    if until <= now {
        return refused(format!("{which} ended at {}", until.rfc3339()));
    }
    if from > now {
        return refused(format!("the certificate is not valid before {}", from.rfc3339()));
    }
    if let Some(problem) = &certificate.chain_problem {
        return refused(problem.clone());
    }
    let is_client = key == FOR_UPSTREAM;
    let unfit = if is_client { certificate.client_problem } else { certificate.server_problem };
    if let Some(problem) = unfit {
        return refused(problem.to_owned());
    }
    (until <= now + RENEWAL_DUE).then(|| {
        let days = until.since(now).as_secs() / DAY_S;
        let ends = until.rfc3339();
        let text = format!("{path}: {which} ends at {ends}, in {days} days");
        CertificateProblem::EndsSoon(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load_certificate;

    fn problem_of(key: &str, name: &str, now: Timestamp) -> Option<CertificateProblem> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates");
        let path = path.join(name);
        problem(key, &path, &load_certificate(&path, &path).unwrap(), now)
    }

    fn problem_at(name: &str, now: Timestamp) -> Option<CertificateProblem> {
        problem_of("listen.https", name, now)
    }

    #[test]
    fn a_certificate_for_another_purpose_is_a_problem() {
        let now = Timestamp::from_secs(1_800_000_000);
        let of = |key: &str, name: &str| match problem_of(key, name, now) {
            Some(CertificateProblem::Refused(text)) => text,
            other => format!("{other:?}"),
        };
        let text = of("listen.admin_tls", "ci_client.pem");
        assert!(text.ends_with("extended key usage is not that of a server: clients refuse it"));
        assert_eq!(of(FOR_UPSTREAM, "ci_client.pem"), "None");
        let text = of("listen.https", "nameless_server.pem");
        assert!(text.contains("it has no subject alternative name"), "{text}");
        let text = of(FOR_UPSTREAM, "nameless_server.pem");
        assert!(text.ends_with("extended key usage is not that of a client: servers refuse it"));
    }

    #[test]
    fn a_certificate_that_clients_refuse_is_a_problem_of_its_time() {
        let now = Timestamp::from_secs(1_800_000_000);
        assert_eq!(problem_at("server.pem", now), None);
        assert_eq!(problem_at("chained.pem", now), None);
        for (name, expected) in [
            ("expired.pem", "the certificate ended at 2020-02-01T00:00:00Z"),
            ("not_yet_valid.pem", "the certificate is not valid before 2119-01-01T00:00:00Z"),
            ("broken_chain.pem", "certificate 1 of the file was not issued by the next one"),
        ] {
            let Some(CertificateProblem::Refused(problem)) = problem_at(name, now) else {
                panic!("{name}")
            };
            assert!(problem.contains(name) && problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn the_certificate_for_the_upstream_is_watched_too() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates");
        let path = path.join("expired.pem");
        let loaded = Arc::new(load_certificate(&path, &path).unwrap());
        let files = CertificateFiles { cert: path.clone(), key: path, loaded: Some(loaded) };
        let (in_force, now) = (InForce::default(), Timestamp::from_secs(1_800_000_000));
        in_force.put_for_upstream(Some(&files), now);
        let mut shown = Vec::new();
        in_force.days_left(now, |key, _, days| shown.push((key, days < 0.0)));
        assert_eq!(shown, [(FOR_UPSTREAM, true)]);
        let [CertificateProblem::Refused(_)] = &in_force.problems(FOR_UPSTREAM, now)[..] else {
            panic!("it has ended")
        };
        // A reload may remove it.
        in_force.put_for_upstream(None, now);
        in_force.days_left(now, |key, _, _| panic!("{key}"));
    }

    #[test]
    fn a_chain_ends_with_the_first_of_its_certificates() {
        // The authority's certificate ended on the first of February 2020, the server's has years.
        let end = Timestamp::from_secs(1_580_515_200);
        let Some(CertificateProblem::Refused(problem)) = problem_at("ended_issuer.pem", end) else {
            panic!("it has ended")
        };
        let text = "ended_issuer.pem: an issuer's certificate in it ended at 2020-02-01T00:00:00Z";
        assert!(problem.ends_with(text), "{problem}");
        let before = end - Duration::from_secs(3 * DAY_S);
        assert!(matches!(
            problem_at("ended_issuer.pem", before),
            Some(CertificateProblem::EndsSoon(_))
        ));
    }

    #[test]
    fn the_end_of_a_certificate_is_announced() {
        // The first of February 2020.
        let end = Timestamp::from_secs(1_580_515_200);
        let before = |days: u64| end - Duration::from_secs(days * DAY_S + 60);
        assert_eq!(problem_at("expired.pem", before(14)), None);
        let Some(CertificateProblem::EndsSoon(problem)) = problem_at("expired.pem", before(3))
        else {
            panic!("it ends in three days")
        };
        assert!(problem.contains("in 3 days"), "{problem}");
    }
}
