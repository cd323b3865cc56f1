//! Pods generated from a seed, for users without a trace: arrivals, sizes and durations by distributions.

use super::TracePod;
use crate::distribution::{Distribution, normal, quotes};
use berth_api::quantity::QuantityFormat;
use berth_api::resources::{CPU, MEMORY};
use berth_api::{Duration, Pod, Quantity, Str, Time};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The largest number of pods that one generator draws.
pub const GENERATED_MAX: u64 = 20_000_000;

const DAY: f64 = 86_400.0;

/// Draws pods of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Generator {
    /// The pods are `NAME-0`, `NAME-1`, ….
    pub name: Str,
    /// The common fields of the pods.
    pub pod: Arc<Pod>,
    /// The distributions of requests, by resource; they replace the requests of `pod`.
    pub requests: Vec<(Str, AmountDistribution)>,
    /// The pattern of arrivals.
    pub arrivals: Arrivals,
    /// The beginning of the arrivals, as an offset from the start of the trace.
    pub from: Duration,
    /// The end of the arrivals.
    pub until: Duration,
    /// The number of pods at most.
    pub maximum: u64,
    /// The run time of the pods; `None` for pods that do not end.
    pub duration: Option<Distribution>,
    /// Whether a controller replaces the pods when they are evicted.
    pub recreated: bool,
}

/// A pattern of arrivals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Independent arrivals: a Poisson process.
    Poisson {
        /// The mean number of pods in an hour.
        per_hour: f64,
    },
    /// A Poisson process whose rate follows the time of day (UTC) as a cosine.
    Daily {
        /// The mean number of pods in an hour.
        per_hour: f64,
        /// The hour of the highest rate.
        peak_hour: f64,
        /// The highest rate above the mean, as a share of the mean: from 0 to 1.
        swing: f64,
    },
    /// Bursts of pods that arrive at the same time; bursts are a Poisson process, their sizes are geometric.
    Bursts {
        /// The mean number of pods in an hour.
        per_hour: f64,
        /// The mean number of pods of a burst, at least 1.
        size: f64,
    },
}

impl Arrivals {
    /// The mean number of pods in an hour.
    pub fn per_hour(self) -> f64 {
        match self {
            Self::Poisson { per_hour }
            | Self::Daily { per_hour, .. }
            | Self::Bursts { per_hour, .. } => per_hour,
        }
    }
}

/// A distribution of amounts of a resource.
#[derive(Debug, Clone, PartialEq)]
pub enum AmountDistribution {
    /// Always this amount.
    Constant(Quantity),
    /// Equally likely between two amounts.
    Uniform(Quantity, Quantity),
    /// The lognormal distribution with this median; the logarithm has this standard deviation. Amounts above the last
    /// value are reduced to it.
    Lognormal(Quantity, f64, Quantity),
    /// One of these amounts, each equally likely. Never empty.
    Empirical(Arc<[Quantity]>),
}

impl AmountDistribution {
    /// Reads `500m`, `uniform(100m, 2)`, `lognormal(500m, 1, 16)` (median, standard deviation of the natural logarithm,
    /// largest amount) or `empirical(1, 2, 4, 8)`.
    ///
    /// # Errors
    /// When the text is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no distribution of amounts; write an amount such as 500m, or uniform(100m, 2), \
                 lognormal(500m, 1, 16), empirical(1, 2, 4, 8){}",
                quotes(text)
            )
        };
        let amount = |text: &str| {
            let amount = text.trim().parse::<Quantity>().ok();
            amount.filter(|amount| amount.sign() >= 0).ok_or_else(wrong)
        };
        let Some((kind, rest)) = text.trim().split_once('(') else {
            return amount(text).map(Self::Constant);
        };
        let arguments = rest.strip_suffix(')').ok_or_else(wrong)?;
        let arguments: Vec<&str> = arguments.split(',').collect();
        Ok(match (kind.trim(), &arguments[..]) {
            ("uniform", [low, high]) => Self::Uniform(amount(low)?, amount(high)?),
            ("lognormal", [median, deviation, most]) => {
                let deviation = deviation.trim().parse::<f64>().ok();
                let deviation = deviation.filter(|value| (0.0..=10.0).contains(value));
                Self::Lognormal(amount(median)?, deviation.ok_or_else(wrong)?, amount(most)?)
            }
            ("empirical", [_, ..]) => {
                let amounts: Result<Vec<_>, _> =
                    arguments.iter().map(|text| amount(text)).collect();
                Self::Empirical(amounts?.into())
            }
            _ => return Err(wrong()),
        })
    }

    fn draw(&self, resource: &str, rng: &mut fastrand::Rng) -> Quantity {
        let drawn = match self {
            Self::Constant(amount) => return *amount,
            Self::Empirical(amounts) => {
                return match amounts.len() {
                    0 => Quantity::ZERO,
                    len => amounts[rng.usize(..len)],
                };
            }
            Self::Uniform(low, high) => low.as_f64() + (high.as_f64() - low.as_f64()) * rng.f64(),
            Self::Lognormal(median, deviation, most) => {
                (median.as_f64() * (deviation * normal(rng)).exp()).min(most.as_f64())
            }
        };
        rounded(resource, drawn)
    }
}

