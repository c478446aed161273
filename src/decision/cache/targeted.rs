//! `CDN-Cache-Control` (RFC 9213): the directives of `Cache-Control` for shared caches alone, as a
//! Dictionary of Structured Fields (RFC 8941 §3.2).
//!
//! One error makes the whole field void (RFC 9213 §2.1), so nothing is taken before its end is
//! read. Names and values are read once from left to right, and nothing is nested.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::cache_control::CacheControl;
use super::directives::Directive;

pub(super) const NAME: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Digits of an integer, and of a decimal before its point (RFC 8941 §4.2.4).
const INTEGER_DIGITS_MAX: usize = 15;
const DECIMAL_DIGITS_MAX: usize = 12;
const FRACTION_DIGITS_MAX: usize = 3;

/// The value of a member, as far as a directive has a use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Boolean(bool),
    Integer(i64),
    Other,
}

/// Returns the directives for shared caches; `None` if the field is absent, empty or malformed.
/// `Cache-Control` and `Expires` have no meaning beside them (RFC 9213 §2.2).
pub(super) fn control(headers: &HeaderMap) -> Option<CacheControl> {
    let mut lines = headers.get_all(NAME).iter().map(HeaderValue::as_bytes);
    let first = lines.next()?;
    let field = lines.fold(Cow::Borrowed(first), |mut field, line| {
        field.to_mut().extend_from_slice(b", ");
        field.to_mut().extend_from_slice(line);
        field
    });
    let mut read = Members::default();
    let mut rest = Rest(&field);
    rest.skip(b" ");
    if rest.0.is_empty() {
        return None;
    }
    loop {
        let name = rest.key()?;
        let value = rest.value()?;
        read.take(name, value);
        rest.skip(b" \t");
        if rest.0.is_empty() {
            return Some(read.control());
        }
        rest.one(b',').then(|| rest.skip(b" \t"))?;
    }
}

/// The known members; of several with one name the last counts (RFC 8941 §4.2.2).
#[derive(Default)]
struct Members {
    control: CacheControl,
    max_age: Option<Value>,
    s_maxage: Option<Value>,
}

impl Members {
    fn take(&mut self, name: &[u8], value: Value) {
        let Some(Ok(directive)) = std::str::from_utf8(name).ok().map(str::parse) else { return };
        let read = &mut self.control;
        // A prohibition counts with any value but false.
        let is_set = value != Value::Boolean(false);
        match directive {
            Directive::NoStore => read.no_store = is_set,
            Directive::NoCache => read.no_cache = is_set,
            Directive::MustRevalidate => read.must_revalidate = is_set,
            Directive::ProxyRevalidate => read.proxy_revalidate = is_set,
            Directive::MustUnderstand => read.must_understand = value == Value::Boolean(true),
            Directive::Private => read.private = is_set,
            Directive::Public => read.public = value == Value::Boolean(true),
            Directive::NoTransform => read.no_transform = is_set,
            Directive::MaxAge => self.max_age = Some(value),
            Directive::SMaxage => self.s_maxage = Some(value),
            Directive::StaleIfError => read.stale_if_error = Some(span(value).unwrap_or_default()),
            Directive::StaleWhileRevalidate => {
                read.stale_while_revalidate = Some(span(value).unwrap_or_default());
            }
            Directive::MaxStale | Directive::MinFresh | Directive::OnlyIfCached => {}
        }
    }

    fn control(self) -> CacheControl {
        let [max_age, s_maxage] = [self.max_age, self.s_maxage].map(|value| value.map(span));
        CacheControl {
            max_age: max_age.flatten(),
            s_maxage: s_maxage.flatten(),
            // A lifetime of another type is no lifetime, and a longer one may not replace it.
            confused: max_age == Some(None) || s_maxage == Some(None),
            is_targeted: true,
            ..self.control
        }
    }
}

/// A duration in seconds; too large a number counts as the largest (RFC 9111 §1.2.2).
fn span(value: Value) -> Option<Duration> {
    let Value::Integer(seconds) = value else { return None };
    let seconds = u64::try_from(seconds).ok()?;
    Some(Duration::from_secs(u32::try_from(seconds).unwrap_or(u32::MAX).into()))
}

/// The unread rest of a field; each method takes what it names from the beginning. `None` is a
/// malformed field.
struct Rest<'f>(&'f [u8]);

impl<'f> Rest<'f> {
    fn skip(&mut self, bytes: &[u8]) {
        self.take_while(|byte| bytes.contains(&byte));
    }

