//! The cold start of grouping: 20,000 pods of 5,000 owners on the embedded API server, known as groups to the scheduler; then their
//! PodGroups written; then a restart, which has nothing to write.
//!
//! `cargo bench --bench grouper`          4 pods for each of 5,000 owners
//! `cargo bench --bench grouper -- 500`   of 500 owners

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::client::Body;
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use unikai::api::crds;
use unikai::components::bus::{Inboxes, Kind, Listener, ToScheduler, channels};
use unikai::components::figures::Figures;
use unikai::components::heartbeat::Heartbeat;
use unikai::components::history::History;
use unikai::components::leadership::{self, Scope, Term, Terms};
use unikai::components::readiness::Readiness;
use unikai::components::watches::{self, Stores};
use unikai::components::write_slots::Background;
use unikai::components::{Context, Settings, grouper};
use unikai::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer};

const PODS_PER_OWNER: usize = 4;
/// After so long without a write everything is written, including delayed writes.
const SILENCE: Duration = Duration::from_secs(12);

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let owners = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(5_000);
    let pods = owners * PODS_PER_OWNER;
    let server = ApiServer::start(Options::default()).await?;
    let admin = server.client(&Identity::admin()).await?;
    furnish(&admin).await?;
    let started = Instant::now();
    futures::stream::iter(0..owners)
        .map(|index| workload(&admin, index))
        .buffer_unordered(16)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<anyhow::Result<()>>()?;
    println!(
        "{pods} pods of {owners} owners created in {:.1} s",
        started.elapsed().as_secs_f64()
    );

    let mut cold = Run::start(&server, false).await?;
    let (listed, known, groups) = cold.until_known(pods).await;
    println!(
        "cold: {groups} groups known {:.2} s after the lists, which took {:.2} s; {} owner reads for {owners} owners, {} writes",
        (known - listed).as_secs_f64(),
        (listed - cold.started).as_secs_f64(),
        cold.reads.load(Ordering::SeqCst),
        writes(&server).values().sum::<usize>(),
    );
    let leads = Instant::now();
    let client = cold.writes.clone();
    let term = Term {
        number: 1,
        writes: client,
    };
    cold.leading.send_modify(|terms| terms.begin(&Scope::Cluster, term));
    cold.until_silent(&server).await;
    println!(
        "leading: {:?} in {:.1} s",
        writes(&server),
        (leads.elapsed() - SILENCE).as_secs_f64()
    );
    cold.stop().await;

    server.audit().clear();
    let mut again = Run::start(&server, true).await?;
    let (listed, known, groups) = again.until_known(pods).await;
    println!(
        "restart: {groups} groups known {:.2} s after the lists; {} owner reads",
        (known - listed).as_secs_f64(),
        again.reads.load(Ordering::SeqCst)
    );
    again.until_silent(&server).await;
    println!("restart: {:?} written", writes(&server));
    again.stop().await;
    Ok(())
}

