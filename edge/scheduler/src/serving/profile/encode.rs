//! A CPU profile in the format of pprof: `perftools.profiles.Profile`, gzip-compressed.
//!
//! The format: <https://github.com/google/pprof/blob/main/proto/profile.proto>. Of the little that is needed of it
//! here, every field is a number or has a length in front.

use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::{Report, Symbol};
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Writes a report. `per_second` is how often a second was sampled.
pub(super) fn cpu(report: &Report, duration: Duration, per_second: i32) -> io::Result<Vec<u8>> {
    let period = 1_000_000_000 / i64::from(per_second.max(1));
    let mut profile = ProfileTables::default();
    let count_type = profile.value_type("samples", "count");
    let cpu_type = profile.value_type("cpu", "nanoseconds");
    let mut samples = Message::default();
    for (frames, count) in &report.data {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        let mut sample = Message::default();
        // The innermost frame is first. One address may stand for several inlined functions.
        let symbols = frames.frames.iter().flatten();
        let locations: Vec<u64> = symbols.map(|symbol| profile.location(symbol)).collect();
        sample.packed(1, locations);
        sample.packed(
            2,
            [count, count.saturating_mul(period)].map(i64::cast_unsigned),
        );
        samples.message(2, &sample);
    }
    let mut message = Message::default();
    message.message(1, &count_type);
    message.message(1, &cpu_type);
    message.0.extend_from_slice(&samples.0);
    message.0.extend_from_slice(&profile.locations.0);
    message.0.extend_from_slice(&profile.functions.0);
    for text in &profile.strings {
        message.bytes(6, text.as_bytes());
    }
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let ended = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    message.number(9, nanos(ended.saturating_sub(duration)));
    message.number(10, nanos(duration));
    message.message(11, &cpu_type);
    message.number(12, period.cast_unsigned());
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&message.0)?;
    encoder.finish()
}

/// The tables of a profile, to which samples refer by number.
#[derive(Debug)]
struct ProfileTables {
    strings: Vec<String>,
    string_numbers: HashMap<String, u64>,
    /// By function, file and line.
    location_numbers: HashMap<(String, String, u32), u64>,
    locations: Message,
    functions: Message,
}

impl Default for ProfileTables {
    fn default() -> Self {
        let mut profile = Self {
            strings: Vec::new(),
            string_numbers: HashMap::new(),
            location_numbers: HashMap::new(),
            locations: Message::default(),
            functions: Message::default(),
        };
        // The first string must be empty.
        profile.string("");
        profile
    }
}

impl ProfileTables {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(number) = self.string_numbers.get(text) {
            return *number;
        }
        let number = self.strings.len() as u64;
        self.strings.push(text.to_owned());
        self.string_numbers.insert(text.to_owned(), number);
        number
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.string(kind));
        message.number(2, self.string(unit));
        message
    }

    fn location(&mut self, symbol: &Symbol) -> u64 {
        let (name, file) = (symbol.name(), symbol.filename().into_owned());
        let line = symbol.lineno();
        let key = (name.clone(), file.clone(), line);
        if let Some(number) = self.location_numbers.get(&key) {
            return *number;
        }
        // Functions and locations are numbered alike, from 1.
        let number = self.location_numbers.len() as u64 + 1;
        self.location_numbers.insert(key, number);
        let mut function = Message::default();
        function.number(1, number);
        function.number(2, self.string(&name));
        function.number(4, self.string(&file));
        self.functions.message(5, &function);
        let mut at = Message::default();
        at.number(1, number);
        at.number(2, u64::from(line));
        let mut location = Message::default();
        location.number(1, number);
        location.message(4, &at);
        self.locations.message(4, &location);
        number
    }
}

/// A message of protocol buffers as it is written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn packed(&mut self, field: u64, numbers: impl IntoIterator<Item = u64>) {
        let mut packed = Self::default();
        for number in numbers {
            packed.varint(number);
        }
        self.bytes(field, &packed.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: field 1 as a number is the byte 8, 300 is 0xac 0x02; field 2 with a length is the byte 18.
    #[test]
    fn fields_are_written_as_protocol_buffers() {
        let mut message = Message::default();
        message.number(1, 300);
        message.bytes(2, b"ab");
        message.packed(3, [1, 300]);
        assert_eq!(
            message.0,
            [8, 0xac, 0x02, 18, 2, b'a', b'b', 26, 3, 1, 0xac, 0x02]
        );
    }

    #[test]
    fn texts_are_kept_once() {
        let mut profile = ProfileTables::default();
        let first = profile.string("a");
        assert_eq!((first, profile.string("b"), profile.string("a")), (1, 2, 1));
        assert_eq!(profile.strings, ["", "a", "b"]);
    }
}
