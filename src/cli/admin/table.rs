//! Rows below a heading, in aligned columns.

use std::fmt::Write as _;
use std::ops::Range;

use super::paint;

/// Writes the rows below their heading. Columns of `numbers` stand on the right.
pub fn table<const N: usize>(
    heading: [&str; N],
    numbers: &Range<usize>,
    rows: impl Iterator<Item = [String; N]>,
    text: &mut String,
) {
    let all: Vec<[String; N]> = std::iter::once(heading.map(paint::heading)).chain(rows).collect();
    let shown = |cell: &str| paint::bare(cell).chars().count();
    let width = |column: usize| all.iter().map(|row| shown(&row[column])).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    for row in &all {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(width - shown(cell));
            let _ = if numbers.contains(&column) {
                write!(line, "{room}{cell}  ")
            } else {
                write!(line, "{cell}{room}  ")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
