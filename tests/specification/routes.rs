//! Long lists of routes as text: one template in a line, after its methods and marks.
//!
//! The method `ANY` means that the document names a route without a method: one known method
//! suffices.

pub const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// One method of one template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub method: &'static str,
    pub template: &'static str,
    pub mark: Mark,
}

/// The mark of the permission matrix beside a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Plain,
    /// `[M]`: more than one permission, or another one.
    Several,
    /// Installation tokens are refused.
    UserOnly,
}

/// Parses lines such as `PUT,DELETE [M] /orgs/{org}/things/{thing_id}`.
pub fn routes(text: &'static str) -> Vec<Route> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.flat_map(line).collect()
}

fn line(text: &'static str) -> impl Iterator<Item = Route> {
    let words: Vec<&'static str> = text.split_whitespace().collect();
    let (methods, mark, template) = match *words.as_slice() {
        [methods, template] => (methods, Mark::Plain, template),
        [methods, "[M]", template] => (methods, Mark::Several, template),
        [methods, "[UAT]", template] => (methods, Mark::UserOnly, template),
        _ => panic!("no route: {text}"),
    };
    assert!(template.starts_with('/'), "no template: {text}");
    methods.split(',').map(move |method| Route { method, template, mark })
}

mod tests {
    use super::*;

    #[test]
    fn a_line_has_methods_a_mark_and_a_template() {
        let read = routes("GET /a\n  PUT,DELETE [M] /b/{c}\n\nGET [UAT] /d");
        assert_eq!(read.len(), 4);
        assert_eq!(read[2], Route { method: "DELETE", template: "/b/{c}", mark: Mark::Several });
        assert_eq!(read[3].mark, Mark::UserOnly);
    }
}
