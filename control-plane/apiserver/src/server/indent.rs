//! Indented JSON for interactive clients: kube-apiserver's layout, two spaces per level.
//!
//! The text is indented as it is sent, in pieces, so that a large list is not in memory as a whole.

use super::handle::AnswerBody;
use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;

/// Marks a response whose body is JSON that may be indented. Watches, documents and forwarded responses are not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Indentable;

/// Indents the body of a response that may be indented.
pub(super) fn indented(response: Response<AnswerBody>) -> Response<AnswerBody> {
    if response.extensions().get::<Indentable>().is_none() {
        return response;
    }
    let mut indenter = Indenter::default();
    let mut response = response.map(|body| {
        body.map_frame(move |frame| frame.map_data(|piece| indenter.indent(&piece)))
            .boxed_unsync()
    });
    response.headers_mut().remove(CONTENT_LENGTH);
    response
}

/// The place in a JSON text that is indented piece by piece.
#[derive(Debug, Default)]
struct Indenter {
    depth: usize,
    in_string: bool,
    /// Whether the last byte was the backslash of an escape.
    is_escape: bool,
    /// Whether the last byte opened an object or an array.
    is_open: bool,
}

impl Indenter {
    /// Indents the next piece of valid JSON.
    fn indent(&mut self, piece: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(piece.len() * 2);
        for &byte in piece {
            if self.in_string {
                out.extend_from_slice(&[byte]);
                self.in_string = self.is_escape || byte != b'"';
                self.is_escape = !self.is_escape && byte == b'\\';
                continue;
            }
            if byte.is_ascii_whitespace() {
                continue;
            }
            let closes = matches!(byte, b'}' | b']');
            if closes && !self.is_open {
                self.depth = self.depth.saturating_sub(1);
                self.put_line(&mut out);
            } else if self.is_open && !closes {
                self.depth += 1;
                self.put_line(&mut out);
            }
            self.is_open = matches!(byte, b'{' | b'[');
            self.in_string = byte == b'"';
            out.extend_from_slice(&[byte]);
            match byte {
                b',' => self.put_line(&mut out),
                b':' => out.extend_from_slice(b" "),
                _ => {}
            }
        }
        out.freeze()
    }

    fn put_line(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"\n");
        for _ in 0..self.depth {
            out.extend_from_slice(b"  ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn text_is_indented_alike_however_it_is_cut() -> Result<(), serde_json::Error> {
        let values = [
            json!({}),
            json!([]),
            json!("a"),
            json!({"a": {}, "b": [], "c": [1, -2.5e3, true, null, {"d": "e"}]}),
            json!({"quotes \" and \\": "{\"a\": [1,2]}\\", "line": "\n", "ü": ["", "\\\""]}),
            json!([[[]], [{}], [[1], [2, 3]]]),
        ];
        for value in values {
            let expect = serde_json::to_string_pretty(&value)?;
            let compact = value.to_string();
            for size in 1..=compact.len() {
                let mut indenter = Indenter::default();
                let pieces = compact.as_bytes().chunks(size);
                let pieces: Vec<Bytes> = pieces.map(|piece| indenter.indent(piece)).collect();
                let text = pieces.concat();
                assert_eq!(String::from_utf8_lossy(&text), expect, "{size}");
                let back: Value = serde_json::from_slice(&text)?;
                assert_eq!(back, value);
            }
        }
        Ok(())
    }
}
