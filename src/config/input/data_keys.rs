//! Tables whose keys are data: the claims of clients, and settings of the emulator.

use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::reader::{Entry, Read, printable};

impl<'a> Entry<'a> {
    /// Returns the keys and values of a `T` that is written as a table.
    pub(crate) fn members<T: Read>(&self) -> Option<Vec<(&'a str, Entry<'a>)>> {
        let Some(table) = self.value.as_table() else { return self.refuse_type::<T>().and(None) };
        let member = |(key, value): (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)| {
            let name: &'a str = key.get_ref();
            let path = format!("{}.{}", self.path, written(name));
            (
                name,
                Entry {
                    document: self.document,
                    path,
                    at: key.span().start,
                    value: value.get_ref(),
                },
            )
        };
        Some(table.iter().map(member).collect())
    }

    /// Adds a fault about a part of this value, named like `match.nth`, at the line of the part or
    /// of the nearest table around it.
    #[cfg(feature = "emulator")]
    pub(crate) fn refuse_inside(
        &self,
        inside: &str,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) {
        let (mut at, mut value) = (self.at, Some(self.value));
        for name in inside.split('.') {
            let found =
                value.and_then(DeValue::as_table).and_then(|table| table.get_key_value(name));
            value = found.map(|(_, value)| value.get_ref());
            at = found.map_or(at, |(key, _)| key.span().start);
        }
        let names: Vec<String> = inside.split('.').map(printable).collect();
        self.document.fault(
            Some(at),
            &format!("{}.{}", self.path, names.join(".")),
            problem.into(),
            Some(accepted.into()),
        );
    }
}

/// Formats a key that is data as in the file: `"core.user"`.
fn written(name: &str) -> String {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'@');
    match printable(name) {
        plain if plain == name => plain,
        _ if name.len() <= 64 && name.bytes().all(is_plain) => format!("\"{name}\""),
        left_out => left_out,
    }
}
