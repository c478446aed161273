//! Secrets: `{ env = "NAME" }`, `{ file = "PATH" }`, `{ credential = "NAME" }` of systemd or, for
//! tests, `{ value = "…" }`.
//!
//! No message reveals a secret's content, nor quotes a value in place of a name: operators paste
//! tokens into the wrong key.

use std::fmt;
use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::signature::RsaKeyPair;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use super::document::Secrets;
use super::reader::{Entry, Read};
use super::secret_file::{self, Refused};
use crate::config::printer::{inline, redacted, text};

/// The variable that names the folder of a service's credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// A secret with its source. The effective config shows the source alone.
#[derive(Clone)]
pub struct Secret {
    value: SecretString,
    source: Source,
}

/// The place from which a secret was read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// This variable of the environment; `None` for a name that may be a misplaced secret.
    Env(Option<String>),
    /// This file; `None` for a path that may be a misplaced secret.
    File(Option<PathBuf>),
    /// This credential; `None` for a name that may be a misplaced secret.
    Credential(Option<String>),
    /// The config itself.
    Value,
}

impl ExposeSecret<str> for Secret {
    fn expose_secret(&self) -> &str {
        self.value.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Secret").field(&self.source).finish()
    }
}

impl Secret {
    /// Returns the secret without its source.
    pub fn into_value(self) -> SecretString {
        self.value
    }

    /// Formats its source as TOML.
    pub(crate) fn printed(&self) -> String {
        match &self.source {
            Source::Env(name) => inline(&[("env", name.as_ref().map_or_else(redacted, text))]),
            Source::File(path) => {
                let path = path.as_ref().map_or_else(redacted, |path| text(path.display()));
                inline(&[("file", path)])
            }
            Source::Credential(name) => {
                inline(&[("credential", name.as_ref().map_or_else(redacted, text))])
            }
            Source::Value => inline(&[("value", redacted())]),
        }
    }
}

/// A secret that is a key, or that a key is derived from.
pub(crate) struct KeyText(pub(in crate::config) Secret);

/// Least length of a [`KeyText`]: the bytes of the key.
const KEY_TEXT_BYTES_MIN: usize = 32;

/// An RSA key in PEM form, the only secret of several lines.
pub(crate) struct Pem(pub(in crate::config) Secret);

const KEY_ACCEPTED: &str = "an unencrypted RSA key of 2048 to 8192 bits in PEM form: -----BEGIN RSA PRIVATE KEY----- (PKCS#1) or -----BEGIN PRIVATE KEY----- (PKCS#8)";

impl Read for Secret {
    fn accepted() -> String {
        "{ env = \"NAME\" }, { file = \"PATH\" }, { credential = \"NAME\" } or, for tests, { value = \"…\" }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        resolve(entry, |text, source| {
            let line = one_line(text);
            if line.is_empty() {
                let accepted = "at least one character".to_owned();
                return Err(("the secret is empty".to_owned(), accepted));
            }
            // Every such secret is sent in a header, or compared with one (RFC 9110 §5.5).
            if !line.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || line.trim() != line {
                return Err((
                    "the secret has a character that a header cannot hold".to_owned(),
                    "one line of printable ASCII, without spaces at the ends".to_owned(),
                ));
            }
            Ok(Self { value: line.into(), source: source.clone() })
        })
    }
}

impl Read for KeyText {
    fn accepted() -> String {
        Secret::accepted()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        resolve(entry, |text, source| {
            let line = one_line(text);
            let is_presumed =
                entry.document.secrets == Secrets::Presumed && *source != Source::Value;
            if line.len() < KEY_TEXT_BYTES_MIN && !is_presumed {
                let accepted =
                    "32 random characters or more, such as those of `openssl rand -base64 32`";
                return Err(("the key is too short".to_owned(), accepted.to_owned()));
            }
            Ok(Self(Secret { value: line.into(), source: source.clone() }))
        })
    }
}

impl Read for Pem {
    fn accepted() -> String {
        Secret::accepted()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        resolve(entry, |text, source| {
            let is_presumed =
                entry.document.secrets == Secrets::Presumed && *source != Source::Value;
            if !is_presumed {
                rsa_key(text).map_err(|problem| (problem, KEY_ACCEPTED.to_owned()))?;
            }
            Ok(Self(Secret { value: text.into(), source: source.clone() }))
        })
    }
}

