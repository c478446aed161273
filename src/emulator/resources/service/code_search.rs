//! Searches for files: the newest commit of the default branches. Forks are left out unless the
//! search asks for them, as in the running service.

use serde_json::{Value, json};

use super::search_terms::{self, Term, invalid, numbers, wrong};
use crate::emulator::http::ranges::Range;
use crate::emulator::http::{ApiError, SITE, segment};
use crate::emulator::routing::Call;
use crate::emulator::world::git::objects::blob_id;
use crate::emulator::world::{Commit, Repository, Visibility};

const QUALIFIERS: [&str; 11] = [
    "extension",
    "filename",
    "fork",
    "in",
    "is",
    "language",
    "org",
    "path",
    "repo",
    "size",
    "user",
];

/// The languages of files, by their extension.
const LANGUAGES: [(&str, &str); 24] = [
    ("c", "c"),
    ("cpp", "c++"),
    ("cs", "c#"),
    ("css", "css"),
    ("go", "go"),
    ("h", "c"),
    ("html", "html"),
    ("java", "java"),
    ("js", "javascript"),
    ("json", "json"),
    ("kt", "kotlin"),
    ("md", "markdown"),
    ("mjs", "javascript"),
    ("php", "php"),
    ("py", "python"),
    ("rb", "ruby"),
    ("rs", "rust"),
    ("sh", "shell"),
    ("swift", "swift"),
    ("toml", "toml"),
    ("ts", "typescript"),
    ("txt", "text"),
    ("yaml", "yaml"),
    ("yml", "yaml"),
];

enum Filter {
    Text(String),
    Repository(String),
    Owner(String),
    IsPrivate(bool),
    IsFork,
    Language(String),
    Extension(String),
    Filename(String),
    Path(String),
    Size(Range),
}

#[derive(Clone, Copy)]
struct Fields {
    file: bool,
    path: bool,
}

/// A file of a repository.
struct File<'a> {
    full_name: &'a str,
    repository: &'a Repository,
    path: &'a str,
    content: &'a [u8],
}

/// Returns the files that the search finds, at most `most`.
pub fn find(call: &Call<'_>, search: &str, most: usize) -> Result<Vec<Value>, ApiError> {
    let mut fields = Fields { file: true, path: false };
    let mut filters = Vec::new();
    let mut wants_forks = false;
    for Term { negated, qualifier, value } in &search_terms::parse(search, &QUALIFIERS)? {
        match qualifier.as_deref() {
            Some("in") if *negated => return Err(invalid("in cannot be negated".to_owned())),
            Some("in") => fields = searched_fields(value)?,
            Some("fork") if matches!(&**value, "true" | "false") => {
                wants_forks = (value == "true") != *negated;
            }
            name => {
                wants_forks |= name == Some("fork") && !negated;
                filters.push((*negated, filter(name, value)?));
            }
        }
    }
    order(call)?;
    let mut found = Vec::new();
    for repository in call.visible_repositories() {
        if repository.fork_of.is_some() && !wants_forks {
            continue;
        }
        let full_name = call.world.full_name(repository).to_lowercase();
        let history = call.world.history(repository);
        let Some(tip) = history.tip(repository) else { continue };
        for (path, content) in tip.files.iter() {
            let file = File { full_name: &full_name, repository, path, content };
            if filters.iter().all(|(negated, filter)| file.has(filter, fields) != *negated) {
                found.push(render(call, &file, tip));
            }
            if found.len() == most {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Files have no order beside the one of their names.
fn order(call: &Call<'_>) -> Result<(), ApiError> {
    let named = |name: &str| (name == "indexed").then_some(());
    call.choice("Search", "sort", named, "sort must be indexed")?;
    search_terms::descends(call).map(|_| ())
}

fn searched_fields(value: &str) -> Result<Fields, ApiError> {
    let mut fields = Fields { file: false, path: false };
    for name in value.split(',') {
        match name {
            "file" => fields.file = true,
            "path" => fields.path = true,
            _ => return Err(wrong("in", "file and path")),
        }
    }
    Ok(fields)
}

fn filter(qualifier: Option<&str>, value: &str) -> Result<Filter, ApiError> {
    let text = || value.to_owned();
    Ok(match qualifier {
        None => Filter::Text(text()),
        Some("repo") => Filter::Repository(text()),
        Some("org" | "user") => Filter::Owner(text()),
        Some("language") => Filter::Language(text()),
        Some("extension") => Filter::Extension(value.trim_start_matches('.').to_owned()),
        Some("filename") => Filter::Filename(text()),
        Some("path") => Filter::Path(value.trim_matches('/').to_owned()),
        Some("size") => Filter::Size(numbers("size", value)?),
        Some("is") => match value {
            "public" => Filter::IsPrivate(false),
            "private" => Filter::IsPrivate(true),
            _ => return Err(wrong("is", "public or private")),
        },
        // `parse` accepts no other.
        Some(_) if value == "only" => Filter::IsFork,
        Some(_) => return Err(wrong("fork", "true, only or false")),
    })
}

impl File<'_> {
    fn folder_and_name(&self) -> (&str, &str) {
        self.path.rsplit_once('/').unwrap_or(("", self.path))
    }

    fn extension(&self) -> &str {
        self.folder_and_name().1.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    fn has(&self, filter: &Filter, fields: Fields) -> bool {
        let (folder, name) = self.folder_and_name();
        match filter {
            Filter::Text(text) => {
                let content = || String::from_utf8_lossy(self.content).to_lowercase();
                (fields.path && self.path.to_lowercase().contains(text))
                    || (fields.file && content().contains(text))
            }
            Filter::Repository(name) => self.full_name == name,
            Filter::Owner(login) => self.full_name.split('/').next() == Some(login.as_str()),
            Filter::IsPrivate(wanted) => {
                (self.repository.visibility == Visibility::Private) == *wanted
            }
            Filter::IsFork => self.repository.fork_of.is_some(),
            Filter::Language(wanted) => {
                let extension = self.extension().to_lowercase();
                LANGUAGES.contains(&(extension.as_str(), wanted.as_str()))
            }
            Filter::Extension(wanted) => self.extension().eq_ignore_ascii_case(wanted),
            Filter::Filename(wanted) => name.to_lowercase().contains(wanted),
            // `path:/` is the root; another path is a folder with all below it.
            Filter::Path(wanted) if wanted.is_empty() => folder.is_empty(),
            Filter::Path(wanted) => {
                let below = folder.to_lowercase();
                below
                    .strip_prefix(wanted.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Filter::Size(range) => range.has(self.content.len() as u64),
        }
    }
}

fn render(call: &Call<'_>, file: &File<'_>, tip: &Commit) -> Value {
    let renderer = call.renderer();
    let base = renderer.repository_url(file.repository);
    let sha = blob_id(file.content).hex();
    let path: Vec<String> = file.path.split('/').map(segment).collect();
    let path = path.join("/");
    let page = format!("{SITE}/{}", call.world.full_name(file.repository));
    json!({
        "name": file.folder_and_name().1, "path": file.path, "sha": sha,
        "url": format!("{base}/contents/{path}?ref={}", tip.sha),
        "git_url": format!("{base}/git/blobs/{sha}"),
        "html_url": format!("{page}/blob/{}/{path}", tip.sha),
        "repository": renderer.repository(file.repository),
    })
}
