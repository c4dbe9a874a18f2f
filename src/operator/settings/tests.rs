use std::time::Duration;

use clap::Parser;

use super::*;

/// A command line of these flags.
#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    args: Args,
}

fn parse(flags: &[&str]) -> Result<Settings, Vec<String>> {
    let args = Flags::try_parse_from(["unikai"].iter().chain(flags))
        .expect("the flags parse")
        .args;
    Settings::try_from(args).map_err(|Invalid(wrong)| wrong)
}

#[test]
fn the_defaults_are_those_of_kai() {
    let settings = parse(&[]).unwrap();
    assert_eq!(settings.common.components.scheduler_name, "kai-scheduler");
    assert_eq!(settings.common.components.queue_label_key, "kai.scheduler/queue");
    assert_eq!(settings.common.components.default_queue, "default-queue");
    assert_eq!(settings.common.only_pool, None);
    assert_eq!(settings.common.admission.queue_labels, QueueLabels::Enforce);
    assert_eq!(settings.lease.namespace, "kai-scheduler");
    let times = [
        settings.lease.duration,
        settings.lease.renew_deadline,
        settings.lease.retry_period,
    ];
    assert_eq!(times, [15, 10, 2].map(Duration::from_secs));
    let service = Target::Service {
        name: "unikai".to_owned(),
        namespace: "kai-scheduler".to_owned(),
    };
    assert_eq!(settings.common.admission.target, Some(service));
}

/// With the time that a watch may be late, and with that of a second attempt.
#[test]
fn a_network_that_falls_silent_is_noticed_within_half_a_minute() {
    let settings = parse(&[]).unwrap();
    let half_a_minute = Duration::from_secs(30);
    assert!(settings.timeouts.watch + Duration::from_secs(5) < half_a_minute);
    assert!(settings.timeouts.request * 2 < half_a_minute);
    let watches = settings.common.components.watch_timeout;
    assert_eq!(settings.timeouts.watch, Duration::from_secs(watches.into()));
}

#[test]
fn all_invalid_flags_are_reported_at_once() {
    let wrong = parse(&[
        "--scheduler-name=It's",
        "--queue-label-key=a b",
        "--node-pool-label-key=",
        "--node-pool=blue",
        "--webhook-url=http://example.org/x",
        "--queue-label-to-metric-label=a=queue_name,b=team,c=team",
        "--gpu-resource=gpu.intel.com/xe,gaudi",
        "--numa-ignore=memory",
        "--image-pull-secret=right,It's",
        "--lease-duration=5",
        "--lease-renew-deadline=5",
        "--lease-retry-period=0.0",
        "--identity=",
    ])
    .unwrap_err();
    assert_eq!(
        wrong,
        [
            "--scheduler-name \"It's\": not a name of Kubernetes (lower-case letters, digits, '-' and '.', at most 253)",
            "--queue-label-key \"a b\": not a label key, such as example.com/queue",
            "--numa-ignore: has no effect without --numa",
            "--gpu-resource \"gaudi\": not the name of an extended resource, such as gpu.intel.com/xe",
            "--node-pool: needs --node-pool-label-key",
            "--webhook-url http://example.org/x: not of the form https://HOST:PORT",
            "--queue-label-to-metric-label a=queue_name: the metrics have a label queue_name already",
            "--queue-label-to-metric-label c=team: the metrics have a label team already",
            "--image-pull-secret \"It's\": not a name of Kubernetes",
            "--lease-renew-deadline 5s: must be less than --lease-duration 5s",
            "--lease-retry-period: must be more than 0",
            "--identity: must not be empty",
        ]
    );
}

#[test]
fn no_time_may_be_longer_than_a_year() {
    assert!(parse(&["--reservation-timeout=31536000"]).is_ok());
    let flags = [
        "--volume-binding-timeout",
        "--self-check-interval",
        "--reservation-timeout",
        "--request-timeout",
        "--background-delay",
        "--lease-duration",
    ];
    let given = flags.map(|flag| format!("{flag}=1e18"));
    let wrong = parse(&given.each_ref().map(String::as_str)).unwrap_err();
    assert_eq!(
        wrong,
        flags.map(|flag| format!("{flag}: must be at most 31536000 seconds"))
    );
}

#[test]
fn numa_zones_are_used_only_with_the_flag() {
    assert_eq!(parse(&["--numa=false"]).unwrap().common.components.numa, None);
    assert_eq!(parse(&["--numa"]).unwrap().common.components.numa, Some(Vec::new()));
    let both = parse(&["--numa", "--numa-ignore=memory, hugepages-2Mi"]).unwrap();
    assert_eq!(both.common.components.numa.unwrap(), ["memory", "hugepages-2Mi"]);
}

#[test]
fn all_pods_that_the_operator_makes_get_the_pull_secrets_of_the_flag() {
    let settings = parse(&["--image-pull-secret=a,b", "--image-pull-secret=c"]).unwrap();
    let components = settings.common.components;
    assert_eq!(components.sharing.pull_secrets, ["a", "b", "c"]);
    assert_eq!(components.scaling.pull_secrets, ["a", "b", "c"]);
}

#[test]
fn selectors_with_invalid_labels_are_refused() {
    for flag in ["--pod-label-selector", "--namespace-label-selector"] {
        let refused = Flags::try_parse_from(["unikai", flag, "team=research,a b=c"]).map(|_| ());
        let says = refused.unwrap_err().to_string();
        assert!(says.contains("\"a b\" is not a label key"), "{says}");
    }
}

#[test]
fn a_fraction_below_a_hundredth_counts_as_one_as_in_config() {
    let hundredths = |part: &str| {
        let flag = format!("--gpu-memory-to-fraction-ratio={part}");
        let settings = parse(&[flag.as_str()]).unwrap();
        settings.common.components.scaling.memory_hundredths
    };
    assert_eq!(["0.004", "0.25", "1"].map(hundredths), [1, 25, 100]);
    for wrong in ["0", "-0.1", "1.01", "NaN"] {
        let flag = format!("--gpu-memory-to-fraction-ratio={wrong}");
        let refused = Flags::try_parse_from(["unikai", flag.as_str()]).map(|_| ());
        let says = refused.unwrap_err().to_string();
        assert!(says.contains("must be more than 0 and at most 1"), "{says}");
    }
}

#[test]
fn a_url_replaces_the_service() {
    let settings = parse(&["--webhook-url=https://192.0.2.7:9443/"]).unwrap();
    assert_eq!(
        settings.common.admission.target,
        Some(Target::Url("https://192.0.2.7:9443".to_owned()))
    );
}

#[test]
fn an_embedded_operator_takes_free_ports_and_registers_them() {
    let settings = Settings::embedded();
    assert_eq!(
        (settings.http_address.port(), settings.common.admission.address.port()),
        (0, 0)
    );
    assert_eq!(settings.common.admission.target, None);
}
