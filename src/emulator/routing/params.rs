//! The values of a path's parameters.

use crate::emulator::http::ApiError;
use crate::emulator::http::path::decode_segment;

/// The values of a template's parameters.
#[derive(Debug, Default)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// From names and values as the path has them.
    pub fn decoded<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), decode_segment(value)))
                .collect(),
        )
    }

    /// Decoded; empty when the template has no such parameter.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }

    /// A number; what is none names nothing that exists.
    pub fn id(&self, name: &str) -> Result<u64, ApiError> {
        let given = self.get(name);
        // One number, one spelling: a sign or a zero in front names nothing.
        let is_plain = given.bytes().all(|byte| byte.is_ascii_digit())
            && (given == "0" || !given.starts_with('0'));
        given.parse().ok().filter(|_| is_plain).ok_or(ApiError::NotFound)
    }
}
