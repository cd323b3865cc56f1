//! Percent-encoding of the parts of URLs (RFC 3986).

/// Decodes `%xx`, and in queries `+`.
pub(crate) fn decode(text: &str, in_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let hex = after.get(..2).and_then(|h| std::str::from_utf8(h).ok());
                match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
                    Some(byte) => {
                        bytes.push(byte);
                        rest = after.get(2..).unwrap_or(&[]);
                    }
                    None => bytes.push(b'%'),
                }
            }
            b'+' if in_query => bytes.push(b' '),
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}
