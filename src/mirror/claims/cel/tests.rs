//! Which devices an expression selects.

mod fuzz;

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
        (
            "device.attributes['gpu.example.com'].driverVersion.major() == 550",
            Ok(true),
        ),
        (
            "cel.bind(gpu, device.attributes['gpu.example.com'], gpu.driverVersion.minor() + gpu.driverVersion.patch() == 69)",
            Ok(true),
        ),
        (
            "device.attributes['gpu.example.com'].index.major() == 3",
            Err("CEL runtime error"),
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
    assert_answers(&table);
}

fn assert_answers(table: &[(&str, Result<bool, &str>)]) {
    for (text, wanted) in table {
        let answer = Selector::compile(text).and_then(|selector| selector.meets(&gpu()));
        match (&answer, wanted) {
            (Ok(answer), Ok(wanted)) => assert_eq!(answer, wanted, "{text}"),
            (Err(error), Err(part)) => assert!(error.contains(*part), "{text}: {error}"),
            _ => panic!("{text}: {answer:?}, wanted {wanted:?}"),
        }
    }
}

/// As in the documentation of device selectors.
#[test]
fn a_value_can_be_given_a_name() {
    assert_answers(&[
        (
            "cel.bind(gpu, device.attributes['gpu.example.com'], gpu.index > 2 && !gpu.mig)",
            Ok(true),
        ),
        (
            "cel.bind(gpu, device.attributes['nobody.example.com'], has(gpu.model))",
            Ok(false),
        ),
        (
            "cel.bind(a, 'H', cel.bind(b, a + '100', b == device.attributes['gpu.example.com'].model && a == 'H'))",
            Ok(true),
        ),
        ("cel.bind(a, 1, cel.bind(a, a + 1, a == 2) && a == 1)", Ok(true)),
        (
            "['H', 'A'].exists(m, cel.bind(m, m + '100', m == device.attributes['gpu.example.com'].model))",
            Ok(true),
        ),
        (
            "cel.bind(p, '^H[0-9]+$', device.attributes['gpu.example.com'].model.matches(p))",
            Ok(true),
        ),
        (
            "cel.bind(gpu, device.attributes['gpu.example.com'], gpu.none == 'x')",
            Err("no such key: none"),
        ),
        ("cel.bind(1, 2, true)", Err("must be a name")),
        ("other.bind(a, 1, a == 1)", Err("CEL runtime error")),
    ]);
}

#[test]
fn quantities_and_versions_have_the_functions_of_kubernetes() {
    assert_answers(&[
        (
            "device.capacity['gpu.example.com'].memory.sub(quantity('40Gi')).add(1) == quantity('42949672961')",
            Ok(true),
        ),
        (
            "quantity('50k').add(20).sub(quantity('100k')).sub(-50000) == quantity('20')",
            Ok(true),
        ),
        (
            "quantity('50k').add('20k') == quantity('70k')",
            Err("CEL runtime error"),
        ),
        ("isQuantity('1Gi') && !isQuantity('1GiB')", Ok(true)),
        ("quantity('500m').isInteger()", Ok(false)),
        ("quantity('500m').asApproximateFloat() == 0.5", Ok(true)),
        ("quantity('-1').sign() == -1", Ok(true)),
        ("semver('v1.0', true) == semver('1.0.0')", Ok(true)),
        ("semver('01.002.0-rc.1', true) == semver('1.2.0-rc.1')", Ok(true)),
        ("semver('1.0.0', false).major() == 1", Ok(true)),
        (
            "isSemver('v1', true) && !isSemver('v1') && !isSemver('v1', false)",
            Ok(true),
        ),
        (
            "isSemver('', true) || isSemver('v', true) || isSemver('1..0', true)",
            Ok(false),
        ),
        ("semver('v1.0').major() == 1", Err("CEL runtime error")),
    ]);
}

