//! The formats of texts in schemas, as kube-apiserver checks them.
//!
//! kube-apiserver ignores other formats, and ignores dashes in the names of formats. The formats equal the OpenAPI
//! library of Kubernetes, which uses Go's parsers of addresses, URLs and durations.

mod email;
mod uri;

use self::email::is_email;
use self::uri::is_request_uri;
use crate::validation::names;
use berth_api::GoDuration;
use berth_cel::Pattern;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

/// The formats of texts, without dashes.
const TEXT_FORMATS: [&str; 24] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
];
/// The formats of UUIDs that have a version and a variant.
const UUID_FORMATS: [&str; 2] = ["uuid4", "uuid5"];
const HOSTNAME_BYTES_MAX: usize = 255;
const LABEL_BYTES_MAX: usize = 63;
const LONG_NAME_BYTES_MAX: usize = 253;
/// The units of durations that Go does not know, with their nanoseconds. The last name of a unit is a prefix.
const UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "\u{b5}s", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// Returns whether texts are checked for a format.
pub(super) fn is_known(format: &str) -> bool {
    let name = format.replace('-', "");
    TEXT_FORMATS.contains(&name.as_str()) || UUID_FORMATS.contains(&name.as_str())
}

/// Returns whether a text has a format; unknown formats accept every text.
pub(super) fn fits(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && is_hex(text),
        "byte" => is_base64(text),
        "cidr" => names::parse_cidr(text).is_some(),
        "creditcard" => is_credit_card(text),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => duration(text).is_some(),
        "email" => is_email(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && is_hex(digits)
        }
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && names::parse_ip(text).is_some(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8slongname" => text.len() <= LONG_NAME_BYTES_MAX && text.split('.').all(is_name),
        "k8sshortname" => text.len() <= LABEL_BYTES_MAX && is_name(text),
        "mac" => is_mac(text),
        "rgbcolor" => is_rgb_color(text),
        "ssn" => is_social_security_number(text),
        "uri" => is_request_uri(text),
        "uuid" => is_uuid(text, None, false),
        "uuid3" => is_uuid(text, Some('3'), false),
        "uuid4" => is_uuid(text, Some('4'), true),
        "uuid5" => is_uuid(text, Some('5'), true),
        _ => true,
    }
}

/// The nanoseconds of a duration: as Go writes it, or numbers with the units of Scala such as `2 days`.
pub(super) fn duration(text: &str) -> Option<i64> {
    if let Ok(duration) = text.parse::<GoDuration>() {
        return Some(duration.as_nanos());
    }
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '\u{b5}';
    let (mut total, mut found, mut rest) = (0_i64, false, text);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (_, number) = rest.split_at(start);
        let (number, after) = split_where(number, |c| !c.is_ascii_digit());
        let unit = after.trim_start_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let (unit, after) = split_where(unit, |c| !is_letter(c));
        rest = after;
        if unit.is_empty() {
            continue;
        }
        let number: i64 = number.parse().ok()?;
        let unit = unit.to_lowercase();
        for (names, nanos) in UNITS {
            let (prefix, _) = names.split_last()?;
            if names.contains(&unit.as_str()) || unit.starts_with(prefix) {
                found = true;
                total = total.wrapping_add(number.wrapping_mul(nanos));
            }
        }
    }
    found.then_some(total)
}

/// A text in two parts, split before the first character that `ends` accepts.
fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn are_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Base64 with its padding; unlike a decoder, this does not look at the bits that the padding leaves.
fn is_base64(text: &str) -> bool {
    let padding = text.len() - text.trim_end_matches('=').len();
    let body = text.get(..text.len() - padding).unwrap_or_default();
    let is_digit = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    !body.is_empty() && padding <= 2 && text.len().is_multiple_of(4) && body.bytes().all(is_digit)
}

fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let mut number = |digits: usize| {
        let part = parts.next().filter(|part| part.len() == digits)?;
        part.parse::<i16>().ok().filter(|_| are_digits(part))
    };
    let (Some(year), Some(month), Some(day)) = (number(4), number(2), number(2)) else {
        return false;
    };
    let (Ok(month), Ok(day)) = (i8::try_from(month), i8::try_from(day)) else {
        return false;
    };
    jiff::civil::Date::new(year, month, day).is_ok()
}

