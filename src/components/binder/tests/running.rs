//! A binder that runs, for scenarios.

use std::time::Duration;

use kube::api::ListParams;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::api::BindRequest;
use crate::components::Error;
use crate::components::bus::{
    BindOrder, Change, Inboxes, Kind, Object, Outcome, ToBinder, ToEvents, ToScheduler, TraceEvent, Traces, channels,
};

/// A pod as the administrator creates it, with its kind.
pub fn typed(pod: &Pod) -> Value {
    let mut typed = json!(pod);
    (typed["apiVersion"], typed["kind"]) = (json!("v1"), json!("Pod"));
    typed
}

/// A binder that runs, and what it tells.
pub struct Case {
    pub lab: Lab,
    pub inboxes: Inboxes,
    pub traced: mpsc::Receiver<TraceEvent>,
    to_binder: mpsc::Sender<ToBinder>,
    pub run: JoinHandle<Result<(), Error>>,
}

impl Case {
    /// A binder whose watches have caught up.
    pub async fn new() -> Self {
        let case = Self::starting().await;
        case.caught_up(1).await;
        case
    }

    /// A binder whose watches have not caught up.
    pub async fn starting() -> Self {
        Self::starting_with(Settings::default()).await
    }

    /// The same with other settings.
    pub async fn starting_with(settings: Settings) -> Self {
        let lab = Lab::with(settings).await;
        lab.install_definitions().await;
        lab.stores
            .nodes
            .insert(read::<Node>(json!({"metadata": {"name": "n1"}})));
        let (mut bus, mut inboxes) = channels(1);
        let (traces, traced) = Traces::channel();
        bus.traces = traces;
        let to_binder = bus.binder.clone();
        let (_, unused) = mpsc::channel(1);
        let inbox = std::mem::replace(&mut inboxes.binder, unused);
        let run = tokio::spawn(crate::components::binder::run(
            lab.context.clone(),
            inbox,
            Arc::clone(&lab.stores),
            bus,
        ));
        Self {
            lab,
            inboxes,
            traced,
            to_binder,
            run,
        }
    }

    /// A message for the binder.
    pub async fn tell(&self, message: ToBinder) {
        self.to_binder.send(message).await.expect("the binder runs");
    }

    /// Every kind is listed and has caught up in the term.
    pub async fn caught_up(&self, term: u64) {
        for kind in Kind::ALL {
            self.tell(ToBinder::Change(Change::Synced(*kind))).await;
            self.tell(ToBinder::Current(*kind, term)).await;
        }
    }

    /// The scheduler decided this in the first term.
    pub async fn order(&self, binds: Vec<OrderedBind>, evictions: Vec<Evict>) {
        self.order_of(1, binds, evictions).await;
    }

    /// The same in another term.
    pub async fn order_of(&self, term: u64, binds: Vec<OrderedBind>, evictions: Vec<Evict>) {
        self.tell(ToBinder::Order(BindOrder { binds, evictions, term })).await;
    }

    /// The watch shows all pods and bind requests as they are.
    pub async fn watch(&self) {
        for pod in self.store_pods().await {
            self.tell(ToBinder::Change(Change::Applied(Object::Pod(pod)))).await;
        }
        self.watch_requests().await;
    }

    /// The stores show all pods as they are; components are not told yet.
    pub async fn store_pods(&self) -> Vec<Arc<Pod>> {
        let all: Api<Pod> = Api::all(self.lab.admin.clone());
        let listed = all.list(&ListParams::default()).await.unwrap();
        let stored = listed.into_iter().map(|pod| self.lab.stores.pods.insert(pod).0);
        stored.collect()
    }

    /// The watch shows the bind requests alone.
    pub async fn watch_requests(&self) {
        for request in self.requests().await {
            let (request, _) = self.lab.stores.bind_requests.insert(request);
            self.tell(ToBinder::Change(Change::Applied(Object::BindRequest(request))))
                .await;
        }
        sleep(MOMENT).await;
    }

    /// The outcomes of the time, as text: what and of whom, and after how many seconds it may be tried again.
    pub async fn outcomes(&mut self, time: Duration) -> Vec<String> {
        sleep(time).await;
        let now = crate::clock::now();
        let after = |at: jiff::Timestamp| at.duration_since(now).as_secs_f64().round();
        let mut outcomes = Vec::new();
        while let Ok(message) = self.inboxes.schedulers[0].try_recv() {
            let ToScheduler::Outcome(outcome) = message else {
                continue;
            };
            outcomes.push(match outcome {
                Outcome::NotBound { pod, retry_at } => format!("{} not bound, {} s", pod.name, after(retry_at)),
                Outcome::NoDevice { node, retry_at } => format!("{node} without device, {} s", after(retry_at)),
                Outcome::NotEvicted { pod, retry_at } => {
                    format!("{} not evicted, {:?} s", pod.name, retry_at.map(after))
                }
            });
        }
        outcomes
    }

    /// What the scheduler was told of requests for reservation pods, in order.
    pub fn told_of_reservations(&mut self) -> Vec<&'static str> {
        let mut told = Vec::new();
        while let Ok(message) = self.inboxes.schedulers[0].try_recv() {
            match message {
                ToScheduler::ReservationRequested(_) => told.push("requested"),
                ToScheduler::ReservationSettled(_) => told.push("settled"),
                _ => {}
            }
        }
        told
    }

    /// The reasons of the events of the time.
    pub async fn events(&mut self) -> Vec<&'static str> {
        sleep(MOMENT).await;
        let mut reasons = Vec::new();
        while let Ok(ToEvents::Ours(note)) = self.inboxes.events.try_recv() {
            reasons.push(note.reason);
        }
        reasons
    }

    /// The bind of a new pod.
    pub async fn bind_of(&self, pod: &str) -> OrderedBind {
        bind(&self.lab.pod(pod).await, "n1")
    }

    /// A bind of half of a GPU of the group `g`.
    pub async fn sharing(&self, name: &str) -> OrderedBind {
        self.lab.sharing(name, name).await.1
    }

    /// The reservation pods.
    pub async fn reservations(&self) -> Vec<Pod> {
        let namespace = &self.lab.context.settings.own_pods.reservation.namespace;
        let api: Api<Pod> = Api::namespaced(self.lab.admin.clone(), namespace);
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// The reservation pods report a device.
    pub async fn report_device(&self, device: &str) {
        let reported = json!({"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": device}}});
        for pod in self.reservations().await {
            self.lab.patch(&typed(&pod), reported.clone()).await;
        }
    }

    /// The bind requests.
    pub async fn requests(&self) -> Vec<BindRequest> {
        let api: Api<BindRequest> = Api::all(self.lab.admin.clone());
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// Whether a pod has a node.
    pub async fn is_bound(&self, pod: &str) -> bool {
        self.lab.node_of(pod).await.is_some()
    }
}