/// Parses the key in a PEM text; an error quotes nothing of it. Line breaks may be written `\n`,
/// for environment variables that hold a single line.
pub fn rsa_key(pem: &str) -> Result<RsaKeyPair, String> {
    let pem = Zeroizing::new(pem.replace("\\n", "\n"));
    let (_, rest) =
        pem.split_once("-----BEGIN ").ok_or("the secret is not a private key in PEM form")?;
    let (label, rest) =
        rest.split_once("-----").ok_or("the secret is not a private key in PEM form")?;
    let (body, _) = rest
        .split_once("-----END ")
        .ok_or("the private key is cut off: it has no -----END line")?;
    if label == "ENCRYPTED PRIVATE KEY" || body.contains("ENCRYPTED") {
        return Err("the private key is encrypted: `openssl pkey -in KEY -out PLAIN` decrypts it"
            .to_owned());
    }
    let base64: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
    let der = BASE64_STANDARD.decode(base64.as_bytes()).map(Zeroizing::new);
    let der = der.map_err(|_| "the private key is damaged: its text is not base64".to_owned())?;
    let key = match label {
        "RSA PRIVATE KEY" => RsaKeyPair::from_der(&der),
        "PRIVATE KEY" => RsaKeyPair::from_pkcs8(&der),
        "EC PRIVATE KEY" | "DSA PRIVATE KEY" | "OPENSSH PRIVATE KEY" => {
            return Err("the private key is not an RSA key in PKCS#1 or PKCS#8".to_owned());
        }
        label if label.ends_with("PRIVATE KEY") => {
            return Err("the private key is of an unknown kind".to_owned());
        }
        _ => return Err("the secret is not a private key in PEM form".to_owned()),
    };
    key.map_err(|fault| format!("the private key is not an RSA key that can sign: {fault}"))
}

