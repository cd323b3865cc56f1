//! The corpora of the fuzz targets, and random mixtures of their files.

use std::path::PathBuf;

/// The files of a target, by name.
pub(crate) fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join(target))
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let read = |file: &PathBuf| std::fs::read(file).expect("a file");
    files.iter().map(read).collect()
}

/// Bytes of the corpus with changed, inserted, omitted and duplicated parts.
pub(crate) fn mixed(corpus: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
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
