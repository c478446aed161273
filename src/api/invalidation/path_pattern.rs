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
    let (mut wanted, mut given) = (pattern.split('/').skip(1), path.split('/').skip(1));
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

impl From<bool> for Fit {
    fn from(fits: bool) -> Self {
        if fits { Self::Yes } else { Self::No }
    }
}
