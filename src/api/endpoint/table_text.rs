//! The parser of the endpoint table's text (`endpoints.table`; its head explains the form).
//!
//! A line that cannot be parsed becomes a fault instead of an endpoint. A test proves that the
//! embedded file has none. Routing is in `table.rs`.

use http::Method;

use super::dialect::Dialect;
use super::kinds::{TokenKind, TokenKinds};
use super::resource::ResourceName;
use super::{Access, Endpoint, EndpointId, Permission, Source};

/// Methods with routes of their own; `ANY` on a line means all of them.
pub(super) const METHODS: [Method; 5] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Endpoints numbered in reading order, and faults with their lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) faults: Vec<String>,
}

impl Lines {
    pub(super) fn read(text: &str, dialect: Dialect) -> Self {
        let mut lines = Self::default();
        let mut section = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.split_once('#').map_or(line, |(kept, _)| kept).trim();
            if line.is_empty() {
                continue;
            }
            let read = if let Some(head) = line.strip_prefix('[') {
                Section::read(head).map(|read| section = Some(read))
            } else {
                section
                    .as_ref()
                    .ok_or_else(|| "a route before any section".to_owned())
                    .and_then(|section| lines.add(section, line, dialect))
            };
            if let Err(fault) = read {
                lines.faults.push(format!("line {}: {fault}", index + 1));
            }
        }
        lines
    }

    fn add(&mut self, section: &Section<'_>, line: &str, dialect: Dialect) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let methods = methods(words.next().unwrap_or_default())?;
        let template = template(words.next().unwrap_or_default(), dialect)?;
        for method in &methods {
            let id = u16::try_from(self.endpoints.len())
                .map(EndpointId)
                .map_err(|_| "more endpoints than ids".to_owned())?;
            let mut endpoint =
                Endpoint::blank(id, method.clone(), &template, section.group, section.source);
            for word in section.words.iter().copied().chain(words.clone()) {
                apply(&mut endpoint, word, dialect)?;
            }
            if methods.len() == 1
                && *method == Method::GET
                && words.clone().any(|word| matches!(word, "content" | "notifies"))
            {
                return Err(
                    "reading creates nothing: content and notifies are for writes".to_owned()
                );
            }
            self.endpoints.push(endpoint);
        }
        Ok(())
    }
}

/// Head of a run of lines: its group, its source, and words for each of its lines.
struct Section<'t> {
    group: &'t str,
    source: Source,
    words: Vec<&'t str>,
}

impl<'t> Section<'t> {
    fn read(head: &'t str) -> Result<Self, String> {
        let mut words = head
            .strip_suffix(']')
            .ok_or("a section's head has no closing bracket")?
            .split_whitespace();
        let group = words.next().ok_or("a section without a group")?;
        let source = words.next();
        let source = source.and_then(|source| source.parse().ok()).ok_or_else(|| {
            format!(
                "unknown source {source:?}; inventory, matrix, document-2, document-3, upstream and generic are known"
            )
        })?;
        Ok(Self { group, source, words: words.collect() })
    }
}

fn methods(word: &str) -> Result<Vec<Method>, String> {
    if word == "ANY" {
        return Ok(METHODS.to_vec());
    }
    let find = |name: &str| {
        METHODS
            .into_iter()
            .find(|method| method == name)
            .ok_or_else(|| format!("unknown method {name:?}"))
    };
    word.split(',').map(find).collect()
}

fn template(word: &str, dialect: Dialect) -> Result<String, String> {
    if !word.starts_with('/') || (word.len() > 1 && word.ends_with('/')) || word.contains("//") {
        return Err(format!("{word:?} is no route: it begins with one slash and ends without"));
    }
    let named = |segment| {
        if segment == Dialect::Service.assistant_segment() {
            dialect.assistant_segment()
        } else {
            segment
        }
    };
    Ok(word.split('/').map(named).collect::<Vec<_>>().join("/"))
}

