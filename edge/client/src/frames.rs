//! The events of a watch as they are sent: lines of JSON, or frames of protobuf behind their length.

use crate::ApiError;
use crate::content::{Format, utf_8};
use crate::error::chain;
use crate::http_client::{ConnectionId, HttpBody};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;

/// The largest event: an object of the largest size that the API stores, escaped.
const EVENT_BYTES_MAX: usize = 16 << 20;
/// The length before a frame, in bytes.
const LENGTH_BYTES: usize = 4;

/// The events of a streamed answer.
pub struct Frames {
    body: HttpBody,
    format: Format,
    connection: Option<ConnectionId>,
    buffer: BytesMut,
    /// The bytes of `buffer` without a line end.
    searched: usize,
    has_ended: bool,
}

impl Frames {
    pub(crate) fn new(body: HttpBody, format: Format, connection: Option<ConnectionId>) -> Self {
        Self {
            body,
            format,
            connection,
            buffer: BytesMut::new(),
            searched: 0,
            has_ended: false,
        }
    }

    /// The format of the events.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The connection of the watch; `None` without HTTP/2.
    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        self.connection
    }

    /// Returns whether the last event is incomplete.
    pub(crate) fn has_partial_event(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Whether the server has ended the stream.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The next event, without its line end or length; `None` when the stream has ended.
    ///
    /// # Errors
    /// A broken connection, or an event that is too large.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let event = match self.format {
                Format::Json => self.line()?.map(utf_8),
                Format::Protobuf => self.frame()?,
            };
            if event.is_some() {
                return Ok(event);
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.body.frame().await {
                None => self.has_ended = true,
                Some(frame) => {
                    let frame = frame.map_err(|e| ApiError::Transport(chain(&*e)))?;
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    /// The next line of the buffer that is not empty; at the end of the stream also one without an end.
    fn line(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let unsearched = &self.buffer[self.searched..];
            let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                break;
            };
            let mut line = self.buffer.split_to(self.searched + at + 1);
            self.searched = 0;
            line.truncate(line.len() - 1);
            if !line.is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
        if self.searched > EVENT_BYTES_MAX {
            return Err(too_large());
        }
        if self.has_ended && !self.buffer.is_empty() {
            self.searched = 0;
            return Ok(Some(self.buffer.split().freeze()));
        }
        Ok(None)
    }

    /// The next frame of the buffer, if it is complete.
    fn frame(&mut self) -> Result<Option<Bytes>, ApiError> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_BYTES>() else {
            return self.incomplete();
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| too_large())?;
        if length > EVENT_BYTES_MAX {
            return Err(too_large());
        }
        if self.buffer.len() < LENGTH_BYTES + length {
            return self.incomplete();
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    fn incomplete(&self) -> Result<Option<Bytes>, ApiError> {
        if self.has_ended && !self.buffer.is_empty() {
            Err(ApiError::Transport(
                "the stream ended within an event".to_owned(),
            ))
        } else {
            Ok(None)
        }
    }
}

fn too_large() -> ApiError {
    ApiError::Transport(format!(
        "an event of the stream is larger than {EVENT_BYTES_MAX} bytes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;
    use tower::BoxError;

    /// The events of a stream whose bytes arrive in chunks of a size, and the error at its end.
    async fn events(format: Format, bytes: &[u8], size: usize) -> (Vec<Vec<u8>>, Option<String>) {
        let chunks: Vec<_> = bytes
            .chunks(size)
            .map(|chunk| Ok::<_, BoxError>(http_body::Frame::data(Bytes::copy_from_slice(chunk))))
            .collect();
        let body = StreamBody::new(futures_util::stream::iter(chunks)).boxed_unsync();
        let mut frames = Frames::new(HttpBody::Boxed(body), format, None);
        let mut events = Vec::new();
        loop {
            match frames.next().await {
                Ok(Some(event)) => events.push(event.to_vec()),
                Ok(None) => return (events, None),
                Err(error) => return (events, Some(error.to_string())),
            }
        }
    }

    #[tokio::test]
    async fn events_are_found_however_the_bytes_come() {
        let cut = Some("connection failed: the stream ended within an event".to_owned());
        let large = Some(format!(
            "connection failed: an event of the stream is larger than {EVENT_BYTES_MAX} bytes"
        ));
        let event = |text: &str| text.as_bytes().to_vec();
        for (format, bytes, expected, error) in [
            (
                Format::Json,
                &b"a\n\nbc\nd"[..],
                vec![event("a"), event("bc"), event("d")],
                None,
            ),
            (Format::Json, b"", vec![], None),
            (
                Format::Json,
                b"a\xffb\n\xff\n",
                vec![event("a\u{fffd}b"), event("\u{fffd}")],
                None,
            ),
            (
                Format::Protobuf,
                b"\0\0\0\x01a\0\0\0\0\0\0\0\x02\nc",
                vec![event("a"), event(""), event("\nc")],
                None,
            ),
            (Format::Protobuf, b"\0\0\0\x02a", vec![], cut.clone()),
            (Format::Protobuf, b"\0\0\0\x01a\0\0", vec![event("a")], cut),
            (Format::Protobuf, b"\xff\0\0\0a", vec![], large),
            (Format::Protobuf, b"", vec![], None),
        ] {
            for size in [1, 2, 3, 64] {
                let got = events(format, bytes, size).await;
                assert_eq!(
                    got,
                    (expected.clone(), error.clone()),
                    "{bytes:?} by {size}"
                );
            }
        }
    }
}