/// What users write works.
#[test]
fn usual_selectors_are_accepted() {
    let device: Device = serde_yaml_ng::from_str(
        "
        name: gpu-0
        attributes:
          productName: {string: NVIDIA A100-SXM4-80GB}
          uuid: {string: GPU-18db0e85-99e9-c746-8531-ffeb86328b39}
          type: {string: gpu}
          architecture: {string: Ampere}
          cudaComputeCapability: {version: 8.0.0}
          driverVersion: {version: 550.54.15}
        capacity:
          memory: {value: 80Gi}
        ",
    )
    .expect("a device");
    let device = Subject::new("gpu.nvidia.com", &device);
    let attributes = "device.attributes[\"gpu.nvidia.com\"]";
    for text in [
        "{}.productName.lowerAscii().matches(\"^.*a100.*$\")",
        "{}.productName.matches(\"^NVIDIA (A100|H100|H200)[- ].*\")",
        "{}.productName.matches('(?i)a100') && {}.architecture == 'Ampere'",
        "{}.productName.matches(r'\\w+-SXM\\d-\\d+GB$')",
        "{}.productName.matches(\"^NVIDIA\\\\s+A100-[A-Z]{3,4}[0-9]?-(40|80)GB$\")",
        "{}.uuid.matches('^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')",
        "['A100', 'H100'].exists(model, {}.productName.contains(model))",
        "'gpu.nvidia.com' in device.attributes && cel.bind(name, {}.productName, ['A', 'B'].exists(m, name.contains(m)) && ['80GB', '40GB'].exists(s, name.endsWith(s)))",
        "'gpu.nvidia.com' in device.attributes && {}.?productName.optMap(n, ['A', 'B'].exists(m, n.contains(m)) && ['B'].exists(s, n.endsWith(s))).orValue(false)",
        "['^.*A100.*$', '^.*H100.*$', '^.*H200.*$', '^.*B200.*$'].exists(pattern, {}.productName.matches(pattern))",
        "['gpu.nvidia.com', 'gpu.example.com'].exists(domain, device.driver == domain && {}.productName.matches(\"A100\\\\.*\"))",
        "!{}.productName.lowerAscii().matches('.*(k80|p100|v100|t4).*')",
        "{}.productName.lowerAscii().replace(' ', '-').replace('_', '-').replace('/', '-') == 'nvidia-a100-sxm4-80gb'",
        "{}.productName.split(' ').filter(word, word.startsWith('A100')).size() == 1",
        "device.capacity[\"gpu.nvidia.com\"].memory.isGreaterThan(quantity(\"10Gi\"))",
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0 && device.capacity['gpu.nvidia.com'].memory.isLessThan(quantity('100Gi'))",
        "{}.cudaComputeCapability.compareTo(semver('8.0.0')) >= 0 && {}.driverVersion.isGreaterThan(semver('535.104.5'))",
        "device.driver == 'gpu.nvidia.com' && {}.type in ['gpu', 'mig'] && has({}.uuid)",
        "cel.bind(gpu, {}, gpu.type == 'gpu' && gpu.productName.matches('A100') && gpu.cudaComputeCapability.major() >= 8)",
        "cel.bind(gpu, {}, cel.bind(capacity, device.capacity['gpu.nvidia.com'], ['A100', 'H100'].exists(model, gpu.productName.contains(model)) && capacity.memory.isGreaterThan(quantity('40Gi'))))",
        "cel.bind(name, {}.productName.lowerAscii().replace(' ', '-'), name.contains('a100') || name.contains('h100'))",
        "cel.bind(gpu, {}, ['A100', 'H100'].exists(model, ['40', '80'].exists(memory, gpu.productName == 'NVIDIA ' + model + '-SXM4-' + memory + 'GB')))",
        "{}[?'productName'].optMap(name, name.contains('A100')).orValue(false)",
    ] {
        let text = text.replace("{}", attributes);
        let selector = Selector::compile(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(selector.meets(&device), Ok(true), "{text}");
        assert!(selector.steps <= 2_000, "{text}: {} steps", selector.steps);
    }
}

/// Each pattern is compiled anew for each device, and in each round of a loop.
#[test]
fn regular_expressions_are_known_and_small() {
    let refused = |text: &str| Selector::compile(text).err();
    for text in [
        "device.driver.matches('((a{1,100}){1,100}){1,100}')",
        r"matches(device.driver, '(\\w{100}){10}')",
        r"device.driver.matches('a\x7b99999\x7d')",
        r"device.driver.matches('[a-z]{999}' ) && device.driver.matches(r'\pL{9}')",
    ] {
        let error = refused(text).unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(
            error.contains("too large") || error.contains("too much"),
            "{text}: {error}"
        );
    }
    assert_eq!(
        refused("device.driver.matches('[a')").as_deref(),
        Some("CEL compile error: a regular expression is invalid")
    );
    let many = ["device.driver.matches('.*a100.*')"; 59].join(" || ");
    let looped = "[1, 2].all(x, device.attributes.all(y, device.driver.matches('^[a-z]{9}$')))";
    for text in [many.as_str(), looped] {
        assert_eq!(
            refused(text).as_deref(),
            Some("CEL compile error: the expression could cost too much")
        );
    }
    for text in [
        "device.driver.matches('a{9' + '99}')",
        "matches(device.driver, device.driver)",
        "['a{9', '99}'].exists(x, ['b'].exists(y, device.driver.matches(x + y)))",
        "['a'].exists(x, device.attributes.exists(x, device.driver.matches(x)))",
        "['a', device.driver].exists(x, device.driver.matches(x))",
        "['a'].map(x, x + x).exists(x, device.driver.matches(x))",
        "cel.bind(x, device.driver, device.driver.matches(x))",
        "cel.bind(x, 'a{9' + '99}', device.driver.matches(x))",
        "['a'].exists(x, cel.bind(x, device.driver, device.driver.matches(x)))",
        "cel.bind(x, 'a', cel.bind(x, x + x, device.driver.matches(x)))",
        "['a'].exists(x, optional.of(device.driver).optMap(x, device.driver.matches(x)).orValue(false))",
    ] {
        assert!(
            refused(text).is_some_and(|error| error.contains("must be a string literal")),
            "{text}"
        );
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

#[test]
fn an_error_is_kept_with_its_beginning_only() {
    let long = "ä".repeat(4_000);
    for text in [
        format!("device.attributes['gpu.example.com']['{long}']"),
        format!("'{long}' == ) '"),
    ] {
        let error = Selector::compile(&text).and_then(|selector| selector.meets(&gpu()));
        let error = error.expect_err("an error that quotes the text");
        assert!(error.starts_with("CEL ") && error.len() <= 512, "{} bytes", error.len());
    }
}
