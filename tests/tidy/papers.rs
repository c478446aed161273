//! Papers: short, and true to the tree.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use super::{File, Finding, Rule, repository};

/// The papers that comments do not cite, because the repository does not hold them.
const ELSEWHERE: &str =
    "DESIGN.md CONTRACT.md UPSTREAM.md CLIENTS.md PINGORA.md REPLICAS.md HOUSE.md STYLE.md";

#[test]
fn papers_stay_short() {
    const BYTES_MAX: &[(&str, usize)] = &[("README.md", 8 * 1024), ("ARCHITECTURE.md", 10 * 1024)];
    for (path, bytes_max) in BYTES_MAX {
        let bytes = paper(path).len();
        assert!(bytes <= *bytes_max, "{path}: {bytes} bytes, more than {bytes_max}");
    }
}

#[test]
fn comments_cite_what_is_in_the_repository() {
    Rule {
        instead: "cite a heading as `SPECIFICATION, \"Heading\"`, a decision as `SPECIFICATION D5`, or a public standard",
        finds: |file| {
            static HEADINGS: OnceLock<BTreeSet<String>> = OnceLock::new();
            if file.path.starts_with("tests/tidy/") {
                return Vec::new();
            }
            let headings = HEADINGS.get_or_init(|| headings(&paper("SPECIFICATION.md")));
            // Of Rust the comments, of all else the whole text: a paper is cited in backticks too.
            let prose = file.prose().join("\n");
            let lines = if file.is_rust() { prose.lines() } else { file.text.lines() };
            let mut findings = Vec::new();
            for (index, line) in lines.enumerate() {
                findings.extend(uncited(line, headings).map(|what| (index + 1, what)));
            }
            findings
        },
        exceptions: &[],
        refused: &[
            ("src/a.rs", "// One at a time (DESIGN D5)."),
            ("src/a.rs", "// CONTRACT §3."),
            ("src/a.rs", "/// PINGORA.md, Pitfalls."),
            ("src/a.rs", "/// Document 2, Notifications."),
            ("src/a.rs", "/// SPECIFICATION, \"No such heading\"."),
            ("src/a.rs", "/// SPECIFICATION D99."),
            ("README.md", "See `DESIGN.md`."),
            ("config/a.toml", "# As CONTRACT.md says."),
            ("src/api/a.table", "# Document 1, Credentials."),
            ("tests/clients/a.py", "\"\"\"HOUSE.md, Words.\"\"\""),
            ("deploy/a.sh", "# STYLE.md"),
        ],
    }
    .check();
}

