//! What annotations mean, and that admission and scheduler agree on it whatever they say.

use proptest::prelude::*;

use super::*;

fn ask(annotations: &[(&'static str, &'static str)], named: Named) -> Result<Asked<'static>, InvalidRequest> {
    read(annotations.iter().copied(), named)
}

fn fraction(text: &'static str) -> Result<Asked<'static>, InvalidRequest> {
    ask(&[(annotation::GPU_FRACTION, text)], Named::default())
}

fn shares(part: Part, devices: i64) -> Result<Asked<'static>, InvalidRequest> {
    Ok(Asked::Share(GpuShare { part, devices }))
}

#[test]
fn fractions_count_exactly_and_never_as_nothing() {
    for (text, billionths) in [
        ("0.5", WHOLE / 2),
        ("5e-1", WHOLE / 2),
        ("+.5", WHOLE / 2),
        ("000.5", WHOLE / 2),
        ("0.004", 4_000_000),
        ("1.2e-10", 1),
        ("5e-324", 1),
        ("0.9999999999999999", WHOLE),
    ] {
        assert_eq!(fraction(text), shares(Part::Fraction(billionths), 1), "{text}");
    }
    for text in [
        "1", "1.0", "0", "-0.5", "Inf", "1e309", "1e-400", "500m", "50%", "", " 0.5", "0.5\n", "0,5", "٠.٥", "0x0",
        "0.5_",
    ] {
        assert_eq!(
            fraction(text),
            Err(InvalidRequest::Fraction(text.to_owned())),
            "{text:?}"
        );
    }
    for text in ["NaN", "0x1p-1"] {
        assert_eq!(fraction(text), Err(InvalidRequest::Fraction(text.to_owned())));
    }
}

#[test]
fn memory_requests_are_whole_numbers_up_to_a_maximum() {
    let memory = |text| ask(&[(annotation::GPU_MEMORY, text)], Named::default());
    for (text, mib) in [
        ("1", 1),
        ("008192", 8192),
        ("9223372036854775807", GPU_MEMORY_COUNTED),
        ("9223372036854775808", GPU_MEMORY_COUNTED),
        ("18446744073709551615", GPU_MEMORY_COUNTED),
    ] {
        assert_eq!(memory(text), shares(Part::Memory(mib), 1), "{text}");
    }
    for text in [
        "0",
        "-1",
        "+5",
        "1.5",
        "1Gi",
        "0x10",
        "1e3",
        "",
        "18446744073709551616",
        "NaN",
    ] {
        assert_eq!(memory(text), Err(InvalidRequest::Memory(text.to_owned())), "{text}");
    }
}

#[test]
fn a_number_of_devices_without_a_portion_requests_nothing() {
    let of = |text| {
        ask(
            &[
                (annotation::GPU_FRACTION, "0.5"),
                (annotation::GPU_FRACTION_NUM_DEVICES, text),
            ],
            Named::default(),
        )
    };
    assert_eq!(of("3"), shares(Part::Fraction(WHOLE / 2), 3));
    assert_eq!(
        of("18446744073709551615"),
        shares(Part::Fraction(WHOLE / 2), GPU_DEVICES_COUNTED)
    );
    for text in ["0", "-1", "1.0", "two", "", "1e1"] {
        assert_eq!(of(text), Err(InvalidRequest::Devices(text.to_owned())), "{text}");
    }
    let alone = ask(&[(annotation::GPU_FRACTION_NUM_DEVICES, "2")], Named::default());
    assert_eq!(alone, Err(InvalidRequest::DevicesAlone));
}

#[test]
fn contradictory_requests_are_refused() {
    const FRACTION: (&str, &str) = (annotation::GPU_FRACTION, "0.5");
    const MEMORY: (&str, &str) = (annotation::GPU_MEMORY, "1024");
    const MIG: (&str, &str) = ("nvidia.com/mig-1g.5gb", "2");
    let (whole, mig) = (
        Named {
            whole: true,
            mig: false,
        },
        Named {
            whole: false,
            mig: true,
        },
    );
    assert_eq!(ask(&[FRACTION], whole), Err(InvalidRequest::FractionAndWhole));
    assert_eq!(ask(&[MEMORY], whole), Err(InvalidRequest::MemoryAndOther));
    assert_eq!(
        ask(&[FRACTION, MEMORY], Named::default()),
        Err(InvalidRequest::MemoryAndOther)
    );
    assert_eq!(ask(&[FRACTION], mig), Err(InvalidRequest::ShareAndMig));
    assert_eq!(ask(&[MEMORY, MIG], Named::default()), Err(InvalidRequest::ShareAndMig));
    assert_eq!(ask(&[MIG], whole), Err(InvalidRequest::WholeAndMig));
    assert_eq!(
        ask(&[MIG], Named::default()),
        Ok(Asked::Mig(vec![("nvidia.com/mig-1g.5gb", 2)]))
    );
    for nothing in ["0", "-1", "many", "1.5"] {
        assert_eq!(
            ask(&[("nvidia.com/mig-none", nothing)], whole),
            Ok(Asked::Nothing),
            "{nothing}"
        );
    }
}

proptest! {
    #[test]
    fn every_accepted_request_is_above_zero(text in NUMBERS, devices in NUMBERS) {
        for key in [annotation::GPU_FRACTION, annotation::GPU_MEMORY] {
            let asked = [(key, text.as_str()), (annotation::GPU_FRACTION_NUM_DEVICES, devices.as_str())];
            if let Ok(asked) = read(asked.into_iter(), Named::default()) {
                let Asked::Share(share) = asked else { panic!("{asked:?}") };
                prop_assert!((1..=GPU_DEVICES_COUNTED).contains(&share.devices));
                match share.part {
                    Part::Fraction(billionths) => prop_assert!((1..=WHOLE).contains(&billionths)),
                    Part::Memory(mib) => prop_assert!((1..=GPU_MEMORY_COUNTED).contains(&mib)),
                }
            }
        }
    }
}

/// Numbers as people and attackers write them.
const NUMBERS: &str = "[-+ ]?(0|1|0x)?[0-9._]{0,22}([eEpPmkMG][-+]?[0-9]{0,4}|i|u|inf|NaN|%)?";

#[test]
fn messages_name_the_value_and_its_unit() {
    let says = |key: &'static str, value: &str| {
        let annotations = std::iter::once((key, value));
        read(annotations, Named::default()).unwrap_err().to_string()
    };
    for (value, mib) in [
        ("3Gib", "3072"),
        ("3GiB", "3072"),
        ("1500MB", "1431"),
        ("1Ti", "1048576"),
    ] {
        assert_eq!(
            says(annotation::GPU_MEMORY, value),
            format!("annotation gpu-memory: \"{value}\" is not a whole number of MiB above 0; in MiB: \"{mib}\"")
        );
    }
    for value in ["-5", "much", "1Ki"] {
        assert_eq!(
            says(annotation::GPU_MEMORY, value),
            format!("annotation gpu-memory: \"{value}\" is not a whole number of MiB above 0")
        );
    }
    assert_eq!(
        says(annotation::GPU_FRACTION, "half"),
        "annotation gpu-fraction: \"half\" is not a decimal number above 0 and below 1, such as 0.5"
    );
    let long = "9".repeat(70);
    assert_eq!(
        says(annotation::GPU_FRACTION, &long),
        format!(
            "annotation gpu-fraction: \"{}…\" is not a decimal number above 0 and below 1, such as 0.5",
            &long[..40]
        )
    );
}
