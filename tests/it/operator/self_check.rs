//! Under churn and faults the scheduler's model is what a new one would be.

use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, Replica, eventually, gang, pod};

/// For how long the cluster is kept busy.
const BUSY: Duration = Duration::from_secs(15);

/// The self-checks that have found no difference, and the differences.
async fn self_checks(operator: &Replica) -> Result<(f64, f64), String> {
    let page = operator.get("/metrics").await.map_err(|error| error.to_string())?;
    let sum = |family: &str, result: &str| -> f64 {
        let lines = page
            .lines()
            .filter(|line| line.starts_with(family) && line.contains(result));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    Ok((
        sum("unikai_self_checks_total{", "result=\"same\""),
        sum("unikai_self_check_differences_total{", ""),
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn self_checks_of_a_busy_operator_find_no_difference() {
    let nodes = (0..4).map(|i| NodeSpec::gpu(format!("gpu-{i}"), 8)).collect();
    let lab = Lab::start(nodes).await;
    let operator = lab.replica_with("one", &["--self-check-interval", "0.1"]).await;
    let refuse = Effect::Refuse {
        code: 500,
        retry_after: None,
    };
    let chance = Times::Chance {
        probability: 0.1,
        seed: 1,
    };
    lab.server.faults().add(Match::bindings(), refuse, chance);
    // Those that ended before may have been of an empty cluster.
    let (before, _) = self_checks(&operator).await.unwrap();
    let began = Instant::now();
    let mut round = 0_u32;
    while began.elapsed() < BUSY {
        for index in 0..6 {
            lab.create(pod(&format!("pod-{round}-{index}"), 1)).await.unwrap();
        }
        lab.create(gang(&format!("gang-{round}"), 2, 2)).await.unwrap();
        match round % 4 {
            0 => lab.server.faults().drop_watches(None),
            2 => lab.server.faults().expire_watches(None),
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        if let Some(before) = round.checked_sub(2) {
            for index in 0..6 {
                // It may have been evicted.
                let name = format!("pod-{before}-{index}");
                let _ = lab.pods().delete(&name, &DeleteParams::default()).await;
            }
        }
        round += 1;
    }
    eventually("a self-check has ended", async || {
        let (same, differences) = self_checks(&operator).await?;
        assert!(differences == 0.0, "{differences} differences\n{}", operator.log());
        (same > before).then_some(()).ok_or(format!("{same} so far"))
    })
    .await;
    operator.assert_no_errors();
}
