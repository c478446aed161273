//! The values of a path's parameters.

use crate::emulator::http::ApiError;
use crate::emulator::http::path::decode_segment;

#[derive(Debug, Default)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Decodes names and values from a path.
    pub fn decoded<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), decode_segment(value)))
                .collect(),
        )
    }

    /// Returns the decoded value; empty when the template has no such parameter.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(given, _)| given == name).map_or("", |(_, value)| value)
    }

    /// Parses an id; anything but a number is a 404.
    pub fn id(&self, name: &str) -> Result<u64, ApiError> {
        let given = self.get(name);
        // Each number has one spelling: a sign or a leading zero is a 404.
        let is_plain = given.bytes().all(|byte| byte.is_ascii_digit())
            && (given == "0" || !given.starts_with('0'));
        given.parse().ok().filter(|_| is_plain).ok_or(ApiError::NotFound)
    }
}
