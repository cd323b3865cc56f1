//! CPU time per pod by part, as stacked bars.

use super::svg::{Anchor, COLORS, Svg};
use super::{Bar, PARTS};

/// About the width of a letter. The longest name determines where the bars begin.
const LETTER: f64 = 7.0;
const TOP: f64 = 76.0;
/// The width of the longest bar, and of what follows it: its number.
const BARS_WIDTH: f64 = 380.0;
const NUMBER_WIDTH: f64 = 80.0;
const BAR_HEIGHT: f64 = 18.0;
const BAR_DISTANCE: f64 = 28.0;
const GREY: &str = "#dddddd";
const TEXT: &str = "#222222";

pub(super) fn draw(bars: &[Bar]) -> String {
    let longest = bars.iter().map(|(name, _)| name.chars().count()).max();
    let (left, top) = (20.0 + LETTER * longest.unwrap_or(0) as f64, TOP);
    let right = left + BARS_WIDTH;
    let total = |bar: &Bar| bar.1.iter().map(|(_, value)| value).sum::<f64>();
    let most = bars.iter().map(total).fold(f64::MIN_POSITIVE, f64::max);
    let bottom = top + BAR_DISTANCE * bars.len() as f64;
    let mut svg = Svg::new(right + NUMBER_WIDTH, bottom + 50.0);
    svg.text(
        (20.0, 24.0),
        Anchor::Start,
        TEXT,
        "CPU time per scheduled pod by part, in milliseconds",
    );
    let color = |part: &str| {
        let at = PARTS.iter().position(|name| *name == part);
        COLORS[at.unwrap_or_default() % COLORS.len()]
    };
    let mut x = 20.0;
    for part in PARTS {
        if bars
            .iter()
            .any(|(_, parts)| parts.iter().any(|(name, _)| *name == part))
        {
            svg.rect((x, 40.0), 12.0, 12.0, color(part));
            svg.text((x + 17.0, 50.0), Anchor::Start, TEXT, part);
            x += 140.0;
        }
    }
    let step = step(most);
    let at = |value: f64| left + (right - left) * value / most;
    for mark in (0..)
        .map(|mark| f64::from(mark) * step)
        .take_while(|mark| *mark <= most)
    {
        svg.line((at(mark), top - 6.0), (at(mark), bottom), GREY, 1.0);
        // Steps are multiples of a power of ten, so few digits are exact.
        let digits = if step < 0.1 { 2 } else { 1 };
        svg.text(
            (at(mark), bottom + 16.0),
            Anchor::Middle,
            TEXT,
            &format!("{mark:.digits$}"),
        );
    }
    for (bar, (name, parts)) in bars.iter().enumerate() {
        let y = top + BAR_DISTANCE * bar as f64;
        svg.text((left - 8.0, y + 13.0), Anchor::End, TEXT, name);
        let mut sum = 0.0;
        for (part, value) in parts {
            svg.rect(
                (at(sum), y),
                at(sum + value) - at(sum),
                BAR_HEIGHT,
                color(part),
            );
            sum += value;
        }
        svg.text(
            (at(sum) + 6.0, y + 13.0),
            Anchor::Start,
            TEXT,
            &format!("{sum:.2}"),
        );
    }
    svg.finish()
}

/// The distance of marks so that there are four to ten: 1, 2 or 5 of a power of ten.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 10.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|times| power * times)
        .into_iter()
        .find(|step| most / step <= 10.0)
        .unwrap_or(most)
}
