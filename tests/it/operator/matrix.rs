//! Binds of several steps against every death of the process and every misfortune of every write. Which writes there are is not
//! written down here: a run without misfortune is recorded, and each of its writes is then met with each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{Effect, Identity, Match, RuleId, Times};
use unikai::devcluster::world::NodeSpec;
use unikai::operator::settings::Settings;
use unikai::operator::{Operator, Running};

use super::lab::{Lab, eventually, phase, pod};

/// Cases at the same time.
const AT_ONCE: usize = 6;
/// What the steps of a bind write.
const KINDS: [&str; 3] = ["bindrequests", "configmaps", "pods"];

/// One write of the recorded run: what it was, and how many like it came before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    verb: String,
    resource: String,
    subresource: String,
    before: u32,
}

/// A pod with parts of GPUs that needs no webhook: it brings the name of its config maps along.
fn sharer(name: &str, annotations: Value) -> Value {
    let mut pod = pod(name, 0);
    pod["metadata"]["annotations"] = annotations;
    pod["metadata"]["annotations"]["runai/shared-gpu-configmap"] = json!(format!("{name}-shared-gpu"));
    pod["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": format!("{name}-shared-gpu-0-evar")}}]);
    pod
}

/// A cluster where three pods wait that need five devices' worth of steps: one opens a GPU, one joins, one takes two.
struct Case {
    lab: Lab,
    operator: Option<Running>,
}

impl Case {
    async fn new() -> Self {
        let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 4)]).await;
        let case = Self { lab, operator: None };
        case.create_pods(0).await;
        case
    }

    async fn create_pods(&self, round: usize) {
        for (name, annotations) in [
            ("opens", json!({"gpu-fraction": "0.5"})),
            ("joins", json!({"gpu-fraction": "0.5"})),
            ("two", json!({"gpu-fraction": "0.6", "gpu-fraction-num-devices": "2"})),
        ] {
            let pod = sharer(&format!("{name}-{round}"), annotations);
            self.lab.create_after_handover(pod).await;
        }
    }

    async fn delete_pods(&self) {
        for pod in self.lab.all_pods().await {
            self.lab.delete_pod(&pod.name_any()).await;
        }
    }

    async fn start_operator(&mut self) {
        let kubeconfig = Kubeconfig::from_yaml(&self.lab.server.kubeconfig(&Identity::operator())).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap();
        let mut settings = Settings::embedded();
        settings.admission.gpu_sharing = true;
        self.operator = Some(Operator::start(&config, settings).await.unwrap());
    }

    /// As by `kill -9`; the next one need not wait for the lease to run out.
    async fn kill_operator(&mut self) {
        drop(self.operator.take());
        let leases: Api<Lease> = Api::namespaced(self.lab.client.clone(), "kai-scheduler");
        let _ = leases.delete("kai-scheduler", &DeleteParams::default()).await;
    }

    fn add(&self, point: &Point, effect: Effect) -> RuleId {
        let matching = Match {
            subresource: Some(point.subresource.clone()),
            user: Some(Identity::operator().user),
            ..Match::verb_on(&point.verb, &point.resource)
        };
        self.lab
            .server
            .faults()
            .add(matching, effect, Times::After(point.before))
    }

    async fn all_run(&self) {
        self.lab.running(3).await;
    }

    /// Deletes the pods and waits until nothing is left.
    async fn clear(&self) {
        self.delete_pods().await;
        self.lab.nothing_left().await;
    }

    /// The safety rules, while all run.
    async fn assert_shared_well(&self) {
        self.lab.assert_safe().await;
        assert_eq!(self.lab.world.refused_gpu_pods(), 0);
        let mut given: BTreeMap<String, u32> = BTreeMap::new();
        for pod in self.lab.all_pods().await {
            assert_eq!(phase(&pod), "Running", "{}", pod.name_any());
            let tenths = if pod.name_any().starts_with("two") { 6 } else { 5 };
            for group in groups(&pod) {
                *given.entry(group).or_default() += tenths;
            }
        }
        assert!(given.values().all(|tenths| *tenths <= 10), "{given:?}");
        let devices = eventually("each group in use has one reservation", async || {
            let reservations = self.lab.reservations().await;
            let held: BTreeSet<String> = reservations.iter().flat_map(groups).collect();
            let devices: BTreeSet<_> = reservations
                .iter()
                .filter_map(|pod| pod.annotations().get("run.ai/reserve_for_gpu_index").cloned())
                .collect();
            (held.iter().eq(given.keys()) && reservations.len() == held.len())
                .then_some(devices)
                .ok_or_else(|| format!("{held:?} for {given:?}"))
        })
        .await;
        assert_eq!(devices.len(), given.len(), "{devices:?}");
    }
}

