//! The JSON schema, made from what the reader asks for and from the table in `config/README.md`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::types::{at_least_one, fragment};
use crate::config::input::visits::Visit;

/// Rules that the types do not have, by key.
const BOUNDS: &[(&str, &str, u64)] = &[
    ("clients[].allow", "minItems", 1),
    ("clients[].keys", "minItems", 1),
    ("passthrough.credentials_max", "maximum", 10_000),
];
/// Keys of several types, with the name of all of them in `types`.
const KINDS: &[(&str, &str)] = &[("upstream.proxy", "Proxy")];
/// Keys inside one row of the table, with their meaning.
const INSIDE: &[(&str, &str)] = &[
    ("listen.https.address", "address and port for TLS"),
    ("listen.https.cert", "PEM file of the certificate chain, the gateway's own first"),
    ("listen.https.key", "PEM file of the certificate's key"),
    (
        "listen.https.certificates",
        "several certificates, chosen by the name that a client asks for",
    ),
    ("listen.https.certificates[].cert", "PEM file of a certificate chain"),
    ("listen.https.certificates[].key", "PEM file of its key"),
    ("listen.https.client_ca", "PEM file of the authorities of clients' certificates"),
    ("listen.https.client_auth", "whether a client without a certificate is served"),
    ("listen.admin_tls.cert", "PEM file of the certificate chain, the gateway's own first"),
    ("listen.admin_tls.key", "PEM file of the certificate's key"),
    (
        "listen.admin_tls.certificates",
        "several certificates, chosen by the name that a client asks for",
    ),
    ("listen.admin_tls.certificates[].cert", "PEM file of a certificate chain"),
    ("listen.admin_tls.certificates[].key", "PEM file of its key"),
    ("listen.admin_tls.client_ca", "PEM file of the authorities of operators' certificates"),
    ("listen.admin_tls.client_auth", "whether an operator without a certificate is served"),
    ("telemetry.otlp_client_certificate.cert", "PEM file of the certificate chain"),
    ("telemetry.otlp_client_certificate.key", "PEM file of the certificate's key"),
    ("upstream.client_certificate.cert", "PEM file of the certificate chain"),
    ("upstream.client_certificate.key", "PEM file of the certificate's key"),
];

/// A row of the table.
pub struct Row {
    pub key: String,
    /// `required`, `none`, `derived`, or a TOML value.
    pub default: String,
    pub meaning: String,
}

/// Reads the rows whose first cell is a key, of the tables with defaults.
pub fn rows(paper: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut in_table = false;
    for line in paper.lines() {
        in_table = line == "| key | default | meaning |" || (in_table && line.starts_with('|'));
        let mut cells = line.trim_matches('|').splitn(3, '|').map(str::trim);
        let (Some(key), Some(default), Some(meaning)) = (cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        if let Some(key) = key.strip_prefix('`').filter(|_| in_table) {
            rows.push(Row {
                key: key.trim_end_matches('`').to_owned(),
                default: default.trim_matches('`').to_owned(),
                meaning: meaning.to_owned(),
            });
        }
    }
    rows
}

impl Row {
    /// Returns its default, if it is a value.
    pub fn value(&self) -> Option<toml::Value> {
        let table: toml::Table = toml::from_str(&format!("value = {}", self.default)).ok()?;
        table.get("value").cloned()
    }
}

/// A key with what was seen of it.
#[derive(Default)]
pub struct Node {
    kind: Option<&'static str>,
    is_positive: bool,
    /// A list of tables, whose keys are the children.
    is_list: bool,
    children: BTreeMap<String, Node>,
}

impl Node {
    /// Builds the tree of all keys.
    pub fn of(visits: &[Visit]) -> Self {
        let mut root = Self::default();
        for visit in visits {
            root.add(visit);
        }
        root
    }

    fn add(&mut self, visit: &Visit) {
        let mut node = self;
        let mut segments = visit.path.split('.').peekable();
        while let Some(segment) = segments.next() {
            let (name, is_item) = match segment.split_once('[') {
                Some((name, _)) => (name, true),
                None => (segment, false),
            };
            node = node.children.entry(name.to_owned()).or_default();
            if is_item && segments.peek().is_none() {
                // An item of a list of values: the list has a type.
                return;
            }
            node.is_list |= is_item;
        }
        node.kind = node.kind.or(visit.kind);
        node.is_positive |= visit.is_positive;
    }

    /// Lists the keys that have a value, as the table writes them.
    pub fn keys(&self, path: &str, keys: &mut Vec<String>) {
        for (name, node) in &self.children {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if node.kind.is_some() || node.children.is_empty() {
                keys.push(path);
            } else {
                let path = if node.is_list { format!("{path}[]") } else { path };
                node.keys(&path, keys);
            }
        }
    }

    /// Formats the schema of the key `path`.
    pub fn schema(&self, path: &str, rows: &[Row]) -> Value {
        let several = KINDS.iter().find(|(key, _)| *key == path).map(|(_, kind)| *kind);
        let mut schema = match several.or(self.kind) {
            Some(kind) => fragment(kind),
            None if self.children.is_empty() => panic!("no sample shows the type of {path}"),
            None => self.table(path, rows),
        };
        if self.is_positive {
            at_least_one(&mut schema);
        }
        let members = schema.as_object_mut().expect("a schema is an object");
        for (_, bound, number) in BOUNDS.iter().filter(|(key, ..)| *key == path) {
            members.insert((*bound).to_owned(), json!(number));
        }
        let row = rows.iter().find(|row| row.key == path);
        if let Some(default) = row.and_then(Row::value) {
            let default = serde_json::to_value(default).expect("TOML values are JSON");
            members.insert("default".to_owned(), default);
        }
        let described = INSIDE.iter().find(|(key, _)| *key == path).map(|(_, meaning)| *meaning);
        let described = row.map(|row| row.meaning.as_str()).or(described).map(str::to_owned);
        let described = described.unwrap_or_else(|| {
            assert!(self.kind.is_none(), "nothing describes {path}");
            format!("`{path}`: see config/README.md")
        });
        members.insert("description".to_owned(), described.into());
        schema
    }

    fn table(&self, path: &str, rows: &[Row]) -> Value {
        let items = if self.is_list { "[]" } else { "" };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for (name, node) in &self.children {
            let key = if path.is_empty() { name.clone() } else { format!("{path}{items}.{name}") };
            if rows.iter().any(|row| row.key == key && row.default == "required") {
                required.push(name.clone());
            }
            properties.insert(name.clone(), node.schema(&key, rows));
        }
        let mut table =
            json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if !required.is_empty() {
            table["required"] = json!(required);
        }
        if self.is_list { json!({ "type": "array", "items": table }) } else { table }
    }
}

/// Formats the whole schema.
pub fn schema(visits: &[Visit], paper: &str) -> Value {
    let mut schema = Node::of(visits).schema("", &rows(paper));
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Weir");
    schema["description"] = json!("The config of weir: see config/README.md");
    // Included files may have any of the sections, so none is required.
    schema
}
