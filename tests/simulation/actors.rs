//! The actors: tenants, normal and hostile, administrators, and what happens to nodes and replicas. Each step is a request or two; what is refused is
//! refused.

use kube::api::{DeleteParams, DynamicObject, EvictParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::time::sleep;

use crate::plan::{
    Ends, ForgedField, INSTANCE, INSTANCES, NODES, PARENTS, POOL, POOL_LABEL, QUEUES, Step, TEAMS, parent_of, pool_of,
};
use crate::run::{self, Simulation};
use crate::state::{APART, MOVED, OF_TENANT, PodSeen};
use crate::sub_groups::SUB_GROUP;
use crate::{claims, sub_groups, volumes, zones};

/// Who acts.
pub struct Actors {
    admin: Client,
    tenant: Client,
    made: Cell<u64>,
}

impl Actors {
    pub fn new(admin: Client, tenant: Client) -> Self {
        Self {
            admin,
            tenant,
            made: Cell::new(0),
        }
    }

    /// What is there before the operator comes.
    pub async fn install(&self) {
        let files = unikai::cli::manifests::files("unikai:simulated").into_iter();
        for (name, yaml) in files.chain(unikai::cli::manifests::gpu_sharing()) {
            if name.contains("operator.yaml") {
                continue;
            }
            for document in serde_yaml_ng::Deserializer::from_str(&yaml) {
                let object = Value::deserialize(document).expect("YAML");
                if !object.is_null() {
                    self.create_once_served(object)
                        .await
                        .unwrap_or_else(|error| panic!("{name}: {error}"));
                }
            }
        }
        for team in TEAMS {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}});
            self.create_once_served(namespace).await.expect("a namespace");
        }
        for (name, parent) in run::queues() {
            // A queue above others needs a quota for those that are not preemptible.
            let queue = queue(name, parent, -1, if parent.is_none() { -1 } else { 2 });
            self.create_once_served(queue).await.expect("a queue");
        }
        for (name, pool) in [("default", ""), (POOL, POOL)] {
            self.create_once_served(shard(name, pool)).await.expect("a shard");
        }
        for object in claims::installed()
            .chain(volumes::installed())
            .chain([sub_groups::topology()])
            .chain(zones::installed())
        {
            self.create_once_served(object)
                .await
                .expect("devices, volumes, the topology and zones");
        }
    }

    /// Creates an object; a kind is served some time after its definition is created.
    async fn create_once_served(&self, object: Value) -> kube::Result<()> {
        for _ in 0..100 {
            match create(&self.admin, object.clone()).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => sleep(Duration::from_millis(100)).await,
                Err(error) => return Err(error),
            }
        }
        create(&self.admin, object).await.map(drop)
    }

    fn name(&self, kind: &str) -> String {
        self.made.set(self.made.get() + 1);
        format!("{kind}-{}", self.made.get())
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.tenant.clone(), namespace)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.admin.clone())
    }

    /// A node offers so much of a resource from now on.
    async fn offers(&self, node: &str, resource: &str, amount: &str) {
        let patch = Patch::Merge(json!({"status": {"allocatable": {resource: amount}}}));
        let _ = self.nodes().patch_status(node, &PatchParams::default(), &patch).await;
    }

    /// Carries a step out.
    pub async fn act(simulation: &mut Simulation, step: &Step) {
        match step {
            Step::Kill(at) => simulation.kill(*at),
            Step::ShutDown(at) => simulation.shut_down(*at),
            Step::Start(at) => simulation.start_at(*at).await,
            Step::CrashAt {
                replica,
                write,
                crash_point,
            } => simulation.replicas[*replica].link.crash_at(*write, *crash_point),
            Step::LinkFault { replica, fault, lasts } => {
                simulation.replicas[*replica].link.fault(fault.clone(), *lasts);
            }
            Step::DropWatches(at) => simulation.replicas[*at].link.drop_watches(),
            Step::Compact => simulation.server.faults().compact(),
            Step::Expire => simulation.server.faults().expire_watches(None),
            Step::NodeGone(at) => {
                simulation.node_changes(*at);
                let _ = simulation.world.remove_node(NODES[*at].0).await;
            }
            Step::NodeBack(at) => {
                simulation.node_changes(*at);
                let (name, gpus) = NODES[*at];
                let _ = simulation.world.add_node(run::node(name, gpus)).await;
            }
            Step::KubeletStops(at) => {
                simulation.node_changes(*at);
                let _ = simulation.world.stop_kubelet(NODES[*at].0).await;
            }
            Step::ClockJumps(seconds) => {
                let now = unikai::clock::now() + jiff::SignedDuration::from_secs(*seconds);
                unikai::clock::simulate(Some(now));
            }
            Step::Wait => {}
            Step::Pod { .. }
            | Step::Share { .. }
            | Step::Instances { .. }
            | Step::Cores { .. }
            | Step::Job { .. }
            | Step::Gang { .. }
            | Step::SubGroups { .. }
            | Step::Claim { .. }
            | Step::Volume { .. }
            | Step::Grow(_) => {
                simulation.actors().create(simulation, step).await;
            }
            Step::DeletePod(_)
            | Step::DeleteGroup(_)
            | Step::ClaimGone(_)
            | Step::VolumeClaimGone(_)
            | Step::Forge { .. }
            | Step::GroupOfPod { .. } => {
                simulation.check(crate::invariants::ALWAYS);
                simulation.actors().change(simulation, step).await;
            }
            Step::LoseGpus(at) | Step::MoveNode(at) => {
                simulation.node_changes(*at);
                simulation.actors().administrate(simulation, step).await;
            }
            Step::Drain(at) => {
                simulation.reservations_go(NODES[*at].0);
                simulation.actors().administrate(simulation, step).await;
            }
            Step::ReservationGone(which) => {
                let state = simulation.state();
                let reservations: Vec<_> = state.pods.values().filter(|pod| pod.reservation).collect();
                if let Some(pod) = pick(&reservations, *which) {
                    simulation.reservations_go(&pod.node);
                    simulation.actors().delete_reservation(pod).await;
                }
            }
            Step::Limit { .. }
            | Step::QueueGone(_)
            | Step::QueueBack(_)
            | Step::Cordon(_)
            | Step::Uncordon(_)
            | Step::ShardGone
            | Step::ShardBack
            | Step::Strategy(_)
            | Step::Service { .. }
            | Step::Budget { .. }
            | Step::BudgetGone(_)
            | Step::DevicesGone(_)
            | Step::DevicesBack(_)
            | Step::VolumeBack(_)
            | Step::LabelNode(_) => simulation.actors().administrate(simulation, step).await,
        }
    }

    /// A tenant creates something.
    async fn create(&self, simulation: &Simulation, step: &Step) {
        match step {
            Step::Pod {
                team,
                queue,
                gpus,
                cpu,
                priority,
                ends,
                apart,
            } => {
                let mut pod = pod(&self.name("pod"), TEAMS[*team], QUEUES[*queue], *gpus, *cpu);
                end(&mut pod, *ends);
                if *apart {
                    stay_apart(&mut pod, "pods");
                }
                prioritise(&mut pod, *priority);
                let _ = create(&self.tenant, pod).await;
            }
            Step::Share {
                team,
                queue,
                portion,
                devices,
                ends,
            } => {
                let mut pod = pod(&self.name("share"), TEAMS[*team], QUEUES[*queue], 0, 100);
                end(&mut pod, *ends);
                pod["metadata"]["annotations"]["gpu-fraction"] = json!(portion);
                if *devices > 1 {
                    pod["metadata"]["annotations"]["gpu-fraction-num-devices"] = json!(devices.to_string());
                }
                let _ = create(&self.tenant, pod).await;
            }
            Step::Instances {
                team,
                queue,
                instances,
                priority,
                ends,
            } => {
                let mut pod = pod(&self.name("mig"), TEAMS[*team], QUEUES[*queue], 0, 100);
                end(&mut pod, *ends);
                let limits = json!({INSTANCE: instances.to_string()});
                pod["spec"]["containers"][0]["resources"]["limits"] = limits;
                prioritise(&mut pod, *priority);
                let _ = create(&self.tenant, pod).await;
            }
            Step::Cores {
                team,
                queue,
                cores,
                gpus,
                priority,
                ends,
            } => {
                let mut pod = pod(&self.name("cores"), TEAMS[*team], QUEUES[*queue], *gpus, 100);
                end(&mut pod, *ends);
                zones::exclude(&mut pod, *cores);
                prioritise(&mut pod, *priority);
                let _ = create(&self.tenant, pod).await;
            }
            Step::Job {
                team,
                queue,
                size,
                gpus,
                ends,
            } => {
                let mut job = job(&self.name("job"), TEAMS[*team], QUEUES[*queue], *size, *gpus);
                job["spec"]["backoffLimit"] = json!(2);
                end(&mut job["spec"]["template"], *ends);
                let _ = create(&self.tenant, job).await;
            }
            Step::Gang {
                team,
                queue,
                pods,
                min,
                gpus,
                ends,
                apart,
            } => {
                let name = self.name("gang");
                let group = group(&name, TEAMS[*team], QUEUES[*queue], *min);
                if create(&self.tenant, group).await.is_err() {
                    return;
                }
                for number in 0..*pods {
                    let mut member = member(&self.name("member"), TEAMS[*team], QUEUES[*queue], &name, *gpus);
                    end_in_turn(&mut member, *ends, number);
                    if *apart {
                        stay_apart(&mut member, &name);
                    }
                    let _ = create(&self.tenant, member).await;
                }
            }
            Step::SubGroups {
                team,
                queue,
                sub_groups,
                pods,
                min,
                gpus,
                together,
                some,
                ends,
            } => {
                let (name, team, queue) = (self.name("gang"), TEAMS[*team], QUEUES[*queue]);
                let mut group = sub_groups::gang(&name, team, queue, *sub_groups, *min, *together);
                if *some {
                    sub_groups::need_all_but_one(&mut group, *sub_groups);
                }
                if create(&self.tenant, group).await.is_err() {
                    return;
                }
                for number in 0..*sub_groups * *pods {
                    let sub_group = number % sub_groups;
                    let mut pod = sub_groups::pod(&self.name("member"), team, queue, &name, sub_group, *gpus);
                    end_in_turn(&mut pod, *ends, number);
                    let _ = create(&self.tenant, pod).await;
                }
            }
            Step::Claim {
                team,
                queue,
                gpus,
                wants,
                shared,
                ends,
            } => {
                let shared = shared.map(|number| format!("{}{number}", claims::SHARED));
                if let Some(name) = &shared {
                    let _ = create(&self.tenant, claims::shared(name, TEAMS[*team], *wants)).await;
                }
                let mut pod = pod(&self.name("claims"), TEAMS[*team], QUEUES[*queue], *gpus, 100);
                end(&mut pod, *ends);
                claims::claim(&mut pod, shared.as_deref(), *wants);
                let _ = create(&self.tenant, pod).await;
            }
            Step::Volume {
                team,
                queue,
                gpus,
                number,
                kept,
                ends,
            } => {
                let claim = volumes::claim(*number, TEAMS[*team], *kept);
                let _ = create(&self.tenant, claim.clone()).await;
                let mut pod = pod(&self.name("mounts"), TEAMS[*team], QUEUES[*queue], *gpus, 100);
                end(&mut pod, *ends);
                volumes::mount(&mut pod, &claim);
                let _ = create(&self.tenant, pod).await;
            }
            Step::Grow(which) => {
                let groups = simulation.server.objects("scheduling.run.ai", "podgroups");
                let own: Vec<_> = groups.iter().filter(|group| is_gang(group)).collect();
                if let Some(group) = pick(&own, *which) {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let (name, namespace) = (text(&group["metadata"]["name"]), text(&group["metadata"]["namespace"]));
                    let queue = text(&group["spec"]["queue"]);
                    let member = member(&self.name("member"), &namespace, &queue, &name, 1);
                    let _ = create(&self.tenant, member).await;
                }
            }
            _ => {}
        }
    }

    /// A tenant changes or deletes something.
    async fn change(&self, simulation: &Simulation, step: &Step) {
        let state = simulation.state();
        let mut own: Vec<&PodSeen> = state
            .pods
            .values()
            .filter(|pod| TEAMS.contains(&&*pod.namespace))
            .collect();
        own.sort_by(|left, right| (&left.namespace, &left.name).cmp(&(&right.namespace, &right.name)));
        match step {
            Step::DeletePod(which) => {
                if let Some(pod) = pick(&own, *which) {
                    let _ = self
                        .pods(&pod.namespace)
                        .delete(&pod.name, &DeleteParams::default())
                        .await;
                }
            }
            Step::DeleteGroup(which) => {
                let jobs = simulation.server.objects("batch", "jobs");
                let groups = simulation.server.objects("scheduling.run.ai", "podgroups");
                let gangs = groups.iter().filter(|group| is_gang(group));
                let all: Vec<_> = jobs.iter().chain(gangs).collect();
                let Some(picked) = pick(&all, *which) else { return };
                delete(&self.tenant, picked).await;
                let name = picked["metadata"]["name"].as_str().unwrap_or_default();
                for pod in own
                    .iter()
                    .filter(|pod| pod.group == name && pod.name.starts_with("member"))
                {
                    let _ = self
                        .pods(&pod.namespace)
                        .delete(&pod.name, &DeleteParams::default())
                        .await;
                }
            }
            Step::ClaimGone(which) => {
                let claims = simulation.server.objects("resource.k8s.io", "resourceclaims");
                if let Some(picked) = pick(&claims, *which) {
                    delete(&self.tenant, picked).await;
                }
            }
            Step::VolumeClaimGone(which) => {
                let is_used = |claim: &Value| {
                    let meta = &claim["metadata"];
                    own.iter().any(|pod| {
                        meta["namespace"] == *pod.namespace && meta["name"].as_str() == pod.volume_claim.as_deref()
                    })
                };
                let mut claims = simulation.server.objects("", "persistentvolumeclaims");
                claims.retain(|claim| !is_used(claim));
                if let Some(picked) = pick(&claims, *which) {
                    delete(&self.tenant, picked).await;
                }
            }
            Step::Forge { pod, field } => {
                let Some(victim) = pick(&own, *pod) else { return };
                let other = pick(&own, pod.wrapping_mul(7).wrapping_add(3));
                let patch = match field {
                    ForgedField::Queue => {
                        json!({"metadata": {"labels": {"kai.scheduler/queue": QUEUES[pod % QUEUES.len()]}}})
                    }
                    ForgedField::PodGroup => {
                        let group = other.map_or("nosuch", |other| other.group.as_str());
                        json!({"metadata": {"annotations": {"pod-group-name": group}}})
                    }
                    ForgedField::Fraction => json!({"metadata": {"annotations": {"gpu-fraction": "0.1"}}}),
                    ForgedField::GpuGroup => {
                        let group = own
                            .iter()
                            .find_map(|pod| pod.groups.first())
                            .map_or("nosuch", String::as_str);
                        json!({"metadata": {"labels": {"runai-gpu-group": group}}})
                    }
                    ForgedField::Owner => json!({"metadata": {"ownerReferences": [{
                        "apiVersion": "batch/v1", "kind": "Job", "name": "nosuch", "uid": "0d9d1fc5-1111-4222-8333-444455556666", "controller": true}]}}),
                    ForgedField::SubGroup => json!({"metadata": {"labels": {SUB_GROUP: "nosuch"}}}),
                };
                let api = self.pods(&victim.namespace);
                let _ = api
                    .patch(&victim.name, &PatchParams::default(), &Patch::Merge(patch))
                    .await;
            }
            Step::GroupOfPod { pod, queue, min } => {
                let Some(pod) = pick(&own, *pod) else { return };
                let name = format!("pg-{}-{}", pod.name, pod.uid);
                let mut group = group(&name, &pod.namespace, QUEUES[*queue], *min);
                group["metadata"]["labels"][OF_TENANT] = json!("");
                let _ = create(&self.tenant, group).await;
            }
            _ => {}
        }
    }

    /// An administrator does something.
    async fn delete_reservation(&self, pod: &PodSeen) {
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), &pod.namespace);
        let _ = api.delete(&pod.name, &DeleteParams::default()).await;
    }

    async fn administrate(&self, simulation: &Simulation, step: &Step) {
        let merge = PatchParams::default();
        match step {
            Step::Limit { queue, limit, quota } => {
                let mut names = QUEUES.iter().chain(PARENTS);
                if let Some(name) = names.nth(*queue) {
                    self.limit(name, *limit, *quota).await;
                }
            }
            Step::QueueGone(at) => {
                let picked = queue(QUEUES[*at], Some(parent_of(QUEUES[*at])), -1, 0);
                delete(&self.admin, &picked).await;
            }
            Step::QueueBack(at) => {
                let _ = create(&self.admin, queue(QUEUES[*at], Some(parent_of(QUEUES[*at])), -1, 0)).await;
            }
            Step::Cordon(at) => self.cordon(NODES[*at].0, true).await,
            Step::Uncordon(at) => self.cordon(NODES[*at].0, false).await,
            Step::Drain(at) => {
                let node = NODES[*at].0;
                self.cordon(node, true).await;
                let state = simulation.state();
                for pod in state.pods.values().filter(|pod| pod.node == node) {
                    let api: Api<Pod> = Api::namespaced(self.admin.clone(), &pod.namespace);
                    let _ = api.evict(&pod.name, &EvictParams::default()).await;
                }
            }
            Step::LabelNode(at) => {
                let patch = json!({"metadata": {"labels": {"zone": self.name("zone")}}});
                let _ = self.nodes().patch(NODES[*at].0, &merge, &Patch::Merge(patch)).await;
            }
            Step::LoseGpus(at) => {
                let (name, gpus) = NODES[*at];
                if gpus > 0 {
                    let left = (gpus / 2).to_string();
                    self.offers(name, "nvidia.com/gpu", &left).await;
                }
                if let Some((_, instances)) = INSTANCES.iter().find(|(divided, _)| *divided == name) {
                    self.offers(name, INSTANCE, &(instances / 2).to_string()).await;
                }
            }
            Step::MoveNode(at) => self.move_node(simulation, NODES[*at].0).await,
            Step::ShardGone => delete(&self.admin, &shard(POOL, POOL)).await,
            Step::ShardBack => drop(create(&self.admin, shard_again()).await),
            Step::Strategy(strategy) => {
                let patch = json!({"spec": {"placementStrategy": {"gpu": strategy, "cpu": strategy}}});
                let shard = shard("default", "");
                let _ = api(&self.admin, &shard)
                    .patch("default", &merge, &Patch::Merge(patch))
                    .await;
            }
            Step::Service { name, enabled } => self.switch(name, *enabled).await,
            Step::Budget { team, most } => {
                delete(&self.admin, &budget(TEAMS[*team], *most)).await;
                let _ = create(&self.admin, budget(TEAMS[*team], *most)).await;
            }
            Step::BudgetGone(team) => delete(&self.admin, &budget(TEAMS[*team], 0)).await,
            Step::DevicesGone(at) => delete(&self.admin, &claims::slice(*at)).await,
            Step::DevicesBack(at) => drop(create(&self.admin, claims::slice(*at)).await),
            Step::VolumeBack(at) => {
                let volume = volumes::kept(*at);
                let mut stored = simulation.server.objects("", "persistentvolumes").into_iter();
                let stored = stored.find(|stored| stored["metadata"]["name"] == volume["metadata"]["name"]);
                if stored.is_some_and(|stored| stored["status"]["phase"] == "Released") {
                    delete(&self.admin, &volume).await;
                }
                let _ = create(&self.admin, volume).await;
            }
            _ => {}
        }
    }

    /// Switches a component in the Config.
    async fn switch(&self, name: &str, enabled: bool) {
        let patch = json!({"spec": {name: {"service": {"enabled": enabled}}}});
        let config = config();
        let _ = create(&self.admin, config.clone()).await;
        let api = api(&self.admin, &config);
        let _ = api
            .patch("kai-config", &PatchParams::default(), &Patch::Merge(patch))
            .await;
    }

    /// Moves a node to the other node pool, or back, and leaves a mark on it.
    async fn move_node(&self, simulation: &Simulation, node: &str) {
        let state = simulation.state();
        let pool = state.nodes.get(node).and_then(|node| node.pool.clone());
        let to = pool.is_none().then_some(POOL);
        let patch = json!({"metadata": {"labels": {POOL_LABEL: to, MOVED: ""}}});
        let _ = self
            .nodes()
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await;
    }

    async fn cordon(&self, node: &str, cordoned: bool) {
        let patch = json!({"spec": {"unschedulable": cordoned.then_some(true)}});
        let _ = self
            .nodes()
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await;
    }

    /// Sets a queue's limit and quota of GPUs; -1 is none. Returns whether that was accepted.
    pub async fn limit(&self, name: &str, limit: i64, quota: i64) -> bool {
        let patch = json!({"spec": {"resources": {"gpu": {"limit": limit, "quota": quota}}}});
        let kind = kind_of(&queue(name, None, -1, 0));
        let api: Api<DynamicObject> = Api::all_with(self.admin.clone(), &kind);
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.is_ok()
    }

    /// Administrators bring nodes and queues back. Returns whether all queues are there: webhooks need a replica that answers.
    pub async fn put_in_order(simulation: &Simulation) -> bool {
        let actors = simulation.actors();
        let mut accepted = true;
        // Without quotas no pod that is not preemptible runs.
        let quota = if simulation.seed.is_multiple_of(2) { -1 } else { 0 };
        for (name, parent) in run::queues() {
            let _ = create(&actors.admin, queue(name, parent, -1, quota)).await;
            accepted &= actors.limit(name, -1, quota).await;
        }
        for (name, gpus) in NODES {
            let _ = simulation.world.add_node(run::node(name, *gpus)).await;
            let patch = json!({"metadata": {"labels": {POOL_LABEL: pool_of(name)}}, "spec": {"unschedulable": null}});
            let api = actors.nodes();
            let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        }
        let _ = create(&actors.admin, shard_again()).await;
        for slice in claims::slices() {
            let _ = create(&actors.admin, slice).await;
        }
        for team in TEAMS {
            delete(&actors.admin, &budget(team, 0)).await;
        }
        delete(&actors.admin, &config()).await;
        accepted
    }

    /// Tenants delete everything.
    pub async fn delete_all(simulation: &Simulation) {
        let actors = simulation.actors();
        for job in simulation.server.objects("batch", "jobs") {
            delete(&actors.tenant, &job).await;
        }
        for group in simulation.server.objects("scheduling.run.ai", "podgroups") {
            if is_gang(&group) || !group["metadata"]["labels"][OF_TENANT].is_null() {
                delete(&actors.tenant, &group).await;
            }
        }
        // The others are deleted with their pods.
        for claim in simulation.server.objects("resource.k8s.io", "resourceclaims") {
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            if name.starts_with(claims::SHARED) {
                delete(&actors.tenant, &claim).await;
            }
        }
        for pod in simulation.server.objects("", "pods") {
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
            if TEAMS.contains(&namespace) {
                delete(&actors.tenant, &pod).await;
            }
        }
    }
}

