//! The HTTP API for tools: `/api/v1/`, see `crate::api::views` for its answers.
//!
//! The overview of the whole cluster is read from the schedulers page by page, and cached so long that less than a hundredth of the time is spent on reading,
//! however many clients there are. Details of single workloads are read when they are requested, one after the other, with pauses (`turns.rs`). Objects that
//! the caller may not list are left out ([`Access`]).

mod answers;
mod body;
mod explain;
mod gather;
mod nodes;
mod openapi;
mod overview;
mod queue_history;
mod queues;
mod turns;
mod what_if;
mod workloads;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::access::{Access, Caller, NODES, Namespaces, QUEUES, refusal};
use super::inspection::Inspection;
use crate::api::views;
use answers::{json, rendered};
pub use gather::{Elections, Gatherer};
#[cfg(test)]
pub use openapi::openapi;
use overview::Overview;
use what_if::WhatIfs;

/// Prefix of all paths.
pub const PREFIX: &str = "/api/v1";
/// The maximum number of entries of a list of nodes or workloads; others are on the next pages. It bounds the memory for a response.
pub const PAGE: usize = 5_000;

/// The views, and the access check.
pub struct Views {
    access: Arc<Access>,
    gatherer: Gatherer,
    what_ifs: WhatIfs,
}

type Shared = Arc<Views>;
type Answer = Result<Response, Response>;

impl Views {
    /// Views of `gatherer`, for callers that `access` admits.
    #[must_use]
    pub fn new(access: Arc<Access>, gatherer: Gatherer, inspection: Arc<Inspection>) -> Self {
        Self {
            access,
            gatherer,
            what_ifs: WhatIfs::new(inspection),
        }
    }

    /// Keeps the history of queues, until the process ends.
    pub async fn keep_history(&self) {
        self.gatherer.keep_history().await;
    }

    /// The caller, and the overview.
    async fn open(&self, headers: &HeaderMap) -> Result<(Caller, Arc<Overview>), Response> {
        let caller = self.access.caller(headers).await?;
        Ok((caller, self.gatherer.overview().await?))
    }

    /// A workload, or the answer 404.
    async fn details(
        &self,
        caller: &Caller,
        overview: &Overview,
        namespace: &str,
        name: &str,
    ) -> Result<views::WorkloadDetails, Response> {
        let found = self.gatherer.details(caller.user(), overview, namespace, name).await?;
        found.ok_or_else(|| {
            let why = format!("there is no pod group {name} in the namespace {namespace}");
            refusal(StatusCode::NOT_FOUND, why)
        })
    }
}

/// The routes, below [`PREFIX`].
pub fn router(views: Shared) -> Router {
    Router::new()
        .route("/openapi.json", get(openapi::document))
        .route("/queues", get(list_queues))
        .route("/queue-history", get(get_queue_history))
        .route("/gpu-map", get(get_gpu_map))
        .route("/nodes", get(list_nodes))
        .route("/nodes/{name}", get(get_node))
        .route("/workloads", get(list_workloads))
        .route("/workloads/{namespace}/{name}", get(get_workload))
        .route("/evictions", get(list_evictions))
        .route("/explain/pods/{namespace}/{name}", get(explain_pod))
        .route("/explain/podgroups/{namespace}/{name}", get(explain_pod_group))
        .route("/explain/queues/{name}", get(explain_queue))
        .route("/explain/nodes/{name}", get(explain_node))
        .route("/what-if", post(ask_what_if))
        .with_state(views)
}

async fn list_queues(State(views): State<Shared>, headers: HeaderMap) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_list(QUEUES).await?;
    rendered(&overview, "queues", caller.user(), &headers, || queues::list(&overview)).await
}

/// Parameters of a queue's history.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryAsked {
    queue: String,
}

async fn get_queue_history(
    State(views): State<Shared>,
    Query(asked): Query<HistoryAsked>,
    headers: HeaderMap,
) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_list(QUEUES).await?;
    let (every_seconds, samples) = views.gatherer.queue_history.of(&asked.queue);
    let history = views::QueueHistory {
        meta: overview.meta.clone(),
        queue: asked.queue,
        every_seconds,
        samples,
    };
    Ok(json(caller.user(), &headers, &history).await)
}

async fn get_gpu_map(State(views): State<Shared>, headers: HeaderMap) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_list(NODES).await?;
    rendered(&overview, "gpu-map", caller.user(), &headers, || nodes::map(&overview)).await
}

