use proptest::prelude::*;

use super::*;

#[track_caller]
fn nanos(text: &str, expected: i128) {
    assert_eq!(text.parse::<Amount>().map(Amount::nanos), Ok(expected), "{text}");
}

#[test]
fn every_suffix() {
    let (unit, kilo, kibi) = (NANOS, 1000_i128, 1024_i128);
    for (text, expected) in [
        ("1n", 1),
        ("1u", 1000),
        ("1m", 1_000_000),
        ("1", unit),
        ("1k", kilo * unit),
        ("1M", kilo.pow(2) * unit),
        ("1G", kilo.pow(3) * unit),
        ("1T", kilo.pow(4) * unit),
        ("1P", kilo.pow(5) * unit),
        ("1E", kilo.pow(6) * unit),
        ("1Ki", kibi * unit),
        ("1Mi", kibi.pow(2) * unit),
        ("1Gi", kibi.pow(3) * unit),
        ("1Ti", kibi.pow(4) * unit),
        ("1Pi", kibi.pow(5) * unit),
        ("1Ei", kibi.pow(6) * unit),
        ("1e3", 1000 * unit),
        ("1E3", 1000 * unit),
        ("1e+3", 1000 * unit),
        ("1e-3", unit / 1000),
    ] {
        nanos(text, expected);
    }
}

#[test]
fn signs_decimal_points_and_zeros_are_parsed() {
    nanos("+1.5", NANOS * 3 / 2);
    nanos("-1.5", -NANOS * 3 / 2);
    nanos(".5", NANOS / 2);
    nanos("5.", NANOS * 5);
    nanos("0.25Gi", (1 << 28) * NANOS);
    nanos("0.1Ki", 102_400_000_000);
    nanos("000000000000000000000000000000000000000000000000012", 12 * NANOS);
    nanos("0e99999999999999999999", 0);
    nanos("1234567890123.123456789", 1_234_567_890_123_123_456_789);
}

#[test]
fn finer_than_a_billionth_rounds_away_from_zero() {
    nanos("0.1n", 1);
    nanos("-0.1n", -1);
    nanos("1.0000000001", NANOS + 1);
    nanos("1.00000000000000000000000000000000000000000000000000000001", NANOS + 1);
    nanos("1e-99999999999", 1);
}

#[test]
fn amounts_beyond_the_maximum_are_capped() {
    for text in [
        "9223372036854775807",
        "9223372036854775808",
        "10E",
        "8Ei",
        "1e99999999999",
        "99999999999999999999999999999999999999999999",
    ] {
        nanos(text, MAX);
    }
    nanos("-8Ei", -MAX);
    assert_eq!(Amount { nanos: MAX }.milli(), i64::MAX);
    assert_eq!(
        Amount { nanos: MAX }.saturating_add(Amount::from_units(1)).units(),
        i64::MAX
    );
    assert_eq!(Amount::from_units(i64::MIN).saturating_mul(i64::MAX).units(), -i64::MAX);
}

#[test]
fn wide_sums_return_to_what_they_were_and_are_shown_cut_down() {
    let most = Amount { nanos: MAX };
    let sum = most.wide_add(most).wide_add(Amount::from_units(1));
    for format in [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent] {
        assert_eq!(sum.format(format), most.format(format));
        assert_eq!(
            Amount::ZERO.wide_sub(sum).format(format),
            format!("-{}", most.format(format))
        );
    }
    assert_eq!((sum.units(), sum.milli()), (i64::MAX, i64::MAX));
    assert_eq!(sum.wide_sub(most).wide_sub(most), Amount::from_units(1));
}

#[test]
fn texts_that_are_no_quantities_are_errors() {
    for text in [
        "", "-", ".", "m", "1.2.3", "1 ", " 1", "1x", "1KI", "1mi", "1e", "1e1.5", "1Ee3", "--1", "1_000", "NaN",
        "inf", "٣", "1e−3",
    ] {
        assert_eq!(text.parse::<Amount>(), Err(QuantityError(text.to_owned())));
    }
}

#[test]
fn whole_units_and_thousandths_round_away_from_zero() {
    let amount = |text: &str| text.parse::<Amount>().unwrap();
    assert_eq!(amount("1500m").units(), 2);
    assert_eq!(amount("-1500m").units(), -2);
    assert_eq!(amount("1n").units(), 1);
    assert_eq!(amount("100u").milli(), 1);
    assert_eq!(amount("0.5").milli(), 500);
}

#[test]
fn canonical_texts() {
    for (text, format, canonical) in [
        ("3500m", Format::DecimalSi, "3500m"),
        ("1000m", Format::DecimalSi, "1"),
        ("1000", Format::DecimalSi, "1k"),
        ("1500", Format::DecimalSi, "1500"),
        ("0", Format::BinarySi, "0"),
        ("65536Mi", Format::BinarySi, "64Gi"),
        ("1.5Gi", Format::BinarySi, "1536Mi"),
        ("1000Ki", Format::BinarySi, "1000Ki"),
        ("0.1Ki", Format::BinarySi, "102400m"),
        ("1e3", Format::DecimalExponent, "1e3"),
        ("1e-3", Format::DecimalExponent, "1e-3"),
        ("-2k", Format::DecimalSi, "-2k"),
    ] {
        let (amount, read) = parse(text).unwrap();
        assert_eq!(amount.format(format), canonical, "{text}");
        if text != "0" {
            assert_eq!(read, format, "{text}");
        }
    }
}

proptest! {
    #[test]
    fn canonical_text_reads_as_the_same_amount(nanos in -MAX..=MAX) {
        let amount = Amount { nanos };
        for format in [Format::DecimalSi, Format::DecimalExponent] {
            prop_assert_eq!(amount.format(format).parse::<Amount>(), Ok(amount));
        }
    }

    #[test]
    fn binary_text_of_whole_units_reads_as_the_same_amount(units in -i64::MAX..=i64::MAX) {
        let amount = Amount::from_units(units);
        prop_assert_eq!(amount.format(Format::BinarySi).parse::<Amount>(), Ok(amount));
    }

    #[test]
    fn no_text_panics(text in "[-+0-9.eEkKMGTPinum]{0,40}|\\PC*") {
        let _ = parse(&text);
    }
}
