//! The chart of the results: the allocated share over the requested GPUs, one line for each policy.

use crate::experiment::DEMAND_MAX;
use crate::results::{Results, share};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const PANEL: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 120.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
/// The part of the axes that is shown: below it, every policy places every pod.
const DEMAND_MIN: usize = 60;
const SHARE_MIN: f64 = 60.0;
/// The colours of lines, distinguishable on white and black.
const COLOURS: [&str; 5] = ["#7a7f87", "#2f7ed8", "#d1495b", "#c98a00", "#2a9d6f"];

/// The chart as SVG; a panel for each workload.
pub fn svg(results: &Results) -> String {
    let groups = results.groups();
    let mut workloads: Vec<&str> = groups.iter().map(|(workload, _, _)| *workload).collect();
    workloads.dedup();
    let height = PANEL * workloads.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\">\n<title>Allocated GPUs over GPUs asked for</title>\n<style>text {{ fill: #333 }} \
         .grid {{ stroke: #8884; fill: none }} @media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} }}</style>\n"
    );
    for (at, workload) in workloads.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", PANEL * at as f64);
        axes(&mut svg, workload);
        let of_workload = groups.iter().filter(|(name, _, _)| name == workload);
        let mut ends: Vec<(f64, &str, &str)> = Vec::new();
        for (number, (_, policy, rows)) in of_workload.enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let points: Vec<String> = (DEMAND_MIN..=DEMAND_MAX)
                .map(|demand| {
                    let point = (x(demand as f64), y(share(rows, demand).mean));
                    format!("{:.1},{:.1}", point.0, point.1)
                })
                .collect();
            let _ = writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
                points.join(" ")
            );
            ends.push((y(share(rows, DEMAND_MAX).mean), policy.name(), colour));
        }
        names(&mut svg, ends);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn x(demand: f64) -> f64 {
    let span = (DEMAND_MAX - DEMAND_MIN) as f64;
    LEFT + (demand - DEMAND_MIN as f64) / span * (WIDTH - LEFT - RIGHT)
}

fn y(share: f64) -> f64 {
    let height = PANEL - TOP - BOTTOM;
    TOP + height * (1.0 - (share - SHARE_MIN).max(0.0) / (100.0 - SHARE_MIN))
}

fn axes(svg: &mut String, workload: &str) {
    for share in (60..=100).step_by(10) {
        let at = y(f64::from(share));
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{left} {at:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{share} %</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for demand in (DEMAND_MIN..=DEMAND_MAX).step_by(10) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{demand} %</text>",
            x(demand as f64),
            PANEL - BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">{workload}: allocated GPUs</text>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">GPUs asked for</text>",
        WIDTH - RIGHT,
        PANEL - 10.0
    );
}

/// The names of the lines at their ends, without overlaps.
fn names(svg: &mut String, mut ends: Vec<(f64, &str, &str)>) {
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = TOP;
    for (at, name, colour) in ends {
        let at = at.max(free);
        free = at + 15.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" style=\"fill: {colour}\">{name}</text>",
            WIDTH - RIGHT + 8.0,
            at + 4.0
        );
    }
}
