//! The least of many sums that move one step at a time.

/// Sums below this have a counter each; domains with more pods are few.
const LEVELS: usize = 1024;

/// The number of sums of each size, and the least one.
#[derive(Debug)]
pub(super) struct Levels {
    counters: Vec<u32>,
    /// The number of sums.
    len: usize,
    /// The least one; zero when there is none.
    minimum: i64,
}

fn level(sum: i64) -> Option<usize> {
    usize::try_from(sum).ok().filter(|level| *level < LEVELS)
}

impl Default for Levels {
    fn default() -> Self {
        Self {
            counters: vec![0; LEVELS],
            len: 0,
            minimum: 0,
        }
    }
}

impl Levels {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn minimum(&self) -> i64 {
        self.minimum
    }

    pub(super) fn insert(&mut self, sum: i64) {
        if let Some(level) = level(sum) {
            self.counters[level] += 1;
        }
        if self.len == 0 || sum < self.minimum {
            self.minimum = sum;
        }
        self.len += 1;
    }

    /// Takes out one of the sums. `rest` are those that are left, to look through when all of them are large.
    pub(super) fn remove<I: Iterator<Item = i64>>(&mut self, sum: i64, rest: impl FnOnce() -> I) {
        self.len -= 1;
        if let Some(level) = level(sum) {
            self.counters[level] -= 1;
            if self.counters[level] > 0 {
                return;
            }
        }
        if sum > self.minimum {
            return;
        }
        // Nothing is below the minimum, so the next one is above.
        let from = level(sum).unwrap_or(LEVELS);
        let next = self.counters[from..].iter().position(|count| *count > 0);
        self.minimum = match next.and_then(|steps| i64::try_from(from + steps).ok()) {
            Some(next) => next,
            None => rest().min().unwrap_or(0),
        };
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.counters[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn the_minimum_is_that_of_the_sums() {
        let rng = &mut Rng::with_seed(3);
        let edge = i64::try_from(LEVELS).expect("a small number");
        let mut levels = Levels::default();
        let mut sums: Vec<i64> = Vec::new();
        for _ in 0..20_000 {
            if sums.is_empty() || rng.u32(..9) < 5 && sums.len() < 12 {
                let sum = if rng.bool() {
                    rng.i64(0..5)
                } else {
                    rng.i64(edge - 2..edge + 3)
                };
                sums.push(sum);
                levels.insert(sum);
            } else {
                let sum = sums.swap_remove(rng.usize(..sums.len()));
                levels.remove(sum, || sums.iter().copied());
            }
            let minimum = sums.iter().copied().min().unwrap_or(0);
            assert_eq!((levels.minimum(), levels.len()), (minimum, sums.len()));
        }
    }
}