    /// Takes this byte if it comes next.
    fn one(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn take_while(&mut self, is_taken: impl Fn(u8) -> bool) -> &'f [u8] {
        let end = self.0.iter().position(|byte| !is_taken(*byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    /// RFC 8941 §4.2.3.3.
    fn key(&mut self) -> Option<&'f [u8]> {
        self.0.first().filter(|first| first.is_ascii_lowercase() || **first == b'*')?;
        Some(self.take_while(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
        }))
    }

    /// The value of a member and its parameters, which have no meaning here (RFC 9213 §2.1).
    fn value(&mut self) -> Option<Value> {
        let value = match (self.one(b'='), self.0.first()) {
            (false, _) => Value::Boolean(true),
            (true, Some(b'(')) => self.inner_list()?,
            (true, _) => self.item()?,
        };
        self.parameters()?;
        Some(value)
    }

    /// RFC 8941 §4.2.1.2.
    fn inner_list(&mut self) -> Option<Value> {
        self.one(b'(');
        loop {
            self.skip(b" ");
            if self.one(b')') {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            self.0.first().filter(|next| b" )".contains(next))?;
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.one(b';') {
            self.skip(b" ");
            self.key()?;
            if self.one(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    /// RFC 8941 §4.2.3.1.
    fn item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                self.one(b'?');
                let is_true = self.one(b'1');
                (is_true || self.one(b'0')).then_some(Value::Boolean(is_true))
            }
            b':' => {
                self.one(b':');
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.one(b':').then_some(Value::Other)
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_while(|byte| {
                    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
                });
                Some(Value::Other)
            }
            _ => None,
        }
    }

    /// RFC 8941 §4.2.4.
    fn number(&mut self) -> Option<Value> {
        let is_negative = self.one(b'-');
        let whole = self.take_while(|byte| byte.is_ascii_digit());
        if self.one(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let is_valid = (1..=DECIMAL_DIGITS_MAX).contains(&whole.len())
                && (1..=FRACTION_DIGITS_MAX).contains(&fraction.len());
            return is_valid.then_some(Value::Other);
        }
        if !(1..=INTEGER_DIGITS_MAX).contains(&whole.len()) {
            return None;
        }
        let number = whole.iter().fold(0, |sum: i64, digit| sum * 10 + i64::from(digit - b'0'));
        Some(Value::Integer(if is_negative { -number } else { number }))
    }

    /// RFC 8941 §4.2.5.
    fn string(&mut self) -> Option<Value> {
        self.one(b'"');
        loop {
            self.take_while(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\');
            if self.one(b'"') {
                return Some(Value::Other);
            }
            (self.one(b'\\') && (self.one(b'"') || self.one(b'\\'))).then_some(())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&'static str]) -> Option<CacheControl> {
        let lines = lines.iter().map(|line| (NAME, HeaderValue::from_static(line)));
        let mut headers = HeaderMap::new();
        lines.for_each(|(name, line)| _ = headers.append(name, line));
        control(&headers)
    }

    fn max_age(lines: &[&'static str]) -> Option<u64> {
        Some(of(lines)?.max_age?.as_secs())
    }

    #[test]
    fn directives_are_the_members_of_a_dictionary() {
        assert_eq!(
            of(&["max-age=60, no-store, private=\"a, b\", x=(1 \"2\";a c);d=?0, stale-if-error=5"]),
            Some(CacheControl {
                no_store: true,
                private: true,
                max_age: Some(Duration::from_secs(60)),
                stale_if_error: Some(Duration::from_secs(5)),
                is_targeted: true,
                ..CacheControl::default()
            })
        );
        assert_eq!(max_age(&["foobar, max-age=3600"]), Some(3600));
        assert_eq!(max_age(&["max-age=99999999999"]), Some(u32::MAX.into()));
    }

    #[test]
    fn parameters_on_directives_are_ignored() {
        assert_eq!(max_age(&["max-age=60;x=1;y;z=\"a,b\" , no-transform;max-age=1"]), Some(60));
    }

    #[test]
    fn the_last_of_several_members_counts() {
        assert_eq!(max_age(&["max-age=60, max-age=30"]), Some(30));
        assert_eq!(max_age(&["max-age=soon", "max-age=30"]), Some(30));
        assert_eq!(of(&["no-store", "no-store=?0"]).map(|read| read.no_store), Some(false));
    }

    #[test]
    fn several_lines_are_one_dictionary() {
        assert_eq!(max_age(&["public", "max-age=30"]), Some(30));
        assert_eq!(of(&["max-age=30", ""]), None, "a comma ends it");
    }

    #[test]
    fn an_empty_or_malformed_field_is_ignored() {
        for line in [
            "",
            "   ",
            ",",
            "max-age=60,",
            "max-age=60, &&&&&",
            "MaX-aGe=3600",
            "max-age =100",
            "max-age= 100",
            "max-age=60 no-store",
            "max-age=60;",
            "max-age=60;X=1",
            "max-age=1234567890123456",
            "max-age=99999999999999999999",
            "max-age=1.2345",
            "max-age=1.",
            "max-age=-",
            "x=(1",
            "x=(1\t2)",
            "x=(1\"2\")",
            "x=\"a",
            "x=\"\\a\"",
            "x=\"\t\"",
            "x=?2",
            "x=:a",
            "x=@",
            "x=",
        ] {
            assert_eq!(of(&[line]), None, "{line}");
        }
    }

    #[test]
    fn a_lifetime_of_another_type_is_stale() {
        for line in
            ["max-age=\"60\"", "max-age", "max-age=1.5", "max-age=-1", "s-maxage=x, max-age=60"]
        {
            let read = of(&[line]).unwrap();
            assert!(read.confused, "{line}");
        }
    }
}