/// The first citation of a line that leads nowhere.
fn uncited(line: &str, headings: &BTreeSet<String>) -> Option<String> {
    let stems = ELSEWHERE.split(' ').map(|name| name.trim_end_matches(".md"));
    let cites = |stem: &str| {
        line.split(stem).skip(1).any(|after| {
            if after.starts_with(".md") {
                return true;
            }
            let after =
                after.strip_prefix(".md").unwrap_or(after).trim_start_matches(',').trim_start();
            after.starts_with(['§', 'D', '"', '\'', ')', '.', ':'])
                || after.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    if let Some(stem) = stems.into_iter().find(|stem| cites(stem)) {
        return Some(format!("`{stem}` is not in the repository"));
    }
    if let Some(after) = line.split("Document ").nth(1)
        && after.starts_with(['1', '2', '3'])
    {
        return Some("the upstream's documents are not in the repository".to_owned());
    }
    let after = line.split("SPECIFICATION").nth(1)?;
    let heading = if let Some(quoted) = after.strip_prefix(", \"") {
        // A heading that goes on in the next line cannot be checked here.
        quoted.split_once('"')?.0.to_owned()
    } else {
        after.strip_prefix(' ').filter(|after| after.starts_with('D'))?;
        after[1..].chars().take_while(char::is_ascii_alphanumeric).collect()
    };
    (!headings.contains(&heading)).then(|| format!("SPECIFICATION has no heading `{heading}`"))
}

/// The headings of a paper, and the numbers of its decisions: `D5` for `### D5 …`.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    let titles = titles.map(|line| line.trim_start_matches('#').trim().to_owned());
    let first = |title: &String| title.split([' ', '.', ':']).next().unwrap_or_default().to_owned();
    titles.flat_map(|title| [first(&title), title]).collect()
}

#[test]
fn papers_name_files_that_exist() {
    Rule {
        instead: "correct the path: a paper that leads nowhere is worse than none",
        finds: |file| {
            if Path::new(&file.path).extension().is_none_or(|extension| extension != "md") {
                return Vec::new();
            }
            let mut findings = Vec::new();
            for (index, line) in file.text.lines().enumerate() {
                let quoted = line.split('`').skip(1).step_by(2).filter(|path| is_path(path));
                let missing = quoted.filter(|path| !root().join(path).exists());
                findings
                    .extend(missing.map(|path| (index + 1, format!("`{path}` does not exist"))));
            }
            findings
        },
        exceptions: &[],
        refused: &[("README.md", "See `src/gateway/nowhere.rs`."), ("a.md", "in `src/nowhere/`")],
    }
    .check();
}

#[test]
fn comments_name_files_that_exist() {
    Rule {
        instead: "correct the file's name",
        finds: |file| {
            static FILES: OnceLock<Vec<File>> = OnceLock::new();
            if !file.is_rust() || file.path.starts_with("tests/") {
                return Vec::new();
            }
            let files = FILES.get_or_init(repository);
            let exists = |name: &str| {
                let ending = format!("/{name}");
                files.iter().any(|file| file.path == name || file.path.ends_with(&ending))
            };
            let mut findings = Vec::new();
            for (index, line) in file.text.lines().enumerate() {
                let Some((_, comment)) = line.split_once("//") else { continue };
                let quoted = comment.split('`').skip(1).step_by(2);
                let named = quoted.filter(|name| {
                    name.rsplit_once('.').is_some_and(|(_, ending)| ending == "rs")
                        && !name.contains(' ')
                });
                let gone = named.filter(|name| !exists(name));
                findings.extend(gone.map(|name| (index + 1, format!("`{name}` does not exist"))));
            }
            findings
        },
        exceptions: &[],
        refused: &[("src/a.rs", "// See `nowhere.rs`.")],
    }
    .check();
}

fn is_path(text: &str) -> bool {
    let below = ["src/", "tests/", "benches/", "config/", "deploy/"];
    below.iter().any(|folder| text.starts_with(folder))
        && !text.contains(['*', ' ', '{', '<', ':', '…'])
}

/// A step of the walk through the code: the line of the paper, the file, the function.
type Step = (usize, String, String);

#[test]
fn the_steps_of_a_request_exist() {
    const STEPS_MAX: usize = 45;
    const RETURNS_MAX: usize = 12;
    let steps = steps(&paper("ARCHITECTURE.md"));
    assert!(steps.len() > 20, "ARCHITECTURE.md lists a GET that misses, step by step");
    assert!(steps.len() <= STEPS_MAX, "{} steps, more than {STEPS_MAX}", steps.len());
    let returns = returns(&steps);
    assert!(returns <= RETURNS_MAX, "{returns} returns to a file already left");
    let findings = missing_steps(&steps, &repository());
    assert!(findings.is_empty(), "steps that the code does not have: {findings:#?}");
}

#[test]
fn a_step_that_is_gone_is_found() {
    let paper = "| step | file | function |\n|---|---|---|\n| 1 | `src/a.rs` | `enter` |\n\
                 | 2 | `src/b.rs` | `Gate::open` |\n| 3 | `src/a.rs` | `leave` |\n";
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
        test_only: false,
    };
    let files = [
        file("src/a.rs", "fn enter() {}\nfn leaves() {}"),
        file("src/b.rs", "pub async fn open<T>("),
    ];
    let steps = steps(paper);
    assert_eq!((steps.len(), returns(&steps)), (3, 1));
    assert_eq!(missing_steps(&steps, &files), [(5, "`leave` in src/a.rs".to_owned())]);
}

/// The rows `| number | `file` | `function` | …` of a paper.
fn steps(text: &str) -> Vec<Step> {
    let row = |(index, line): (usize, &str)| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        cells.next()?.parse::<u32>().ok()?;
        let file = cells.next()?.trim_matches('`').to_owned();
        Some((index + 1, file, cells.next()?.trim_matches('`').to_owned()))
    };
    text.lines().enumerate().filter_map(row).collect()
}

/// How often the walk comes back to a file that it has left.
fn returns(steps: &[Step]) -> usize {
    let mut left = BTreeSet::new();
    let mut returns = 0;
    for pair in steps.windows(2) {
        let (from, to) = (&pair[0].1, &pair[1].1);
        if from != to {
            left.insert(from);
            returns += usize::from(left.contains(to));
        }
    }
    returns
}

fn missing_steps(steps: &[Step], files: &[File]) -> Vec<Finding> {
    let has = |path: &str, function: &str| {
        let name = function.rsplit("::").next().unwrap_or(function);
        let code =
            files.iter().find(|file| file.path == path).map(File::shipped_code).unwrap_or_default();
        code.split(&format!("fn {name}")).skip(1).any(|after| after.starts_with(['(', '<']))
    };
    let gone = steps.iter().filter(|(_, path, function)| !has(path, function));
    gone.map(|(line, path, function)| (*line, format!("`{function}` in {path}"))).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn paper(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
