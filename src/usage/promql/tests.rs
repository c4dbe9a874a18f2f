mod fuzz;

use super::*;
use crate::api::shard::UsageDbConfig;
use crate::usage::Source;

fn asked(yaml: &str, now: &str) -> Option<Vec<String>> {
    let config: UsageDbConfig = serde_yaml_ng::from_str(yaml).expect("a usageDBConfig");
    let (how, _) = Settings::read(&config, Some("http://p"), &|_| None).expect("good");
    let Source::Prometheus(server) = &how.source else {
        panic!("{how:?}")
    };
    let now: jiff::Timestamp = now.parse().expect("an instant");
    queries(&how, server, Time(now.as_millisecond()))
}

const WHOLE: &str = "kube_node_status_capacity";

#[test]
fn a_sliding_window_is_queried_as_a_range() {
    let asked = asked("clientType: prometheus", "2025-01-15T14:30:00Z").expect("queries");
    let by = "max by (queue_metadata_name, queue_name)";
    assert_eq!(
        asked,
        [
            format!("sum_over_time((sum({WHOLE}{{resource=\"cpu\"}}))[604800s:60s])"),
            format!("sum_over_time((sum({WHOLE}{{resource=\"memory\"}}))[604800s:60s])"),
            format!("sum_over_time((sum({WHOLE}{{resource=\"nvidia_com_gpu\"}}))[604800s:60s])"),
            format!("sum_over_time(({by} (kai_queue_allocated_cpu_cores))[604800s:60s])"),
            format!("sum_over_time(({by} (kai_queue_allocated_memory_bytes))[604800s:60s])"),
            format!("sum_over_time(({by} (kai_queue_allocated_gpus))[604800s:60s])"),
        ]
    );
}

#[test]
fn tumbling_windows_are_queried_from_their_start() {
    let cron = "{clientType: prometheus, usageParams: {windowType: cron, cronString: '0 12 * * 1', halfLifePeriod: 90m,
        extraParams: {gpuAllocationMetric: held, queryResolution: 500ms}}}";
    let queries = asked(cron, "2025-01-15T15:00:00Z").expect("queries");
    let since_monday = 51 * 3_600;
    assert_eq!(
        queries[5],
        format!(
            "sum_over_time((((max by (queue_metadata_name, queue_name) (held)) * (0.5^((1736953200 - time()) / 5400.000000))))[{since_monday}s:500ms])"
        )
    );
    let to_come = "{clientType: prometheus, usageParams: {windowType: tumbling, windowSize: 1h, tumblingWindowStartTime: '2025-01-02T00:00:00Z'}}";
    assert_eq!(asked(to_come, "2025-01-01T00:00:00Z"), None);
    let queries = asked(to_come, "2025-01-02T02:15:00.5Z").expect("queries");
    assert!(queries[0].ends_with("[900500ms:60s])"), "{queries:?}");
    assert_eq!(instant(Time(1_736_953_200_007)), "1736953200.007");
}

fn answer(samples: &[(&str, &str, &str)]) -> Answer {
    let result: Vec<_> = samples
        .iter()
        .map(|(name, shown, value)| serde_json::json!({"metric": {"queue_metadata_name": name, "queue_name": shown}, "value": [1.5, value]}))
        .collect();
    let body = serde_json::json!({"status": "success", "data": {"resultType": "vector", "result": result}});
    read(body.to_string().as_bytes()).expect("an answer")
}

#[test]
fn a_share_is_the_allocated_amount_over_the_capacity() {
    let none = answer(&[]);
    let answers = [
        answer(&[("", "", "1000")]),
        none.clone(),
        answer(&[("", "", "100")]),
        answer(&[("a", "Team A", "100"), ("", "b", "NaN")]),
        answer(&[("a", "Team A", "7")]),
        // The queue was called otherwise before; one is only known by what it is shown as; nonsense is none.
        answer(&[
            ("a", "Team A", "20"),
            ("a", "a", "4"),
            ("", "b", "1e300"),
            ("c", "", "-1"),
            ("", "", "5"),
        ]),
    ];
    let wanted: Vec<(Name, _)> = vec![
        ("a".into(), [100_000_000, 0, 240_000_000]),
        ("b".into(), [0, 0, 1_000_000_000_000]),
    ];
    assert_eq!(shares(&answers), wanted);
    assert_eq!(shares(&[]), []);
}

#[test]
fn invalid_responses_are_errors() {
    for (body, says) in [
        ("<html>", "not an answer of Prometheus"),
        (
            r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#,
            "parse error",
        ),
        (
            r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
            "a matrix is no answer",
        ),
    ] {
        let error = read(body.as_bytes()).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn an_answer_without_data_and_without_an_error_is_told_by_its_status() {
    let said = |body: &str| read(body.as_bytes()).unwrap_err();
    assert_eq!(said(r#"{"status": "error", "error": "too busy"}"#), "too busy");
    assert_eq!(
        said(r#"{"status": "success"}"#),
        "no data and no error, with the status \"success\""
    );
}

#[test]
fn the_sum_of_very_large_values_is_a_number() {
    let sample = r#"{"metric": {"queue_name": "q"}, "value": [0, "1e308"]}"#;
    let body = format!(
        r#"{{"status": "success", "data": {{"resultType": "vector", "result": [{sample}, {sample}, {sample}]}}}}"#
    );
    assert_eq!(read(body.as_bytes()), Ok([("q".to_owned(), f64::MAX)].into()));
}
