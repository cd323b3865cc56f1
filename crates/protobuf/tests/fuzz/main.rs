//! Decoding any bytes terminates without a panic.
//!
//! The corpus of the fuzz target `protobuf_object` is replayed, then random mixtures of it, from a seed.

// A test reads files; it is no part of the core.
#![allow(clippy::disallowed_methods)]

mod check;

use std::path::PathBuf;

const ROUNDS: usize = 20_000;
const SEED: u64 = 0x9207_0b0f;

fn corpus() -> Vec<Vec<u8>> {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/protobuf_object");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let read = |file: &PathBuf| std::fs::read(file).expect("a file");
    files.iter().map(read).collect()
}

#[test]
fn the_corpus_is_harmless() {
    let corpus = corpus();
    assert!(corpus.len() >= 20, "{} files", corpus.len());
    for bytes in &corpus {
        check::check(bytes);
    }
}

#[test]
fn bytes_at_random_are_harmless() {
    let mut random = fastrand::Rng::with_seed(SEED);
    let corpus = corpus();
    for round in 0..ROUNDS {
        let bytes = mixed(&corpus, &mut random);
        let outcome = std::panic::catch_unwind(|| check::check(&bytes));
        assert!(outcome.is_ok(), "seed {SEED}, round {round}: {bytes:?}");
    }
}

/// Bytes of the corpus with parts changed, put in, left out and doubled.
fn mixed(corpus: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let pick = |random: &mut fastrand::Rng| &corpus[random.usize(..corpus.len())];
    let mut bytes = pick(random).clone();
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=bytes.len());
        let end = (at + random.usize(..16)).min(bytes.len());
        match random.u8(..5) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let other = pick(random);
                let start = random.usize(..=other.len());
                let length = random.usize(..64).min(other.len() - start);
                bytes.splice(at..at, other[start..start + length].iter().copied());
            }
            2 => {
                let doubled: Vec<u8> = bytes[at..end].to_vec();
                bytes.splice(at..at, doubled);
            }
            3 => bytes.insert(at, random.u8(..)),
            _ => bytes[at..end].fill(random.u8(..)),
        }
    }
    bytes
}
