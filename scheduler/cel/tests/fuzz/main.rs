//! Compiling and evaluating any text terminates without a panic.
//!
//! The corpus of the fuzz target `cel_selector` is replayed, then random mixtures of its texts, from a seed.

// A test reads files; it is no part of the core.
#![allow(clippy::disallowed_methods)]

mod check;

use std::path::PathBuf;

const ROUNDS: usize = 3_000;
const SEED: u64 = 0x5e1e_c708;

fn corpus() -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/cel_selector");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("a text"))
        .collect()
}

#[test]
fn the_corpus_is_harmless() {
    let corpus = corpus();
    assert!(corpus.len() >= 100, "{} files", corpus.len());
    for text in &corpus {
        check::check(text);
    }
}

#[test]
fn texts_at_random_are_harmless() {
    let mut random = fastrand::Rng::with_seed(SEED);
    let corpus = corpus();
    for _ in 0..ROUNDS {
        let text = mixed(&corpus, &mut random);
        let outcome = std::panic::catch_unwind(|| check::check(&text));
        assert!(outcome.is_ok(), "{text:?}");
    }
}

/// A text with parts of others put in, left out and doubled.
fn mixed(corpus: &[String], random: &mut fastrand::Rng) -> String {
    let pick = |random: &mut fastrand::Rng| -> Vec<char> {
        corpus[random.usize(..corpus.len())].chars().collect()
    };
    let mut text = pick(random);
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=text.len());
        let end = (at + random.usize(..8)).min(text.len());
        match random.u8(..4) {
            0 => drop(text.drain(at..end)),
            1 => {
                let other = pick(random);
                let start = random.usize(..=other.len());
                let length = random.usize(..24).min(other.len() - start);
                text.splice(at..at, other[start..start + length].iter().copied());
            }
            2 => {
                let doubled: Vec<char> = text[at..end].to_vec();
                text.splice(at..at, doubled);
            }
            _ => text.insert(at, random.char(..)),
        }
    }
    text.into_iter().collect()
}
