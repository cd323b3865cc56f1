//! A set of devices of one slice.

use smallvec::SmallVec;

/// The number of devices of a word.
const WORD_DEVICES: usize = u64::BITS as usize;

/// Devices of a slice by their places in it, one bit each: the API allows 128 devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeviceSet {
    words: SmallVec<[u64; 2]>,
}

impl DeviceSet {
    /// Adds the device at a place, or removes it.
    pub(crate) fn set(&mut self, device: usize, is_in: bool) {
        let (word, bit) = (device / WORD_DEVICES, 1 << (device % WORD_DEVICES));
        if self.words.len() <= word {
            if !is_in {
                return;
            }
            self.words.resize(word + 1, 0);
        }
        if is_in {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }

    pub(crate) fn contains(&self, device: usize) -> bool {
        let word = self.words.get(device / WORD_DEVICES);
        word.is_some_and(|word| word >> (device % WORD_DEVICES) & 1 == 1)
    }

    /// The first place from `from` on whose device is not in the set. It may be behind the last device.
    pub(crate) fn next_absent(&self, from: usize) -> usize {
        let first = from / WORD_DEVICES;
        let mut ahead = u64::MAX << (from % WORD_DEVICES);
        for (at, word) in self.words.iter().enumerate().skip(first) {
            let absent = !word & ahead;
            if absent != 0 {
                return at * WORD_DEVICES + absent.trailing_zeros() as usize;
            }
            ahead = u64::MAX;
        }
        from.max(self.words.len() * WORD_DEVICES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Absent devices are found within a word, behind it, and behind all words.
    #[test]
    fn the_next_absent_device_is_found() {
        let mut set = DeviceSet::default();
        assert_eq!((set.next_absent(0), set.next_absent(200)), (0, 200));
        (0..130).for_each(|device| set.set(device, device != 70));
        for (from, expected) in [(0, 70), (70, 70), (71, 130), (129, 130), (500, 500)] {
            assert_eq!(set.next_absent(from), expected, "from {from}");
        }
        assert!(set.contains(69) && !set.contains(70) && !set.contains(130));
        set.set(3, false);
        set.set(1000, false);
        assert_eq!((set.next_absent(0), set.next_absent(4)), (3, 70));
    }
}
