//! The tokenizer of `Cache-Control` lines, in answers and requests (RFC 9111 §5.2). The meaning of
//! directives is elsewhere.

/// Directives with a meaning in answers or requests; names are compared in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "kebab-case", ascii_case_insensitive)]
pub enum Directive {
    MaxAge,
    MaxStale,
    MinFresh,
    MustRevalidate,
    MustUnderstand,
    NoCache,
    NoStore,
    NoTransform,
    OnlyIfCached,
    Private,
    ProxyRevalidate,
    Public,
    #[strum(serialize = "s-maxage")]
    SMaxage,
    StaleIfError,
    StaleWhileRevalidate,
}

/// Iterator over names and values; a quoted value comes without its quotes. A comma between quotes
/// does not end a directive (RFC 9110 §5.6.4). Without a closing quote every comma does, so that no
/// directive is overlooked.
pub struct Directives<'l> {
    rest: &'l str,
    /// True without a closing quote: permissions of the line then do not count.
    pub is_unclosed: bool,
}

impl<'l> Directives<'l> {
    /// Starts on a line; `None` unless it is visible ASCII.
    pub fn of(line: &'l [u8]) -> Option<Self> {
        let is_visible = line.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let rest = std::str::from_utf8(line).ok().filter(|_| is_visible)?;
        Some(Self { rest, is_unclosed: false })
    }
}

impl<'l> Iterator for Directives<'l> {
    type Item = (&'l str, Option<&'l str>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = if self.is_unclosed { None } else { end_of_first(self.rest) };
        self.is_unclosed |= end.is_none();
        let (directive, rest) = match end {
            Some(end) => (self.rest.get(..end), self.rest.get(end + 1..)),
            None => self
                .rest
                .split_once(',')
                .map_or((Some(self.rest), None), |(directive, rest)| (Some(directive), Some(rest))),
        };
        self.rest = rest.unwrap_or_default();
        let directive = directive.unwrap_or_default().trim();
        // Escapes stay: no name or number contains them.
        Some(directive.split_once('=').map_or((directive, None), |(name, value)| {
            (name.trim_end(), Some(unquoted(value.trim())))
        }))
    }
}

fn end_of_first(line: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return Some(at),
            _ => {}
        }
    }
    (!is_quoted).then_some(line.len())
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Vec<(&str, Option<&str>)>, bool) {
        let mut directives = Directives::of(line.as_bytes()).unwrap();
        (directives.by_ref().filter(|(name, _)| !name.is_empty()).collect(), directives.is_unclosed)
    }

    #[test]
    fn a_quoted_comma_does_not_end_a_directive() {
        let (directives, is_unclosed) =
            read(r#"max-age=0, ext="x, s-maxage=1000" , a = "b\", c=1",,no-store"#);
        let wanted = [
            ("max-age", Some("0")),
            ("ext", Some("x, s-maxage=1000")),
            ("a", Some(r#"b\", c=1"#)),
            ("no-store", None),
        ];
        assert_eq!((directives, is_unclosed), (wanted.to_vec(), false));
    }

    #[test]
    fn an_unclosed_quote_hides_no_directive() {
        let wanted = [("max-age", Some("60")), ("ext", Some("\"x")), ("no-store", None)];
        assert_eq!(read(r#"max-age=60, ext="x, no-store"#), (wanted.to_vec(), true));
        for line in [r#"max-age="60"#, r#"max-age=60""#, r#"a="b\""#] {
            assert!(read(line).1, "{line}");
        }
        assert!(Directives::of(b"x\x80").is_none() && !read("").1);
    }
}
