//! The files of a recording: a header, then blocks of compressed lines, each with a checksum.
//!
//! | bytes | header of a file |
//! |---|---|
//! | 8 | `BERTHREC` |
//! | 4 | version of the format |
//! | 4 | number of the file in its run, from 0 |
//! | 8 | run: when it began, in milliseconds since 1970 |
//!
//! | bytes | header of a block |
//! |---|---|
//! | 4 | `BLK\n` |
//! | 4 | CRC-32 of all that follows, the compressed lines included |
//! | 4 | length of the compressed lines |
//! | 4 | length of the lines |
//! | 4 | number of entries |
//! | 8 | number of the first entry in its run, from 0 |
//! | 8 | time to which the first entry is relative, in nanoseconds since 1970 |
//!
//! Numbers are little-endian; lines are compressed with DEFLATE.

use crate::entry::Entry;
use flate2::Crc;
use flate2::write::{DeflateDecoder, DeflateEncoder};
use std::io::Write;

const MAGIC: [u8; 8] = *b"BERTHREC";
const VERSION: u32 = 1;
const BLOCK_MAGIC: [u8; 4] = *b"BLK\n";
/// The length of the header of a file.
pub const FILE_HEADER_LEN: usize = 24;
pub(crate) const BLOCK_HEADER_LEN: usize = 36;
/// A block is closed when its lines are this long, in bytes.
pub(crate) const BLOCK_LEN: usize = 256 * 1024;
/// The maximum length of the lines of a block, in bytes: one line can be as long as the largest object. A block that
/// claims more is damaged.
const BLOCK_LEN_MAX: usize = 64 * 1024 * 1024;

/// The name of a file of a run.
pub fn file_name(run: u64, number: u32) -> String {
    format!("{run:013}-{number:06}.rec")
}

/// The run and the number of a file by its name.
pub(crate) fn parse_file_name(name: &str) -> Option<(u64, u32)> {
    let (run, number) = name.strip_suffix(".rec")?.split_once('-')?;
    Some((run.parse().ok()?, number.parse().ok()?))
}

/// The header of a file.
pub(crate) fn file_header(run: u64, number: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(FILE_HEADER_LEN);
    header.extend(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend(number.to_le_bytes());
    header.extend(run.to_le_bytes());
    header
}

/// Checks the header of a file.
///
/// # Errors
/// The reason why it cannot be read.
pub(crate) fn check_file_header(bytes: &[u8]) -> Result<(), String> {
    if bytes.len() < FILE_HEADER_LEN {
        return Err(format!(
            "its header is incomplete: {} of {FILE_HEADER_LEN} bytes",
            bytes.len()
        ));
    }
    if bytes[..8] != MAGIC {
        return Err("it is not a recording of Berth".to_owned());
    }
    match u32_at(bytes, 8) {
        VERSION => Ok(()),
        version => Err(format!(
            "its format has version {version}, and this Berth reads version {VERSION}"
        )),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// Lines that become a block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    lines: Vec<u8>,
    entries: u32,
    first: u64,
    base: i64,
    last: i64,
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lines.len() >= BLOCK_LEN
    }

    /// Adds an entry with its number and its time.
    pub(crate) fn push(&mut self, number: u64, nanos: i64, entry: &Entry) {
        if self.is_empty() {
            (self.first, self.base, self.last) = (number, nanos, nanos);
        }
        entry.write(nanos.wrapping_sub(self.last), &mut self.lines);
        self.lines.push(b'\n');
        self.last = nanos;
        self.entries += 1;
    }

    /// Returns the block for writing, and begins the next one.
    pub(crate) fn take(&mut self) -> std::io::Result<Vec<u8>> {
        let mut block = vec![0; BLOCK_HEADER_LEN];
        let mut encoder = DeflateEncoder::new(&mut block, flate2::Compression::fast());
        encoder.write_all(&self.lines)?;
        encoder.finish()?;
        let length = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let stored = length(block.len() - BLOCK_HEADER_LEN);
        block[8..12].copy_from_slice(&stored.to_le_bytes());
        block[12..16].copy_from_slice(&length(self.lines.len()).to_le_bytes());
        block[16..20].copy_from_slice(&self.entries.to_le_bytes());
        block[20..28].copy_from_slice(&self.first.to_le_bytes());
        block[28..36].copy_from_slice(&self.base.to_le_bytes());
        let mut crc = Crc::new();
        crc.update(&block[8..]);
        block[..4].copy_from_slice(&BLOCK_MAGIC);
        block[4..8].copy_from_slice(&crc.sum().to_le_bytes());
        self.lines.clear();
        self.entries = 0;
        Ok(block)
    }
}

/// A block that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) lines: String,
    pub(crate) entries: u32,
    pub(crate) first: u64,
    pub(crate) base: i64,
    /// Its length in the file.
    pub(crate) len: usize,
}

/// The reason why a block cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadBlock {
    /// The fault.
    pub(crate) what: String,
    /// The entries that the block claims to contain, if its header can be read: the first one, and the number.
    pub(crate) claims: Option<(u64, u32)>,
}

/// Reads the block at the beginning of these bytes.
pub(crate) fn read_block(bytes: &[u8]) -> Result<Block, BadBlock> {
    let bad = |what: String, claims| Err(BadBlock { what, claims });
    if bytes.len() < BLOCK_HEADER_LEN {
        let what = format!(
            "the file ends in the header of a block, after {} of {BLOCK_HEADER_LEN} bytes",
            bytes.len()
        );
        return bad(what, None);
    }
    if bytes[..4] != BLOCK_MAGIC {
        return bad("no block begins there".to_owned(), None);
    }
    let (stored, raw) = (u32_at(bytes, 8) as usize, u32_at(bytes, 12) as usize);
    let (entries, first) = (u32_at(bytes, 16), u64_at(bytes, 20));
    let len = BLOCK_HEADER_LEN + stored;
    let claims = Some((first, entries));
    let Some(block) = bytes.get(..len) else {
        let what = format!(
            "the file ends in a block, after {} of {len} bytes",
            bytes.len()
        );
        return bad(what, claims);
    };
    let mut crc = Crc::new();
    crc.update(&block[8..]);
    if crc.sum() != u32_at(bytes, 4) {
        // The numbers of the header may be damaged, so they are not reported.
        return bad("the checksum of the block is wrong".to_owned(), None);
    }
    if raw > BLOCK_LEN_MAX {
        let what = format!("the block is longer than {BLOCK_LEN_MAX} bytes");
        return bad(what, claims);
    }
    let mut decoder = DeflateDecoder::new(Limited {
        bytes: Vec::with_capacity(raw),
        max: raw,
    });
    let decoded = decoder
        .write_all(&block[BLOCK_HEADER_LEN..])
        .and_then(|()| decoder.finish());
    let lines = match decoded.map(|limited| String::from_utf8(limited.bytes)) {
        Ok(Ok(lines)) if lines.len() == raw => lines,
        _ => return bad("the block cannot be decompressed".to_owned(), claims),
    };
    Ok(Block {
        lines,
        entries,
        first,
        base: u64_at(bytes, 28) as i64,
        len,
    })
}

/// Takes a limited number of bytes.
struct Limited {
    bytes: Vec<u8>,
    max: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
