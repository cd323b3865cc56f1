//! The wire format: tags, varints, lengths. Groups and 32-bit values are skipped, Kubernetes has none.

use super::ProtobufError;

/// A value as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    /// A variable-length integer.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes, which no field here has.
    Fixed32,
    /// Bytes with a length: strings, messages, packed lists.
    Bytes(&'a [u8]),
}

/// Reads the fields of one message.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// A varint has at most ten bytes.
const VARINT_BYTES_MAX: usize = 10;

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field: its number and its value; `None` at the end.
    pub(super) fn next_field(&mut self) -> Result<Option<(u32, Wire<'a>)>, ProtobufError> {
        let Some(tag) = self.next_varint_bits()? else {
            return Ok(None);
        };
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::Truncated)?;
        let wire = match tag & 0b111 {
            0 => Wire::Varint(self.next_varint_bits()?.ok_or(ProtobufError::Truncated)?),
            1 => {
                let bytes = self.take(8)?;
                let bytes = <[u8; 8]>::try_from(bytes).map_err(|_| ProtobufError::Truncated)?;
                Wire::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = self.next_varint_bits()?.ok_or(ProtobufError::Truncated)?;
                let length = usize::try_from(length).map_err(|_| ProtobufError::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            _ => return Err(ProtobufError::Truncated),
        };
        Ok(Some((number, wire)))
    }

    /// The next integer of a packed list; `None` at the end.
    pub(super) fn next_varint(&mut self) -> Result<Option<i64>, ProtobufError> {
        Ok(self.next_varint_bits()?.map(u64::cast_signed))
    }

    fn next_varint_bits(&mut self) -> Result<Option<u64>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut bits = 0_u64;
        for (i, byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            bits |= u64::from(byte & 0x7f).wrapping_shl(7 * i as u32);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(i + 1..).unwrap_or(&[]);
                return Ok(Some(bits));
            }
        }
        Err(ProtobufError::Truncated)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Writes the fields of messages.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// What was written.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn varint_bits(&mut self, mut bits: u64) {
        while bits >= 0x80 {
            self.out.push(bits as u8 | 0x80);
            bits >>= 7;
        }
        self.out.push(bits as u8);
    }

    /// An integer field.
    pub(crate) fn varint(&mut self, number: u32, value: i64) {
        self.varint_bits(u64::from(number) << 3);
        self.varint_bits(value.cast_unsigned());
    }

    /// A field of eight bytes.
    pub(crate) fn double(&mut self, number: u32, value: f64) {
        self.varint_bits(u64::from(number) << 3 | 1);
        self.raw(&value.to_le_bytes());
    }

    /// A field of bytes.
    pub(crate) fn bytes(&mut self, number: u32, value: &[u8]) {
        self.varint_bits(u64::from(number) << 3 | 2);
        self.varint_bits(value.len() as u64);
        self.raw(value);
    }

    /// A message field, written by `body`.
    pub(crate) fn message(&mut self, number: u32, body: impl FnOnce(&mut Self)) {
        self.varint_bits(u64::from(number) << 3 | 2);
        // Most messages are shorter than 128 bytes: one byte is left for the length, and more is made when needed.
        let start = self.out.len();
        self.out.push(0);
        body(self);
        let mut length = Self::default();
        length.varint_bits((self.out.len() - start - 1) as u64);
        self.out.splice(start..=start, length.out);
    }
}
