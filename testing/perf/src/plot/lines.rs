//! Throughput over nodes, with logarithmic axes.

use super::Line;
use super::svg::{Anchor, COLORS, Svg, number};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
/// The area of the lines: left, top, right, bottom.
const AREA: (f64, f64, f64, f64) = (70.0, 50.0, 590.0, 390.0);
/// The distance of the names at the ends of the lines.
const NAME_HEIGHT: f64 = 15.0;
const GREY: &str = "#dddddd";
const TEXT: &str = "#222222";

/// A logarithmic axis.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// The axis between whole powers of ten around these values.
    fn around(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (least, most) = values.fold((f64::MAX, f64::MIN), |(a, b), v| {
            (a.min(v.max(1.0)), b.max(v.max(1.0)))
        });
        let least = 10_f64.powf(least.log10().floor());
        let most = 10_f64.powf(most.log10().ceil()).max(least * 10.0);
        Self {
            least,
            most,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(1.0) / self.least).log10() / (self.most / self.least).log10();
        self.from + (self.to - self.from) * share
    }

    /// The values with a name: 1, 2 and 5 of each power of ten.
    fn marks(&self) -> impl Iterator<Item = f64> {
        let (least, most) = (self.least, self.most);
        let powers = (0..20).map(move |power| least * 10_f64.powi(power));
        powers
            .flat_map(|power| [1.0, 2.0, 5.0].map(|times| power * times))
            .take_while(move |mark| *mark <= most * 1.001)
    }
}

pub(super) fn draw(lines: &[Line]) -> String {
    let (left, top, right, bottom) = AREA;
    let points = || lines.iter().flat_map(|(_, points)| points);
    let x = Axis::around(points().map(|p| p.0), left, right);
    let y = Axis::around(points().map(|p| p.1), bottom, top);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    svg.text(
        (left, 24.0),
        Anchor::Start,
        TEXT,
        "Decisions per second of the scheduling core over the nodes of the cluster",
    );
    for mark in x.marks() {
        let at = x.at(mark);
        svg.line((at, top), (at, bottom), GREY, 1.0);
        svg.text((at, bottom + 18.0), Anchor::Middle, TEXT, &number(mark));
    }
    for mark in y.marks() {
        let at = y.at(mark);
        svg.line((left, at), (right, at), GREY, 1.0);
        svg.text((left - 8.0, at + 4.0), Anchor::End, TEXT, &number(mark));
    }
    svg.text(
        (f64::midpoint(left, right), bottom + 38.0),
        Anchor::Middle,
        TEXT,
        "nodes",
    );
    let mut names: Vec<(f64, &str, &str)> = Vec::new();
    for ((name, points), color) in lines.iter().zip(COLORS.iter().cycle()) {
        let drawn: Vec<(f64, f64)> = points.iter().map(|(n, v)| (x.at(*n), y.at(*v))).collect();
        svg.path(&drawn, color);
        for point in &drawn {
            svg.dot(*point, color);
        }
        names.push((drawn.last().map_or(bottom, |p| p.1), name, color));
    }
    // Each line is named at its end; names that would overlap move down.
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = top;
    for (wanted, name, color) in names {
        let at = wanted.max(free);
        svg.text((right + 10.0, at + 4.0), Anchor::Start, color, name);
        free = at + NAME_HEIGHT;
    }
    svg.finish()
}
