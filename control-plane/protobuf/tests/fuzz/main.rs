//! Decoding any bytes terminates without a panic.
//!
//! The corpus of the fuzz target `protobuf_object` is replayed, then random mixtures of it, from a seed.

// A test reads files; it is not part of the core.
#![allow(clippy::disallowed_methods)]

mod check;
mod mixed;

use mixed::{corpus, mixed};

const ROUNDS: usize = 20_000;
const SEED: u64 = 0x9207_0b0f;

#[test]
fn the_corpus_is_harmless() {
    let corpus = corpus("protobuf_object");
    assert!(corpus.len() >= 20, "{} files", corpus.len());
    for bytes in &corpus {
        check::check(bytes);
    }
}

#[test]
fn bytes_at_random_are_harmless() {
    let mut random = fastrand::Rng::with_seed(SEED);
    let corpus = corpus("protobuf_object");
    for round in 0..ROUNDS {
        let bytes = mixed(&corpus, &mut random);
        let outcome = std::panic::catch_unwind(|| check::check(&bytes));
        assert!(outcome.is_ok(), "seed {SEED}, round {round}: {bytes:?}");
    }
}
