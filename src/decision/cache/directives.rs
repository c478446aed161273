//! The directives of one line of `Cache-Control`, in answers and requests (RFC 9111 §5.2). What
//! each means is not for here.

/// Yields each directive's name and value, of a quoted value what is between the quotes. A comma
/// between quotes does not end a directive (RFC 9110 §5.6.4); where quotes do not end, every comma
/// does, so that no directive is overlooked.
pub struct Directives<'l> {
    rest: &'l str,
    /// Whether quotes do not end: then nothing that the line allows can be believed.
    pub is_torn: bool,
}

impl<'l> Directives<'l> {
    /// Of a line; `None` where it is not all visible ASCII.
    pub fn of(line: &'l [u8]) -> Option<Self> {
        let is_visible = line.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let rest = std::str::from_utf8(line).ok().filter(|_| is_visible)?;
        Some(Self { rest, is_torn: false })
    }
}

impl<'l> Iterator for Directives<'l> {
    type Item = (&'l str, Option<&'l str>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = if self.is_torn { None } else { end_of_first(self.rest) };
        self.is_torn |= end.is_none();
        let (directive, rest) = match end {
            Some(end) => (self.rest.get(..end), self.rest.get(end + 1..)),
            None => self
                .rest
                .split_once(',')
                .map_or((Some(self.rest), None), |(directive, rest)| (Some(directive), Some(rest))),
        };
        self.rest = rest.unwrap_or_default();
        let directive = directive.unwrap_or_default().trim();
        // What is escaped between quotes stays so: no name or number is written like that.
        Some(directive.split_once('=').map_or((directive, None), |(name, value)| {
            (name.trim_end(), Some(unquoted(value.trim())))
        }))
    }
}

/// Where the first directive ends; `None` within quotes that do not.
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

/// The one of these names that a directive has, in whatever case it is written; else the empty one.
pub fn known(name: &str, names: &[&'static str]) -> &'static str {
    names.iter().copied().find(|known| known.eq_ignore_ascii_case(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Vec<(&str, Option<&str>)>, bool) {
        let mut directives = Directives::of(line.as_bytes()).unwrap();
        (directives.by_ref().filter(|(name, _)| !name.is_empty()).collect(), directives.is_torn)
    }

    #[test]
    fn a_comma_between_quotes_ends_nothing() {
        let (directives, is_torn) =
            read(r#"max-age=0, ext="x, s-maxage=1000" , a = "b\", c=1",,no-store"#);
        let wanted = [
            ("max-age", Some("0")),
            ("ext", Some("x, s-maxage=1000")),
            ("a", Some(r#"b\", c=1"#)),
            ("no-store", None),
        ];
        assert_eq!((directives, is_torn), (wanted.to_vec(), false));
    }

    #[test]
    fn quotes_that_do_not_end_hide_nothing_and_leave_nothing_to_be_believed() {
        let wanted = [("max-age", Some("60")), ("ext", Some("\"x")), ("no-store", None)];
        assert_eq!(read(r#"max-age=60, ext="x, no-store"#), (wanted.to_vec(), true));
        for line in [r#"max-age="60"#, r#"max-age=60""#, r#"a="b\""#] {
            assert!(read(line).1, "{line}");
        }
        assert!(Directives::of(b"x\x80").is_none() && !read("").1);
    }
}
