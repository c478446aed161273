//! The JSON schema of each type that the reader knows.
//!
//! A string may have a reference to a variable, `${NAME}`, wherever it has a pattern.

use serde_json::{Value, json};

use crate::api::{AccountKind, Dialect, ResourceName, TokenKind};
use crate::config::input::reader::Choice;
use crate::config::{
    BudgetMode, CaRoots, ClientAuth, Durability, Freshness, LogFormat, OtlpCompression,
    OtlpProtocol, OtlpSignal, Pace, Priority, Temporality,
};

/// An IP address by its characters; whether it is one is left to the reader.
const IPV4: &str = "[0-9]{1,3}(\\.[0-9]{1,3}){3}";
const IPV6: &str = "[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f.]*(%[0-9]+)?";
/// A reference to a variable.
const REFERENCE: &str = "\\$\\{";

/// Returns the schema of the type with this name.
pub fn fragment(kind: &str) -> Value {
    if let Some(item) =
        kind.strip_prefix("alloc::vec::Vec<").and_then(|rest| rest.strip_suffix('>'))
    {
        return json!({ "type": "array", "items": fragment(item) });
    }
    match short_name(kind) {
        "bool" => json!({ "type": "boolean" }),
        "u32" => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        "u64" => json!({ "type": "integer", "minimum": 1, "maximum": i64::MAX }),
        "NonZero" => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        "Ratio" => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        "Duration" => text("[0-9]+(ms|s|m|h|d)"),
        "Size" => text("[0-9]+(B|KiB|MiB|GiB|TiB)"),
        "Arc" => text("[!-~]([ -~]{0,254}[!-~])?"),
        "SocketAddr" => text(&format!("({IPV4}|\\[{IPV6}\\]):[0-9]{{1,5}}")),
        "HttpUrl" => text("[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+(/[^?#]*)?"),
        "PathBuf" | "CaFile" | "Folder" | "Pattern" => text(".+"),
        "FetchUrl" => text("[Hh][Tt][Tt][Pp][Ss]?://[^@#]+"),
        "IpNet" => text(&format!(
            "({IPV4}(/(3[0-2]|[12]?[0-9]))?|{IPV6}(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?)"
        )),
        "Expiry" => text("[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([Tt ].+)?"),
        "Claims" => claims(),
        "Budgets" => json!({
            "type": "object",
            "propertyNames": {
                "enum": ResourceName::known().map(|name| name.to_string()).collect::<Vec<_>>(),
            },
            "additionalProperties": fragment("BudgetAmount"),
        }),
        "BudgetAmount" => text("(0*[1-9][0-9]*/(min|h|d)|[0-9]{1,4}(\\.[0-9]{1,4})?%)"),
        "BudgetMode" => choice::<BudgetMode>(),
        "Proxy" => proxy(),
        "Redis" => redis(),
        "RedisUrl" => text("rediss?://[^/?#@]+(/[0-9]*)?"),
        "KeyHash" => text("[0-9A-Fa-f]{64}"),
        "Allow" => text("\\s*(\\*|GET|HEAD|POST|PUT|PATCH|DELETE)\\s+(\\*|/|(/[^/?#\\s]+)+)\\s*"),
        "Territory" => text("[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?"),
        "Reach" => json!({ "type": "array", "items": fragment("Territory"), "minItems": 1 }),
        "Secret" | "Pem" | "KeyText" => secret(),
        "WriteStore" => json!({ "anyOf": [
            one_of(&["memory", "redis"]),
            {
                "type": "object",
                "properties": { "path": fragment("PathBuf") },
                "required": ["path"],
                "additionalProperties": false,
            },
        ]}),
        "AccountKind" => choice::<AccountKind>(),
        "CaRoots" => choice::<CaRoots>(),
        "ClientAuth" => choice::<ClientAuth>(),
        "Dialect" => choice::<Dialect>(),
        "Durability" => choice::<Durability>(),
        "Freshness" => choice::<Freshness>(),
        "LogFormat" => choice::<LogFormat>(),
        "Pace" => choice::<Pace>(),
        "Priority" => choice::<Priority>(),
        "TokenKind" => choice::<TokenKind>(),
        "OtlpSignal" => choice::<OtlpSignal>(),
        "OtlpCompression" => choice::<OtlpCompression>(),
        "OtlpProtocol" => choice::<OtlpProtocol>(),
        "Temporality" => choice::<Temporality>(),
        "Headers" => json!({ "type": "object", "additionalProperties": secret() }),
        _ => panic!("say in this file how the type {kind} is written"),
    }
}

/// Returns the last word of a type's path, without its parameters.
fn short_name(kind: &str) -> &str {
    kind.split('<').next().unwrap_or(kind).rsplit("::").next().unwrap_or(kind)
}

/// Excludes zero.
pub fn at_least_one(schema: &mut Value) {
    if schema["type"] == "integer" {
        schema["minimum"] = json!(1);
    } else if let Some(pattern) = schema["pattern"].as_str() {
        schema["pattern"] = json!(pattern.replace("[0-9]+", "0*[1-9][0-9]*"));
    } else {
        panic!("a positive value without a number: {schema}");
    }
}

fn text(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^{pattern}$|{REFERENCE}") })
}

fn choice<T: Choice>() -> Value {
    one_of(&T::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>())
}

fn one_of(names: &[&str]) -> Value {
    json!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": REFERENCE }] })
}

/// An address, an address with a user, or none.
fn proxy() -> Value {
    json!({ "anyOf": [
        one_of(&["none"]),
        fragment("HttpUrl"),
        {
            "type": "object",
            "properties": {
                "url": fragment("HttpUrl"),
                "username": fragment("Arc"),
                "password": secret(),
            },
            "required": ["url"],
            "additionalProperties": false,
        },
    ]})
}

/// An address, or a table with it.
fn redis() -> Value {
    let url = fragment("RedisUrl");
    json!({ "anyOf": [
        url,
        {
            "type": "object",
            "properties": {
                "url": { "anyOf": [url, { "type": "array", "items": url, "minItems": 1 }] },
                "sentinel": fragment("Arc"),
                "cluster": fragment("bool"),
                "username": fragment("Arc"),
                "password": secret(),
                "sentinel_username": fragment("Arc"),
                "sentinel_password": secret(),
                "ca_file": fragment("CaFile"),
                "op_timeout": text("0*[1-9][0-9]*(ms|s|m|h|d)"),
                "prefix": text("[A-Za-z0-9._:-]+"),
            },
            "required": ["url"],
            "additionalProperties": false,
        },
    ]})
}

fn secret() -> Value {
    let source = |name: &str, pattern: &str, description: &str| {
        let mut schema = text(pattern);
        schema["description"] = description.into();
        json!({
            "type": "object",
            "properties": { name: schema },
            "required": [name],
            "additionalProperties": false,
        })
    };
    json!({ "oneOf": [
        source("env", "[^=]+", "name of the variable that holds the secret"),
        source("file", ".+", "path of the file that holds the secret"),
        source("credential", "[^/:]{1,255}", "name of the credential of systemd that is the secret"),
        source("value", "(.|\\n|\\r)+", "the secret itself, for tests"),
    ]})
}

fn claims() -> Value {
    let values = json!({ "type": "array", "items": text(".+"), "minItems": 1 });
    json!({
        "type": "object",
        "minProperties": 1,
        "additionalProperties": { "anyOf": [text(".+"), values] },
    })
}
