//! The head of an answer while it is written: as a map for the framework, or as bytes of HTTP/1.1.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The digits of the largest number.
const DIGITS_MAX: usize = 20;

/// A head that is being put together.
pub trait Head {
    /// Says `name: value`, the name in lower case. Nothing of that name may have been said, unless
    /// the head can take it back.
    fn say(&mut self, name: &str, value: &[u8]);

    /// The same with a number.
    fn say_number(&mut self, name: &str, number: u64) {
        with_digits(number, |digits| self.say(name, digits));
    }
}

/// Gives the plain digits of a number to `take`; without the machinery of formatting, because an
/// answer says some ten numbers.
pub fn with_digits<T>(number: u64, take: impl FnOnce(&[u8]) -> T) -> T {
    let mut digits = [0; DIGITS_MAX];
    let mut rest = number;
    let mut begin = DIGITS_MAX;
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        begin = place;
        if rest == 0 {
            break;
        }
    }
    take(digits.get(begin..).unwrap_or_default())
}

impl Head for HeaderMap {
    /// A value that no header can hold is left out; what was said before of that name is taken
    /// back.
    fn say(&mut self, name: &str, value: &[u8]) {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
        {
            self.insert(name, value);
        }
    }
}

/// A head in the form of HTTP/1.1.
pub struct OnWire<'b>(pub &'b mut Vec<u8>);

impl Head for OnWire<'_> {
    fn say(&mut self, name: &str, value: &[u8]) {
        self.0.reserve(name.len() + value.len() + 4);
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.0.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_said_in_plain_digits() {
        for number in [0, 7, 10, 4_999_999, u64::MAX] {
            let (mut map, mut wire) = (HeaderMap::new(), Vec::new());
            map.say_number("x-n", number);
            OnWire(&mut wire).say_number("x-n", number);
            assert_eq!(map["x-n"], number.to_string());
            assert_eq!(wire, format!("x-n: {number}\r\n").into_bytes());
        }
    }
}
