//! The claims by which a client's tokens are known.

use std::sync::Arc;

use serde_json::Value;

use super::Issuer;
use crate::config::input::declared::Declared;
use crate::config::input::reader::{Entry, Read};
use crate::config::printer::{inline, list, text};

/// The longest name of a claim.
const NAME_BYTES_MAX: usize = 256;

/// Claims that all tokens of an issuer for this gateway share.
const OF_ISSUER: [&str; 2] = ["iss", "aud"];

/// Claims that name the owner of a job.
const OF_OWNER: [&str; 5] =
    ["sub", "repository", "repository_owner", "workflow_ref", "job_workflow_ref"];

/// The tokens that identify a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcClient {
    /// Issuer: an index into [`Config::issuers`](crate::config::Config::issuers).
    pub issuer: usize,
    /// All of these must fit; never empty, and not `iss` and `aud` alone. In the order of their
    /// names.
    pub claims: Vec<Claim>,
}

/// A claim, and the values of which one must fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Its name at the top level of a token.
    pub name: Arc<str>,
    /// Never empty.
    pub values: Vec<Pattern>,
}

/// A value of a claim, in which each `*` stands for any characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern(Arc<str>);

impl OidcClient {
    pub(crate) fn read(entry: &Entry<'_>, issuers: &Declared<Issuer>) -> Option<Self> {
        entry.table(|reader| {
            let issuer = issuers.reference(reader, "issuer");
            let claims = reader.required::<Claims>("claims")?.0;
            if claims.iter().all(|claim| OF_ISSUER.contains(&&*claim.name)) {
                let problem = "any token of the issuer would do";
                return reader.refuse("claims", problem, Claims::accepted());
            }
            Some(Self { issuer: issuer?, claims })
        })
    }

    /// Returns true if a token with these claims is the client's.
    pub fn fits(&self, claims: &serde_json::Map<String, Value>) -> bool {
        self.claims.iter().all(|claim| {
            claims
                .get(&*claim.name)
                .is_some_and(|value| claim.values.iter().any(|pattern| pattern.fits_value(value)))
        })
    }

    /// Returns the patterns that also fit owners whose names begin with that of another owner.
    pub(crate) fn open_patterns(&self) -> impl Iterator<Item = &str> {
        let of_owner = self.claims.iter().filter(|claim| OF_OWNER.contains(&&*claim.name));
        let patterns = of_owner.flat_map(|claim| &claim.values).map(|pattern| &*pattern.0);
        patterns.filter(|pattern| {
            pattern.split_once('*').is_some_and(|(fixed, _)| {
                fixed.ends_with(|last: char| last.is_alphanumeric()) && !fixed.contains('/')
            })
        })
    }

    pub(crate) fn printed(&self, issuers: &[Issuer]) -> String {
        let claim = |claim: &Claim| match claim.values.as_slice() {
            [one] => format!("{} = {}", text(&claim.name), text(&one.0)),
            several => {
                let values = list(several.iter().map(|value| text(&value.0)));
                format!("{} = {values}", text(&claim.name))
            }
        };
        let claims: Vec<_> = self.claims.iter().map(claim).collect();
        let issuer = issuers.get(self.issuer).map(|issuer| text(&issuer.name));
        let claims = format!("{{ {} }}", claims.join(", "));
        inline(&[("issuer", issuer.unwrap_or_default()), ("claims", claims)])
    }
}

/// The claims of a client, in the order of their names.
struct Claims(Vec<Claim>);

impl Read for Claims {
    fn accepted() -> String {
        "the claims of its tokens, such as { repository = \"acme/tools\" }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let claims = entry.members::<Self>()?.into_iter().map(|(name, value)| {
            let values = if value.value.is_array() {
                Vec::<Pattern>::read(&value)?
            } else {
                vec![Pattern::read(&value)?]
            };
            if values.is_empty() {
                return value.refuse("empty", Pattern::accepted());
            }
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
                return value.refuse("this cannot be the name of a claim", "a name");
            }
            Some(Claim { name: name.into(), values })
        });
        // Every claim is read before the first `None` is returned, because each may have a fault.
        let claims: Vec<Option<Claim>> = claims.collect();
        let mut claims: Vec<Claim> = claims.into_iter().collect::<Option<_>>()?;
        claims.sort();
        Some(Self(claims))
    }
}

impl Pattern {
    /// Returns true if a claim has this value, or a list with it. Numbers and booleans are compared
    /// as JSON writes them.
    fn fits_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.fits(text),
            Value::Bool(_) | Value::Number(_) => self.fits(&value.to_string()),
            Value::Array(items) => {
                items.iter().any(|item| !item.is_array() && self.fits_value(item))
            }
            Value::Null | Value::Object(_) => false,
        }
    }

    fn fits(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return text == &*self.0 };
        let Some(mut text) = text.strip_prefix(first) else { return false };
        let mut parts = rest.split('*').peekable();
        // The leftmost place of each part leaves the most text for the others.
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return text.ends_with(part);
            }
            let Some(at) = text.find(part) else { return false };
            text = &text[at + part.len()..];
        }
        true
    }
}

impl Read for Pattern {
    fn accepted() -> String {
        "a text, in which each * stands for any characters, or a list of such texts".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let text = entry.text::<Self>()?;
        if text.is_empty() || text.bytes().all(|byte| byte == b'*') {
            return entry.refuse("this fits every value or none", Self::accepted());
        }
        Some(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, fits) in [
            ("acme/tools", "acme/tools", true),
            ("acme/tools", "acme/tools2", false),
            ("acme/*", "acme/tools", true),
            ("acme/*", "acme", false),
            ("acme/*", "evil/acme/x", false),
            ("refs/heads/release-*", "refs/heads/release-", true),
            ("*/tools", "acme/tools", true),
            ("*/tools", "acme/tools/x", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a*ab", "aab", true),
            ("a**b", "ab", true),
            ("ä*", "äö", true),
        ] {
            assert_eq!(Pattern(pattern.into()).fits(text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn every_claim_must_fit_by_one_of_its_values() {
        let claim = |name: &str, values: &[&str]| Claim {
            name: name.into(),
            values: values.iter().map(|value| Pattern((*value).into())).collect(),
        };
        let client = OidcClient {
            issuer: 0,
            claims: vec![claim("repository", &["acme/a", "acme/b"]), claim("protected", &["true"])],
        };
        for (claims, fits) in [
            (json!({ "repository": "acme/a", "protected": "true" }), true),
            (json!({ "repository": "acme/b", "protected": true }), true),
            (json!({ "repository": ["x", "acme/b"], "protected": true }), true),
            (json!({ "repository": "acme/c", "protected": true }), false),
            (json!({ "repository": "acme/a" }), false),
            (json!({ "repository": { "name": "acme/a" }, "protected": true }), false),
            (json!({ "repository": null, "protected": true }), false),
            (json!({ "repository": [["acme/a"]], "protected": true }), false),
        ] {
            let Value::Object(map) = &claims else { panic!("an object") };
            assert_eq!(client.fits(map), fits, "{claims}");
        }
    }
}
