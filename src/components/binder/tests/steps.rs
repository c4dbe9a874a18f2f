//! Binds of several steps: each step does what is missing, and a bind that fails is undone.

use std::time::Duration;

use tokio::sync::mpsc;

use super::*;
use crate::api::{BindRequest, PodGroup};
use crate::components::binder::groups::{GroupId, NoDevice};
use crate::components::binder::multi_step::{GroupRequest, MultiStepBind};
use crate::components::binder::reservation;
use crate::components::bus::Traces;
use crate::components::fractions::users::User;
use crate::engine::decision::Promise;

/// How the manager of GPU groups answers.
type Manager = fn(&GroupId) -> Result<String, NoDevice>;

/// A bind of half of a GPU for the pod `a`, and what the manager of GPU groups was asked.
struct Case {
    lab: Lab,
    bind: OrderedBind,
    manager: Manager,
    resumes: Option<BindRequest>,
    steps: StepLog,
}

fn gpu(id: &GroupId) -> Result<String, NoDevice> {
    Ok(format!("GPU-{}", id.group))
}

impl Case {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let lab = Lab::with(settings).await;
        lab.install_definitions().await;
        let (pod, bind) = lab.sharing("a", "maps").await;
        lab.stores.pods.insert(pod);
        Self {
            lab,
            bind,
            manager: gpu,
            resumes: None,
            steps: Traces::channel().0.steps(),
        }
    }

    /// The reservation pod of the group is there, and records the pod: binds that take long ask the API server for it.
    async fn is_reserved(&self) {
        let (settings, uid) = (Settings::default(), &self.bind.placement.pod.uid);
        let user = User {
            namespace: "team".to_owned(),
            name: "a".to_owned(),
            share: self.bind.share.clone(),
        };
        let (users, account) = ([(uid.to_string(), user)].into(), &settings.own_pods.reservation);
        let mut pod = reservation::pod("n1", "g", Vec::new(), &users, &settings.sharing, account);
        let device = ("run.ai/reserve_for_gpu_index".to_owned(), "GPU-g".to_owned());
        pod.metadata.annotations.get_or_insert_default().extend([device]);
        let mut pod = json!(pod);
        // No such class is there.
        pod["spec"]["priorityClassName"] = Value::Null;
        self.lab.create(pod).await;
    }

    /// The steps of the binds since the last call, as traces show them.
    fn traced(&self) -> Vec<&'static str> {
        self.steps.take().into_iter().map(|(name, ..)| name).collect()
    }

    async fn run(&self) -> (Report, Option<BindRequest>) {
        let (group_requests, mut asked) = mpsc::channel::<GroupRequest>(8);
        let bind = MultiStepBind {
            caller: self.lab.caller(),
            stores: Arc::clone(&self.lab.stores),
            group_requests,
            bind: self.bind.clone(),
            resumes: self.resumes.clone().map(Arc::new),
            steps: self.steps.clone(),
        };
        let answer = async {
            while let Some(ask) = asked.recv().await {
                assert_eq!((&*ask.user.name, &ask.user.share), ("a", &self.bind.share));
                let _ = ask.answer.send((self.manager)(&ask.id));
            }
        };
        tokio::select! {
            ended = bind.run() => ended,
            () = answer => unreachable!("the bind has the sender"),
        }
    }

    /// Why the bind fails.
    async fn fails(&self) -> (String, Report) {
        let (report, _) = self.run().await;
        match &report.ending {
            Ending::Failed(why) => (why.clone(), report),
            other => panic!("{other:?}"),
        }
    }

    async fn request(&self) -> Option<BindRequest> {
        let api: Api<BindRequest> = Api::namespaced(self.lab.admin.clone(), "team");
        api.get_opt("a").await.unwrap()
    }

    async fn make_request(&self, change: impl FnOnce(&mut BindRequest)) -> BindRequest {
        let mut request = bind_request::request(&self.bind, &Settings::default());
        change(&mut request);
        let api: Api<BindRequest> = Api::namespaced(self.lab.admin.clone(), "team");
        api.create(&PostParams::default(), &request).await.unwrap()
    }

    /// The content of the config maps that are there, by name.
    async fn maps(&self) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        for name in ["maps-0", "maps-0-evar"] {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "team", "name": name}});
            let seen = self.lab.see(&map).await;
            if !seen.is_null() {
                found.push((name.to_owned(), seen["data"].clone()));
            }
        }
        found
    }

    async fn label(&self) -> Option<String> {
        let labels = self.lab.seen("a").await?.metadata.labels?;
        labels.get("runai-gpu-group").cloned()
    }

    /// The watch shows the pod with a change.
    async fn shows(&self, change: impl FnOnce(&mut Value)) {
        let mut pod = json!(self.lab.seen("a").await);
        change(&mut pod);
        self.lab.stores.pods.insert(read::<Pod>(pod));
    }

    /// Runs the bind while creations of this resource take long, and the watch shows the pod with a change meanwhile.
    async fn run_during(&self, slow: &str, change: fn(&mut Value)) -> Report {
        let late = Effect::Delay(Duration::from_secs(8));
        self.lab.fault(Match::verb_on("create", slow), late, Times::Always);
        let changes = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.shows(change).await;
        };
        let ((report, _), ()) = tokio::join!(self.run(), changes);
        report
    }

    /// Nothing but the request is left of a bind that failed.
    async fn is_undone(&self) {
        assert_eq!(self.maps().await, []);
        assert_eq!(self.label().await, None);
        assert_eq!(self.lab.node_of("a").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_shares_a_gpu_is_bound_in_steps() {
    let case = Case::new().await;
    let (report, request) = case.run().await;
    assert_eq!(report.ending, Ending::Done);
    assert_eq!(
        request.and_then(|request| request.metadata.uid),
        case.request().await.unwrap().metadata.uid
    );
    let maps = case.maps().await;
    assert_eq!(maps.len(), 2);
    assert_eq!(maps[1].1, json!({"NVIDIA_VISIBLE_DEVICES": "GPU-g"}));
    assert_eq!(case.label().await.as_deref(), Some("g"));
    assert_eq!(case.lab.node_of("a").await.as_deref(), Some("n1"));
    let writes = case.lab.writes();
    assert_eq!(
        writes,
        [
            "create bindrequests 201",
            "create configmaps 201",
            "create configmaps 201",
            "patch pods 200",
            "create pods/binding 201"
        ]
    );
    let steps = [
        "write bind request",
        "reserve devices",
        "look at devices again",
        "post binding",
    ];
    assert_eq!(case.traced(), steps);
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_was_interrupted_is_finished() {
    let mut case = Case::new().await;
    case.resumes = Some(case.make_request(|_| {}).await);
    // The first process had written all but the Binding.
    let rule = case.lab.fault(Match::bindings(), Effect::Hang, Times::Always);
    case.lab.context.shutdown.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), case.run()).await;
    assert_eq!(case.maps().await.len(), 2);
    case.lab.server.faults().remove(rule);
    let (report, _) = case.run().await;
    assert_eq!(report.ending, Ending::Done);
    assert_eq!(case.lab.node_of("a").await.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn a_resumed_bind_needs_its_request() {
    let mut case = Case::new().await;
    let made = case.make_request(|_| {}).await;
    let mut former = made.clone();
    former.metadata.uid = Some("former".to_owned());
    case.resumes = Some(former);
    assert_eq!(
        case.run().await.0.ending,
        Ending::Overtaken,
        "another request of the name"
    );
    case.resumes = Some(made);
    let request = json!({
        "apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest", "metadata": {"namespace": "team", "name": "a"},
    });
    case.lab.api(&request).delete("a", &Default::default()).await.unwrap();
    assert_eq!(case.run().await.0.ending, Ending::Overtaken, "it is gone");
    case.is_undone().await;
}

#[tokio::test(start_paused = true)]
async fn an_own_request_for_the_same_bind_is_used_and_any_other_is_replaced() {
    let case = Case::new().await;
    let made = case.make_request(|_| {}).await;
    assert_eq!(case.run().await.0.ending, Ending::Done);
    assert_eq!(case.request().await.unwrap().metadata.uid, made.metadata.uid);

    for change in [
        (|request: &mut BindRequest| request.spec.selected_node = Some("n2".to_owned())) as fn(&mut BindRequest),
        |request| request.metadata.labels = None,
    ] {
        let case = Case::new().await;
        let made = case.make_request(change).await;
        assert_eq!(case.run().await.0.ending, Ending::Done);
        assert_ne!(case.request().await.unwrap().metadata.uid, made.metadata.uid);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_written_fails_the_bind() {
    let case = Case::new().await;
    let rule = case
        .lab
        .fault(Match::verb_on("create", "bindrequests"), refuse(403), Times::Always);
    let (why, report) = case.fails().await;
    assert!(why.starts_with("the bind request cannot be written: "), "{why}");
    assert_eq!(
        (report.cause, report.no_device, case.lab.server.faults().struck(rule)),
        ("objects", false, 1)
    );
    case.lab.server.faults().clear();
    let rule = case
        .lab
        .fault(Match::verb_on("create", "bindrequests"), refuse(409), Times::Always);
    case.fails().await;
    assert_eq!(case.lab.server.faults().struck(rule), 4);
}

/// The GPU operator is there, and names devices by CDI.
async fn with_cdi() -> Case {
    let case = Case::new().await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let names = json!({"kind": "ClusterPolicy", "plural": "clusterpolicies"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterpolicies.nvidia.com"},
        "spec": {"group": "nvidia.com", "scope": "Cluster", "names": names, "versions": [version]},
    });
    case.lab.create(definition).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let policy = json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"},
        "spec": {"cdi": {"enabled": true, "default": true}},
    });
    case.lab.create(policy).await;
    case
}

#[tokio::test(start_paused = true)]
async fn devices_are_named_as_the_gpu_operator_configures_or_not_at_all() {
    let policies = || Match::verb_on("list", "clusterpolicies");
    for fault in [refuse(503), Effect::Delay(Duration::from_secs(6))] {
        let case = with_cdi().await;
        case.is_reserved().await;
        case.lab.fault(policies(), fault, Times::Next(1));
        assert_eq!(case.run().await.0.ending, Ending::Done);
        let visible = json!({"NVIDIA_VISIBLE_DEVICES": "k8s.device-plugin.nvidia.com/gpu=GPU-g"});
        assert_eq!(case.maps().await[1].1, visible);
    }

    let case = with_cdi().await;
    case.lab.fault(policies(), refuse(503), Times::Always);
    let (why, report) = case.fails().await;
    assert!(
        why.starts_with("the GPU operator's ClusterPolicy cannot be read: "),
        "{why}"
    );
    assert_eq!(report.cause, "objects");
    case.is_undone().await;

    // Without the right to read it.
    let case = with_cdi().await;
    case.lab.fault(policies(), refuse(403), Times::Always);
    assert_eq!(case.run().await.0.ending, Ending::Done);
    assert_eq!(case.maps().await[1].1, json!({"NVIDIA_VISIBLE_DEVICES": "GPU-g"}));
}

/// As while the definition of bind requests is replaced. The scheduler would wait for the bind for ever.
#[tokio::test(start_paused = true)]
async fn a_bind_fails_if_something_else_than_its_pod_is_not_there() {
    for resource in ["bindrequests", "configmaps"] {
        let case = Case::new().await;
        case.lab
            .fault(Match::verb_on("create", resource), refuse(404), Times::Always);
        let (_, report) = case.fails().await;
        assert_eq!((report.cause, report.no_device), ("objects", false), "{resource}");
        case.is_undone().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_bind_fails_and_is_undone_if_its_binding_finds_no_pod_and_the_pod_is_there() {
    let case = Case::new().await;
    case.lab.fault(Match::bindings(), refuse(404), Times::Always);
    let (_, report) = case.fails().await;
    assert_eq!(report.cause, "refused");
    case.is_undone().await;
}

/// The watch is behind.
#[tokio::test(start_paused = true)]
async fn a_bind_whose_pod_is_gone_or_on_another_node_is_obsolete_whatever_is_not_there() {
    for is_gone in [true, false] {
        let case = Case::new().await;
        case.lab
            .fault(Match::verb_on("create", "configmaps"), refuse(404), Times::Always);
        if is_gone {
            case.lab.delete_pod("a").await;
        } else {
            case.lab.bind_to("a", "n2").await;
        }
        assert_eq!(case.run().await.0.ending, Ending::Overtaken, "gone: {is_gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_something_else_by_now_is_not_bound() {
    let case = Case::new().await;
    case.shows(|pod| pod["metadata"]["annotations"]["gpu-fraction"] = json!("0.9"))
        .await;
    let (why, report) = case.fails().await;
    assert_eq!(
        why,
        "the pod's GPU sharing request has changed since its bind was decided"
    );
    assert_eq!(report.cause, "objects");
    case.is_undone().await;
}

/// Its bind request is another client's.
#[tokio::test(start_paused = true)]
async fn a_bind_for_more_gpus_than_the_pod_requests_a_part_of_fails() {
    let mut case = Case::new().await;
    case.bind.placement.gpu_groups = ["g", "h"].map(Arc::from).into();
    let (why, _) = case.fails().await;
    assert_eq!(why, "the pod requests no part of so many GPUs as its bind is for");
    assert!(case.maps().await.is_empty());
}

/// The scheduler charges the other pod group as soon as the pod names it.
#[tokio::test(start_paused = true)]
async fn a_pod_that_names_another_pod_group_by_now_is_not_bound() {
    let case = Case::new().await;
    case.shows(|pod| pod["metadata"]["annotations"]["pod-group-name"] = json!("of-another-queue"))
        .await;
    let (why, report) = case.fails().await;
    assert_eq!(why, "the pod names another pod group than when its bind was decided");
    assert_eq!(report.cause, "objects");
    case.is_undone().await;
}

/// Nothing is taken for it where the scheduler may have given everything away.
#[tokio::test(start_paused = true)]
async fn no_device_is_reserved_for_a_pod_that_was_bound_elsewhere_or_names_another_pod_group() {
    let change: [fn(&mut Value); 2] = [
        |pod| pod["spec"]["nodeName"] = json!("n2"),
        |pod| pod["metadata"]["annotations"]["pod-group-name"] = json!("of-another-queue"),
    ];
    for change in change {
        let mut case = Case::new().await;
        case.manager = |_| unreachable!("no device is to be reserved");
        let report = case.run_during("bindrequests", change).await;
        assert_ne!(report.ending, Ending::Done);
        case.is_undone().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_names_another_pod_group_while_a_device_is_reserved_is_not_bound() {
    let case = Case::new().await;
    case.is_reserved().await;
    let change: fn(&mut Value) = |pod| pod["metadata"]["annotations"]["pod-group-name"] = json!("of-another-queue");
    let report = case.run_during("configmaps", change).await;
    let why = "the pod names another pod group than when its bind was decided";
    assert_eq!(report.ending, Ending::Failed(why.to_owned()));
    assert_eq!(report.cause, "pod_group");
    case.is_undone().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_has_ended_was_made_anew_or_is_on_another_node_needs_no_bind() {
    let change: [fn(&mut Value); 3] = [
        |pod| pod["metadata"]["uid"] = json!("another"),
        |pod| pod["status"] = json!({"phase": "Failed"}),
        |pod| pod["spec"]["nodeName"] = json!("n2"),
    ];
    for change in change {
        let case = Case::new().await;
        case.shows(change).await;
        assert_eq!(case.run().await.0.ending, Ending::Overtaken);
        case.is_undone().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_device_the_bind_fails_and_says_whether_the_node_gives_none() {
    let mut case = Case::new().await;
    let managers: [(Manager, bool); 2] = [(|_| Err(no_room(true)), true), (|_| Err(no_room(false)), false)];
    for (manager, of_node) in managers {
        case.manager = manager;
        let (why, report) = case.fails().await;
        assert_eq!(why, "failed to reserve GPUs for pod team/a in gpu group g: no room");
        assert_eq!((report.no_device, report.cause), (of_node, "device"));
        case.is_undone().await;
    }
    case.bind.placement.gpu_groups = Vec::new();
    let (why, report) = case.fails().await;
    assert!(
        why.starts_with("no SelectedGPUGroups for fractional pod team/a"),
        "{why}"
    );
    assert!(!report.no_device, "that is not the node's fault");
}

fn no_room(of_node: bool) -> NoDevice {
    NoDevice {
        why: "no room".to_owned(),
        of_node,
    }
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_fails_at_the_end_is_undone_unless_the_process_ends() {
    for ends in [false, true] {
        let case = Case::new().await;
        case.lab.fault(Match::bindings(), refuse(403), Times::Always);
        if ends {
            case.lab.context.shutdown.cancel();
        }
        let (_, report) = case.fails().await;
        assert_eq!(
            (report.cause, report.no_device),
            ("refused", false),
            "the Binding has a cause of its own"
        );
        if ends {
            assert_eq!(case.maps().await.len(), 2, "the next process goes on");
            assert_eq!(case.label().await.as_deref(), Some("g"));
        } else {
            case.is_undone().await;
        }
        assert!(case.request().await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_bind_of_which_the_end_is_not_known_is_not_undone() {
    let case = Case::new().await;
    // Else it would go on.
    case.lab.lose();
    let faults = case.lab.server.faults();
    let answers = faults.add(Match::bindings(), Effect::FailAfter { code: 504 }, Times::Always);
    let reads = faults.add(Match::verb_on("get", "pods"), refuse(429), Times::Always);
    let (_, report) = case.fails().await;
    assert!(report.uncertain);
    faults.remove(answers);
    faults.remove(reads);
    assert!(case.label().await.is_some() && case.request().await.is_some());
    assert_eq!(case.maps().await.len(), 2);
    assert_eq!(case.lab.node_of("a").await.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn labels_that_the_pod_had_before_stay() {
    let case = Case::new().await;
    case.lab
        .patch(
            &json!(case.lab.seen("a").await),
            json!({"metadata": {"labels": {"runai-gpu-group": "g"}}}),
        )
        .await;
    case.lab.stores.pods.insert(case.lab.seen("a").await.unwrap());
    case.lab.fault(Match::bindings(), refuse(403), Times::Always);
    case.fails().await;
    assert_eq!(case.label().await.as_deref(), Some("g"));
    assert!(!case.lab.writes().iter().any(|write| write.starts_with("patch pods ")));
}

#[tokio::test(start_paused = true)]
async fn a_config_map_of_somebody_else_is_left_as_it_is() {
    let case = Case::new().await;
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "team", "name": "maps-0"}, "data": {"a": "b"}});
    case.lab.create(theirs).await;
    let (why, _) = case.fails().await;
    assert!(
        why.starts_with("config map maps-0 is there already and was not made for this pod"),
        "{why}"
    );
    assert_eq!(case.maps().await, [("maps-0".to_owned(), json!({"a": "b"}))]);
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_conflict_is_repeated() {
    let case = Case::new().await;
    case.lab
        .fault(Match::verb_on("create", "configmaps"), refuse(409), Times::Next(2));
    case.lab
        .fault(Match::verb_on("patch", "pods"), refuse(409), Times::Next(3));
    assert_eq!(case.run().await.0.ending, Ending::Done);

    let case = Case::new().await;
    let rule = case
        .lab
        .fault(Match::verb_on("patch", "pods"), refuse(409), Times::Always);
    let (why, report) = case.fails().await;
    assert!(
        why.starts_with("the pod cannot be labelled with its GPU group"),
        "{why}"
    );
    assert_eq!(report.cause, "objects");
    assert_eq!(
        case.lab.server.faults().struck(rule),
        5,
        "and taking the label back is tried, too"
    );
    let case = Case::new().await;
    let rule = case
        .lab
        .fault(Match::verb_on("patch", "pods"), refuse(403), Times::Always);
    let (why, _) = case.fails().await;
    assert!(
        why.starts_with("the pod cannot be labelled with its GPU group"),
        "{why}"
    );
    assert_eq!(
        case.lab.struck(rule),
        2,
        "one to label it, and one to take the label back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_while_its_label_has_conflicts_needs_no_bind() {
    let case = Case::new().await;
    let labels = || Match::verb_on("patch", "pods");
    case.lab
        .fault(labels(), Effect::Delay(Duration::from_secs(1)), Times::Always);
    case.lab.fault(labels(), refuse(409), Times::Always);
    let ends = async {
        tokio::time::sleep(MOMENT).await;
        let mut pod = json!(case.lab.seen("a").await);
        pod["status"] = json!({"phase": "Failed"});
        case.lab.stores.pods.insert(read::<Pod>(pod));
    };
    let ((report, _), ()) = tokio::join!(case.run(), ends);
    assert_eq!(report.ending, Ending::Overtaken);
}

#[tokio::test(start_paused = true)]
async fn with_the_full_trail_the_bind_waits_for_the_pod_group() {
    let mut settings = Settings::default();
    settings.sharing.always_bind_requests = true;
    let mut case = Case::with(settings).await;
    case.is_reserved().await;
    let name = ("pod-group-name".to_owned(), "pg".to_owned());
    case.bind.annotations.extend([name.clone()]);
    let (why, report) = case.fails().await;
    assert_eq!(why, "its pod group pg does not exist yet");
    assert_eq!(report.cause, "pod_group");
    case.is_undone().await;
    let made = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(case.lab.node_of("a").await, None);
        let group = json!({"metadata": {"namespace": "team", "name": "pg"}, "spec": {}});
        case.lab.stores.pod_groups.insert(read::<PodGroup>(group));
    };
    let ((report, _), ()) = tokio::join!(case.run(), made);
    assert_eq!(report.ending, Ending::Done);

    let mut case = Case::new().await;
    case.bind.annotations.extend([name]);
    assert_eq!(case.run().await.0.ending, Ending::Done, "without the trail it does not");
}

/// A pod whose claim waits for a volume, and which shares no GPU.
async fn with_volume() -> Case {
    let mut case = Case::new().await;
    case.bind.steps = vec![Step::Volumes];
    case.bind.share = Share::default();
    case.bind.placement.received = GpuKind::Regular;
    case.bind.placement.gpu_groups = Vec::new();
    case.bind.placement.volumes = vec![Promise {
        claim: "team/data".into(),
        volume: None,
    }];
    case.lab.create(claim()).await;
    case.watch_claim().await;
    case.lab
        .stores
        .nodes
        .insert(read::<Node>(json!({"metadata": {"name": "n1"}})));
    case
}

fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "team", "name": "data"},
        "spec": {"storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

impl Case {
    async fn watch_claim(&self) {
        let claim = self.lab.see(&claim()).await;
        self.lab.stores.persistent_volume_claims.insert(read(claim));
    }

    /// A provisioner makes the volume.
    async fn provision(&self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
            "spec": {"storageClassName": "c", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "csi": {"driver": "csi.example", "volumeHandle": "v"}},
        });
        self.lab.create(volume).await;
        let completed = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v"}});
        self.lab.patch(&claim(), completed).await;
        self.watch_claim().await;
    }

    async fn selected(&self) -> Value {
        self.lab.see(&claim()).await["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_a_volume_alone_gets_nothing_of_a_shared_gpu() {
    let case = with_volume().await;
    let ((report, _), ()) = tokio::join!(case.run(), case.provision());
    assert_eq!(report.ending, Ending::Done);
    assert_eq!(case.selected().await, "n1");
    assert_eq!((case.maps().await, case.label().await), (Vec::new(), None));
    assert_eq!(case.lab.node_of("a").await.as_deref(), Some("n1"));
    assert_eq!(case.traced(), ["write bind request", "bind volumes", "post binding"]);
}

#[tokio::test(start_paused = true)]
async fn the_label_of_a_gpu_group_stays_on_a_pod_without_a_shared_gpu() {
    let case = with_volume().await;
    let label = json!({"metadata": {"labels": {"runai-gpu-group": "mine"}}});
    let pod = case.lab.patch(&json!(case.lab.seen("a").await), label).await;
    case.lab.stores.pods.insert(read::<Pod>(pod));
    let ((report, _), ()) = tokio::join!(case.run(), case.provision());
    assert_eq!(report.ending, Ending::Done);
    assert_eq!(case.label().await.as_deref(), Some("mine"));
}

#[tokio::test(start_paused = true)]
async fn the_request_for_a_volume_is_removed_when_the_bind_fails() {
    let case = with_volume().await;
    let (why, report) = case.fails().await;
    assert_eq!(
        why,
        "the pod's volumes cannot be bound: timed out waiting for PVC \"data\" to be bound"
    );
    assert_eq!(report.cause, "volumes");
    assert_eq!(case.selected().await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn annotations_for_a_part_of_a_gpu_have_a_limit() {
    let mut case = Case::new().await;
    let mut of_length = async |length: usize| {
        let mut pod = json!(case.lab.seen("a").await);
        pod["metadata"]["annotations"]["gpu-fraction"] = json!("0.5");
        let before = Share::of_pod(&read::<Pod>(pod.clone())).len();
        pod["metadata"]["annotations"]["gpu-fraction"] = json!("0".repeat(length - before + "0.5".len()));
        let pod: Pod = read(pod);
        case.bind.share = Share::of_pod(&pod);
        assert_eq!(case.bind.share.len(), length);
        case.lab.stores.pods.insert(pod);
        case.run().await.0.ending
    };
    let limit = crate::api::limits::GPU_SHARE_BYTES;
    let why = "the pod's annotations for a part of a GPU are too long".to_owned();
    assert_ne!(of_length(limit).await, Ending::Failed(why.clone()));
    assert_eq!(of_length(limit + 1).await, Ending::Failed(why));
}

#[tokio::test(start_paused = true)]
async fn a_config_map_that_cannot_be_written_fails_the_bind() {
    let configs = |verb: &str| Match::verb_on(verb, "configmaps");
    let case = Case::new().await;
    let rule = case.lab.fault(configs("create"), refuse(403), Times::Always);
    let (why, _) = case.fails().await;
    assert!(why.starts_with("config map maps-0-evar cannot be written: "), "{why}");
    assert_eq!(case.lab.server.faults().struck(rule), 1);

    let case = Case::new().await;
    case.lab.fault(configs("create"), refuse(409), Times::Always);
    let rule = case.lab.fault(configs("patch"), refuse(404), Times::Always);
    let (why, _) = case.fails().await;
    assert!(why.starts_with("config map maps-0-evar cannot be written: "), "{why}");
    assert_eq!(
        case.lab.server.faults().struck(rule),
        4,
        "something holds the name, and is not there"
    );

    let case = Case::new().await;
    case.lab.fault(configs("create"), refuse(409), Times::Always);
    let rule = case.lab.fault(configs("patch"), refuse(500), Times::Always);
    let (why, _) = case.fails().await;
    assert!(why.starts_with("config map maps-0-evar cannot be written: "), "{why}");
    assert_eq!(case.lab.server.faults().struck(rule), 5);
}
