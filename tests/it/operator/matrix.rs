//! Multi-step binds with a crash of the process and each fault at every write. The writes are not
//! listed here: a run without faults is recorded, and each of its writes is then tested with each fault.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{Effect, Identity, Match, RuleId, Times, Write};
use unikai::devcluster::world::NodeSpec;
use unikai::operator::settings::Settings;
use unikai::operator::{Operator, Running};

use super::lab::{Lab, MAX_WAIT, TEAM, eventually, phase, pod};
use super::volumes::{claim, volume};

/// Clusters in which operators are killed, at the same time: each goes through a part of the cases.
const CLUSTERS: usize = 6;
/// What the steps of binds write.
const KINDS: [&str; 6] = [
    "bindrequests",
    "configmaps",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "resourceclaims",
];
/// How often the pods are looked at while a write is waited for.
const LOOK: Duration = Duration::from_millis(150);
/// A write that has not been sent so long after everything is gone will not be sent. A slow recorded run has more writes of a
/// kind than others, as the group is written on pods that wait for long.
const QUIET: Duration = Duration::from_secs(3);

/// One write of the recorded run: what it was, and how many like it came before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    verb: String,
    resource: String,
    subresource: String,
    before: u32,
}

impl Point {
    fn is_like(&self, write: &Write) -> bool {
        let kind = (&*write.verb, &*write.resource, &*write.subresource);
        kind == (&*self.verb, &*self.resource, &*self.subresource)
    }
}

/// A storage class with dynamic volumes, one with existing volumes, and two devices for claims.
const OFFERS: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: made}
provisioner: csi.example
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: by-hand}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nic.example.com}
spec:
  selectors: [{cel: {expression: \"device.driver == 'nic.example.com'\"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpu-1-nics}
spec:
  driver: nic.example.com
  nodeName: gpu-1
  pool: {name: gpu-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: port-0}, {name: port-1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-nic, namespace: team}
spec: {spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}]}}}
";

/// A pod with GPU portions that needs no webhook, as it has the name of its config maps already. Its volume is bound late.
fn sharer(name: &str, annotations: Value) -> Value {
    let mut pod = pod(name, 0);
    pod["metadata"]["annotations"] = annotations;
    pod["metadata"]["annotations"]["runai/shared-gpu-configmap"] = json!(format!("{name}-shared-gpu"));
    pod["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": format!("{name}-shared-gpu-0-evar")}}]);
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    pod
}

/// A cluster with three pending pods whose binds have every kind of step: one opens two GPUs for sharing and gets a new volume, one joins a shared GPU and
/// gets an existing volume, one claims a device.
struct Case {
    lab: Lab,
    operator: Option<Running>,
}

