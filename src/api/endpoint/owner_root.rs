//! The root of a path (the repository, organization or account that owns it), and the collections
//! between a path and its root.

/// Number of leading segments in the root of a path. Other paths have no root: all parents count.
const OWNER_ROOTS: [(&str, usize); 11] = [
    ("repos", 3),
    ("repositories", 2),
    ("orgs", 2),
    ("organizations", 2),
    ("enterprises", 2),
    ("users", 2),
    ("teams", 2),
    ("user", 1),
    ("app", 1),
    ("apps", 1),
    ("installation", 1),
];

/// Returns the number of leading segments in the root of `path`; 0 without a root.
pub(in crate::api) fn root_segments(path: &str) -> usize {
    // Comparing bytes is faster for short texts, and each request needs several lookups.
    let first = path.as_bytes().split(|byte| *byte == b'/').nth(1).unwrap_or_default();
    OWNER_ROOTS
        .iter()
        .find(|(name, _)| name.as_bytes() == first)
        .map_or(0, |(_, segments)| *segments)
}

/// Iterates over the paths with stored answers that a write to `path` makes stale: itself, then its
/// parents below the root of its owner. None has a trailing slash.
pub(in crate::api) fn collections(path: &str) -> impl Iterator<Item = &str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let root_segments = root_segments(path);
    std::iter::successors((!path.is_empty()).then_some(path), move |path| {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        (segment_count(parent) > root_segments).then_some(parent)
    })
}

pub(in crate::api) fn split_after(path: &str, count: usize) -> (&str, &str) {
    let end = path.bytes().enumerate().filter(|(_, byte)| *byte == b'/').nth(count);
    path.split_at(end.map_or(path.len(), |(end, _)| end))
}

pub(in crate::api) fn segment_count(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}
