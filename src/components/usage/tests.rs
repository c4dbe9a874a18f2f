//! The built-in source of usage on virtual time, against an API server in this process.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{Error, now, run};
use crate::api::shard::UsageDbConfig;
use crate::components::Settings as Flags;
use crate::components::accounts::{Meter, channel};
use crate::components::tests::TimeOfDay;
use crate::components::tests::lab::{Lab, MOMENT, refuse, seconds};
use crate::devcluster::apiserver::{Effect, Match, Times};
use crate::engine::input::Name;
use crate::usage::Settings;

const NAMESPACE: &str = "kai-scheduler";
const INTERVAL: Duration = Duration::from_secs(5);

/// The component of a process that leads. Queue `busy` holds 3 of 4 GPUs, once the ledger is open.
struct Case {
    lab: Lab,
    meter: Meter,
    component: JoinHandle<Result<(), Error>>,
    _time: TimeOfDay,
}

impl Case {
    async fn start(fault: Option<(Match, Effect, Times)>) -> Self {
        Self::start_with(Settings::default(), fault).await
    }

    async fn start_with(settings: Settings, fault: Option<(Match, Effect, Times)>) -> Self {
        let time = TimeOfDay::simulated(Timestamp::from_second(1_790_000_000).expect("a time"));
        let flags = Flags {
            namespace: NAMESPACE.to_owned(),
            ..Flags::default()
        };
        let lab = Lab::start(flags, &[NAMESPACE]).await;
        if let Some((matching, effect, times)) = fault {
            lab.fault(matching, effect, times);
        }
        let (meter, accounts) = channel();
        meter.follow(Some(&Settings {
            interval: INTERVAL,
            ..settings
        }));
        let ledger = accounts.ledger.clone();
        let component = tokio::spawn(run(lab.context.clone(), accounts, "default".to_owned()));
        let case = Self {
            lab,
            meter,
            component,
            _time: time,
        };
        tokio::time::sleep(MOMENT).await;
        if let Some(mut open) = ledger.ledger() {
            open.capacity([4_000, 4_000, 4_000], now());
            open.hold(&Name::from("busy"), [0, 0, 3_000], now());
            ledger.open(open);
        }
        case
    }

    /// What the scheduler is told of the queue's GPUs, as parts of all.
    fn told(&mut self) -> f64 {
        let usage = self.meter.usage();
        let busy = usage.iter().find(|(queue, _)| &**queue == "busy");
        busy.map_or(0.0, |(_, [_, _, gpus])| *gpus as f64 / 1e9)
    }

    /// The stored sums.
    async fn stored(&self) -> Option<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.lab.admin.clone(), NAMESPACE);
        let map = maps.get_opt("unikai-usage-default").await.expect("an answer")?;
        map.data?.remove("ledger")
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_takes_long_delays_no_figures() {
    let slow = Match::verb_on("create", "configmaps");
    let mut case = Case::start(Some((slow, Effect::Delay(9 * INTERVAL), Times::Next(1)))).await;
    let mut updates = 0;
    for _ in 0..12 {
        let changed = tokio::time::timeout(INTERVAL + MOMENT, case.meter.changed()).await;
        changed
            .expect("an update at each interval")
            .expect("the component runs");
        updates += u32::from(case.told() > 0.7);
    }
    assert!(updates >= 11, "{updates} of 12 updates tell what the queue uses");
    let stored = case.stored().await.expect("the sums are stored");
    assert!(stored.contains("busy"), "{stored}");
}

#[tokio::test(start_paused = true)]
async fn the_scheduler_waits_for_stored_usage_only_for_a_while() {
    let unreadable = (Match::verb_on("get", "configmaps"), refuse(500), Times::Always);
    let case = Case::start(Some(unreadable)).await;
    assert!(!case.meter.is_known(1), "the stored usage was not read");
    tokio::time::sleep(Settings::default().wait + seconds(2)).await;
    assert!(case.meter.is_known(1), "it cannot be read");
}

#[tokio::test(start_paused = true)]
async fn usage_is_counted_anew_once_its_sums_were_deleted() {
    let mut case = Case::start(None).await;
    tokio::time::sleep(3 * INTERVAL).await;
    assert!(case.told() > 0.7);
    let maps: Api<ConfigMap> = Api::namespaced(case.lab.admin.clone(), NAMESPACE);
    let deleted = maps.delete("unikai-usage-default", &DeleteParams::default()).await;
    deleted.expect("the sums were stored");
    tokio::time::sleep(3 * INTERVAL).await;
    assert!(case.told() == 0.0, "the scheduler records nothing here");
    let stored = case.stored().await.expect("they are stored again");
    assert!(!stored.contains("busy"), "{stored}");
}

#[tokio::test(start_paused = true)]
async fn the_scheduler_does_not_wait_for_a_server_that_hangs() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let config = json!({"clientType": "prometheus", "connectionString": url, "usageParams": {"extraParams": {"usageQueryTimeout": "5m"}}});
    let config: UsageDbConfig = serde_json::from_value(config).expect("its form");
    let (settings, _) = Settings::read(&config, None, &|_| None).expect("good settings");
    let settings = Settings {
        wait: seconds(3),
        ..settings
    };
    let case = Case::start_with(settings, None).await;
    assert!(!case.meter.is_known(1));
    tokio::time::sleep(seconds(3)).await;
    assert!(case.meter.is_known(1));
    drop(listener);
}

#[tokio::test(start_paused = true)]
async fn the_sums_are_stored_at_the_end() {
    let mut case = Case::start(None).await;
    assert_eq!(case.stored().await, None);
    case.lab.context.shutdown.cancel();
    (&mut case.component)
        .await
        .expect("no panic")
        .expect("the component ended");
    let stored = case.stored().await.expect("the sums are stored");
    assert!(stored.contains("busy"), "{stored}");
}
