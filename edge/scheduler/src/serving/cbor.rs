//! JSON values as CBOR (RFC 8949), as components of Kubernetes write them: with the tag of self-described CBOR, and
//! texts as byte strings.

use serde_json::Value;

/// The tag 55799.
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// The major types that JSON values need.
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const ARRAY: u8 = 4;
const MAP: u8 = 5;

/// The value as CBOR.
pub(super) fn encode(value: &Value) -> Vec<u8> {
    let mut out = SELF_DESCRIBED.to_vec();
    put(&mut out, value);
    out
}

fn put(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(false) => out.push(0xf4),
        Value::Bool(true) => out.push(0xf5),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => head(out, UNSIGNED, number),
            // -1 is 0, -2 is 1.
            (None, Some(number)) => head(out, NEGATIVE, (!number).cast_unsigned()),
            (None, None) => {
                out.push(0xfb);
                out.extend(number.as_f64().unwrap_or_default().to_be_bytes());
            }
        },
        Value::String(text) => put_text(out, text),
        Value::Array(items) => {
            head(out, ARRAY, items.len() as u64);
            items.iter().for_each(|item| put(out, item));
        }
        Value::Object(fields) => {
            head(out, MAP, fields.len() as u64);
            for (name, value) in fields {
                put_text(out, name);
                put(out, value);
            }
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    head(out, BYTES, text.len() as u64);
    out.extend(text.as_bytes());
}

/// The major type with its number: a value, or a length.
fn head(out: &mut Vec<u8>, major: u8, number: u64) {
    let major = major << 5;
    let bytes = number.to_be_bytes();
    match number {
        0..24 => out.push(major | bytes[7]),
        24..0x100 => out.extend([major | 24, bytes[7]]),
        0x100..0x1_0000 => {
            out.push(major | 25);
            out.extend(&bytes[6..]);
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend(&bytes[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The examples of RFC 8949, Appendix A, with texts as byte strings.
    #[test]
    fn values_are_encoded_as_in_the_standard() {
        for (value, expected) in [
            (json!(0), "00"),
            (json!(23), "17"),
            (json!(24), "1818"),
            (json!(100), "1864"),
            (json!(1000), "1903e8"),
            (json!(1_000_000), "1a000f4240"),
            (json!(1_000_000_000_000_u64), "1b000000e8d4a51000"),
            (json!(-1), "20"),
            (json!(-10), "29"),
            (json!(-1000), "3903e7"),
            (json!(1.1), "fb3ff199999999999a"),
            (json!(false), "f4"),
            (json!(true), "f5"),
            (json!(null), "f6"),
            (json!("IETF"), "4449455446"),
            (json!([1, [2, 3]]), "8201820203"),
            (json!({"a": 1, "b": [2, 3]}), "a241610141628202 03"),
            (json!("x".repeat(24)), &format!("5818{}", "78".repeat(24))),
        ] {
            let hex: String = encode(&value).iter().map(|b| format!("{b:02x}")).collect();
            let expected = expected.replace(' ', "");
            assert_eq!(hex, format!("d9d9f7{expected}"), "{value}");
        }
    }
}