/// Watches and grouper; the bench reads the scheduler's inbox.
struct Run {
    started: Instant,
    leading: watch::Sender<Terms>,
    writes: Client,
    reads: Arc<AtomicUsize>,
    shutdown: CancellationToken,
    inboxes: Inboxes,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Run {
    async fn start(server: &RunningServer, leads: bool) -> anyhow::Result<Self> {
        let (client, reads) = counting(server.client(&Identity::operator()).await?);
        let term = |writes: &Client| Term {
            number: 1,
            writes: writes.clone(),
        };
        let (leading, is_leading) = watch::channel(Terms::default());
        if leads {
            leading.send_modify(|terms| terms.begin(&Scope::Cluster, term(&client)));
        }
        let writes = client.clone();
        let context = Context {
            reads: client.clone(),
            watches: client.clone(),
            writes: client,
            settings: Arc::new(Settings::default()),
            refused: leadership::refused(),
            leading: is_leading,
            scope: Scope::Cluster,
            only_term: None,
            shutdown: CancellationToken::new(),
            readiness: Readiness::default(),
            background: Background::new(Settings::default().background_delay),
            figures: Figures::default(),
            history: History::default(),
            heartbeat: Heartbeat::default(),
        };
        let stores = Arc::new(Stores::default());
        let (bus, mut inboxes) = channels(1);
        let (_, unused) = tokio::sync::mpsc::channel(1);
        let inbox = std::mem::replace(&mut inboxes.grouper, unused);
        let grouping = grouper::run(context.clone(), inbox, Arc::clone(&stores), bus.clone());
        let watching = watches::run(context.clone(), stores, bus);
        let tasks = vec![
            tokio::spawn(async move { drop(grouping.await) }),
            tokio::spawn(async move { drop(watching.await) }),
        ];
        Ok(Self {
            started: Instant::now(),
            leading,
            writes,
            reads,
            shutdown: context.shutdown,
            inboxes,
            tasks,
        })
    }

    /// Waits until so many pods have a group. Returns when the lists were complete, when the last group was known, and the number of groups.
    async fn until_known(&mut self, pods: usize) -> (Instant, Instant, usize) {
        let needed = Kind::told_to(&[Listener::Grouper]);
        let (mut missing, mut listed) = (needed.clone(), Instant::now());
        let (mut grouped, mut groups) = (HashSet::new(), HashSet::new());
        while grouped.len() < pods || !missing.is_empty() {
            match self.next().await {
                ToScheduler::Synced(kind) => {
                    missing.retain(|missing| *missing != kind);
                    listed = if needed.contains(&kind) { Instant::now() } else { listed };
                }
                ToScheduler::Grouped(grouping) => {
                    grouped.insert(grouping.pod.uid.clone());
                    groups.insert(grouping.group.metadata.name.clone());
                }
                _ => {}
            }
        }
        (listed, Instant::now(), groups.len())
    }

    /// The next message to the scheduler; messages to other components are dropped.
    async fn next(&mut self) -> ToScheduler {
        loop {
            tokio::select! {
                message = self.inboxes.schedulers[0].recv() => return message.expect("the bus is there"),
                Some(_) = self.inboxes.podgroups.recv() => {}
                Some(_) = self.inboxes.queues.recv() => {}
                Some(_) = self.inboxes.events.recv() => {}
            }
        }
    }

    async fn until_silent(&mut self, server: &RunningServer) {
        let mut before = writes(server);
        loop {
            let silence = tokio::time::sleep(SILENCE);
            tokio::pin!(silence);
            loop {
                tokio::select! {
                    () = &mut silence => break,
                    _ = self.next() => {}
                }
            }
            let now = writes(server);
            if now == before {
                return;
            }
            before = now;
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        futures::future::join_all(self.tasks).await;
    }
}

/// The same client, and how often it read a single owner.
fn counting(inner: Client) -> (Client, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path();
        if request.method() == http::Method::GET
            && ["/jobs/", "/statefulsets/", "/pytorchjobs/"]
                .iter()
                .any(|kind| path.contains(kind))
        {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    (Client::new(service, "default"), reads)
}

fn writes(server: &RunningServer) -> BTreeMap<String, usize> {
    let operator = Identity::operator();
    let counts = server.audit().counts().into_iter();
    counts
        .filter(|((user, _, _), _)| *user == operator.user)
        .map(|((_, what, code), count)| (format!("{what} {code}"), count))
        .collect()
}

async fn furnish(admin: &Client) -> anyhow::Result<()> {
    for crd in crds::all() {
        Api::all(admin.clone()).create(&PostParams::default(), &crd).await?;
    }
    create(admin, json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "pytorchjobs.kubeflow.org"},
        "spec": {
            "group": "kubeflow.org", "scope": "Namespaced", "names": {"kind": "PyTorchJob", "plural": "pytorchjobs", "singular": "pytorchjob"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

/// An owner and its pods: a Job, a StatefulSet or a PyTorchJob in turn.
async fn workload(admin: &Client, index: usize) -> anyhow::Result<()> {
    let name = format!("w{index}");
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut set_template = template.clone();
    set_template["spec"]["restartPolicy"] = json!("Always");
    let metadata = json!({"name": name, "namespace": "default", "labels": {"kai.scheduler/queue": "test"}});
    let owner = match index % 3 {
        0 => json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}),
        1 => json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata,
            "spec": {"serviceName": name, "replicas": PODS_PER_OWNER, "selector": {"matchLabels": {"app": name}}, "template": set_template}}),
        _ => {
            json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": {
            "Master": {"replicas": 1}, "Worker": {"replicas": PODS_PER_OWNER - 1}}}})
        }
    };
    let owner = create(admin, owner).await?;
    let types = owner.types.clone().unwrap_or_default();
    for pod in 0..PODS_PER_OWNER {
        let kind = if pod == 0 { "master" } else { "worker" };
        create(admin, json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{name}-{pod}"), "namespace": "default",
                "labels": {"training.kubeflow.org/replica-type": kind},
                "ownerReferences": [{"apiVersion": types.api_version, "kind": types.kind, "name": name, "uid": owner.metadata.uid, "controller": true}],
            },
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "image": "i"}]},
        }))
        .await?;
    }
    Ok(())
}

async fn create(admin: &Client, object: Value) -> anyhow::Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().unwrap_or_default();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
        None => Api::all_with(admin.clone(), &resource),
    };
    Ok(api.create(&PostParams::default(), &object).await?)
}