/// Strips the line break that editors and `echo` append.
fn one_line(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// Reads the secret from its source.
fn resolve<T: Read>(
    entry: &Entry<'_>,
    accept: impl Fn(&str, &Source) -> Result<T, Refused>,
) -> Option<T> {
    if !entry.value.is_table() {
        return entry.refuse_type::<T>().and(None);
    }
    let accepted = |text: &str, source: &Source| {
        accept(text, source)
            .map_or_else(|(problem, accepted)| entry.refuse(problem, accepted), Some)
    };
    entry.table(|reader| {
        let (env, file) = (reader.entry("env"), reader.entry("file"));
        let (credential, value) = (reader.entry("credential"), reader.entry("value"));
        match (env, file, credential, value) {
            (Some(env), None, None, None) => {
                let (text, source) = from_environment(&env)?;
                accepted(&text, &source)
            }
            (None, Some(file), None, None) => from_path(&file, &accept, &accepted),
            (None, None, Some(credential), None) => {
                from_credential(&credential, &accept, &accepted)
            }
            (None, None, None, Some(value)) => accepted(value.text::<T>()?, &Source::Value),
            (None, None, None, None) => {
                entry.refuse("the secret's source is missing", T::accepted())
            }
            _ => entry.refuse("the secret has more than one source", T::accepted()),
        }
    })
}

/// Returns a placeholder that every reader accepts: with a colon for Basic, and unique to its
/// source. The source is `shown` as not read.
fn placeholder(entry: &Entry<'_>, source: &str, shown: &str) -> Zeroizing<String> {
    entry.document.leave_out(&entry.path, shown);
    Zeroizing::new(format!("presumed: {source}"))
}

const ENV_ACCEPTED: &str = "the name of a variable whose value is the secret";

fn from_environment(entry: &Entry<'_>) -> Option<(Zeroizing<String>, Source)> {
    let name = entry.text::<Secret>()?;
    if name.is_empty() || name.contains(['=', '\0']) {
        return entry.refuse("this cannot be the name of a variable", ENV_ACCEPTED);
    }
    let is_conventional = is_conventional(name);
    let shown = if is_conventional && !entry.is_from_environment() {
        format!("environment variable {name}")
    } else {
        "the environment variable named here".to_owned()
    };
    if entry.document.secrets == Secrets::Presumed {
        let is_name = is_conventional && !entry.is_from_environment();
        let source = Source::Env(is_name.then(|| name.to_owned()));
        return Some((placeholder(entry, &format!("env {name:?}"), &shown), source));
    }
    match (entry.document.env)(name) {
        Some(text) => Some((Zeroizing::new(text), Source::Env(Some(name.to_owned())))),
        None => entry.refuse(format!("{shown} is not set"), ENV_ACCEPTED),
    }
}

/// Returns true if a name is certainly one of an environment variable (POSIX: upper case, digits,
/// underscore), not a misplaced secret.
fn is_conventional(name: &str) -> bool {
    name.len() <= 64
        && name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Reads the secret from the file at a path.
fn from_path<T>(
    entry: &Entry<'_>,
    accept: &impl Fn(&str, &Source) -> Result<T, Refused>,
    accepted: &impl Fn(&str, &Source) -> Option<T>,
) -> Option<T> {
    let path = PathBuf::read(entry)?;
    if entry.document.secrets == Secrets::Presumed {
        let source = format!("file {}", path.display());
        // Tokens have neither a slash nor a point.
        let is_path = !entry.is_from_environment()
            && entry.text::<Secret>().is_some_and(|text| text.contains(['/', '.']));
        let (shown, path) = if is_path {
            (source.clone(), Some(path))
        } else {
            ("the file named here".to_owned(), None)
        };
        return accepted(&placeholder(entry, &source, &shown), &Source::File(path));
    }
    let source = Source::File(Some(path.clone()));
    from_file(entry, path, |text| accept(text, &source))
}

/// Reads the secret from a file that systemd hands over.
fn from_credential<T>(
    entry: &Entry<'_>,
    accept: &impl Fn(&str, &Source) -> Result<T, Refused>,
    accepted: &impl Fn(&str, &Source) -> Option<T>,
) -> Option<T> {
    let name = credential_name(entry)?;
    if entry.document.secrets == Secrets::Presumed {
        let source = format!("credential {name}");
        let (shown, name) = if is_surely_a_name(name) && !entry.is_from_environment() {
            (source.clone(), Some(name.to_owned()))
        } else {
            ("the credential named here".to_owned(), None)
        };
        return accepted(&placeholder(entry, &source, &shown), &Source::Credential(name));
    }
    let source = Source::Credential(Some(name.to_owned()));
    from_file(entry, credentials_folder(entry)?.join(name), |text| accept(text, &source))
}

fn from_file<T>(
    entry: &Entry<'_>,
    path: PathBuf,
    accept: impl Fn(&str) -> Result<T, Refused>,
) -> Option<T> {
    let read = secret_file::read(entry.document, &entry.path, path, &PathBuf::accepted(), accept);
    read.map_or_else(|(problem, accepted)| entry.refuse(problem, accepted), Some)
}

const CREDENTIAL_ACCEPTED: &str = "the name that LoadCredential= or SetCredentialEncrypted= in the unit begins with, such as \"build-bot\"";

/// Reads the name of a credential (systemd.exec, `LoadCredential`).
fn credential_name<'a>(entry: &Entry<'a>) -> Option<&'a str> {
    let name = entry.text::<Secret>()?;
    let is_plain = (1..=255).contains(&name.len())
        && ![".", ".."].contains(&name)
        && !name.contains(|letter: char| letter == '/' || letter == ':' || letter.is_control());
    if !is_plain {
        return entry.refuse("this cannot be the name of a credential", CREDENTIAL_ACCEPTED);
    }
    Some(name)
}

/// Returns true if a credential's name is certainly no misplaced secret: tokens are longer, and
/// have digits.
fn is_surely_a_name(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'_' | b'.');
    name.len() <= 32 && name.bytes().all(is_usual)
}

/// Returns the folder in which systemd puts a service's credentials.
fn credentials_folder(entry: &Entry<'_>) -> Option<PathBuf> {
    let accepted = CREDENTIAL_ACCEPTED;
    let Some(folder) = (entry.document.env)(CREDENTIALS).map(PathBuf::from) else {
        let problem = format!(
            "environment variable {CREDENTIALS} is not set: systemd sets it for a unit with credentials"
        );
        return entry.refuse(problem, format!("{accepted}; without systemd {{ file = \"PATH\" }}"));
    };
    if !folder.is_absolute() {
        let problem = format!("environment variable {CREDENTIALS} is not an absolute path");
        return entry.refuse(problem, accepted);
    }
    Some(folder)
}
