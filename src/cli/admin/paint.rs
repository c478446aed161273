//! Colours of what the commands print.
//!
//! Texts are painted in any case. The output leaves the colours out where it is no terminal, and
//! where `NO_COLOR` asks for it.

use std::io;

use anstream::adapter::strip_str;
use anstream::stdout;
use anstyle::{AnsiColor, Style};

/// Paints what does not work.
pub fn bad(text: &str) -> String {
    painted(text, AnsiColor::Red.on_default().bold())
}

/// Paints what will soon not work, or did not once.
pub fn warning(text: &str) -> String {
    painted(text, AnsiColor::Yellow.on_default())
}

/// Paints the heading of a table.
pub fn heading(text: &str) -> String {
    painted(text, Style::new().bold())
}

/// Returns the text without colours.
pub fn bare(text: &str) -> String {
    strip_str(text).to_string()
}

/// Prints to the standard output, painted where it is a terminal.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = stdout().lock();
    io::Write::write_all(&mut output, text.as_bytes())?;
    io::Write::flush(&mut output)
}

fn painted(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn painted_texts_have_the_same_words() {
        for paint in [bad, warning, heading] {
            let text = paint("benched");
            assert!(text.len() > "benched".len() && text.contains("\x1b["), "{text:?}");
            assert_eq!(bare(&text), "benched");
        }
    }
}
