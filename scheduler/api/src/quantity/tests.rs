use super::*;
use proptest::prelude::*;

fn quantity(text: &str) -> Quantity {
    text.parse()
        .unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[test]
fn a_quantity_is_24_bytes() {
    assert_eq!(size_of::<Quantity>(), 24);
    assert_eq!(align_of::<Quantity>(), 8);
}

/// The text that is read, the nanos that it means, its canonical form.
#[test]
fn texts_mean_amounts_and_have_one_canonical_form() {
    const N: i128 = NANOS;
    let max = N * i128::from(i64::MAX);
    for (text, nanos, canonical) in [
        ("0", 0, "0"),
        ("00", 0, "0"),
        ("-0", 0, "0"),
        ("0Ki", 0, "0"),
        ("0.0e3", 0, "0"),
        // Every suffix.
        ("5n", 5, "5n"),
        ("4u", 4_000, "4u"),
        ("3m", 3_000_000, "3m"),
        ("9", 9 * N, "9"),
        ("8k", 8_000 * N, "8k"),
        ("7M", 7_000_000 * N, "7M"),
        ("6G", 6_000_000_000 * N, "6G"),
        ("5T", 5_000_000_000_000 * N, "5T"),
        ("2P", 2_000_000_000_000_000 * N, "2P"),
        ("1E", 1_000_000_000_000_000_000 * N, "1E"),
        ("12E", 12_000_000_000_000_000_000 * N, "12E"),
        ("1Ki", 1024 * N, "1Ki"),
        ("7Mi", (7 << 20) * N, "7Mi"),
        ("6Gi", (6 << 30) * N, "6Gi"),
        ("5Ti", (5 << 40) * N, "5Ti"),
        ("4Pi", (4 << 50) * N, "4Pi"),
        ("3Ei", (3 << 60) * N, "3Ei"),
        // The largest suffix that loses nothing.
        ("0.5", N / 2, "500m"),
        ("1000m", N, "1"),
        ("1080000000n", 1_080_000_000, "1080m"),
        ("40T", 40_000_000_000_000 * N, "40T"),
        ("0.001T", 1_000_000_000 * N, "1G"),
        ("1000000k", 1_000_000_000 * N, "1G"),
        ("1234567M", 1_234_567_000_000 * N, "1234567M"),
        ("100.035k", 100_035 * N, "100035"),
        ("1024Mi", (1 << 30) * N, "1Gi"),
        ("1500Mi", (1500 << 20) * N, "1500Mi"),
        ("1.5Gi", (1536 << 20) * N, "1536Mi"),
        ("1025024Mi", (1001 << 30) * N, "1001Gi"),
        ("1000Ki", 1_024_000 * N, "1000Ki"),
        // Exponents stay exponents.
        ("1e3", 1_000 * N, "1e3"),
        ("1E6", 1_000_000 * N, "1e6"),
        ("1.3E+6", 1_300_000 * N, "1300e3"),
        ("1e14", 100_000_000_000_000 * N, "100e12"),
        ("0.001e0", 1_000_000, "1e-3"),
        ("1000e-12", 1, "1e-9"),
        ("500e0", 500 * N, "500"),
        ("1e20", 100_000_000_000_000_000_000 * N, "100e18"),
        // A fraction that is smaller than a nano rounds away from zero.
        ("3.001n", 4, "4n"),
        ("-3.001n", -4, "-4n"),
        ("1.1E-9", 2, "2e-9"),
        ("0.0000000001", 1, "1n"),
        ("0.00000012345", 124, "124n"),
        ("1e-999999999999", 1, "1e-9"),
        ("0e-999999999999", 0, "0"),
        // Binary fractions; below 1024 and below one they print as decimals, below one they are decimals.
        ("0.5Mi", (512 << 10) * N, "512Ki"),
        ("100.035Ki", 102_435_840_000_000, "102435840m"),
        ("0.5Ki", 512 * N, "512"),
        (".001Ki", 1_024_000_000, "1024m"),
        (".000001Ki", 1_024_000, "1024u"),
        (".000000000001Ki", 2, "2n"),
        ("0.05Gi", 53_687_091_200_000_000, "53687091200m"),
        // Caps: binary ones at 2^63-1, the others at the bounds of the type.
        ("9Ei", max, "9223372036854775807"),
        ("-9Ei", -max, "-9223372036854775807"),
        ("9223372036854775807Ki", max, "9223372036854775807"),
        ("1000E", 1_000_000_000_000_000_000_000 * N, "1000E"),
        (
            "1e400",
            NANOS_MAX,
            "170141183460469231731687303715884105727e-9",
        ),
        (
            "-1e400",
            -NANOS_MAX,
            "-170141183460469231731687303715884105727e-9",
        ),
        // Odd, but accepted.
        ("+1", N, "1"),
        ("1.", N, "1"),
        ("1.G", 1_000_000_000 * N, "1G"),
        (".5", N / 2, "500m"),
        (".", 0, "0"),
        ("-", 0, "0"),
        ("Ki", 0, "0"),
        ("m", 0, "0"),
        ("007", 7 * N, "7"),
    ] {
        let parsed = quantity(text);
        assert_eq!(parsed.nanos(), nanos, "{text}");
        assert_eq!(parsed.to_string(), canonical, "{text}");
    }
}

#[test]
fn what_is_no_quantity_is_refused_with_upstreams_words() {
    use ParseQuantityError::{Format, Numeric, Suffix};
    for (text, error) in [
        ("", Format),
        (" 1", Format),
        ("1 ", Format),
        ("1.1.M", Format),
        ("1+1.0M", Format),
        ("aoeu", Format),
        ("1GB", Format),
        ("1gi", Format),
        ("1e5e", Format),
        ("-3.01e-x", Format),
        ("½", Format),
        ("1½", Format),
        ("0.1mi", Suffix),
        ("1i", Suffix),
        (".5i", Suffix),
        ("1e", Suffix),
        ("-3.01e-", Suffix),
        ("1K", Suffix),
        ("1ee5", Suffix),
        ("1e99999999999999999999", Suffix),
        ("+-1", Suffix),
        ("e-20", Numeric),
        (".e-20", Numeric),
        ("Ei", Numeric),
    ] {
        assert_eq!(text.parse::<Quantity>(), Err(error), "{text:?}");
    }
    assert_eq!(
        Format.to_string(),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    assert_eq!(Suffix.to_string(), "unable to parse quantity's suffix");
}

#[test]
fn values_round_away_from_zero_and_saturate() {
    for (text, value, milli) in [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("1m", 1, 1),
        ("1500m", 2, 1500),
        ("-1500m", -2, -1500),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("1000001u", 2, 1001),
        ("1Gi", 1 << 30, 1000 << 30),
        ("9223372036854775807", i64::MAX, i64::MAX),
        ("-9223372036854775808", i64::MIN, i64::MIN),
        ("9223372036854775.807", 9223372036854776, i64::MAX),
        ("10E", i64::MAX, i64::MAX),
        ("-10E", i64::MIN, i64::MIN),
    ] {
        assert_eq!(quantity(text).value(), value, "value of {text}");
        assert_eq!(quantity(text).milli_value(), milli, "milli value of {text}");
    }
}

#[test]
fn amounts_compare_whatever_their_format() {
    for (smaller, larger) in [
        ("-1", "0"),
        ("50m", "100m"),
        ("1G", "1Gi"),
        ("100Gi", "10000T"),
        ("8Ei", "1e30"),
        ("-1Ki", "-1023"),
    ] {
        assert!(quantity(smaller) < quantity(larger), "{smaller} < {larger}");
    }
    for (one, same) in [("1024", "1Ki"), ("1", "1e0"), ("0.1", "100m")] {
        assert_eq!(quantity(one), quantity(same), "{one} = {same}");
    }
}

#[test]
fn sums_keep_the_format_of_the_first_that_is_not_zero() {
    for (a, b, sum, difference) in [
        ("1", "500m", "1500m", "500m"),
        ("0", "1Gi", "1Gi", "-1Gi"),
        ("1Gi", "0", "1Gi", "1Gi"),
        ("1Gi", "1G", "2073741824", "73741824"),
        ("512Ki", "512Ki", "1Mi", "0"),
        ("1e3", "1k", "2e3", "0"),
        ("8Ei", "8Ei", "18446744073709551614", "0"),
    ] {
        assert_eq!((quantity(a) + quantity(b)).to_string(), sum, "{a} + {b}");
        assert_eq!(
            (quantity(a) - quantity(b)).to_string(),
            difference,
            "{a} - {b}"
        );
    }
    let most = quantity("1e400");
    assert_eq!(most + most, most);
    assert_eq!(-most - most, -most);
}

#[test]
fn constructors_and_questions() {
    assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    assert_eq!(
        Quantity::from_value(200 << 20, QuantityFormat::BinarySI).to_string(),
        "200Mi"
    );
    assert_eq!(
        quantity("1Ki")
            .with_format(QuantityFormat::DecimalSI)
            .to_string(),
        "1024"
    );
    assert_eq!(quantity("-1").sign(), -1);
    assert!(Quantity::default().is_zero() && Quantity::ZERO.sign() == 0);
    assert!(quantity("2000m").is_integer() && !quantity("1500m").is_integer());
    assert_eq!(quantity("1500m").as_f64(), 1.5);
}

/// The text that the control plane shows, in general and in a list of resources.
#[test]
fn some_texts_stay_as_written() {
    for (text, shown, in_milli) in [
        ("1.234", "1.234", "1.234"),
        ("1.500", "1.500", "1.500"),
        ("1E3", "1E3", "1E3"),
        ("1e+3", "1e+3", "1e+3"),
        ("+1", "+1", "+1"),
        ("01Ki", "01Ki", "01Ki"),
        ("1.", "1.", "1."),
        ("1.234567", "1.234567", "1235m"),
        ("5u", "5u", "1m"),
        // Zeros that a larger suffix could take, and fractions of other lengths, do not stay.
        ("1000m", "1", "1"),
        ("1.5", "1500m", "1500m"),
        ("0.100", "100m", "100m"),
        ("1024Mi", "1Gi", "1Gi"),
        ("1.000", "1", "1"),
        ("9Ei", "9223372036854775807", "9223372036854775807"),
        (" 1Gi ", "1Gi", "1Gi"),
        (
            "1234567890123456789.000",
            "1234567890123456789",
            "1234567890123456789",
        ),
    ] {
        assert_eq!(Quantity::wire_text(text).unwrap(), shown, "{text}");
        assert_eq!(
            Quantity::wire_text_in_milli(text).unwrap(),
            in_milli,
            "{text} in milli"
        );
    }
    assert!(Quantity::wire_text("one").is_err());
}

#[test]
fn json_gives_strings_numbers_or_null() {
    for (json, canonical) in [
        (r#""1.5Gi""#, "1536Mi"),
        (r#"" 100m ""#, "100m"),
        ("2", "2"),
        ("-2", "-2"),
        ("0.1", "100m"),
        ("18446744073709551615", "18446744073709551615"),
        ("1e3", "1k"),
        ("null", "0"),
    ] {
        let decoded: Quantity = serde_json::from_str(json).unwrap();
        assert_eq!(decoded.to_string(), canonical, "{json}");
    }
    for json in [r#""1Gb""#, "true", "[]", r#""""#] {
        assert!(serde_json::from_str::<Quantity>(json).is_err(), "{json}");
    }
    assert_eq!(
        serde_json::to_string(&quantity("1024Ki")).unwrap(),
        r#""1Mi""#
    );
}

fn any_format() -> impl Strategy<Value = QuantityFormat> {
    prop_oneof![
        Just(QuantityFormat::DecimalSI),
        Just(QuantityFormat::BinarySI),
        Just(QuantityFormat::DecimalExponent)
    ]
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    let nanos = prop_oneof![
        any::<i128>(),
        any::<i64>().prop_map(|whole| i128::from(whole) * NANOS),
        any::<i32>().prop_map(i128::from),
        (0_i128..2048, 0_u32..6).prop_map(|(n, exponent)| (n << (10 * exponent)) * NANOS),
    ];
    (nanos, any_format()).prop_map(|(nanos, format)| Quantity::from_nanos(nanos, format))
}

proptest! {
    #[test]
    fn displaying_and_reading_keeps_the_amount(quantity in any_quantity()) {
        let text = quantity.to_string();
        let again: Quantity = text.parse().unwrap();
        prop_assert_eq!(again, quantity, "{}", text);
        // A binary quantity without a factor of 1024 has no suffix, so its text reads as a decimal one.
        if quantity.format() != QuantityFormat::BinarySI || text.ends_with('i') {
            prop_assert_eq!(again.to_string(), text);
        }
    }

    #[test]
    fn order_and_sums_are_those_of_the_nanos(a in any_quantity(), b in any_quantity()) {
        prop_assert_eq!(a.cmp(&b), a.nanos().cmp(&b.nanos()));
        let clamp = |nanos: i128| nanos.max(-NANOS_MAX);
        prop_assert_eq!((a + b).nanos(), clamp(a.nanos().saturating_add(b.nanos())));
        prop_assert_eq!((a - b).nanos(), clamp(a.nanos().saturating_sub(b.nanos())));
        prop_assert!(a.rounded_to_milli().nanos().unsigned_abs() / 1_000_000 * 1_000_000
            >= a.nanos().unsigned_abs() / 1_000_000 * 1_000_000);
    }

    /// Decimal texts against plain arithmetic, for numbers that an `i128` holds.
    #[test]
    fn decimals_are_read_exactly(whole in 0_u64.., fraction in "[0-9]{0,20}", negative: bool) {
        let sign = if negative { "-" } else { "" };
        let parsed = quantity(&format!("{sign}{whole}.{fraction}"));
        let digits = format!("{fraction:0<20}");
        let below: u128 = digits.parse().unwrap();
        let nanos = u128::from(whole) * NANOS as u128 + below.div_ceil(100_000_000_000);
        prop_assert_eq!(parsed.nanos(), if negative { -(nanos as i128) } else { nanos as i128 });
    }

    /// Binary fractions against plain arithmetic: `f / 2^10` written out in decimal is exact.
    #[test]
    fn binary_fractions_are_read_exactly(whole in 0_u32.., part in 0_u128..1024) {
        let decimals = part * 10_u128.pow(10) / 1024;
        let parsed = quantity(&format!("{whole}.{decimals:010}Ki"));
        prop_assert_eq!(parsed.nanos(), (i128::from(whole) * 1024 + part as i128) * NANOS);
    }

    #[test]
    fn no_text_panics(text in "\\PC*", likely in "[-+.0-9eEinumkKMGTP]{0,50}") {
        for text in [text, likely] {
            let parsed = text.parse::<Quantity>();
            prop_assert_eq!(Quantity::wire_text_in_milli(text.trim()).is_ok(), text.trim().parse::<Quantity>().is_ok());
            if let Ok(quantity) = parsed {
                prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
            }
        }
    }
}