/// A rounded amount: CPU in steps of 10 milli, memory in steps of 1 MiB, other resources in whole numbers; at least one
/// step.
fn rounded(resource: &str, drawn: f64) -> Quantity {
    const MEBI: f64 = 1_048_576.0;
    match resource {
        CPU => Quantity::from_milli(((drawn * 100.0).round().max(1.0) * 10.0) as i64),
        MEMORY | "ephemeral-storage" => {
            let bytes = (drawn / MEBI).round().max(1.0) * MEBI;
            Quantity::from_value(bytes as i64, QuantityFormat::BinarySI)
        }
        _ => Quantity::from_value(drawn.round().max(1.0) as i64, QuantityFormat::DecimalSI),
    }
}

impl Generator {
    /// Draws the pods, in the order of their arrival. `start` is the start of the trace.
    pub fn draw(&self, start: Time, rng: &mut fastrand::Rng) -> Vec<TracePod> {
        let mut shapes: FxHashMap<Vec<Quantity>, Arc<Pod>> = FxHashMap::default();
        let mut pods = Vec::new();
        let most = usize::try_from(self.maximum.min(GENERATED_MAX)).unwrap_or(usize::MAX);
        let mut at = self.from.as_secs_f64();
        let until = self.until.as_secs_f64();
        while pods.len() < most {
            let together = self.next(start, &mut at, rng);
            if at >= until {
                break;
            }
            let arrival = Duration::from_nanos((at * 1e9) as u64);
            for _ in 0..together.min(most - pods.len()) {
                let amounts = self.requests.iter();
                let amounts: Vec<Quantity> = amounts.map(|(name, of)| of.draw(name, rng)).collect();
                let pod = match shapes.get(&amounts) {
                    Some(known) => known.clone(),
                    None => {
                        let pod = Arc::new(self.pod_of(&amounts));
                        shapes.insert(amounts, pod.clone());
                        pod
                    }
                };
                pods.push(TracePod {
                    arrival,
                    duration: self.duration.clone(),
                    recreated: self.recreated,
                    ..TracePod::new(format!("{}-{}", self.name, pods.len()), pod)
                });
            }
        }
        pods
    }

    /// Advances to the next arrival. Returns the number of pods that arrive.
    fn next(&self, start: Time, at: &mut f64, rng: &mut fastrand::Rng) -> usize {
        let mut advance = |rate: f64, rng: &mut fastrand::Rng| {
            *at += -(1.0 - rng.f64()).ln() * 3_600.0 / rate.max(1e-9);
            *at
        };
        match self.arrivals {
            Arrivals::Poisson { per_hour } => {
                advance(per_hour, rng);
                1
            }
            // Arrivals at the highest rate are thinned out to the current one (Lewis and Shedler, 1979).
            Arrivals::Daily {
                per_hour,
                peak_hour,
                swing,
            } => {
                let highest = per_hour * (1.0 + swing);
                let until = self.until.as_secs_f64();
                loop {
                    let now = advance(highest, rng);
                    let of_day = start.as_millis() as f64 / 1e3 + now - peak_hour * 3_600.0;
                    let rate = 1.0 + swing * (std::f64::consts::TAU * of_day / DAY).cos();
                    if rng.f64() * (1.0 + swing) <= rate || now >= until {
                        return 1;
                    }
                }
            }
            Arrivals::Bursts { per_hour, size } => {
                let size = size.max(1.0);
                advance(per_hour / size, rng);
                let mut pods = 1;
                while rng.f64() * size > 1.0 && pods < 100_000 {
                    pods += 1;
                }
                pods
            }
        }
    }

