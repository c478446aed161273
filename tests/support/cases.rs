//! The effort of random tests, which `make test-fast` reduces.

/// The usual number of cases of a property test: `proptest`'s own.
const USUAL: u32 = 256;

/// Returns `all` random cases, or a share of them where `PROPTEST_CASES` names fewer than usual.
pub fn cases(all: u32) -> u32 {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let share: u32 = wanted.unwrap_or(USUAL).min(USUAL);
    (all * share / USUAL).max(1)
}
