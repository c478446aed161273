//! The meaning of a GraphQL request's body: equal bytes only for bodies that every server reads
//! alike.
//!
//! Blanks, escapes in strings and the order of members mean nothing in JSON. Parsers disagree about
//! repeated names and about numbers beyond 64-bit integers. A body with one of them means only what
//! its own bytes say.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Members that mean the same when they are `null` as when they are absent.
const ABSENT_IF_NULL: [&str; 3] = ["operationName", "variables", "extensions"];
const NULL: &[u8] = b"n";

/// Returns the meaning of a body; different bodies may share one, different requests never do.
pub fn meaning(body: &[u8]) -> Vec<u8> {
    let mut canonical = vec![b'c'];
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = Canonical { into: &mut canonical, is_request: true }.deserialize(&mut reader);
    if read.and_then(|()| reader.end()).is_err() {
        canonical.clear();
        canonical.push(b'b');
        canonical.extend_from_slice(body);
    }
    canonical
}

/// Writes a value in its one canonical form, in which nothing is read in two ways.
struct Canonical<'b> {
    into: &'b mut Vec<u8>,
    /// The value is the whole body.
    is_request: bool,
}

impl Canonical<'_> {
    fn text(&mut self, text: &str) {
        self.into.push(b's');
        self.into.extend_from_slice(&text.len().to_le_bytes());
        self.into.extend_from_slice(text.as_bytes());
    }
}

impl<'de> DeserializeSeed<'de> for Canonical<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Canonical<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that all servers read alike")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.into.extend_from_slice(NULL);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.into.push(if value { b't' } else { b'f' });
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.into.push(b'u');
        self.into.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.into.push(b'i');
        self.into.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn visit_str<E>(mut self, value: &str) -> Result<(), E> {
        self.text(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.into.push(b'[');
        while items
            .next_element_seed(Canonical { into: &mut *self.into, is_request: false })?
            .is_some()
        {}
        self.into.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let mut sorted: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        while let Some(name) = members.next_key::<String>()? {
            let mut value = Vec::new();
            members.next_value_seed(Canonical { into: &mut value, is_request: false })?;
            if sorted.insert(name, value).is_some() {
                return Err(A::Error::custom("a repeated name"));
            }
        }
        if self.is_request {
            sorted.retain(|name, value| value != NULL || !ABSENT_IF_NULL.contains(&name.as_str()));
        }
        self.into.push(b'{');
        for (name, value) in sorted {
            self.text(&name);
            self.into.extend_from_slice(&value);
        }
        self.into.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Vec<u8> {
        meaning(body.as_bytes())
    }

    #[test]
    fn spellings_of_one_request_have_one_meaning() {
        let plain = r#"{"query":"{ a }","variables":{"a":1,"b":["x",null,true,-3]}}"#;
        for same in [
            r#" { "query" : "{ a }" , "variables" : { "a" : 1 , "b" : [ "x" , null , true , -3 ] } } "#,
            r#"{"variables":{"b":["x",null,true,-3],"a":1},"query":"{ a }"}"#,
            r#"{"qu\u0065ry":"{ \u0061 }","variables":{"a":1,"b":["x",null,true,-3]}}"#,
            r#"{"query":"{ a }","operationName":null,"extensions":null,"variables":{"a":1,"b":["x",null,true,-3]}}"#,
        ] {
            assert_eq!(of(same), of(plain), "{same}");
        }
    }

    #[test]
    fn different_requests_have_different_meanings() {
        let bodies = [
            r#"{"query":"{ a }"}"#,
            r#"{"query":"{a}"}"#,
            r#"{"query":"{ a }","variables":{}}"#,
            r#"{"query":"{ a }","variables":{"a":1}}"#,
            r#"{"query":"{ a }","variables":{"a":"1"}}"#,
            r#"{"query":"{ a }","variables":{"a":1.0}}"#,
            r#"{"query":"{ a }","variables":{"a":1e0}}"#,
            r#"{"query":"{ a }","variables":{"a":-0}}"#,
            r#"{"query":"{ a }","variables":{"a":0}}"#,
            r#"{"query":"{ a }","variables":{"a":null}}"#,
            r#"{"query":"{ a }","variables":{"a":1,"a":2}}"#,
            r#"{"query":"{ a }","variables":{"a":2,"a":1}}"#,
            r#"{"query":"{ a }","variables":{"a":2}}"#,
            r#"{"query":"{ a }","variables":{"a":18446744073709551615}}"#,
            r#"{"query":"{ a }","variables":{"a":18446744073709551616}}"#,
            r#"{"query":"{ a }","variables":{"a":18446744073709551617}}"#,
            r#"{"query":"{ a }","variables":{"a":[1,[2]]}}"#,
            r#"{"query":"{ a }","variables":{"a":[[1],2]}}"#,
            r#"{"query":"{ a }","operationName":"A"}"#,
            r#"{"query":"{ a }","operationName":""}"#,
            r#"{"query":"{ a }","other":null}"#,
        ];
        for (place, one) in bodies.iter().enumerate() {
            assert!(bodies[..place].iter().all(|other| of(other) != of(one)), "{one}");
        }
    }

    #[test]
    fn a_body_beyond_the_parser_means_its_own_bytes() {
        let deep =
            format!("{{\"query\":\"q\",\"variables\":{}1{}}}", "[".repeat(500), "]".repeat(500));
        for body in [&*deep, "", "{", "{} {}"] {
            assert_eq!(of(body), [b"b", body.as_bytes()].concat(), "{body}");
        }
    }
}