impl Case {
    /// With an operator that runs.
    async fn start() -> Self {
        let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 4)]).await;
        lab.apply(OFFERS).await;
        let mut case = Self { lab, operator: None };
        case.start_operator().await;
        case
    }

    async fn create_pods(&self, round: usize) {
        let (two, joins) = (format!("two-{round}"), format!("joins-{round}"));
        self.lab.create(volume(&joins, "by-hand", None)).await.unwrap();
        self.lab.create(claim(&joins, "by-hand", "10Gi")).await.unwrap();
        self.lab.create(claim(&two, "made", "10Gi")).await.unwrap();
        let halves = json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"});
        let mut claims = pod(&format!("claims-{round}"), 0);
        claims["spec"]["resourceClaims"] = json!([{"name": "nic", "resourceClaimTemplateName": "one-nic"}]);
        claims["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "nic"}]);
        for mut pod in [
            sharer(&two, halves),
            sharer(&joins, json!({"gpu-fraction": "0.5"})),
            claims,
        ] {
            pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
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
        settings.common.admission.gpu_sharing = true;
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
        self.nothing_left().await;
    }

    /// Waits until nothing is left of what binds make, and takes away what the test made.
    async fn nothing_left(&self) {
        self.lab.nothing_left().await;
        let devices: Api<ResourceClaim> = Api::namespaced(self.lab.client.clone(), TEAM);
        eventually("claims for devices are gone", async || {
            let left = devices.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
            left.items.is_empty().then_some(()).ok_or_else(|| format!("{left:?}"))
        })
        .await;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.lab.client.clone(), TEAM);
        let volumes: Api<PersistentVolume> = Api::all(self.lab.client.clone());
        for claim in claims.list(&ListParams::default()).await.unwrap() {
            claims
                .delete(&claim.name_any(), &DeleteParams::default())
                .await
                .unwrap();
        }
        for volume in volumes.list(&ListParams::default()).await.unwrap() {
            // One that was made goes with its claim.
            let _ = volumes.delete(&volume.name_any(), &DeleteParams::default()).await;
        }
    }

    /// The safety rules, while all run.
    async fn assert_shared_well(&self) {
        self.lab.assert_safe().await;
        assert_eq!(self.lab.world.refused_gpu_pods(), 0);
        let mut given: BTreeMap<String, u32> = BTreeMap::new();
        for pod in self.lab.all_pods().await {
            assert_eq!(phase(&pod), "Running", "{}", pod.name_any());
            for group in groups(&pod) {
                *given.entry(group).or_default() += 5;
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

    /// Kills the operator at a faulty write, and starts another one.
    async fn killed_at(&mut self, round: usize, point: &Point, effect: Effect) {
        println!("{point:?} {effect:?}");
        let rule = self.add(point, effect);
        let struck = |case: &Self| case.lab.server.faults().struck(rule) > 0;
        self.create_pods(round).await;
        // Some writes come only when the pods go.
        let mut cleared = false;
        let mut gone = None;
        let (mut looked, begun) = (Instant::now(), Instant::now());
        while !struck(self) {
            assert!(begun.elapsed() < MAX_WAIT, "{point:?} was not seen");
            tokio::time::sleep(Duration::from_millis(1)).await;
            if cleared && point.before > 0 && looked.elapsed() > LOOK {
                let all_gone = self.lab.all_pods().await.is_empty() && self.lab.reservations().await.is_empty();
                gone = gone.or(all_gone.then(Instant::now));
                if gone.is_some_and(|gone: Instant| gone.elapsed() > QUIET) {
                    println!("{point:?} did not come again");
                    self.lab.server.faults().remove(rule);
                    return self.nothing_left().await;
                }
                looked = Instant::now();
            }
            if !cleared && looked.elapsed() > LOOK {
                let all_run = self.lab.all_pods().await.iter().all(|pod| phase(pod) == "Running");
                if all_run && self.lab.bind_requests().await.is_empty() && !struck(self) {
                    cleared = true;
                    self.delete_pods().await;
                }
                looked = Instant::now();
            }
        }
        self.kill_operator().await;
        self.lab.server.faults().remove(rule);
        self.start_operator().await;
        if cleared {
            self.nothing_left().await;
        } else {
            self.all_run().await;
            self.assert_shared_well().await;
            self.clear().await;
        }
    }
}

fn groups(pod: &Pod) -> Vec<String> {
    let labels = pod.labels().iter();
    let named = labels.filter(|(key, _)| key.starts_with("runai-gpu-group"));
    named.map(|(_, group)| group.clone()).collect()
}

/// The writes of a run without faults, from the first pod to the last deletion.
async fn recorded() -> Vec<Point> {
    let case = Case::start().await;
    case.create_pods(0).await;
    case.all_run().await;
    case.assert_shared_well().await;
    eventually("all binds are complete", async || {
        let open = case.lab.bind_requests().await;
        open.is_empty().then_some(()).ok_or_else(|| format!("{open:?}"))
    })
    .await;
    case.clear().await;
    let mut seen: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    let writes = case.lab.server.audit().writes_of(&Identity::operator()).into_iter();
    let steps = writes.filter(|write| {
        KINDS.contains(&&*write.resource) && (write.subresource != "status" || write.resource == "resourceclaims")
    });
    let points: Vec<Point> = steps
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
    println!("{} writes: {seen:#?}", points.len());
    let kinds: BTreeSet<&str> = points.iter().map(|point| &*point.resource).collect();
    assert!(kinds.into_iter().eq(KINDS), "{points:#?}");
    assert!(points.len() >= 20, "{points:#?}");
    points
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_at_any_write_the_next_process_continues() {
    let points = recorded().await;
    let effects = [Effect::Drop, Effect::DropAfter];
    let cases: Vec<(&Point, Effect)> = effects
        .iter()
        .flat_map(|effect| points.iter().map(move |point| (point, effect.clone())))
        .collect();
    let clusters = (0..CLUSTERS).map(async |first| {
        let mut case = Case::start().await;
        for (round, (point, effect)) in cases.iter().enumerate().skip(first).step_by(CLUSTERS) {
            case.killed_at(round, point, effect.clone()).await;
        }
    });
    futures::future::join_all(clusters).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_any_response_to_any_write_all_pods_run_and_nothing_is_left() {
    let refuse = |code| Effect::Refuse {
        code,
        retry_after: None,
    };
    let points = recorded().await;
    let rounds = points.iter().map(|point| point.before + 1).max().unwrap_or_default();
    let effects = [refuse(409), refuse(429), refuse(500), Effect::FailAfter { code: 504 }];
    // One cluster for each fault. Each round applies it to one write of every kind: the first, then the second…
    let clusters = effects.map(async |effect| {
        let case = Case::start().await;
        for round in 0..rounds {
            let met = points.iter().filter(|point| point.before == round);
            case.lab.server.audit().clear();
            let rules: Vec<_> = met.map(|point| (point, case.add(point, effect.clone()))).collect();
            case.create_pods(round as usize).await;
            case.all_run().await;
            case.assert_shared_well().await;
            case.clear().await;
            let writes = case.lab.server.audit().writes_of(&Identity::operator());
            for (point, rule) in rules {
                let met = case.lab.server.faults().struck(rule) > 0;
                let came = writes.iter().filter(|write| point.is_like(write)).count();
                let should = point.before == 0 || came > point.before as usize;
                assert!(met || !should, "{point:?} was not met by any of {came}");
                case.lab.server.faults().remove(rule);
            }
        }
    });
    futures::future::join_all(clusters).await;
}