fn groups(pod: &Pod) -> Vec<String> {
    let labels = pod.labels().iter();
    let named = labels.filter(|(key, _)| key.starts_with("runai-gpu-group"));
    named.map(|(_, group)| group.clone()).collect()
}

/// The writes of a run without misfortune, from the first pod to the last leftover.
async fn recorded() -> Vec<Point> {
    let mut case = Case::new().await;
    case.start_operator().await;
    case.all_run().await;
    case.assert_shared_well().await;
    eventually("all binds are complete", async || {
        let open = case.lab.bind_requests().await;
        open.is_empty().then_some(()).ok_or_else(|| format!("{open:?}"))
    })
    .await;
    case.clear().await;
    let mut seen: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    let writes = case.lab.server.audit().writes_of(&Identity::operator());
    let writes = writes
        .into_iter()
        .filter(|write| KINDS.contains(&&*write.resource) && write.subresource != "status");
    let points: Vec<Point> = writes
        .map(|write| {
            let count = seen
                .entry((write.verb.clone(), write.resource.clone(), write.subresource.clone()))
                .or_default();
            *count += 1;
            Point {
                verb: write.verb,
                resource: write.resource,
                subresource: write.subresource,
                before: *count - 1,
            }
        })
        .collect();
    assert!(points.len() >= 21, "{points:#?}");
    points
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_or_after_any_write_the_next_process_goes_on() {
    let points = recorded().await;
    let effects = [Effect::Drop, Effect::DropAfter];
    let cases = effects
        .iter()
        .flat_map(|effect| points.iter().map(move |point| (point, effect.clone())));
    let cases = cases.map(async |(point, effect)| {
        println!("{point:?} {effect:?}");
        let mut case = Case::new().await;
        let rule = case.add(point, effect);
        case.start_operator().await;
        let struck = || case.lab.server.faults().struck(rule) > 0;
        let mut cleared = false;
        // Some writes come only when the pods go.
        for _ in 0..20_000 {
            if struck() {
                break;
            }
            if !cleared && case.lab.all_pods().await.iter().all(|pod| phase(pod) == "Running") {
                let open = case.lab.bind_requests().await;
                if open.is_empty() && !struck() {
                    cleared = true;
                    case.delete_pods().await;
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        case.kill_operator().await;
        case.start_operator().await;
        if cleared {
            case.lab.nothing_left().await;
        } else {
            case.all_run().await;
            case.assert_shared_well().await;
            case.clear().await;
        }
    });
    futures::stream::iter(cases)
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_write_is_answered_all_run_and_nothing_is_left() {
    let refuse = |code| Effect::Refuse {
        code,
        retry_after: None,
    };
    let points = recorded().await;
    let effects = [refuse(409), refuse(429), refuse(500), Effect::FailAfter { code: 504 }];
    // One cluster for each misfortune, which meets one write after another.
    let clusters = effects.map(async |effect| {
        let mut case = Case::new().await;
        case.start_operator().await;
        case.all_run().await;
        case.clear().await;
        for (round, point) in points.iter().enumerate() {
            println!("{point:?} {effect:?}");
            let rule = case.add(point, effect.clone());
            case.create_pods(round + 1).await;
            case.all_run().await;
            case.assert_shared_well().await;
            case.clear().await;
            case.lab.server.faults().remove(rule);
        }
    });
    futures::future::join_all(clusters).await;
}
