//! The configuration of a webhook in bodies and responses (SPECIFICATION, "Webhooks").

use http::uri::{Authority, Uri};
use serde_json::{Value, json};

use crate::emulator::http::{Change, Fields};
use crate::emulator::render::extend;
use crate::emulator::world::{Certificate, Config, ContentType};

/// Replaces the secret in responses, because a secret is write-only.
const MASK: &str = "********";
/// The most bytes of a value; the real limits are undocumented.
const URL_BYTES_MAX: usize = 8 * 1024;
const SECRET_BYTES_MAX: usize = 4 * 1024;

#[derive(Debug)]
pub struct ConfigFields {
    url: Option<String>,
    content_type: Option<ContentType>,
    secret: Change<String>,
    certificate: Option<Certificate>,
}

impl ConfigFields {
    pub const NOTHING: Self =
        Self { url: None, content_type: None, secret: Change::Keep, certificate: None };

    pub fn read(fields: &mut Fields) -> Self {
        Self {
            url: url(fields),
            content_type: content_type(fields),
            // An empty secret removes it.
            secret: short_string(fields, "secret").map_or(Change::Keep, |secret| {
                if secret.is_empty() { Change::Clear } else { Change::Set(secret) }
            }),
            certificate: insecure_ssl(fields),
        }
    }

    pub fn change(self, old: Config) -> Config {
        Config {
            url: self.url.unwrap_or(old.url),
            content_type: self.content_type.unwrap_or(old.content_type),
            secret: self.secret.of(old.secret),
            certificate: self.certificate.unwrap_or(old.certificate),
            ..old
        }
    }
}

pub fn short_string(fields: &mut Fields, name: &str) -> Option<String> {
    let given = fields.string(name)?;
    if given.len() <= SECRET_BYTES_MAX {
        return Some(given);
    }
    fields.invalid(name, format!("{name} must have at most {SECRET_BYTES_MAX} bytes"));
    None
}

fn url(fields: &mut Fields) -> Option<String> {
    let url = fields.string("url")?;
    // Other characters must be encoded (RFC 3986, section 2).
    if url.len() <= URL_BYTES_MAX
        && url.is_ascii()
        && url.parse().is_ok_and(|uri| can_receive(&uri))
    {
        return Some(url);
    }
    fields.invalid("url", "url must be an http or https address");
    None
}

/// The parser would take a malformed port for an absent one.
fn can_receive(uri: &Uri) -> bool {
    let has_usual_port = |authority: &Authority| {
        let text = authority.as_str();
        let after_user = text.rsplit_once('@').map_or(text, |(_, after)| after);
        after_user.len() == authority.host().len() || authority.port().is_some()
    };
    matches!(uri.scheme_str(), Some("http" | "https"))
        && uri
            .authority()
            .is_some_and(|authority| !authority.host().is_empty() && has_usual_port(authority))
}

fn content_type(fields: &mut Fields) -> Option<ContentType> {
    fields.choice(
        "content_type",
        |name| name.parse::<ContentType>().ok(),
        "content_type must be json or form",
    )
}

/// Accepts a string or a number.
fn insecure_ssl(fields: &mut Fields) -> Option<Certificate> {
    let given = match fields.value("insecure_ssl")? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let known = [Certificate::Verified, Certificate::Any]
        .into_iter()
        .find(|certificate| certificate.insecure_ssl() == given);
    if known.is_none() {
        fields.invalid("insecure_ssl", "insecure_ssl must be 0 or 1");
    }
    known
}

/// `username` and `password` are write-only.
pub fn render(config: &Config) -> Value {
    let mut value = json!({
        "url": config.url,
        "content_type": config.content_type.into_str(),
        "insecure_ssl": config.certificate.insecure_ssl(),
    });
    if config.secret.is_some() {
        extend(&mut value, json!({ "secret": MASK }));
    }
    value
}