fn apply(endpoint: &mut Endpoint, word: &str, dialect: Dialect) -> Result<(), String> {
    let writes = endpoint.method != Method::GET;
    let unreadable = || format!("cannot read {word:?}");
    match word.split_once('=') {
        None => match word {
            "M" => endpoint.several_permissions = true,
            "uat" => {
                endpoint.uat_only = true;
                endpoint.tokens = endpoint
                    .tokens
                    .accepting(TokenKind::AppUser)
                    .rejecting(TokenKind::Installation);
            }
            "me" => endpoint.about_caller = true,
            "polls" => endpoint.polls = !writes,
            "content" => endpoint.content_generating = writes,
            "notifies" => endpoint.notifies = writes,
            "token-request" => {
                endpoint.token_request = true;
                endpoint.carries_credential = writes;
            }
            "credential" => endpoint.carries_credential = writes,
            "cursor" => endpoint.cursor_pages = true,
            "free" => endpoint.primary_cost = 0,
            _ => {
                let permission = permission(word, writes).ok_or_else(unreadable)?;
                if endpoint.permission.is_none() {
                    endpoint.permission = Some(permission);
                } else {
                    endpoint.other_permissions.push(permission);
                }
            }
        },
        Some(("tokens", kinds)) => {
            endpoint.tokens = TokenKinds::parse(kinds).ok_or_else(unreadable)?;
        }
        Some(("scopes", names)) => endpoint.scopes = names.split(',').map(str::to_owned).collect(),
        Some(("resource", name)) => {
            endpoint.resource = ResourceName::parse(name).ok_or_else(unreadable)?;
        }
        Some(("points", points)) => endpoint.points = points.parse().map_err(|_| unreadable())?,
        Some(("page", sizes)) => {
            let (default, max) = sizes.split_once('/').ok_or_else(unreadable)?;
            endpoint.per_page_default = default.parse().map_err(|_| unreadable())?;
            endpoint.per_page_max = max.parse().map_err(|_| unreadable())?;
        }
        Some(("instead", route)) => endpoint.replaced_by = Some(template(route, dialect)?),
        Some(_) => return Err(unreadable()),
    }
    Ok(())
}

/// Parses `org/NAME`, `repo/NAME` or `enterprise/NAME`. A suffix `:read`, `:write` or `:admin`
/// replaces the level that follows from the method.
fn permission(word: &str, writes: bool) -> Option<Permission> {
    let (owner, rest) = word.split_once('/')?;
    let owner = owner.parse().ok()?;
    let (name, access) = match rest.split_once(':') {
        Some((name, level)) => (name, level.parse().ok()?),
        None => (rest, if writes { Access::Write } else { Access::Read }),
    };
    let plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    plain.then(|| Permission { owner, name: name.to_owned(), access })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Lines {
        Lines::read(text, Dialect::Service)
    }

    #[test]
    fn a_line_becomes_an_endpoint_for_each_of_its_methods() {
        let lines = read(
            "[hooks document-3 tokens=classic]\nGET,POST /orgs/{org}/hooks org/webhooks content # why\n",
        );
        assert_eq!(lines.faults, Vec::<String>::new());
        let facts: Vec<_> = lines
            .endpoints
            .iter()
            .map(|endpoint| {
                (
                    endpoint.method.as_str(),
                    endpoint.points,
                    endpoint.content_generating,
                    endpoint.permission.as_ref().map(ToString::to_string),
                )
            })
            .collect();
        let permission = |level: &str| Some(format!("org/webhooks:{level}"));
        assert_eq!(
            facts,
            [("GET", 1, false, permission("read")), ("POST", 5, true, permission("write"))]
        );
    }

    #[test]
    fn the_product_segment_follows_the_dialect() {
        let text = "[x upstream]\nGET /orgs/{org}/assistant/billing\nGET /orgs/{org}/assistants";
        let names = |dialect| {
            Lines::read(text, dialect)
                .endpoints
                .into_iter()
                .map(|endpoint| endpoint.template)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(Dialect::Service),
            ["/orgs/{org}/assistant/billing", "/orgs/{org}/assistants"]
        );
        assert_eq!(
            names(Dialect::Github),
            ["/orgs/{org}/copilot/billing", "/orgs/{org}/assistants"]
        );
    }

    #[test]
    fn an_unreadable_line_is_a_fault_with_its_number() {
        for bad in [
            "GET relative",
            "GET /a/",
            "FETCH /a",
            "GET /a nonsense",
            "GET /a page=3",
            "GET /a tokens=ghost",
            "GET /a org/Members",
            "GET /a content",
            "POST /a points=many",
        ] {
            let lines = read(&format!("[x upstream]\n\n{bad}"));
            assert!(
                lines.faults.len() == 1 && lines.faults[0].starts_with("line 3: "),
                "{bad}: {:?}",
                lines.faults
            );
            assert!(lines.endpoints.is_empty(), "{bad}");
        }
        assert_eq!(read("GET /a").faults.len(), 1);
        assert_eq!(read("[x somewhere]").faults.len(), 1);
    }
}
