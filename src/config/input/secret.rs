//! Secrets: `{ env = "NAME" }`, `{ file = "PATH" }`, `{ credential = "NAME" }` of systemd or, for
//! tests, `{ value = "…" }`.
//!
//! No message reveals a secret's content, nor quotes a value in place of a name: operators paste
//! tokens into the wrong key.

use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::signature::RsaKeyPair;
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::document::Secrets;
use super::reader::{Entry, Read};
use super::secret_file::{self, Refused};

/// The variable that names the folder of a service's credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// An RSA key in PEM form, the only secret of several lines.
pub(crate) struct Pem(pub(in crate::config) SecretString);

const KEY_ACCEPTED: &str = "an unencrypted RSA key of 2048 to 8192 bits in PEM form: -----BEGIN RSA PRIVATE KEY----- (PKCS#1) or -----BEGIN PRIVATE KEY----- (PKCS#8)";

impl Read for SecretString {
    fn accepted() -> String {
        "{ env = \"NAME\" }, { file = \"PATH\" }, { credential = \"NAME\" } or, for tests, { value = \"…\" }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        resolve(entry, |text| {
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
            Ok(line.into())
        })
    }
}

impl Read for Pem {
    fn accepted() -> String {
        SecretString::accepted()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        resolve(entry, |text| {
            if entry.document.secrets == Secrets::Resolved {
                rsa_key(text).map_err(|problem| (problem, KEY_ACCEPTED.to_owned()))?;
            }
            Ok(Self(text.into()))
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
fn resolve<T: Read>(entry: &Entry<'_>, accept: impl Fn(&str) -> Result<T, Refused>) -> Option<T> {
    if !entry.value.is_table() {
        return entry.refuse_type::<T>().and(None);
    }
    let accepted = |text: &str| {
        accept(text).map_or_else(|(problem, accepted)| entry.refuse(problem, accepted), Some)
    };
    entry.table(|reader| {
        let (env, file) = (reader.entry("env"), reader.entry("file"));
        let (credential, value) = (reader.entry("credential"), reader.entry("value"));
        let sources = [&env, &file, &credential, &value].into_iter().flatten().count();
        if entry.document.secrets == Secrets::Presumed && sources == 1 {
            return accepted(&placeholder(entry));
        }
        match (env, file, credential, value) {
            (Some(env), None, None, None) => accepted(&from_environment(&env)?),
            (None, Some(file), None, None) => from_file(&file, PathBuf::read(&file)?, &accept),
            (None, None, Some(credential), None) => {
                from_file(&credential, path_of(&credential)?, &accept)
            }
            (None, None, None, Some(value)) => accepted(value.text::<T>()?),
            (None, None, None, None) => {
                entry.refuse("the secret's source is missing", T::accepted())
            }
            _ => entry.refuse("the secret has more than one source", T::accepted()),
        }
    })
}

/// Returns a placeholder that every reader accepts: with a colon for Basic, and unique to its key.
fn placeholder(entry: &Entry<'_>) -> Zeroizing<String> {
    Zeroizing::new(format!("presumed: {}", entry.path))
}

fn from_environment(entry: &Entry<'_>) -> Option<Zeroizing<String>> {
    let name = entry.text::<SecretString>()?;
    (entry.document.env)(name).map(Zeroizing::new).or_else(|| {
        let shown = if is_conventional(name) {
            format!("environment variable {name}")
        } else {
            "the environment variable named here".to_owned()
        };
        entry.refuse(
            format!("{shown} is not set"),
            "the name of a variable whose value is the secret",
        )
    })
}

/// Returns true if a name is certainly one of an environment variable (POSIX: upper case, digits,
/// underscore), not a misplaced secret.
fn is_conventional(name: &str) -> bool {
    name.len() <= 64
        && name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn from_file<T>(
    entry: &Entry<'_>,
    path: PathBuf,
    accept: &impl Fn(&str) -> Result<T, Refused>,
) -> Option<T> {
    let read = secret_file::read(entry.document, &entry.path, path, &PathBuf::accepted(), accept);
    read.map_or_else(|(problem, accepted)| entry.refuse(problem, accepted), Some)
}

/// Returns the file of a credential that systemd hands over (systemd.exec, `LoadCredential`).
fn path_of(entry: &Entry<'_>) -> Option<PathBuf> {
    const ACCEPTED: &str = "the name that LoadCredential= or SetCredentialEncrypted= in the unit begins with, such as \"build-bot\"";
    let name = entry.text::<SecretString>()?;
    let is_plain = (1..=255).contains(&name.len())
        && ![".", ".."].contains(&name)
        && !name.contains(|letter: char| letter == '/' || letter == ':' || letter.is_control());
    if !is_plain {
        return entry.refuse("this cannot be the name of a credential", ACCEPTED);
    }
    let Some(folder) = (entry.document.env)(CREDENTIALS).map(PathBuf::from) else {
        let problem = format!(
            "environment variable {CREDENTIALS} is not set: systemd sets it for a unit with credentials"
        );
        return entry.refuse(problem, format!("{ACCEPTED}; without systemd {{ file = \"PATH\" }}"));
    };
    if !folder.is_absolute() {
        let problem = format!("environment variable {CREDENTIALS} is not an absolute path");
        return entry.refuse(problem, ACCEPTED);
    }
    Some(folder.join(name))
}