fn is_gang(group: &Value) -> bool {
    group["metadata"]["name"]
        .as_str()
        .is_some_and(|name| name.starts_with("gang-"))
}

fn pick<T>(of: &[T], which: usize) -> Option<&T> {
    of.get(which.checked_rem(of.len())?)
}

pub fn kind_of(object: &Value) -> kube::api::ApiResource {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    kube::api::ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text(&object["kind"])))
}

pub fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let kind = kind_of(object);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

pub async fn create(client: &Client, object: Value) -> kube::Result<DynamicObject> {
    let api = api(client, &object);
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await
}

async fn delete(client: &Client, object: &Value) {
    let how = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let _ = api(client, object).delete(name, &how).await;
}

pub fn queue(name: &str, parent: Option<&str>, limit: i64, quota: i64) -> Value {
    let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let gpu = json!({"quota": quota, "limit": limit, "overQuotaWeight": 1});
    let mut queue = json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
        "spec": {"resources": {"gpu": gpu, "cpu": open, "memory": open}},
    });
    if let Some(parent) = parent {
        queue["spec"]["parentQueue"] = json!(parent);
    }
    put_in_pool(&mut queue, name);
    queue
}

fn shard(name: &str, pool: &str) -> Value {
    json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": name},
        "spec": {"partitionLabelValue": pool}})
}

