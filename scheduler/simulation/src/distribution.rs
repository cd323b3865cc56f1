//! Distributions of durations: constants, standard ones, and samples.

use crate::span::{SPAN_FORMS, parse_span, show_span};
use berth_api::Duration;
use std::fmt;
use std::sync::Arc;

/// The maximum value; a greater draw is reduced to it.
const DRAWN_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A distribution of durations.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Always this value.
    Constant(Duration),
    /// Equally likely between two values.
    Uniform(Duration, Duration),
    /// The exponential distribution with this mean.
    Exponential(Duration),
    /// The lognormal distribution with this median; the logarithm has this standard deviation.
    Lognormal(Duration, f64),
    /// One of these values, each equally likely. Never empty.
    Empirical(Arc<[Duration]>),
}

impl Distribution {
    /// Reads `20ms`, `uniform(1m, 5m)`, `exponential(10m)`, `lognormal(1h, 1.2)` (median, standard deviation of the
    /// natural logarithm) or `empirical(1m, 5m, 2h)`.
    ///
    /// # Errors
    /// When the text is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some((kind, rest)) = text.split_once('(') else {
            return parse_span(text)
                .map(Self::Constant)
                .map_err(|_| wrong(text));
        };
        let arguments = rest.strip_suffix(')').ok_or_else(|| wrong(text))?;
        let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
        Ok(match (kind.trim(), &arguments[..]) {
            ("constant", [value]) => Self::Constant(parse_span(value)?),
            ("uniform", [low, high]) => {
                let (low, high) = (parse_span(low)?, parse_span(high)?);
                if low > high {
                    return Err(format!("{text:?}: the first value is the smaller one"));
                }
                Self::Uniform(low, high)
            }
            ("exponential", [mean]) => Self::Exponential(parse_span(mean)?),
            ("lognormal", [median, deviation]) => {
                let deviation = deviation.parse::<f64>().ok();
                let deviation = deviation.filter(|value| (0.0..=10.0).contains(value));
                let deviation = deviation.ok_or_else(|| {
                    format!(
                        "{text:?}: the second value is the standard deviation of the natural \
                         logarithm, from 0 to 10"
                    )
                })?;
                Self::Lognormal(parse_span(median)?, deviation)
            }
            ("empirical", [_, ..]) => {
                let values: Result<Vec<_>, _> = arguments.iter().map(|v| parse_span(v)).collect();
                Self::Empirical(values?.into())
            }
            _ => return Err(wrong(text)),
        })
    }

    /// Draws a value.
    pub fn draw(&self, rng: &mut fastrand::Rng) -> Duration {
        match self {
            Self::Constant(value) => *value,
            Self::Uniform(low, high) => {
                let span = high.saturating_sub(*low).as_secs_f64();
                seconds(low.as_secs_f64() + span * rng.f64())
            }
            Self::Exponential(mean) => seconds(-mean.as_secs_f64() * (1.0 - rng.f64()).ln()),
            Self::Lognormal(median, deviation) => {
                seconds(median.as_secs_f64() * (deviation * normal(rng)).exp())
            }
            Self::Empirical(values) => match values.len() {
                0 => Duration::ZERO,
                len => values[rng.usize(..len)],
            },
        }
    }
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0))
        .unwrap_or(DRAWN_MAX)
        .min(DRAWN_MAX)
}

/// A draw of the standard normal distribution, by the method of Box and Muller.
pub(crate) fn normal(rng: &mut fastrand::Rng) -> f64 {
    // 1 - [0, 1) is above zero, where the logarithm is finite.
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

fn wrong(text: &str) -> String {
    format!(
        "{text:?} is no distribution of durations; write {SPAN_FORMS}, or uniform(1m, 5m), exponential(10m), \
         lognormal(1h, 1.2), empirical(1m, 5m, 2h){}",
        quotes(text)
    )
}

/// The remedy for a distribution that a YAML mapping or list in one line has cut at its comma.
pub(crate) fn quotes(text: &str) -> &'static str {
    if text.contains('(') && !text.contains(')') {
        ", in quotes where it has commas"
    } else {
        ""
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Duration| show_span(value.as_secs_f64());
        match self {
            Self::Constant(value) => f.write_str(&show(value)),
            Self::Uniform(low, high) => write!(f, "uniform({}, {})", show(low), show(high)),
            Self::Exponential(mean) => write!(f, "exponential({})", show(mean)),
            Self::Lognormal(median, deviation) => {
                write!(f, "lognormal({}, {deviation})", show(median))
            }
            Self::Empirical(values) => write!(f, "empirical of {} values", values.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of many draws, in seconds.
    fn mean_of(text: &str) -> f64 {
        let distribution = Distribution::parse(text).unwrap_or_else(|e| panic!("{e}"));
        let mut rng = fastrand::Rng::with_seed(1);
        let draws = (0..40_000).map(|_| distribution.draw(&mut rng).as_secs_f64());
        draws.sum::<f64>() / 40_000.0
    }

    #[test]
    fn draws_have_the_mean_of_the_distribution() {
        for (text, mean) in [
            ("20ms", 0.02),
            ("uniform(1m, 3m)", 120.0),
            ("exponential(10m)", 600.0),
            // median · exp(σ²/2), the mean of a lognormal distribution: 60 · exp(0.125).
            ("lognormal(1m, 0.5)", 67.989),
            ("empirical(1m, 2m, 6m)", 180.0),
        ] {
            let got = mean_of(text);
            assert!((got - mean).abs() < mean * 0.02, "{text}: {got}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for text in [
            "soon",
            "uniform(1m)",
            "uniform(3m, 1m)",
            "lognormal(1m, -1)",
            "pareto(1m)",
            "empirical(",
        ] {
            let error = Distribution::parse(text).expect_err(text);
            assert!(
                error.contains(text.split('(').next().unwrap_or(text)),
                "{error}"
            );
        }
    }
}
