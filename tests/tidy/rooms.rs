//! Rooms: folders stay small, and their imports run one way.
//!
//! The import graph is read from the text: `use` declarations and paths that begin with `crate`,
//! `super`, `self` or a child module. A re-export counts as the module that it names. Code that is
//! compiled only for tests is left out.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, part, repository};

/// Folders whose sub-folders and files import each other one way only.
const WITHOUT_CIRCLES: &[&str] =
    &["src/gateway", "src/decision", "src/api", "src/emulator", "src/config", "src/cli"];

/// Folders in which even single files form no circle.
const FILES_WITHOUT_CIRCLES: &[&str] = &["src/gateway"];

/// Rooms of a folder from the top down: a room imports only from rooms below it.
const ORDERS: &[(&str, &[&str])] = &[
    (
        "src/gateway",
        &[
            "server",
            "reload",
            "assembly",
            "background",
            "response",
            "write",
            "cache",
            "request",
            "dispatch",
            "upstream",
            "environment",
            "certificates",
            "url_rewrite",
            "http",
            "active",
            "session",
            "connections",
            "counted",
            "spool",
            "shared_space",
            "error",
            "address",
            "random",
        ],
    ),
    (
        "src/emulator",
        &[
            "server",
            "pipeline",
            "control",
            "graphql",
            "resources",
            "generic",
            "state",
            "replay",
            "faults",
            "seed",
            "migrations",
            "events",
            "render",
            "auth",
            "routing",
            "world",
            "http",
            "limits",
            "accounts",
        ],
    ),
];

/// Imports between files: for each path, the paths that it imports from.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_folder_holds_more_than_twenty_files() {
    const FILES_MAX: usize = 20;
    let mut folders = BTreeMap::<String, usize>::new();
    for file in repository().iter().filter(|file| file.path.starts_with("src/")) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *folders.entry(folder.to_owned()).or_default() += 1;
    }
    folders.retain(|_, files| *files > FILES_MAX);
    assert!(folders.is_empty(), "folders of more than {FILES_MAX} files: {folders:#?}");
}

#[test]
fn rooms_import_each_other_one_way() {
    let imports = imports(&repository());
    let mut circles = Vec::new();
    for top in WITHOUT_CIRCLES {
        for folder in folders_below(&imports, top) {
            let found = circles_of(&between_children(&imports, &folder));
            // Files that depend on each other within one room are its own affair.
            circles.extend(found.into_iter().filter(|circle| circle.contains('/')));
        }
    }
    for top in FILES_WITHOUT_CIRCLES {
        circles.extend(circles_of(&inside(&imports, top)));
    }
    assert!(circles.is_empty(), "import circles, with what ties them:\n{}", circles.join("\n"));
}

#[test]
fn rooms_import_only_from_rooms_below() {
    let imports = imports(&repository());
    let findings: Vec<_> =
        ORDERS.iter().flat_map(|(top, order)| upward(&imports, top, order)).collect();
    assert!(findings.is_empty(), "imports against ORDERS:\n{}", findings.join("\n"));
}

#[test]
fn a_circle_and_an_upward_import_are_found() {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
        test_only: false,
    };
    let imports = imports(&[
        file("src/lib.rs", "pub mod gateway;"),
        file("src/gateway/mod.rs", "mod cache;\nmod http;\npub use cache::store::Store;"),
        file("src/gateway/cache/mod.rs", "pub mod store;\npub mod read;"),
        file(
            "src/gateway/cache/store.rs",
            "use super::read::Lookup;\nfn f() { crate::gateway::http::range() }",
        ),
        file("src/gateway/cache/read.rs", "use crate::gateway::{\n    Store,\n    http,\n};"),
        file("src/gateway/http.rs", "#[cfg(test)]\nmod tests {\n    use crate::gateway::Store;\n}"),
    ]);
    let ties = [
        "src/gateway/cache/read.rs -> src/gateway/cache/store.rs",
        "store.rs -> src/gateway/cache/read.rs",
    ];
    let circles = circles_of(&inside(&imports, "src/gateway")).join("\n");
    assert!(ties.iter().all(|tie| circles.contains(tie)), "{circles}");
    assert!(circles_of(&between_children(&imports, "src/gateway")).is_empty());
    assert!(!circles_of(&between_children(&imports, "src/gateway/cache")).is_empty());
    assert!(upward(&imports, "src/gateway", &["cache", "http"]).is_empty());
    assert!(!upward(&imports, "src/gateway", &["http", "cache"]).is_empty());
    assert!(!upward(&imports, "src/gateway", &["cache"]).is_empty(), "a room without a place");
}

