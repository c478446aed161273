//! Requests and answers as messages: paths, fields, errors, validators, addresses.

pub mod error;
pub mod fields;
pub mod issued_dates;
pub mod path;
pub mod reply;
pub mod timestamps;
pub mod urls;
pub mod validators;