/// The number of entries of a page; `asked`: the requested one.
fn of_page(asked: Option<usize>) -> usize {
    asked.unwrap_or(PAGE).min(PAGE)
}

/// Parameters of the list of nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodesAsked {
    /// Only nodes of this shard.
    shard: Option<String>,
    /// Only nodes whose names come after this one: the next page.
    after: Option<String>,
    /// The maximum number of entries.
    limit: Option<usize>,
}

async fn list_nodes(State(views): State<Shared>, Query(asked): Query<NodesAsked>, headers: HeaderMap) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_list(NODES).await?;
    let (visible, left_out) = caller.visible(overview.namespaces()).await?;
    let key = format!("nodes {asked:?} {visible:?}");
    rendered(&overview, &key, caller.user(), &headers, || {
        let asked = nodes::Asked {
            shard: asked.shard.as_deref(),
            after: asked.after.as_deref(),
            limit: Some(of_page(asked.limit)),
        };
        let mut list = nodes::list(&overview, &asked, &visible);
        list.meta.namespaces_left_out = left_out;
        list
    })
    .await
}

async fn get_node(State(views): State<Shared>, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_list(NODES).await?;
    let (visible, _) = caller.visible(overview.namespaces()).await?;
    match nodes::one(&overview, &name, &visible) {
        Some(node) => Ok(json(caller.user(), &headers, &node).await),
        None => Err(no_node(&name)),
    }
}

/// Parameters of the list of workloads.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadsAsked {
    /// Only workloads of this namespace.
    namespace: Option<String>,
    /// Only those in this queue or a queue below it.
    queue: Option<String>,
    /// Only those in this state.
    state: Option<views::WorkloadState>,
    /// Only those with a pod that waits.
    #[serde(default)]
    waiting: bool,
    /// Only those with this text in their name, namespace or queue.
    contains: Option<String>,
    /// How they are ordered.
    #[serde(default)]
    order: views::WorkloadOrder,
    /// Only those after this one (`namespace/name`): the next page.
    after: Option<String>,
    /// The maximum number of entries.
    limit: Option<usize>,
}

async fn list_workloads(
    State(views): State<Shared>,
    Query(asked): Query<WorkloadsAsked>,
    headers: HeaderMap,
) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    let (visible, left_out) = match &asked.namespace {
        Some(namespace) => {
            caller.must_see(namespace).await?;
            (Namespaces::These([namespace.clone()].into()), 0)
        }
        None => caller.visible(overview.namespaces()).await?,
    };
    let key = format!("workloads {asked:?} {visible:?}");
    rendered(&overview, &key, caller.user(), &headers, || {
        let asked = workloads::Asked {
            queue: asked.queue.as_deref(),
            state: asked.state,
            waiting: asked.waiting,
            contains: asked.contains.as_deref(),
            order: asked.order,
            after: asked.after.as_deref(),
            limit: Some(of_page(asked.limit)),
        };
        let mut list = workloads::list(&overview, &asked, &visible);
        list.meta.namespaces_left_out = left_out;
        list
    })
    .await
}

async fn get_workload(
    State(views): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_see(&namespace).await?;
    let details = views.details(&caller, &overview, &namespace, &name).await?;
    Ok(json(caller.user(), &headers, &details).await)
}

/// Parameters of the list of evictions.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EvictionsAsked {
    /// Only evictions in this namespace.
    namespace: Option<String>,
    /// Only evictions of this pod or pod group.
    name: Option<String>,
    /// The maximum number of entries.
    limit: Option<usize>,
}

async fn list_evictions(
    State(views): State<Shared>,
    Query(asked): Query<EvictionsAsked>,
    headers: HeaderMap,
) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    let (all, mut namespaces) = (&views.gatherer.history, overview.namespaces().clone());
    let mut meta = overview.meta.clone();
    let visible = match &asked.namespace {
        Some(namespace) => {
            caller.must_see(namespace).await?;
            Namespaces::These([namespace.clone()].into())
        }
        None => {
            // Including workloads that no longer exist.
            let (_, of_all) = all.evictions(|_| true, usize::MAX);
            namespaces.extend(of_all.into_iter().map(|eviction| eviction.namespace));
            let (visible, left_out) = caller.visible(&namespaces).await?;
            meta.namespaces_left_out = left_out;
            visible
        }
    };
    let fits = |eviction: &views::Eviction| {
        let named = |name: &String| [&eviction.pod, &eviction.workload].contains(&name);
        visible.show(&eviction.namespace) && asked.name.as_ref().is_none_or(named)
    };
    let (since, evictions) = all.evictions(fits, asked.limit.unwrap_or(usize::MAX));
    let list = views::EvictionList { meta, since, evictions };
    Ok(json(caller.user(), &headers, &list).await)
}