/// The imports of every file of `src/` that is compiled for the program.
fn imports(files: &[File]) -> Imports {
    let sources: Vec<_> =
        files.iter().filter(|file| !part(file).is_empty() && !file.test_only).collect();
    let modules = sources.iter().map(|file| (module_of(&file.path), file.path.clone())).collect();
    let code: BTreeMap<_, _> =
        sources.iter().map(|file| (&file.path, file.shipped_code())).collect();
    let mut reader = Reader { modules, exports: BTreeMap::new() };
    for (path, code) in &code {
        let module = module_of(path);
        let exports = uses(code).filter(|(public, _)| *public).flat_map(|(_, tree)| leaves(tree));
        let exports = exports.filter_map(|(name, to)| Some((name, reader.absolute(&module, &to)?)));
        reader.exports.insert(module.clone(), exports.collect());
    }
    let read = |(path, code): (&&String, &String)| {
        let module = module_of(path);
        let private = uses(code).filter(|(public, _)| !public).flat_map(|(_, tree)| leaves(tree));
        let paths = private.map(|(_, to)| to).chain(inline_paths(code));
        let to = paths.filter_map(|to| reader.file(reader.absolute(&module, &to)?));
        ((**path).clone(), to.filter(|to| *to != **path).collect())
    };
    code.iter().map(read).collect()
}

/// The module of a source file: `gateway::cache` for `src/gateway/cache/mod.rs`.
fn module_of(path: &str) -> Vec<String> {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    inside
        .split('/')
        .filter(|name| !["mod", "lib", "main"].contains(name))
        .map(str::to_owned)
        .collect()
}

struct Reader {
    modules: BTreeMap<Vec<String>, String>,
    /// Re-exported names of each module, with their targets.
    exports: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
}

impl Reader {
    /// A path as seen from the crate's root, or `None` for a path of another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let mut base = module.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            name => {
                let child: Vec<_> = module.iter().cloned().chain([name.to_owned()]).collect();
                self.modules.get(&child)?;
            }
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// The file that defines what an absolute path names, re-exports followed.
    fn file(&self, mut path: Vec<String>) -> Option<String> {
        for _ in 0..8 {
            let depth =
                (0..=path.len()).rev().find(|depth| self.modules.contains_key(&path[..*depth]))?;
            let (module, rest) = path.split_at(depth);
            let exported = rest.first().and_then(|name| self.exports.get(module)?.get(name));
            let Some(exported) = exported else { return self.modules.get(module).cloned() };
            path = exported.iter().chain(&rest[1..]).cloned().collect();
        }
        None
    }
}

/// The `use` declarations of a file: public or not, and the tree.
fn uses(code: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut rest = code;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find("use ")?;
            let line = &rest[rest[..at].rfind('\n').map_or(0, |end| end + 1)..at];
            let is_declaration = line.trim().is_empty() || line.trim_start().starts_with("pub");
            let end = rest[at..].find(';').map_or(rest.len(), |end| at + end);
            let tree = &rest[at + "use ".len()..end];
            rest = &rest[end.min(if is_declaration { end } else { at + 1 })..];
            if is_declaration {
                return Some((!line.trim().is_empty(), tree));
            }
        }
    })
}

