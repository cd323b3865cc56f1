//! The wire format: tags, varints, lengths. Groups and 32-bit values are skipped, Kubernetes has none.

use crate::ProtobufError;

/// A value on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire<'a> {
    /// A variable-length integer.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes, which no field of Kubernetes has.
    Fixed32,
    /// Bytes with a length: strings, messages, packed lists.
    Bytes(&'a [u8]),
}

/// Reads the fields of one message.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// A varint has at most ten bytes.
const VARINT_BYTES_MAX: usize = 10;

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The remaining bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next field: its number and its value; `None` at the end.
    ///
    /// # Errors
    /// When the bytes end within the field.
    pub fn next_field(&mut self) -> Result<Option<(u32, Wire<'a>)>, ProtobufError> {
        let Some(tag) = self.next_varint_bits()? else {
            return Ok(None);
        };
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::truncated())?;
        let wire = match tag & 0b111 {
            0 => Wire::Varint(
                self.next_varint_bits()?
                    .ok_or_else(ProtobufError::truncated)?,
            ),
            1 => {
                let bytes = self.take(8)?;
                let bytes = <[u8; 8]>::try_from(bytes).map_err(|_| ProtobufError::truncated())?;
                Wire::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = self
                    .next_varint_bits()?
                    .ok_or_else(ProtobufError::truncated)?;
                let length = usize::try_from(length).map_err(|_| ProtobufError::truncated())?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            _ => return Err(ProtobufError::truncated()),
        };
        Ok(Some((number, wire)))
    }

    /// The next integer of a packed list; `None` at the end.
    ///
    /// # Errors
    /// When the bytes end within the integer.
    pub fn next_varint(&mut self) -> Result<Option<i64>, ProtobufError> {
        Ok(self.next_varint_bits()?.map(u64::cast_signed))
    }

    fn next_varint_bits(&mut self) -> Result<Option<u64>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        // Most are tags and lengths of one byte.
        if let [byte, rest @ ..] = self.rest
            && byte & 0x80 == 0
        {
            self.rest = rest;
            return Ok(Some(u64::from(*byte)));
        }
        let mut bits = 0_u64;
        for (i, byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            bits |= u64::from(byte & 0x7f).wrapping_shl(7 * i as u32);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(i + 1..).unwrap_or(&[]);
                return Ok(Some(bits));
            }
        }
        Err(ProtobufError::truncated())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(ProtobufError::truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// A message without the field at a path of field numbers through nested messages.
///
/// # Errors
/// When the bytes end within a field.
pub fn without_field(message: &[u8], path: &[u32]) -> Result<Vec<u8>, ProtobufError> {
    let mut out = Writer::with_capacity(message.len());
    let Some((first, below)) = path.split_first() else {
        return Ok(message.to_vec());
    };
    let mut reader = Reader::new(message);
    loop {
        let before = reader.rest;
        let Some((number, value)) = reader.next_field()? else {
            return Ok(out.into_bytes());
        };
        match value {
            _ if number != *first => {
                let length = before.len() - reader.rest.len();
                out.raw(before.get(..length).unwrap_or_default());
            }
            Wire::Bytes(inner) if !below.is_empty() => {
                out.bytes(number, &without_field(inner, below)?);
            }
            _ => {}
        }
    }
}

/// Writes the fields of messages.
#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// With room for a number of bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        let out = Vec::with_capacity(bytes);
        Self { out }
    }

    /// The written bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
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
    pub fn varint(&mut self, number: u32, value: i64) {
        self.varint_bits(u64::from(number) << 3);
        self.varint_bits(value.cast_unsigned());
    }

    /// A field of eight bytes.
    pub fn double(&mut self, number: u32, value: f64) {
        self.varint_bits(u64::from(number) << 3 | 1);
        self.raw(&value.to_le_bytes());
    }

    /// A field of bytes.
    pub fn bytes(&mut self, number: u32, value: &[u8]) {
        self.head(number, value.len());
        self.raw(value);
    }

    /// The bytes before a field of a given size.
    pub fn head(&mut self, number: u32, bytes: usize) {
        self.varint_bits(u64::from(number) << 3 | 2);
        self.varint_bits(bytes as u64);
    }

    /// A message field, written by `body`.
    pub fn message(&mut self, number: u32, body: impl FnOnce(&mut Self)) {
        self.varint_bits(u64::from(number) << 3 | 2);
        // Most messages are shorter than 128 bytes: one byte is left for the length, and more is made when needed.
        let start = self.out.len();
        self.out.push(0);
        body(self);
        let end = self.out.len();
        let mut length = end - start - 1;
        let more = varint_bytes(length) - 1;
        if more > 0 {
            self.out.resize(end + more, 0);
            self.out.copy_within(start + 1..end, start + 1 + more);
        }
        for byte in &mut self.out[start..start + more] {
            *byte = length as u8 | 0x80;
            length >>= 7;
        }
        self.out[start + more] = length as u8;
    }
}

/// The encoded length of a field with a number of at most 15, from the size of its value in bytes.
pub(crate) fn field_bytes(bytes: usize) -> usize {
    1 + varint_bytes(bytes) + bytes
}

/// The number of bytes of an integer.
fn varint_bytes(bits: usize) -> usize {
    let significant = usize::BITS - bits.leading_zeros();
    significant.div_ceil(7).max(1) as usize
}