/// A date and a time with its zone. The fraction may begin with any character, as in the pattern of the library.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let zone = time.strip_suffix('z').or_else(|| {
        let (time, zone) = time.split_at_checked(time.len().checked_sub(6)?)?;
        let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
        let fits = hours.len() == 2 && are_digits(hours) && are_digits(minutes);
        fits.then_some(time)
    });
    let Some((clock, fraction)) = zone.and_then(|time| time.split_at_checked(8)) else {
        return false;
    };
    let mut after = fraction.chars();
    let has_fraction = after.next().is_none_or(|c| c != '\n') && {
        let digits = after.as_str();
        fraction.is_empty() || are_digits(digits)
    };
    let mut units = clock.split(':');
    let mut unit = |max: &str| {
        let unit = units.next().filter(|unit| unit.len() == 2);
        unit.is_some_and(|unit| are_digits(unit) && unit <= max)
    };
    is_date(date)
        && has_fraction
        && unit("23")
        && unit("59")
        && unit("59")
        && units.next().is_none()
}

/// A lower-case label without the limit of its length.
fn is_name(text: &str) -> bool {
    let is_end = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|b| is_end(b) || *b == b'-')
}

/// One label with at most one dash, or labels with dots and a top-level domain of letters. Symbols and letters of all
/// scripts count as letters.
fn is_hostname(text: &str) -> bool {
    static OTHERS: LazyLock<Option<Pattern>> =
        LazyLock::new(|| Pattern::new(r"^[\p{S}\p{L}]$").ok());
    static LETTERS: LazyLock<Option<Pattern>> = LazyLock::new(|| Pattern::new(r"^\p{L}$").ok());
    let is_one = |class: &LazyLock<Option<Pattern>>, c: char| {
        let class = class.as_ref();
        class.is_some_and(|class| class.is_match(c.encode_utf8(&mut [0; 4])))
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || is_one(&OTHERS, c);
    let is_single = || {
        let mut rest = text.chars();
        let first = rest.next().is_some_and(is_part);
        let rest = rest.as_str();
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        first && rest.chars().count() <= 62 && rest.chars().all(is_part)
    };
    let is_qualified = || {
        let Some((labels, top)) = text.rsplit_once('.') else {
            return false;
        };
        let is_label = |label: &str| {
            let ends = label.starts_with(is_part) && label.ends_with(is_part);
            ends && label.chars().count() <= 63 && label.chars().all(|c| c == '-' || is_part(c))
        };
        (2..=63).contains(&top.chars().count())
            && top
                .chars()
                .all(|c| c.is_ascii_alphabetic() || is_one(&LETTERS, c))
            && labels.split('.').all(is_label)
    };
    text.len() <= HOSTNAME_BYTES_MAX
        && text.split('.').all(|label| label.len() <= LABEL_BYTES_MAX)
        && (is_single() || is_qualified())
}

/// Bytes in pairs with `:` or `-`, or in fours with `.`; 6, 8 or 20 of them.
fn is_mac(text: &str) -> bool {
    let separators = [(':', 2), ('-', 2), ('.', 4)];
    separators.into_iter().any(|(separator, digits)| {
        let mut count = 0;
        let fits = text.split(separator).all(|part| {
            count += digits / 2;
            part.len() == digits && is_hex(part)
        });
        fits && matches!(count, 6 | 8 | 20)
    })
}

/// Hexadecimal digits in groups, whose dashes may be absent. `version` is the first digit of the third group.
fn is_uuid(text: &str, version: Option<char>, has_variant: bool) -> bool {
    let (mut rest, mut groups) = (text, [""; 5]);
    for (group, (i, digits)) in groups
        .iter_mut()
        .zip([8, 4, 4, 4, 12].into_iter().enumerate())
    {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((digits, after)) = rest.split_at_checked(digits) else {
            return false;
        };
        (*group, rest) = (digits, after);
    }
    let [_, _, third, fourth, _] = groups;
    let is_variant = |c: char| matches!(c, '8' | '9' | 'a' | 'b' | 'A' | 'B');
    rest.is_empty()
        && groups.into_iter().all(is_hex)
        && version.is_none_or(|version| third.starts_with(version))
        && (!has_variant || fourth.starts_with(is_variant))
}

/// A text without the white space and dashes that numbers of books may contain.
fn without_separators(text: &str) -> String {
    text.replace(['\t', '\n', '\u{c}', '\r', ' ', '-'], "")
}

fn is_isbn10(text: &str) -> bool {
    let text = without_separators(text);
    let Some((digits, check)) = text
        .split_at_checked(9)
        .filter(|(_, check)| check.len() == 1)
    else {
        return false;
    };
    let check = match check {
        "X" => 10,
        check if are_digits(check) => digit_sum(check, &[1]),
        _ => return false,
    };
    let sum = digit_sum(digits, &[1, 2, 3, 4, 5, 6, 7, 8, 9]) + 10 * check;
    are_digits(digits) && sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let text = without_separators(text);
    text.len() == 13 && are_digits(&text) && digit_sum(&text, &[1, 3]).is_multiple_of(10)
}

/// The sum of digits, each multiplied by its weight. The weights repeat.
fn digit_sum(digits: &str, weights: &[u32]) -> u32 {
    let weights = weights.iter().cycle();
    let digits = digits.chars().filter_map(|c| c.to_digit(10));
    digits
        .zip(weights)
        .map(|(digit, weight)| digit * weight)
        .sum()
}

/// A number of one of the known issuers with a valid check digit (Luhn).
fn is_credit_card(text: &str) -> bool {
    let number: String = text.chars().filter(char::is_ascii_digit).collect();
    let starts = |from: u32, to: u32, digits: usize| {
        let start = number.get(..digits).and_then(|start| start.parse().ok());
        start.is_some_and(|start: u32| (from..=to).contains(&start))
    };
    let is_issued = match number.len() {
        13 => starts(4, 4, 1),
        14 => starts(300, 305, 3) || starts(36, 36, 2) || starts(38, 38, 2),
        15 => {
            starts(34, 34, 2) || starts(37, 37, 2) || starts(2131, 2131, 4) || starts(1800, 1800, 4)
        }
        16 => {
            starts(4, 4, 1)
                || starts(51, 55, 2)
                || starts(6011, 6011, 4)
                || starts(650, 659, 3)
                || starts(35, 35, 2)
        }
        _ => false,
    };
    let digits = number.chars().rev().filter_map(|c| c.to_digit(10));
    let sum: u32 = digits
        .enumerate()
        .map(|(i, digit)| match digit * 2 {
            _ if i % 2 == 0 => digit,
            double if double >= 10 => double % 10 + 1,
            double => double,
        })
        .sum();
    is_issued && sum.is_multiple_of(10)
}

/// Three, two and four digits with a dash or a space between them.
fn is_social_security_number(text: &str) -> bool {
    let parts: Vec<&str> = text.split(['-', ' ']).collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [3, 2, 4] && parts.into_iter().all(are_digits)
}

fn is_rgb_color(text: &str) -> bool {
    let space = ['\t', '\n', '\u{c}', '\r', ' '];
    let is_part = |part: &str| {
        let part = part.trim_matches(space);
        let is_plain = are_digits(part) && (part == "0" || !part.starts_with('0'));
        is_plain && part.parse::<u8>().is_ok()
    };
    let parts = text
        .strip_prefix("rgb(")
        .and_then(|text| text.strip_suffix(')'));
    parts.is_some_and(|parts| parts.split(',').count() == 3 && parts.split(',').all(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_formats_that_kubernetes_accepts() {
        for (format, good, bad) in [
            (
                "date-time",
                &[
                    "2024-02-29T10:00:00Z",
                    "2024-01-01t00:00:00.5+01:00",
                    "2024-01-01T23:59:59,123z",
                ][..],
                &[
                    "2023-02-29T10:00:00Z",
                    "2024-01-01T24:00:00Z",
                    "2024-01-01 00:00:00Z",
                    "2024-01-01T00:00:60Z",
                    "now",
                ][..],
            ),
            (
                "date",
                &["2024-02-29", "0001-01-01"],
                &["2023-02-29", "2024-1-1", "20240101", "2024-01-01T00:00:00Z"],
            ),
            (
                "duration",
                &["1h30m", "5s", "0", "2 days", "1w 2 hours", "3 Minutes"],
                &["", "1 fortnight", "days", "1"],
            ),
            (
                "uri",
                &[
                    "http://a.b/c?d=%zz",
                    "/path",
                    "*",
                    "mailto:a@b.c",
                    "http://[::1]:80/",
                    "urn:x",
                ],
                &["", "a/b", "http://a b/", "http://a:port/", "/%zz", ":x"],
            ),
            (
                "email",
                &[
                    "a@b.c",
                    "Bob <bob@example.com>",
                    "\"a b\"@c.d",
                    "a@[1.2.3.4]",
                ],
                &["a", "a@", "@b", "a b@c.d", "a@b.c x"],
            ),
            (
                "hostname",
                &["a", "a-b", "a.example.com", "\u{2603}.com"],
                &["", "-a", "a_b", "a..b", "a-b-c", "a.b1"],
            ),
            (
                "ipv4",
                &["1.2.3.4", "01.2.3.4"],
                &["1.2.3", "::1", "256.0.0.1"],
            ),
            (
                "ipv6",
                &["::1", "fe80::1"],
                &["1.2.3.4", "fe80::1%eth0", ":"],
            ),
            (
                "cidr",
                &["10.0.0.0/8", "::/0"],
                &["10.0.0.0", "10.0.0.0/33"],
            ),
            (
                "mac",
                &[
                    "00:00:5e:00:53:01",
                    "0000.5e00.5301",
                    "02-00-5e-10-00-00-00-01",
                ],
                &["00:00:5e", "00:00:5e:00:53:0g", "000:0:5e:00:53:01"],
            ),
            (
                "uuid",
                &[
                    "AAAAAAAA-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                ],
                &["aaaa", "gaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"],
            ),
            (
                "uuid4",
                &["aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"],
                &[
                    "aaaaaaaa-aaaa-3aaa-8aaa-aaaaaaaaaaaa",
                    "aaaaaaaa-aaaa-4aaa-7aaa-aaaaaaaaaaaa",
                ],
            ),
            (
                "isbn10",
                &["0321751043", "0-8044-2957-X"],
                &["0321751044", "X321751043"],
            ),
            (
                "isbn13",
                &["978-0321751041"],
                &["978-0321751042", "0321751043"],
            ),
            (
                "creditcard",
                &["4111-1111-1111-1111"],
                &["4111-1111-1111-1112", "1111"],
            ),
            (
                "ssn",
                &["111-11-1111", "111 11 1111"],
                &["111111111", "111-111-111"],
            ),
            ("hexcolor", &["#fff", "ABCDEF"], &["#ffff", "#ggg"]),
            (
                "rgbcolor",
                &["rgb(0, 10,255)"],
                &["rgb(0,10)", "rgb(0,10,256)", "rgb(00,1,1)"],
            ),
            (
                "byte",
                &["aGVsbG8=", "YR=="],
                &["", "aGVsbG8", "a=bc", "===="],
            ),
            (
                "bsonobjectid",
                &["507f1f77bcf86cd799439011"],
                &["507f1f77bcf86cd79943901", "zzzf1f77bcf86cd799439011"],
            ),
            ("k8s-short-name", &["a-b", "1"], &["A", "-a", "a.b", ""]),
            ("k8s-long-name", &["a.b-c"], &["a..b", "A.b"]),
            ("password", &["", "x"], &[]),
            ("int32", &["not checked"], &[]),
        ] {
            for text in good {
                assert!(fits(format, text), "{format}: {text:?}");
            }
            for text in bad {
                assert!(!fits(format, text), "{format}: {text:?}");
            }
        }
        assert!(is_known("date-time") && is_known("uuid4") && !is_known("int32"));
    }
}