/// The shard of the other node pool, after it was gone.
fn shard_again() -> Value {
    let mut shard = shard(POOL, POOL);
    shard["metadata"]["labels"] = json!({MOVED: ""});
    shard
}

fn config() -> Value {
    json!({"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}, "spec": {}})
}

/// A budget for all pods of a namespace.
fn budget(namespace: &str, most: u32) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all", "namespace": namespace},
        "spec": {"selector": {}, "maxUnavailable": most}})
}

/// Has the containers of a pod or pod template end by themselves, for good.
fn end(pod: &mut Value, ends: Option<Ends>) {
    if let Some(Ends { after, code }) = ends {
        pod["metadata"]["annotations"]["unikai.dev/run-seconds"] = json!(after.to_string());
        pod["metadata"]["annotations"]["unikai.dev/exit-code"] = json!(code.to_string());
        pod["spec"]["restartPolicy"] = json!("Never");
    }
}

/// The pods of a gang end one by one.
fn end_in_turn(pod: &mut Value, ends: Option<Ends>, number: u32) {
    let ends = ends.map(|ends| Ends {
        after: ends.after + 3 * number,
        ..ends
    });
    end(pod, ends);
}

/// Keeps a pod off nodes with others of its namespace that are called so.
fn stay_apart(pod: &mut Value, called: &str) {
    pod["metadata"]["labels"][APART] = json!(called);
    pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {APART: called}}}]);
}

