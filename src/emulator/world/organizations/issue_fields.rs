//! Issue fields of an organization.

use crate::clock::Timestamp;

#[derive(Debug)]
pub struct IssueField {
    pub id: u64,
    pub name: String,
    pub description: Option<String>,
    pub data_type: &'static str,
    pub visibility: String,
    /// In the order of their priority; only for `single_select`.
    pub options: Vec<FieldOption>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A possible value of a `single_select` field.
#[derive(Clone, Debug)]
pub struct FieldOption {
    pub id: u64,
    pub name: String,
    pub description: Option<String>,
    pub color: &'static str,
    pub priority: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
