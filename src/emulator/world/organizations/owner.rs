//! The owner of a repository or app.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    User(u64),
    Organization(u64),
}
