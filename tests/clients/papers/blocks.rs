//! Fenced blocks of the Markdown papers, with their language and the reason of those that are not
//! run.

use std::fs;
use std::path::Path;

/// Before a block that no test can run, followed by the reason and `-->`.
const MARKER: &str = "<!-- not run:";

/// A paper of the repository.
pub struct Paper {
    /// From the root of the repository.
    pub path: String,
    pub text: String,
}

/// A fenced block.
#[derive(Debug)]
pub struct Block {
    /// Path of the paper and line of the fence.
    pub location: String,
    pub kind: Option<Kind>,
    pub text: String,
    /// The reason for which it is not run.
    pub not_run: Option<String>,
}

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Shell,
    Toml,
    Json,
    Octokit,
    PyGithub,
    /// A diagram or the output of a program.
    Figure,
}

/// All papers, in the order of their paths.
pub fn papers() -> Vec<Paper> {
    let mut papers = Vec::new();
    collect(Path::new(super::ROOT), "", &mut papers);
    papers.sort_by(|one, other| one.path.cmp(&other.path));
    papers
}

fn collect(folder: &Path, prefix: &str, papers: &mut Vec<Paper>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let entry = entry.expect("an entry of a folder");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.path().is_dir() {
            if !name.starts_with('.') && !["target", "node_modules"].contains(&name.as_str()) {
                collect(&entry.path(), &format!("{path}/"), papers);
            }
        } else if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(entry.path()).expect("a paper in UTF-8");
            papers.push(Paper { path, text });
        }
    }
}

impl Paper {
    /// The fenced blocks. Panics on a marker without a reason or without a block.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut not_run = None;
        let mut lines = self.text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let location = format!("{}:{}", self.path, index + 1);
            let trimmed = line.trim_start();
            if let Some(reason) = trimmed.strip_prefix(MARKER) {
                let reason = reason.trim_end().trim_end_matches("-->").trim();
                assert!(!reason.is_empty(), "{location}: the marker names no reason");
                not_run = Some(reason.to_owned());
            } else if let Some(language) = trimmed.strip_prefix("```") {
                let indent = line.len() - trimmed.len();
                let inside = lines.by_ref().map(|(_, line)| line);
                let inside = inside.take_while(|line| !line.trim_start().starts_with("```"));
                let text = inside.map(|line| line.get(indent..).unwrap_or("").to_owned() + "\n");
                let (kind, text) = of_language(language.trim(), text.collect());
                blocks.push(Block { location, kind, text, not_run: not_run.take() });
            } else if !trimmed.is_empty() {
                assert!(not_run.is_none(), "{location}: no block follows the marker");
            }
        }
        blocks
    }

    /// The inline code that begins with this word, from the word on.
    pub fn inline<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        let code = self.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        code.filter(move |code| code.split(' ').next() == Some(word))
    }
}

/// The kind of a block, and its text without the prompts and output of a console.
fn of_language(language: &str, text: String) -> (Option<Kind>, String) {
    let kind = match language {
        "console" => {
            let commands = text.lines().filter_map(|line| line.strip_prefix("$ "));
            return (Some(Kind::Shell), commands.map(|line| line.to_owned() + "\n").collect());
        }
        "sh" | "bash" => Some(Kind::Shell),
        "toml" => Some(Kind::Toml),
        "json" => Some(Kind::Json),
        "js" | "mjs" | "javascript" => Some(Kind::Octokit),
        "py" | "python" => Some(Kind::PyGithub),
        "text" => Some(Kind::Figure),
        _ => None,
    };
    (kind, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<Block> {
        Paper { path: "a.md".to_owned(), text: text.to_owned() }.blocks()
    }

    #[test]
    fn an_indented_block_is_found_with_its_marker() {
        let found =
            blocks("1. a\n\n   <!-- not run: no net -->\n   ```sh\n   ls\n     x\n   ```\n");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].location.as_str(), found[0].text.as_str()), ("a.md:4", "ls\n  x\n"));
        assert_eq!(
            (found[0].kind, found[0].not_run.as_deref()),
            (Some(Kind::Shell), Some("no net"))
        );
    }

    #[test]
    fn a_console_block_is_its_commands() {
        let found = blocks("```console\n$ weir key\nweir_0123\n```\n```ruby\nputs\n```\n");
        assert_eq!((found[0].kind, found[0].text.as_str()), (Some(Kind::Shell), "weir key\n"));
        assert_eq!((found[1].kind, found[1].not_run.as_ref()), (None, None));
    }

    #[test]
    #[should_panic(expected = "names no reason")]
    fn a_marker_needs_a_reason() {
        blocks("<!-- not run: -->\n```sh\nls\n```\n");
    }

    #[test]
    #[should_panic(expected = "no block follows")]
    fn a_marker_needs_a_block() {
        blocks("<!-- not run: for no reason -->\nText.\n```sh\nls\n```\n");
    }
}