/// The leaves of a `use` tree: the name that each brings into scope, and its path.
fn leaves(tree: &str) -> Vec<(String, Vec<String>)> {
    let tree = tree.trim();
    if let Some((prefix, group)) = tree.split_once('{') {
        let prefix: Vec<_> = segments(prefix.trim_end_matches("::"));
        let inner = &group[..group.rfind('}').unwrap_or(group.len())];
        let branches = split_outside_braces(inner).into_iter().flat_map(leaves);
        return branches
            .map(|(name, path)| {
                let path: Vec<_> =
                    prefix.iter().cloned().chain(path).filter(|name| name != "self").collect();
                (if name == "self" { path.last().cloned().unwrap_or_default() } else { name }, path)
            })
            .collect();
    }
    if tree.is_empty() {
        return Vec::new();
    }
    let (path, alias) =
        tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let path = segments(path);
    let name = alias.map_or_else(|| path.last().cloned().unwrap_or_default(), str::to_owned);
    vec![(name, path)]
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn split_outside_braces(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 && c == ',' {
            parts.push(&text[from..at]);
            from = at + 1;
        }
    }
    parts.push(&text[from..]);
    parts
}

/// Paths of the code outside `use` declarations, as far as they consist of lower-case modules and
/// one name more.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("::") {
        let first = code[..at].rfind(|c| !is_name(c)).map_or(0, |end| end + 1);
        if code[..first].ends_with("::") || first == at {
            continue;
        }
        let end =
            code[at..].find(|c: char| !is_name(c) && c != ':').map_or(code.len(), |end| at + end);
        paths.push(segments(&code[first..end]));
    }
    paths
}

fn folders_below(imports: &Imports, top: &str) -> BTreeSet<String> {
    let paths = imports.keys().filter(|path| path.starts_with(&format!("{top}/")));
    paths.filter_map(|path| path.rsplit_once('/')).map(|(folder, _)| folder.to_owned()).collect()
}

/// Imports among the files below a folder.
fn inside(imports: &Imports, folder: &str) -> Imports {
    let prefix = format!("{folder}/");
    let within = |paths: &BTreeSet<String>| {
        paths.iter().filter(|path| path.starts_with(&prefix)).cloned().collect()
    };
    let files = imports.iter().filter(|(path, _)| path.starts_with(&prefix));
    files.map(|(path, to)| (path.clone(), within(to))).collect()
}

/// Imports among the direct children of a folder: each sub-folder as one, its name with a `/`, and
/// each file but `mod.rs`, which only puts its children together.
fn between_children(imports: &Imports, folder: &str) -> Imports {
    let child = |path: &str| {
        let inside = path.strip_prefix(folder)?.strip_prefix('/')?;
        match inside.split_once('/') {
            Some((room, _)) => Some(format!("{room}/")),
            None => inside.strip_suffix(".rs").filter(|name| *name != "mod").map(str::to_owned),
        }
    };
    let mut between = Imports::new();
    for (from, to) in imports {
        let Some(from) = child(from) else { continue };
        let to = to.iter().filter_map(|to| child(to)).filter(|to| *to != from);
        between.entry(from.clone()).or_default().extend(to);
    }
    between
}

/// Groups of places that reach each other, each with its imports.
fn circles_of(imports: &Imports) -> Vec<String> {
    let reached: BTreeMap<_, _> =
        imports.keys().map(|from| (from, reachable(imports, from))).collect();
    let mut listed = BTreeSet::new();
    let mut circles = Vec::new();
    for from in imports.keys() {
        let together: BTreeSet<_> = reached[from]
            .iter()
            .filter(|to| reached.get(to).is_some_and(|back| back.contains(from)))
            .collect();
        if together.is_empty() || listed.contains(from) {
            continue;
        }
        listed.extend(together.iter().copied());
        let ties = together.iter().flat_map(|from| {
            let to = imports[*from].iter().filter(|to| together.contains(to));
            to.map(move |to| format!("  {from} -> {to}"))
        });
        circles.push(format!(
            "{} places:\n{}",
            together.len(),
            ties.collect::<Vec<_>>().join("\n")
        ));
    }
    circles
}

/// Everything that can be reached from a place by one import or more.
fn reachable(imports: &Imports, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(place) = open.pop() {
        let new =
            imports.get(&place).into_iter().flatten().filter(|to| reached.insert((*to).clone()));
        open.extend(new.cloned().collect::<Vec<_>>());
    }
    reached
}

