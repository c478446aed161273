//! Requests and answers as messages: paths, fields, errors, validators, addresses.

pub mod dated;
pub mod error;
pub mod fields;
pub mod path;
pub mod reply;
pub mod timestamps;
pub mod urls;
pub mod validators;