/// Parameters of a what-if request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhatIfOf {
    /// The shard whose scheduler decides.
    shard: Option<String>,
    /// The namespace of objects that name none.
    namespace: Option<String>,
}

async fn ask_what_if(
    State(views): State<Shared>,
    Query(of): Query<WhatIfOf>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    // Nothing is received from strangers.
    let received = views.what_ifs.receive(body).await?;
    let asked = if is_yaml(&headers) {
        let namespace = of.namespace.unwrap_or_else(|| "default".to_owned());
        views.what_ifs.read_manifests(received, namespace).await?
    } else {
        views.what_ifs.read(received).await?
    };
    for namespace in asked.namespaces() {
        caller.must_see(&namespace).await?;
    }
    let sees_nodes = caller.may_list(NODES).await?;
    let mut decided = views.what_ifs.decide(of.shard.as_deref(), asked).await?;
    let namespaces = decided.evicts.iter().map(|evicted| evicted.namespace.clone()).collect();
    let (visible, _) = caller.visible(&namespaces).await?;
    let evicted = decided.evicts.len();
    decided.evicts.retain(|evicted| visible.show(&evicted.namespace));
    if !sees_nodes {
        decided.binds.iter_mut().for_each(|bind| bind.node = None);
    }
    let answer = views::WhatIf {
        meta: overview.meta.clone(),
        runs: decided.runs,
        binds: decided.binds,
        evicts_others: evicted - decided.evicts.len(),
        evicts: decided.evicts,
        waits: decided.waits,
        notes: decided.notes,
    };
    Ok(json(caller.user(), &headers, &answer).await)
}

/// Whether the body is YAML: manifests of workloads.
fn is_yaml(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/yaml")
}

async fn explain_pod_group(
    State(views): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_see(&namespace).await?;
    let details = views.details(&caller, &overview, &namespace, &name).await?;
    Ok(json(caller.user(), &headers, &explain::pod_group(&overview, &details)).await)
}

async fn explain_pod(
    State(views): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_see(&namespace).await?;
    let Some(pod) = overview.stores.pods.get(&namespace, &name) else {
        let why = format!("there is no pod {name} in the namespace {namespace}");
        return Err(refusal(StatusCode::NOT_FOUND, why));
    };
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let details = views.gatherer.details_of_pod(caller.user(), &overview, uid).await?;
    let explained = match details.filter(|details| details.workload.namespace == namespace) {
        Some(details) => explain::pod(&overview, &details, &pod),
        None => explain::lone_pod(&overview, &pod, &views.gatherer.scheduler_name()),
    };
    Ok(json(caller.user(), &headers, &explained).await)
}

async fn explain_queue(State(views): State<Shared>, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_list(QUEUES).await?;
    let (visible, _) = caller.visible(overview.namespaces()).await?;
    let asked = workloads::Asked {
        queue: Some(&name),
        waiting: true,
        order: views::WorkloadOrder::Line,
        limit: Some(explain::WAITING_LISTED),
        ..workloads::Asked::default()
    };
    let all = workloads::list(&overview, &asked, &visible).workloads;
    let waiting: Vec<_> = all.iter().filter(|workload| workload.pods.waiting > 0).collect();
    let paths = overview
        .shards
        .iter()
        .map(|shard| queues::path_up(&overview, shard, &name));
    let path = paths.into_iter().find(|path| !path.is_empty()).unwrap_or_default();
    match explain::queue(&overview, &path, &waiting) {
        Some(explained) => Ok(json(caller.user(), &headers, &explained).await),
        None => Err(refusal(StatusCode::NOT_FOUND, format!("there is no queue {name}"))),
    }
}

async fn explain_node(State(views): State<Shared>, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    let (caller, overview) = views.open(&headers).await?;
    caller.must_list(NODES).await?;
    let (visible, _) = caller.visible(overview.namespaces()).await?;
    match nodes::one(&overview, &name, &visible) {
        Some(node) => Ok(json(caller.user(), &headers, &explain::node(&overview, &node)).await),
        None => Err(no_node(&name)),
    }
}

fn no_node(name: &str) -> Response {
    refusal(StatusCode::NOT_FOUND, format!("there is no node {name}"))
}
