//! An embedded cluster with the components running against it.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use unikai::components::bus::channels;
use unikai::components::figures::Figures;
use unikai::components::heartbeat::Heartbeat;
use unikai::components::history::History;
use unikai::components::leadership::{self, Scope, Term, Terms};
use unikai::components::readiness::Readiness;
use unikai::components::scheduler::{Numbered, Rules, Shard};
use unikai::components::watches::Stores;
use unikai::components::write_slots::Background;
use unikai::components::{Context, Running, Settings, start};
use unikai::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer, Write};
use unikai::devcluster::world::{NodeSpec, World, WorldHandle, WorldOptions};
use unikai::engine::policy::Policy;
use unikai::mirror;

use crate::polling::{ends, eventually};
use crate::support::{install_crds, open_queue};

/// The operator is quiet after this time without a write: longer than every delay of coalescing.
const SILENCE: Duration = Duration::from_millis(1_500);

/// The cluster, and the components.
pub struct Bench {
    pub server: RunningServer,
    pub world: WorldHandle,
    admin: Client,
    context: Context,
    leading: watch::Sender<Terms>,
    _steers: watch::Sender<Numbered>,
    running: Vec<Running>,
}

impl Bench {
    /// A cluster with these nodes, the queues `default` and `test` below it, and components that lead.
    pub async fn start(nodes: Vec<NodeSpec>) -> Self {
        let mut bench = Self::start_following(nodes).await;
        bench.lead();
        bench
    }

