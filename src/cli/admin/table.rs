//! Rows below a heading, in aligned columns.

use std::fmt::Write as _;
use std::ops::Range;

/// Writes the rows below their heading. Columns of `numbers` stand on the right.
pub fn table<const N: usize>(
    heading: [&str; N],
    numbers: &Range<usize>,
    rows: impl Iterator<Item = [String; N]>,
    text: &mut String,
) {
    let all: Vec<[String; N]> = std::iter::once(heading.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    for row in &all {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if numbers.contains(&column) {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:width$}  ")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
