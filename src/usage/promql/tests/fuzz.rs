//! What a Prometheus server may answer, and how administrators may describe one.

use serde_json::Value;

use super::super::{queries, read, shares};
use crate::api::shard::UsageDbConfig;
use crate::engine::input::Time;
use crate::fuzz::Target;
use crate::usage::{Settings, Source};

#[test]
fn fuzz_answers_of_prometheus() {
    let target = Target {
        name: "prometheus",
        rounds: 2_000,
        words: &[
            "success",
            "error",
            "vector",
            "matrix",
            "scalar",
            "data",
            "result",
            "resultType",
            "metric",
            "value",
            "status",
            "queue_name",
            "queue_metadata_name",
            "q",
            "NaN",
            "+Inf",
            "-Inf",
            "1e308",
            "1e309",
            "-1",
            "0",
        ],
    };
    target.bytes(|body, _| match read(body) {
        Ok(answer) => {
            assert!(
                answer.values().all(|value| value.is_finite() && *value > 0.0),
                "{answer:?}"
            );
            let all: Vec<_> = (0..6).map(|_| answer.clone()).collect();
            for (queue, shares) in shares(&all) {
                assert!(!queue.is_empty());
                assert!(
                    shares.iter().all(|share| (0..=1_000_000_000_000).contains(share)),
                    "{shares:?}"
                );
            }
            true
        }
        Err(error) => {
            assert!(!error.is_empty(), "the error says something");
            false
        }
    });
}

#[test]
fn fuzz_settings_of_usage() {
    let target = Target {
        name: "usage",
        rounds: 1_500,
        words: &[
            "builtin",
            "prometheus",
            "sliding",
            "tumbling",
            "cron",
            "1w",
            "2d",
            "0s",
            "-1h",
            "1h30m",
            "9999999y",
            "300ms",
            "0 0 * * 1",
            "* * * * * UTC",
            "http://p:9090",
            "https://",
            "usageParams",
            "windowType",
            "windowSize",
            "halfLifePeriod",
            "cronString",
            "fetchInterval",
            "stalenessPeriod",
            "waitTimeout",
            "extraParams",
            "clientType",
            "usageQueryTimeout",
            "queryResolution",
            "gpuAllocationMetric",
            "tumblingWindowStartTime",
        ],
    };
    let now = Time(1_767_225_600_000);
    target.objects(|object: &Value| {
        let Ok(config) = serde_json::from_value::<UsageDbConfig>(object.clone()) else {
            return false;
        };
        match Settings::read(&config, Some("http://p"), &|name| {
            (name == "URL").then(|| "http://u".to_owned())
        }) {
            Ok((settings, _)) => {
                assert!(!settings.interval.is_zero() && settings.staleness >= settings.interval);
                assert!(settings.half_life.is_none_or(|half_life| half_life > 0));
                assert!(settings.window.start(now) <= now);
                if let Source::Prometheus(server) = &settings.source {
                    let asked = queries(&settings, server, now);
                    assert!(asked.is_none_or(|asked| asked.len() == 6));
                }
                true
            }
            Err(problems) => {
                assert!(!problems.is_empty());
                assert!(
                    problems
                        .iter()
                        .all(|problem| !problem.path.is_empty() && !problem.says.is_empty())
                );
                false
            }
        }
    });
}
