//! Requests and answers as messages: paths, fields, errors, validators, addresses.

pub mod error;
pub mod fields;
pub mod issued_dates;
pub mod path;
pub mod ranges;
pub mod reply;
pub mod timestamps;
pub mod urls;
pub mod validators;

pub use self::error::{ApiError, Code, FieldError};
pub use self::fields::{Change, Fields};
pub use self::path::{ApiArea, Canonical, Query};
pub use self::reply::{Body, Reply, Tag};
pub use self::timestamps::{http_date, iso, parse_http_date};
pub use self::urls::{SITE, Urls, segment};
pub use self::validators::hex;
