//! Which devices an expression selects.

use super::{Selector, Subject, on_a_deep_stack};
use k8s_openapi::api::resource::v1::Device;

fn gpu() -> Subject {
    let device: Device = serde_yaml_ng::from_str(
        "
        name: gpu-0
        attributes:
          model: {string: H100}
          index: {int: 3}
          mig: {bool: false}
          driverVersion: {version: 550.54.15}
          other.example.com/rack: {string: r7}
        capacity:
          memory: {value: 80Gi}
        ",
    )
    .expect("a device");
    Subject::new("gpu.example.com", &device)
}

#[test]
fn a_selector_can_read_all_fields_of_a_device() {
    let table = [
        ("device.driver == 'gpu.example.com'", Ok(true)),
        ("device.attributes['gpu.example.com'].model == 'H100'", Ok(true)),
        (
            "device.attributes[\"gpu.example.com\"].model.startsWith('A')",
            Ok(false),
        ),
        ("device.attributes['gpu.example.com'].index > 2", Ok(true)),
        ("!device.attributes['gpu.example.com'].mig", Ok(true)),
        ("device.attributes['other.example.com'].rack == 'r7'", Ok(true)),
        ("has(device.attributes['gpu.example.com'].model)", Ok(true)),
        ("has(device.attributes['gpu.example.com'].none)", Ok(false)),
        ("has(device.attributes['nobody.example.com'].model)", Ok(false)),
        ("'model' in device.attributes['gpu.example.com']", Ok(true)),
        (
            "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
            Ok(true),
        ),
        (
            "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('80Gi'))",
            Ok(false),
        ),
        (
            "device.capacity['gpu.example.com'].memory == quantity('81920Mi')",
            Ok(true),
        ),
        (
            "device.capacity['gpu.example.com'].memory.asInteger() == 85899345920",
            Ok(true),
        ),
        (
            "device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('535.0.0'))",
            Ok(true),
        ),
        (
            "device.attributes['gpu.example.com'].driverVersion.isLessThan(semver('550.54.15-rc.1'))",
            Ok(false),
        ),
        ("device.allowMultipleAllocations", Ok(false)),
        (
            "['H100', 'H200'].exists(model, device.attributes['gpu.example.com'].model == model)",
            Ok(true),
        ),
        (
            "device.attributes['gpu.example.com'].none == 'x'",
            Err("no such key: none"),
        ),
        (
            "device.attributes['nobody.example.com'].model == 'x'",
            Err("no such key: model"),
        ),
        (
            "device.attributes['gpu.example.com'].model",
            Err("must evaluate to bool"),
        ),
        (
            "device.attributes['gpu.example.com'].index > quantity('1')",
            Err("CEL runtime error"),
        ),
    ];
    for (text, wanted) in table {
        let answer = Selector::compile(text).and_then(|selector| selector.meets(&gpu()));
        match (&answer, wanted) {
            (Ok(answer), Ok(wanted)) => assert_eq!(*answer, wanted, "{text}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            _ => panic!("{text}: {answer:?}, wanted {wanted:?}"),
        }
    }
}

#[test]
fn invalid_and_expensive_expressions_are_refused() {
    let nested = "[1,2].all(a, [1,2].all(b, [1,2].all(c, [1,2].all(d, [1,2].all(e, true)))))";
    let deep = format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000));
    let long = "1 + ".repeat(2_000) + "1 == 2001";
    for text in [
        "",
        "device.",
        "device.driver ==",
        "'open",
        nested,
        &deep,
        &long,
        &"!".repeat(9_000),
    ] {
        assert!(
            Selector::compile(text).is_err(),
            "{}",
            text.chars().take(40).collect::<String>()
        );
    }
}

#[test]
fn the_most_complex_expression_does_not_exhaust_the_stack() {
    for text in [
        "1 + ".repeat(117) + "1 == 118",
        format!("{}true{}", "(".repeat(15), ")".repeat(15)),
        format!("{}true", "!".repeat(119)),
    ] {
        let selector = Selector::compile(&text).expect("it is within the limits");
        assert!(on_a_deep_stack(|| selector.meets(&gpu())).is_some());
    }
}
