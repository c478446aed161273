//! Secrets: `{ env = "NAME" }`, `{ file = "PATH" }` or, for tests, `{ value = "…" }`.
//!
//! No message here says anything about a secret's content, nor quotes what stands where a name should: operators paste tokens into the wrong
//! place.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::reader::{Entry, Read};

/// The largest secret that is read: a PEM file with a chain of keys is far smaller.
const SECRET_BYTES_MAX: usize = 64 * 1024;

/// A private key in PEM form, the one secret that has several lines.
pub(super) struct Pem(pub(super) SecretString);

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
        // Every one of them is sent in a header, or compared with one (RFC 9110 §5.5).
        if !line.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || line.trim() != line {
            return entry
                .refuse("the secret has a character that a header cannot hold", "one line of printable ASCII, without spaces at the ends");
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
        if !text.trim_start().starts_with("-----BEGIN ") || !text.contains("PRIVATE KEY-----") {
            return entry.refuse("the secret is not a private key in PEM form", "text that begins with -----BEGIN … PRIVATE KEY-----");
        }
        Some(Self(text.as_str().into()))
    }
}

/// Without the line break that editors and `echo` put at the end of a file.
fn one_line(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// The secret's text from wherever the file says that it is.
fn resolve<T: Read>(entry: &Entry<'_>) -> Option<Zeroizing<String>> {
    if !entry.value().is_table() {
        return entry.refuse_type::<T>().and(None);
    }
    entry.table(|reader| {
        let (env, file, value) = (reader.entry("env"), reader.entry("file"), reader.entry("value"));
        match (env, file, value) {
            (Some(env), None, None) => from_environment(&env),
            (None, Some(file), None) => from_file(&file),
            (None, None, Some(value)) => value.text::<T>().map(|text| Zeroizing::new(text.to_owned())),
            (None, None, None) => entry.refuse("the secret's source is missing", T::accepted()),
            _ => entry.refuse("the secret has more than one source", T::accepted()),
        }
    })
}

fn from_environment(entry: &Entry<'_>) -> Option<Zeroizing<String>> {
    let name = entry.text::<SecretString>()?;
    (entry.document.env)(name).map(Zeroizing::new).or_else(|| {
        let shown =
            if is_conventional(name) { format!("environment variable {name}") } else { "the environment variable named here".to_owned() };
        entry.refuse(format!("{shown} is not set"), "the name of a variable whose value is the secret")
    })
}

/// Whether a name is one of an environment variable beyond doubt (POSIX: upper case, digits, underscore), and not a secret in its place.
fn is_conventional(name: &str) -> bool {
    name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn from_file(entry: &Entry<'_>) -> Option<Zeroizing<String>> {
    let path = PathBuf::read(entry)?;
    match read_text(&path) {
        Ok(text) => Some(text),
        Err(problem) => entry.refuse(format!("the file named here {problem}"), PathBuf::accepted()),
    }
}

fn read_text(path: &Path) -> Result<Zeroizing<String>, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {}", error.kind());
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX + 1));
    file.take(SECRET_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > SECRET_BYTES_MAX {
        return Err(format!("is larger than {SECRET_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| "is not text in UTF-8".to_owned())?;
    Ok(Zeroizing::new(text.to_owned()))
}