    fn pod_of(&self, amounts: &[Quantity]) -> Pod {
        let mut pod = Pod::clone(&self.pod);
        if let Some(container) = pod.spec.containers.first_mut() {
            for ((resource, _), amount) in self.requests.iter().zip(amounts) {
                container.resources.requests.set(resource.clone(), *amount);
            }
        }
        pod
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{DEFAULT_START, PodShape};

    fn generator(arrivals: Arrivals) -> Generator {
        Generator {
            name: "job".into(),
            pod: Arc::new(PodShape::default().pod()),
            requests: vec![(
                CPU.into(),
                AmountDistribution::parse("lognormal(500m, 1, 4)").expect("a distribution"),
            )],
            arrivals,
            from: Duration::ZERO,
            until: Duration::from_secs(10 * 86_400),
            maximum: GENERATED_MAX,
            duration: None,
            recreated: false,
        }
    }

    fn drawn(arrivals: Arrivals, seed: u64) -> Vec<TracePod> {
        generator(arrivals).draw(DEFAULT_START, &mut fastrand::Rng::with_seed(seed))
    }

    /// 100 pods in an hour over ten days are 24,000; the standard deviation of the number is below 500 for bursts of 5.
    #[test]
    fn each_pattern_has_its_mean_rate_and_repeats_with_its_seed() {
        let per_hour = 100.0;
        for arrivals in [
            Arrivals::Poisson { per_hour },
            Arrivals::Daily {
                per_hour,
                peak_hour: 14.0,
                swing: 0.8,
            },
            Arrivals::Bursts {
                per_hour,
                size: 5.0,
            },
        ] {
            let pods = drawn(arrivals, 1);
            let count = pods.len() as f64;
            assert!((count - 24_000.0).abs() < 1_500.0, "{arrivals:?}: {count}");
            assert!(pods.is_sorted_by_key(|pod| pod.arrival), "{arrivals:?}");
            assert!(pods == drawn(arrivals, 1), "{arrivals:?}");
            assert!(pods != drawn(arrivals, 2), "{arrivals:?}");
        }
    }

    #[test]
    fn a_daily_pattern_is_highest_at_its_peak() {
        let arrivals = Arrivals::Daily {
            per_hour: 100.0,
            peak_hour: 14.0,
            swing: 0.8,
        };
        let mut hours = [0_u32; 24];
        for pod in drawn(arrivals, 3) {
            hours[(pod.arrival.as_secs() / 3_600 % 24) as usize] += 1;
        }
        // 1.8 and 0.2 times the mean of 1,000 pods in each hour of ten days.
        assert!((1_600..2_000).contains(&hours[14]), "{hours:?}");
        assert!((120..300).contains(&hours[2]), "{hours:?}");
    }

    #[test]
    fn amounts_are_rounded_and_bounded() {
        let pods = drawn(Arrivals::Poisson { per_hour: 10.0 }, 4);
        let cpu = pods.iter().map(|pod| {
            let requests = &pod.pod.spec.containers[0].resources.requests;
            requests.get(CPU).map_or(0, |amount| amount.milli_value())
        });
        let cpu: Vec<i64> = cpu.collect();
        assert!(cpu.iter().all(|milli| *milli % 10 == 0 && *milli <= 4_000));
        let below = cpu.iter().filter(|milli| **milli < 500).count();
        assert!((below as f64 / cpu.len() as f64 - 0.5).abs() < 0.05);
    }
}
