//! The comparison of a path pattern with a path, segment by segment.
//!
//! Each caller decides about one segment: aliases know wild segments, write effects know parameters
//! with values, and events compare patterns with route templates.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Yes,
    No,
    /// This segment and everything below it fit.
    WithRest,
}

/// Checks whether `path` fits `pattern`. A `**` in the pattern matches any rest, none included.
/// `fits` gets a segment of the pattern (`None` after its last) and the segment of the path.
pub(super) fn matches<'w, 'p>(
    pattern: &'w str,
    path: &'p str,
    mut fits: impl FnMut(Option<&'w str>, &'p str) -> Fit,
) -> bool {
    let (mut wanted, mut given) = (segments(pattern), segments(path));
    loop {
        match (wanted.next(), given.next()) {
            (Some("**"), _) | (None, None) => return true,
            (Some(_), None) => return false,
            (wanted, Some(segment)) => match fits(wanted, segment) {
                Fit::Yes => {}
                Fit::No => return false,
                Fit::WithRest => return true,
            },
        }
    }
}

/// Returns the segments of a path, without what precedes its first slash. A plain loop finds the
/// slashes: segments are so short that a search costs more than its result.
pub fn segments(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    let next = move || {
        let text = rest?;
        let end = text.bytes().position(|byte| byte == b'/');
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    };
    std::iter::from_fn(next).skip(1)
}

impl From<bool> for Fit {
    fn from(fits: bool) -> Self {
        if fits { Self::Yes } else { Self::No }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_those_of_a_split() {
        for path in ["", "/", "a", "/a", "/a/", "/a//b", "a/b", "/repos/acme/widgets/issues"] {
            let plain: Vec<&str> = path.split('/').skip(1).collect();
            assert_eq!(segments(path).collect::<Vec<_>>(), plain, "{path}");
        }
    }
}