    /// The same with components that do not lead yet.
    pub async fn start_following(nodes: Vec<NodeSpec>) -> Self {
        watch_for_errors();
        let server = ApiServer::start(Options::default()).await.unwrap();
        let admin = server.client(&Identity::admin()).await.unwrap();
        install(&admin).await;
        let options = WorldOptions {
            nodes,
            controllers: false,
            ..WorldOptions::default()
        };
        let world = World::start(admin.clone(), options).await.unwrap();
        let (leading, is_leading) = watch::channel(Terms::default());
        let client = server.client(&Identity::operator()).await.unwrap();
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
            heartbeat: Heartbeat::default(),
            history: History::default(),
        };
        let rules = Rules {
            on: true,
            mirror: mirror::Settings::default(),
            policy: Policy::default(),
            usage: None,
        };
        let (steers, rules) = watch::channel((1, Arc::new(rules)));
        let shard = Shard {
            name: "default".to_owned(),
            scope: Scope::Cluster,
            rules,
            follows: watch::Sender::default(),
        };
        let running = start(&context, &Arc::new(Stores::default()), channels(1), vec![shard]);
        Self {
            server,
            world,
            admin,
            context,
            leading,
            _steers: steers,
            running,
        }
    }

    pub fn lead(&mut self) {
        let writes = self.context.writes.clone();
        let term = Term { number: 1, writes };
        self.leading.send_modify(|terms| terms.begin(&Scope::Cluster, term));
    }

    pub async fn create<K>(&self, object: &K) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        Api::namespaced(self.admin.clone(), "default")
            .create(&PostParams::default(), object)
            .await
            .unwrap()
    }

    /// A Job with these annotations, as an owner.
    pub async fn create_job(&self, name: &str, annotations: Value) -> OwnerReference {
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let job = json!({
            "metadata": {"name": name, "annotations": annotations, "labels": {"kai.scheduler/queue": "test"}},
            "spec": {"template": template},
        });
        let job: Job = self.create(&serde_json::from_value(job).unwrap()).await;
        job.controller_owner_ref(&()).unwrap()
    }

    /// An object of any kind, as an owner.
    pub async fn create_owner(&self, object: Value) -> OwnerReference {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        };
        let created = api.create(&PostParams::default(), &object).await.unwrap();
        OwnerReference {
            controller: Some(true),
            ..created.controller_owner_ref(&resource).unwrap()
        }
    }

    /// Sets an annotation of a pod.
    pub async fn annotate(&self, pod: &str, key: &str, value: &str) {
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), "default");
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        api.patch(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Makes an object the owner of one that exists.
    pub async fn own(&self, api_version: &str, kind: &str, name: &str, owner: &OwnerReference) {
        let patch = json!({"metadata": {"ownerReferences": [owner]}});
        self.change(api_version, kind, name, patch).await;
    }

    /// Changes an object of any kind.
    pub async fn change(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let (group, version) = api_version.split_once('/').unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.admin.clone(), "default", &resource);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Installs a foreign kind with an open schema.
    pub async fn serve(&self, group: &str, version: &str, kind: &str) {
        let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
        let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let crd = json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": singular},
                "versions": [{"name": version, "served": true, "storage": true, "schema": open}],
            },
        });
        let crd: CustomResourceDefinition = serde_json::from_value(crd).unwrap();
        Api::all(self.admin.clone())
            .create(&PostParams::default(), &crd)
            .await
            .unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api = Api::<DynamicObject>::all_with(self.admin.clone(), &resource);
        eventually("the kind is served", async || {
            api.list(&ListParams::default()).await.ok()
        })
        .await;
    }

    pub async fn delete<K>(&self, namespace: &str, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        Api::<K>::namespaced(self.admin.clone(), namespace)
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// The object's current state.
    pub async fn get<K: Looked>(&self, namespace: &str, name: &str) -> K {
        self.find(namespace, name)
            .await
            .unwrap_or_else(|| panic!("there is no {namespace}/{name}"))
    }

    async fn find<K: Looked>(&self, namespace: &str, name: &str) -> Option<K> {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = Api::<K>::all(self.admin.clone()).list(&params).await.unwrap();
        found
            .into_iter()
            .find(|object| object.meta().namespace.as_deref().unwrap_or_default() == namespace)
    }

    /// Waits until the object is as described, and returns it.
    pub async fn until<K: Looked>(&self, what: &str, namespace: &str, name: &str, is_so: impl Fn(&K) -> bool) -> K {
        eventually(what, async || match self.find::<K>(namespace, name).await {
            Some(object) if is_so(&object) => Ok(object),
            other => Err(format!("last seen: {other:#?}")),
        })
        .await
    }

    /// Waits until the objects of a namespace are as described.
    pub async fn until_list<K: Looked>(&self, what: &str, namespace: &str, is_so: impl Fn(&[K]) -> bool) {
        let api = Api::<K>::all(self.admin.clone());
        eventually(what, async || {
            let all = api.list(&ListParams::default()).await.unwrap().items;
            let of = |object: &K| object.meta().namespace.as_deref().unwrap_or_default() == namespace;
            let here: Vec<K> = all.into_iter().filter(of).collect();
            is_so(&here).then_some(())
        })
        .await;
    }

    /// What the operator wrote.
    pub fn writes(&self) -> Vec<Write> {
        self.server.audit().writes_of(&Identity::operator())
    }

    /// Waits until every kind has been listed.
    pub async fn until_synced(&self) {
        eventually("every kind is listed", async || {
            let waiting = self.context.readiness.waiting();
            if waiting.is_empty() {
                Ok(())
            } else {
                Err(format!("{waiting:?}"))
            }
        })
        .await;
    }

    /// Waits until the operator has written nothing for a while.
    pub async fn until_quiet(&self) {
        eventually("writes end", async || {
            let before = self.writes().len();
            tokio::time::sleep(SILENCE).await;
            let writes = self.writes();
            if writes.len() == before {
                Ok(())
            } else {
                Err(format!("{:?}", &writes[before..]))
            }
        })
        .await;
    }

    /// Stops the components and asserts that each ended without an error.
    pub async fn stop(self) {
        self.context.shutdown.cancel();
        for (name, handle) in self.running {
            ends(name, handle)
                .await
                .unwrap()
                .unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let errors = ERRORS.lock().expect("no test panicked here").clone();
        assert_eq!(errors, [""; 0], "something was logged as an error");
    }
}

/// A kind that tests look at.
pub trait Looked: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned {}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned> Looked for K {}

/// The kinds, queues and classes that a cluster has before its first workload.
async fn install(admin: &Client) {
    install_crds(admin).await;
    for (name, value) in [("train", 50), ("build", 100), ("inference", 125)] {
        let class: PriorityClass = serde_json::from_value(json!({"metadata": {"name": name}, "value": value})).unwrap();
        Api::all(admin.clone())
            .create(&PostParams::default(), &class)
            .await
            .unwrap();
    }
    open_queue(admin, "default", None).await;
    open_queue(admin, "test", Some("default")).await;
}

/// A pod of the queue `test` with these requests (which are its limits, too).
pub fn pod(name: &str, resources: Value) -> Pod {
    let container = json!({"name": "main", "image": "i", "resources": {"requests": resources, "limits": resources}});
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": "test"}},
        "spec": {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container]},
    }))
    .unwrap()
}

/// The pod's phase.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// The pod's condition of that type.
pub fn condition(pod: &Pod, of: &str) -> Option<PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == of).cloned()
}

/// What components of any test logged as errors.
static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records what any component logs as an error. Whole operators belong to tests of other families in this process, which may make them end.
/// `RUST_LOG` shows the log.
fn watch_for_errors() {
    static ONCE: Once = Once::new();
    struct Record;
    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Record {
        fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            let (level, target) = (*event.metadata().level(), event.metadata().target());
            let of_component = target.starts_with("unikai") && !target.starts_with("unikai::operator");
            if level == tracing::Level::ERROR && of_component {
                let mut fields = String::new();
                event.record(&mut |field: &tracing::field::Field, value: &dyn Debug| {
                    fields.push_str(&format!("{field}={value:?} "));
                });
                ERRORS.lock().expect("no test panicked here").push(fields);
            }
        }
    }
    ONCE.call_once(|| {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let log = tracing_subscriber::fmt::layer().with_test_writer();
        let log = tracing_subscriber::Layer::with_filter(log, filter);
        // Another family of tests may have set one up.
        let _ = tracing_subscriber::registry().with(Record).with(log).try_init();
    });
}
