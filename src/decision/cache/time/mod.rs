//! Times as stored answers have them: dates of headers, and compact durations.

pub mod http_date;
pub(super) mod seconds;
