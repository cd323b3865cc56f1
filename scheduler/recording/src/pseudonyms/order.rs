//! Words of letters that have the order of the replaced words.
//!
//! A word gets a random position between its neighbours among the words so far. Positions are numbers of nine digits,
//! written as letters; if no position is left, nine more digits follow. The words of a list are often in order, so a
//! word that follows the previous one gets a position near it: otherwise each word would halve the space for the next
//! ones.

use berth_api::Str;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The number of letters of a word, unless its neighbours leave no position between them.
pub(super) const WORD_LEN: usize = 9;
/// The number of places for words of that length.
const PLACES: u64 = 26_u64.pow(WORD_LEN as u32);
/// A word in order is placed in this part of the remaining space.
const IN_ORDER_SHARE: u64 = 64;
/// The number of words that have an order. Further ones are not remembered.
const WORDS_MAX: usize = 256 * 1024;

/// The words so far.
#[derive(Default)]
pub(super) struct OrderedWords {
    words: BTreeMap<Box<str>, Str>,
    last: Box<str>,
}

/// The number of the nine letters from a position on. Missing letters count as the first letter.
fn number(letters: &str, from: usize) -> u64 {
    let letters = letters.bytes().skip(from).chain(std::iter::repeat(b'a'));
    let digits = letters.take(WORD_LEN).map(|byte| u64::from(byte - b'a'));
    digits.fold(0, |number, digit| number * 26 + digit)
}

fn push(letters: &mut String, mut number: u64) {
    let mut digits = [b'a'; WORD_LEN];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 26) as u8;
        number /= 26;
    }
    letters.extend(digits.map(char::from));
}

/// The place of a word between its neighbours.
#[derive(Clone, Copy)]
enum Near {
    Low,
    High,
    Neither,
}

/// Letters between two others; without an upper limit if there is no `high`.
fn between(low: &str, mut high: Option<&str>, near: Near, random: u64) -> String {
    let mut letters = String::new();
    loop {
        let from = letters.len();
        let least = number(low, from);
        let most = high.map_or(PLACES, |high| number(high, from));
        let places = most.saturating_sub(least + 1);
        if places > 0 {
            let some = random % (places / IN_ORDER_SHARE).max(1);
            let place = match near {
                Near::Low => least + 1 + some,
                Near::High => most - 1 - some,
                Near::Neither => least + 1 + random % places,
            };
            push(&mut letters, place);
            return letters;
        }
        push(&mut letters, least);
        if most > least {
            // Every later word is below `high` now.
            high = None;
        }
    }
}

impl OrderedWords {
    /// The letters for a word, whose place depends on a random number; `None` if there are too many words.
    pub(super) fn of(&mut self, word: &str, random: impl FnOnce() -> u64) -> Option<Str> {
        if let Some(known) = self.words.get(word) {
            return Some(known.clone());
        }
        if self.words.len() >= WORDS_MAX {
            return None;
        }
        let below = (Bound::Unbounded, Bound::Excluded(word));
        let above = (Bound::Excluded(word), Bound::Unbounded);
        let before = self.words.range::<str, _>(below).next_back();
        let after = self.words.range::<str, _>(above).next();
        let is_last = |found: Option<(&Box<str>, _)>| found.is_some_and(|(w, _)| *w == self.last);
        let near = match (is_last(before), is_last(after)) {
            (true, _) => Near::Low,
            (_, true) => Near::High,
            _ => Near::Neither,
        };
        let low = before.map_or("", |(_, letters)| letters.as_str());
        let high = after.map(|(_, letters)| letters.as_str());
        let letters = Str::from(between(low, high, near, random()));
        self.words.insert(word.into(), letters.clone());
        self.last = word.into();
        Some(letters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    /// For every order of words, their letters have the order of the words, and are few.
    #[test]
    fn letters_have_the_order_of_the_words() {
        for seed in 0..10 {
            let rng = &mut Rng::with_seed(seed);
            let mut words: Vec<String> = (0..4_000).map(|at| format!("{at:04}")).collect();
            for at in 0..4_000 {
                words.push(format!("{}{at}", ["a", "ab", "b", "zz"][rng.usize(..4)]));
            }
            match seed % 3 {
                0 => rng.shuffle(&mut words),
                1 => words.sort(),
                _ => words.sort_by(|a, b| b.cmp(a)),
            }
            let mut ordered = OrderedWords::default();
            let mut of = |word: &str| ordered.of(word, || rng.u64(..)).expect("few words");
            let mut pairs: Vec<(String, Str)> =
                words.iter().map(|word| (word.clone(), of(word))).collect();
            for (word, letters) in &pairs {
                assert_eq!(of(word), *letters, "seed {seed}: always the same");
            }
            pairs.sort();
            for pair in pairs.windows(2) {
                assert!(pair[0].1 < pair[1].1, "seed {seed}: {pair:?}");
            }
            let longest = pairs.iter().map(|(_, letters)| letters.len()).max();
            let mean = pairs
                .iter()
                .map(|(_, letters)| letters.len())
                .sum::<usize>()
                / pairs.len();
            println!("seed {seed}: longest {longest:?}, mean {mean}");
        }
    }
}
