//! The comparison of the request headers that select a variant (RFC 9111 §4.1): two values match
//! if normalisation makes them equal without a change of meaning.

use http::header::{self, HeaderName};

/// The longest list of languages that is brought into order. Chosen here: browsers send ten.
const LANGUAGES_MAX: usize = 32;
/// A weight of 1, in thousandths.
const WEIGHT_MAX: u16 = 1000;

/// Returns the value of a selecting header in one spelling: its lines as one list, without spaces
/// around commas. `Accept-Language` also has lower case and an order by weight. `None` if the
/// request lacks the header.
pub fn normalized<'l>(
    name: &HeaderName,
    lines: impl Iterator<Item = &'l [u8]>,
) -> Option<Box<[u8]>> {
    let mut text = lines.fold(None, |text: Option<Vec<u8>>, line| {
        let mut text = text.map_or_else(Vec::new, |mut text| {
            text.push(b',');
            text
        });
        push_without_spaces(&mut text, line);
        Some(text)
    })?;
    let lower_case = text.to_ascii_lowercase();
    if *name == header::ACCEPT_LANGUAGE
        && let Some(mut languages) = languages(&lower_case)
    {
        languages.sort_by(|one, other| other.weight.cmp(&one.weight).then(one.tag.cmp(other.tag)));
        let weight = |language: &Language<'_>| match language.weight {
            WEIGHT_MAX => String::new(),
            weight => format!(";q={weight:03}"),
        };
        let items = languages
            .iter()
            .map(|language| String::from_utf8_lossy(language.tag).into_owned() + &weight(language));
        text = items.collect::<Vec<_>>().join(",").into_bytes();
    }
    Some(text.into())
}

/// Returns true if the client of this normalized `Accept-Language` prefers one language to all
/// others, and the answer is in it. Then no other variant suits the client better.
pub fn prefers(accept_language: &[u8], content_language: &[u8]) -> bool {
    let Some(languages) = languages(accept_language) else { return false };
    let Some(best) = languages.iter().max_by_key(|language| language.weight) else { return false };
    let rivals = languages.iter().filter(|language| language.weight == best.weight).count();
    rivals == 1 && best.weight > 0 && best.tag.eq_ignore_ascii_case(content_language.trim_ascii())
}

/// Appends a line without the spaces around its commas. Those between quotes stay.
fn push_without_spaces(text: &mut Vec<u8>, line: &[u8]) {
    let (begin, mut is_quoted, mut is_escaped) = (text.len(), false, false);
    for byte in line.trim_ascii() {
        let is_after_comma = text.len() == begin || text.last() == Some(&b',');
        match byte {
            b' ' | b'\t' if !is_quoted && is_after_comma => continue,
            b',' if !is_quoted => {
                let kept = text.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'));
                text.truncate(kept.map_or(0, |last| last + 1).max(begin));
            }
            b'"' if !is_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        is_escaped = *byte == b'\\' && is_quoted && !is_escaped;
        text.push(*byte);
    }
}

struct Language<'l> {
    tag: &'l [u8],
    /// In thousandths.
    weight: u16,
}

/// The languages of a list; `None` if it is too long or has other parameters than a weight.
fn languages(list: &[u8]) -> Option<Vec<Language<'_>>> {
    let mut languages = Vec::new();
    for item in list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        if item.is_empty() {
            continue;
        }
        let mut parts = item.splitn(2, |byte| *byte == b';');
        let tag = parts.next()?.trim_ascii();
        let weight = parts.next().map_or(Some(WEIGHT_MAX), weight_of)?;
        let is_range = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'*');
        if languages.len() == LANGUAGES_MAX || !tag.iter().all(is_range) {
            return None;
        }
        languages.push(Language { tag, weight });
    }
    Some(languages)
}

/// Parses `q=0.5` (RFC 9110 §12.4.2), and `q=500` as [`normalized`] writes it.
fn weight_of(parameter: &[u8]) -> Option<u16> {
    let (name, value) = std::str::from_utf8(parameter).ok()?.trim().split_once('=')?;
    let value = value.trim();
    if !name.trim().eq_ignore_ascii_case("q") || !value.bytes().all(is_of_number) {
        return None;
    }
    let (whole, decimals) = value.split_once('.').unwrap_or((value, ""));
    if value.len() == 3 && decimals.is_empty() {
        return value.parse().ok();
    }
    if whole.len() != 1 || decimals.len() > 3 {
        return None;
    }
    let thousandths = format!("{whole}{decimals:0<3}").parse().ok()?;
    (thousandths <= WEIGHT_MAX).then_some(thousandths)
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'.'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &'static str, lines: &[&'static str]) -> Option<String> {
        let lines = lines.iter().map(|line| line.as_bytes());
        let value = normalized(&HeaderName::from_static(name), lines)?;
        Some(String::from_utf8(value.into()).unwrap())
    }

    #[test]
    fn lines_are_combined_and_spaces_around_commas_removed() {
        for lines in [&["1,2"][..], &[" 1 ,\t2 "], &["1", "2"], &["1 ", " 2"]] {
            assert_eq!(of("foo", lines).as_deref(), Some("1,2"), "{lines:?}");
        }
        for (one, other) in [("1 2", "12"), ("1,2", "2,1"), ("a", "A"), ("1,,2", "1,2")] {
            assert_ne!(of("foo", &[one]), of("foo", &[other]));
        }
        assert_eq!(of("foo", &[r#""a , \" , b" , c"#]).as_deref(), Some(r#""a , \" , b",c"#));
    }

    #[test]
    fn an_absent_header_differs_from_an_empty_one() {
        assert_eq!((of("foo", &[]), of("foo", &[""])), (None, Some(String::new())));
    }

    #[test]
    fn languages_are_compared_without_order_and_case() {
        for lines in
            [&["de, en"][..], &[" en ,   de"], &["de, EN"], &["de", "en"], &["en;q=1.0, de; Q=1"]]
        {
            assert_eq!(of("accept-language", lines).as_deref(), Some("de,en"), "{lines:?}");
        }
        let weighted = of("accept-language", &["fr;q=0.5, *;q=0.01,de"]).unwrap();
        assert_eq!(weighted, "de,fr;q=500,*;q=010");
        assert_eq!(of("accept-language", &["de;q=2", "en"]).as_deref(), Some("de;q=2,en"));
        let long = "a,".repeat(LANGUAGES_MAX + 1);
        assert_eq!(of("accept-language", &[long.leak()]).map(|text| text.len()), Some(66));
    }

    #[test]
    fn the_only_preferred_language_selects_its_answer() {
        let is_preferred = |list: &'static str, language: &str| {
            let list = of("accept-language", &[list]).unwrap();
            prefers(list.as_bytes(), language.as_bytes())
        };
        assert!(is_preferred("fr;q=0.5, de;q=1.0", "de") && is_preferred("de", "DE"));
        assert!(is_preferred("fr;q=0.5, de;q=0.75", "de"));
        for list in ["fr, de", "fr, de;q=0.5", "de;q=0", "de-AT", "", "de;x=1", "*"] {
            assert!(!is_preferred(list, "de"), "{list}");
        }
        assert!(!is_preferred("de", "de, en"));
    }
}
