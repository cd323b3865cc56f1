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
