//! The picture of a run: demand against budget over its time, as SVG.

use std::fmt::Write as _;

use crate::simulation::course::Course;
use crate::simulation::plan::Upstream;

/// Size of the picture and of its margins.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
const HOUR_SECONDS: f64 = 3_600.0;

/// Draws the units spent and the requests asked and refused, per hour, beside the core budget of
/// all accounts.
pub fn of(course: &Course, upstream: &Upstream, runs: u64) -> String {
    let per_hour = HOUR_SECONDS / course.part_seconds.max(1e-9);
    #[expect(clippy::cast_precision_loss, reason = "a picture")]
    let runs = runs.max(1) as f64;
    let rates = |counts: &[u64]| -> Vec<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a picture")]
        counts.iter().map(|count| *count as f64 * per_hour / runs).collect()
    };
    let (asked, spent, refused) =
        (rates(&course.asked), rates(&course.spent), rates(&course.refused));
    let budget: f64 = upstream.accounts.iter().map(|account| f64::from(account.core_limit)).sum();
    let most = asked.iter().chain(&spent).copied().fold(budget, f64::max).max(1.0) * 1.1;
    let y = |rate: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / most;
    #[expect(clippy::cast_precision_loss, reason = "there are 96 parts")]
    let step = (WIDTH - LEFT - RIGHT) / spent.len().max(1) as f64;
    #[expect(clippy::cast_precision_loss, reason = "there are 96 parts")]
    let x = |part: usize| LEFT + step * part as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Demand against budget</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    // Writing to a string cannot fail.
    for (rates, colour) in [(&spent, "#4c78a8"), (&refused, "#e45756")] {
        for (part, rate) in rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
            let (left, top, width) = (x(part), y(*rate), step * 0.9);
            let height = HEIGHT - BOTTOM - top;
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" fill-opacity=\"0.8\"/>"
            );
        }
    }
    let points = asked
        .iter()
        .enumerate()
        .map(|(part, rate)| format!("{:.1},{:.1}", x(part) + step / 2.0, y(*rate)));
    let points = points.collect::<Vec<_>>().join(" ");
    let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"#333\"/>");
    let line = y(budget);
    let _ = writeln!(
        svg,
        "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{line:.1}\" y2=\"{line:.1}\" stroke=\"#f58518\" stroke-dasharray=\"6 3\" stroke-width=\"2\"/>",
        WIDTH - RIGHT
    );
    axes(&mut svg, course, most, &y);
    legend(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

/// Draws the scale of rates and the hours.
fn axes(svg: &mut String, course: &Course, most: f64, y: &impl Fn(f64) -> f64) {
    for quarter in 0..=4 {
        let rate = most / 1.1 * f64::from(quarter) / 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{rate:.0}</text>",
            LEFT - 6.0,
            y(rate) + 4.0
        );
    }
    #[expect(clippy::cast_precision_loss, reason = "there are 96 parts")]
    let hours = course.part_seconds * course.spent.len() as f64 / HOUR_SECONDS;
    for eighth in 0..=8 {
        let part = f64::from(eighth) / 8.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.1} h</text>",
            LEFT + (WIDTH - LEFT - RIGHT) * part,
            HEIGHT - BOTTOM + 18.0,
            hours * part
        );
    }
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\">per hour</text>", TOP - 30.0);
}

fn legend(svg: &mut String) {
    for (place, (colour, name)) in (0_u32..).zip([
        ("#333", "requests asked"),
        ("#4c78a8", "units spent"),
        ("#e45756", "requests refused"),
        ("#f58518", "core budget of all accounts"),
    ]) {
        let x = LEFT + 90.0 + 170.0 * f64::from(place);
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"10\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"20\">{name}</text>",
            x + 18.0
        );
    }
}
