//! Bodies, patches, selectors, quantities and continue tokens of any bytes are answered without a panic.
//!
//! The corpora of the fuzz targets are replayed, then random mixtures of them, from a seed.

// A test reads files; it is not part of the core.
#![allow(clippy::disallowed_methods)]

mod check;
#[path = "../../../protobuf/tests/fuzz/mixed.rs"]
mod mixed;

use mixed::{corpus, mixed};

const ROUNDS: usize = 3_000;
const SEED: u64 = 0x0a91_5e12;

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = corpus(target);
    assert!(corpus.len() >= 8, "{} files", corpus.len());
    for bytes in &corpus {
        check(bytes);
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    for round in 0..ROUNDS {
        let bytes = mixed(&corpus, &mut random);
        let outcome = std::panic::catch_unwind(|| check(&bytes));
        let shown = String::from_utf8_lossy(&bytes);
        assert!(outcome.is_ok(), "seed {SEED}, round {round}: {shown:?}");
    }
}

#[test]
fn bodies_are_decoded_or_refused() {
    replay("apiserver_body", check::body);
}

#[test]
fn patches_are_applied_or_refused() {
    replay("apiserver_patch", check::patch);
}

#[test]
fn selectors_are_parsed_or_refused() {
    replay("apiserver_selector", check::selector);
}

#[test]
fn quantities_are_parsed_or_refused() {
    replay("quantity", check::quantity);
}

#[test]
fn continue_tokens_are_followed_or_refused() {
    replay("apiserver_continue", check::continue_token);
}