/// Gives an object the label of the node pool that its queue is of.
fn put_in_pool(object: &mut Value, queue: &str) {
    if let Some(pool) = pool_of(queue) {
        object["metadata"]["labels"][POOL_LABEL] = json!(pool);
    }
}

pub fn pod(name: &str, namespace: &str, queue: &str, gpus: u32, cpu: u32) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kai.scheduler/queue": queue}},
        "spec": {
            "schedulerName": "kai-scheduler", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "ubuntu", "args": ["sleep", "infinity"], "resources": {
                "requests": {"cpu": format!("{cpu}m"), "memory": "64Mi"}}}],
        },
    });
    put_in_pool(&mut pod, queue);
    if gpus > 0 {
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": gpus.to_string()});
    }
    pod
}

/// Has a pod name a priority class, if there is one.
fn prioritise(pod: &mut Value, class: Option<&str>) {
    if let Some(class) = class {
        pod["metadata"]["labels"]["priorityClassName"] = json!(class);
    }
}

pub fn group(name: &str, namespace: &str, queue: &str, min: u32) -> Value {
    let mut group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"queue": queue, "minMember": min},
    });
    put_in_pool(&mut group, queue);
    group
}

pub fn member(name: &str, namespace: &str, queue: &str, group: &str, gpus: u32) -> Value {
    let mut pod = pod(name, namespace, queue, gpus, 100);
    pod["metadata"]["annotations"]["pod-group-name"] = json!(group);
    pod
}

pub fn job(name: &str, namespace: &str, queue: &str, size: u32, gpus: u32) -> Value {
    let mut template = pod(name, namespace, queue, gpus, 100);
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"kai.scheduler/queue": queue},
            "annotations": {"kai.scheduler/batch-min-member": size.to_string()},
        },
        "spec": {"parallelism": size, "completions": size, "template": {
            "metadata": {"labels": {"kai.scheduler/queue": queue}}, "spec": template["spec"],
        }},
    })
}
