//! Secrets: `{ env = "NAME" }`, `{ file = "PATH" }` or, for tests, `{ value = "…" }`.
//!
//! No message reveals a secret's content, nor quotes a value in place of a name: operators paste
//! tokens into the wrong key.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::signature::RsaKeyPair;
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::document::Secrets;
use super::reader::{Entry, Read};
use super::regular_file;

/// Largest secret accepted: a PEM file with a chain of keys is far smaller.
const SECRET_BYTES_MAX: usize = 64 * 1024;

/// An RSA key in PEM form, the only secret of several lines.
pub(crate) struct Pem(pub(in crate::config) SecretString);

const KEY_ACCEPTED: &str = "an unencrypted RSA key of 2048 to 8192 bits in PEM form: -----BEGIN RSA PRIVATE KEY----- (PKCS#1) or -----BEGIN PRIVATE KEY----- (PKCS#8)";

impl Read for SecretString {
    fn accepted() -> String {
        "{ env = \"NAME\" }, { file = \"PATH\" } or, for tests, { value = \"…\" }".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let text = resolve::<Self>(entry)?;
        let line = one_line(&text);
        if line.is_empty() {
            return entry.refuse("the secret is empty", "at least one character");
        }
        // Every such secret is sent in a header, or compared with one (RFC 9110 §5.5).
        if !line.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || line.trim() != line {
            return entry.refuse(
                "the secret has a character that a header cannot hold",
                "one line of printable ASCII, without spaces at the ends",
            );
        }
        Some(line.into())
    }
}

impl Read for Pem {
    fn accepted() -> String {
        SecretString::accepted()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let text = resolve::<Self>(entry)?;
        if entry.document.secrets == Secrets::Presumed {
            return Some(Self(text.as_str().into()));
        }
        match rsa_key(&text) {
            Ok(_) => Some(Self(text.as_str().into())),
            Err(problem) => entry.refuse(problem, KEY_ACCEPTED),
        }
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
fn resolve<T: Read>(entry: &Entry<'_>) -> Option<Zeroizing<String>> {
    if !entry.value.is_table() {
        return entry.refuse_type::<T>().and(None);
    }
    entry.table(|reader| {
        let (env, file, value) = (reader.entry("env"), reader.entry("file"), reader.entry("value"));
        if entry.document.secrets == Secrets::Presumed
            && [&env, &file, &value].into_iter().flatten().count() == 1
        {
            return Some(placeholder(entry));
        }
        match (env, file, value) {
            (Some(env), None, None) => from_environment(&env),
            (None, Some(file), None) => from_file(&file),
            (None, None, Some(value)) => {
                value.text::<T>().map(|text| Zeroizing::new(text.to_owned()))
            }
            (None, None, None) => entry.refuse("the secret's source is missing", T::accepted()),
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

fn from_file(entry: &Entry<'_>) -> Option<Zeroizing<String>> {
    let path = PathBuf::read(entry)?;
    let text = read_text(&path).map_err(|problem| format!("the file named here {problem}"));
    text.map_or_else(|problem| entry.refuse(problem, PathBuf::accepted()), Some)
}

fn read_text(path: &Path) -> Result<Zeroizing<String>, String> {
    let bytes = regular_file(path, SECRET_BYTES_MAX)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "is not text in UTF-8".to_owned())?;
    Ok(Zeroizing::new(text.to_owned()))
}
