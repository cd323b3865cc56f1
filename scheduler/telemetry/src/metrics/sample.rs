//! The cycles that are measured closely: timing every call of every plugin would cost more than many of these calls.

/// The number of cycles that are chosen of a hundred, as in kube-scheduler.
const CHOSEN_PERCENT: u8 = 10;

/// Selects one in ten at random, and always the first one, so that every metric soon has a value.
///
/// It has its own randomness, so that no decision depends on measurements.
#[derive(Debug, Clone)]
pub struct Sampler {
    rng: fastrand::Rng,
    is_first: bool,
}

impl Default for Sampler {
    fn default() -> Self {
        Self {
            rng: fastrand::Rng::with_seed(0),
            is_first: true,
        }
    }
}

impl Sampler {
    /// Returns whether the next one is chosen.
    pub fn choose(&mut self) -> bool {
        std::mem::take(&mut self.is_first) || self.rng.u8(..100) < CHOSEN_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Q-110, edge case 143.
    #[test]
    fn about_one_of_ten_is_chosen_and_the_first() {
        let mut sampler = Sampler::default();
        assert!(sampler.choose());
        let chosen = (0..10_000).filter(|_| sampler.choose()).count();
        assert!((900..=1100).contains(&chosen), "{chosen} of 10000");
    }
}