/// Imports that run against the order of a folder's rooms, and rooms without a place in it.
fn upward(imports: &Imports, folder: &str, order: &[&str]) -> Vec<String> {
    let place = |room: &str| order.iter().position(|known| *known == room.trim_end_matches('/'));
    let mut findings = Vec::new();
    for (from, to) in between_children(imports, folder) {
        let Some(height) = place(&from) else {
            findings.push(format!("{folder}/{from} has no place in the order"));
            continue;
        };
        let above = to.iter().filter(|to| place(to).is_some_and(|other| other < height));
        findings
            .extend(above.map(|to| format!("{folder}: {from} imports from {to}, which is above")));
    }
    findings
}

#[test]
fn structs_of_the_gateway_stay_small() {
    const FIELDS_MAX: usize = 12;
    let files = repository();
    let files = files.iter().filter(|file| part(file) == "gateway" && !file.test_only);
    let large = |file: &File| {
        let structs = fields_of_structs(&file.shipped_code()).into_iter();
        let large = structs.filter(|(_, fields)| *fields > FIELDS_MAX);
        large
            .map(|(name, fields)| format!("{}: {name} has {fields} fields", file.path))
            .collect::<Vec<_>>()
    };
    let findings: Vec<_> = files.flat_map(large).collect();
    assert!(findings.is_empty(), "more than {FIELDS_MAX} fields:\n{}", findings.join("\n"));
    let fields = "    a: B<C, D>,\n    pub b:\n        Mutex<u8>,\n}\nstruct E;\n";
    for head in [
        "struct A {",
        "pub struct A<T>\nwhere\n    T: Clone,\n{",
        "pub(super) struct A<\n    T: Clone,\n    U,\n> {",
        "struct F(\n    u8,\n);\nstruct A {",
    ] {
        assert_eq!(fields_of_structs(&format!("{head}\n{fields}")), [("A".to_owned(), 2)]);
    }
}

#[test]
fn the_gateway_has_its_methods_in_one_file() {
    let files = repository();
    let is_home = |file: &&File| {
        file.shipped_code().lines().any(|line| line.starts_with("pub struct Gateway {"))
    };
    let home = files.iter().find(is_home).expect("the gateway");
    let others = files.iter().filter(|file| {
        file.path.starts_with("src/")
            && file.path != home.path
            && file.shipped_code().lines().any(is_impl_of_gateway)
    });
    let others: Vec<_> = others.map(|file| &file.path).collect();
    assert!(others.is_empty(), "`impl Gateway` outside {}: {others:?}", home.path);
    assert!(home.shipped_code().lines().any(is_impl_of_gateway));
    assert!(is_impl_of_gateway("impl crate::gateway::Gateway {"));
    assert!(is_impl_of_gateway("    impl super::Gateway"));
    assert!(!is_impl_of_gateway("impl Drop for Gateway {"));
    assert!(!is_impl_of_gateway("impl GatewayError {"));
}

/// True at the head of inherent methods, by whatever path.
fn is_impl_of_gateway(line: &str) -> bool {
    let of = line.trim_start().strip_prefix("impl ").and_then(|rest| rest.split('{').next());
    of.is_some_and(|of| {
        !of.contains(" for ") && of.trim_end().rsplit("::").next() == Some("Gateway")
    })
}

/// Each struct with named fields, with their number. The code is formatted: a field begins a line
/// at four columns.
fn fields_of_structs(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let Some((_, after)) = line.split_once("struct ") else { continue };
        if line.starts_with(' ') {
            continue;
        }
        // The head of a generic struct may take several lines.
        let mut ends = std::iter::once(line).chain(lines.by_ref());
        if !ends.find(|line| line.ends_with(['{', '}', ';'])).is_some_and(|end| end.ends_with('{'))
        {
            continue;
        }
        let name = after.chars().take_while(|c| c.is_alphanumeric()).collect();
        let fields = lines.by_ref().take_while(|line| *line != "}");
        let is_field = |line: &&str| {
            let inside = line.strip_prefix("    ").filter(|inside| !inside.starts_with([' ', '#']));
            inside.is_some_and(|inside| inside.contains(':'))
        };
        found.push((name, fields.filter(is_field).count()));
    }
    found
}
