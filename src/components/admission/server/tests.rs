use axum::body::Body;
use futures::FutureExt;

use super::*;
use crate::components::admission::WebhookServer;
use crate::components::admission::pods::tests::settings;
use crate::components::readiness::Readiness;
use crate::components::tests::idle_context;
use crate::components::watches::Stores;

/// Webhooks of a cluster without objects, whose API server refuses every request.
fn webhooks() -> Webhooks {
    Webhooks::new(Lookups::new(&idle_context(), Arc::new(Stores::default())), settings())
}

/// A review about an object with a list of so many empty objects.
fn text(namespace: &str, elements: usize) -> String {
    let list = vec!["{}"; elements].join(",");
    let request =
        format!(r#"{{"uid":"u","operation":"CREATE","namespace":"{namespace}","object":{{"list":[{list}]}}}}"#);
    format!(r#"{{"request":{request}}}"#)
}

fn request(namespace: &str, elements: usize) -> HttpRequest {
    HttpRequest::new(Body::from(text(namespace, elements)))
}

/// A third of what all requests together may take, and more than half of what those of one namespace may.
const HEAVY: usize = 40_000;

async fn allow(_: &Request) -> Verdict {
    std::future::ready(Verdict::allow()).await
}

async fn never(_: &Request) -> Verdict {
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_memory_limit_of_their_namespace_are_dropped() {
    let webhooks = webhooks();
    let (_, weight) = read(text("loud", HEAVY).as_bytes(), weight::Kind::Other).unwrap();
    assert!(weight < limits::WEBHOOK_REVIEW_BYTES, "each is within its own limits");
    let mut open = Box::pin(webhooks.review(weight::Kind::Other, request("loud", HEAVY), never));
    assert!((&mut open).now_or_never().is_none(), "it is being reviewed");

    let since = Instant::now();
    let second = webhooks
        .review(weight::Kind::Other, request("loud", HEAVY), allow)
        .await;
    let (status, why) = second.unwrap_err();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(why, "too many questions at the same time\n");
    assert!(since.elapsed() >= WAIT, "it waits for a moment");
    for namespace in ["loud", "quiet"] {
        let small = webhooks.review(weight::Kind::Other, request(namespace, 1), allow).await;
        assert!(small.is_ok(), "{namespace}: there is memory for a small one");
    }
    let other = webhooks
        .review(weight::Kind::Other, request("quiet", HEAVY), allow)
        .await;
    assert!(other.is_ok(), "another namespace has its own share");

    drop(open);
    let again = webhooks
        .review(weight::Kind::Other, request("loud", HEAVY), allow)
        .await;
    assert!(again.is_ok(), "once the first has its answer");
}

#[tokio::test(start_paused = true)]
async fn requests_of_all_namespaces_together_are_bounded() {
    let webhooks = webhooks();
    let review = |namespace: &str| webhooks.review(weight::Kind::Other, request(namespace, HEAVY), never);
    let mut open: Vec<_> = ["a", "b"].map(|namespace| Box::pin(review(namespace))).into();
    for one in &mut open {
        assert!(one.now_or_never().is_none(), "it is being reviewed");
    }
    let third = webhooks.review(weight::Kind::Other, request("c", HEAVY), allow).await;
    assert_eq!(third.map(drop).unwrap_err().0, StatusCode::SERVICE_UNAVAILABLE);
    drop(open);
    let third = webhooks.review(weight::Kind::Other, request("c", HEAVY), allow).await;
    assert!(third.is_ok());
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_take_bounded_memory_and_do_not_keep_others_out() {
    let webhooks = webhooks();
    let wait = || Box::pin(webhooks.review(weight::Kind::Other, request("loud", HEAVY), never));
    let fit = limits::WEBHOOK_BODIES_BYTES / text("loud", HEAVY).len();
    // The first one is being reviewed, and does not wait.
    let mut open: Vec<_> = (0..fit + 10).map(|_| wait()).collect();
    let refused = open.iter_mut().filter_map(FutureExt::now_or_never);
    let refused: Vec<_> = refused.map(|answer| answer.map(drop).unwrap_err().0).collect();
    assert_eq!(
        refused,
        [StatusCode::SERVICE_UNAVAILABLE; 9],
        "those for which there is no memory"
    );
    let small = webhooks.review(weight::Kind::Other, request("quiet", 1), allow).await;
    assert!(small.is_ok(), "one of those that wait makes room");
}

#[cfg(feature = "devcluster")]
#[tokio::test(start_paused = true)]
async fn a_queue_may_be_created_right_after_its_parent() {
    use serde_json::json;

    use crate::components::tests::lab::{Lab, refuse};
    use crate::devcluster::apiserver::{Match, Times};

    let lab = Lab::start(crate::components::Settings::default(), &[]).await;
    lab.install_definitions().await;
    let quotas = Settings {
        queue_rules: queues::Rules {
            quotas: true,
            protect: false,
        },
        ..settings()
    };
    let webhooks = Webhooks::new(Lookups::new(&lab.context, Arc::clone(&lab.stores)), quotas);
    let denial = async |parent: &str| {
        let kid = json!({"metadata": {"name": "kid"}, "spec": {"parentQueue": parent, "resources": {}}});
        let request = json!({"uid": "u", "name": "kid", "operation": "CREATE", "object": kid});
        let request: Request = serde_json::from_value(request).unwrap();
        let verdict = webhooks.review_queue(&request).await;
        verdict.denial.map(|denial| denial.message)
    };
    for missing in ["dad", "../queues"] {
        let told = format!(
            "queue kid: its parent queue {missing} does not exist. Create {missing} first, or choose another parentQueue"
        );
        assert_eq!(denial(missing).await, Some(told));
    }
    lab.create(json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "dad"}, "spec": {"resources": {}},
    }))
    .await;
    assert_eq!(denial("dad").await, None, "the watch does not show it yet");
    lab.fault(Match::verb_on("get", "queues"), refuse(503), Times::Next(1));
    assert_eq!(
        denial("dad").await.as_deref(),
        Some("queue kid: its parent queue dad cannot be read now. Try again")
    );
}

#[cfg(feature = "devcluster")]
#[tokio::test(start_paused = true)]
async fn a_queue_whose_parent_cannot_be_read_may_lose_a_finalizer() {
    use serde_json::json;

    use crate::components::tests::lab::{Lab, refuse};
    use crate::devcluster::apiserver::{Match, Times};

    let lab = Lab::start(crate::components::Settings::default(), &[]).await;
    lab.fault(Match::verb_on("get", "queues"), refuse(503), Times::Always);
    let quotas = Settings {
        queue_rules: queues::Rules {
            quotas: true,
            protect: false,
        },
        ..settings()
    };
    let webhooks = Webhooks::new(Lookups::new(&lab.context, Arc::clone(&lab.stores)), quotas);
    let kid = json!({"metadata": {"name": "kid"}, "spec": {"parentQueue": "gone", "resources": {}}});
    let request = json!({"uid": "u", "name": "kid", "operation": "UPDATE", "object": kid, "oldObject": kid});
    let request: Request = serde_json::from_value(request).unwrap();
    assert_eq!(webhooks.review_queue(&request).await.denial, None);
}

/// Requests about new pods of the Job `train`, and an API server in this process.
#[cfg(feature = "devcluster")]
mod new_pods {
    use serde_json::{Value, json};

    use super::*;
    use crate::components::tests::lab::{Lab, MOMENT};
    use crate::devcluster::apiserver::{Effect, Match, Times};

    fn review(namespace: &str, job: &Value, labels: &Value) -> HttpRequest {
        let owners =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job, "controller": true}]);
        let metadata = json!({"namespace": namespace, "name": "p", "labels": labels, "ownerReferences": owners});
        let pod =
            json!({"metadata": metadata, "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]}});
        let request = json!({"uid": "u", "namespace": namespace, "operation": "CREATE", "object": pod});
        HttpRequest::new(Body::from(json!({"request": request}).to_string()))
    }

    /// The handler, as the routes get it.
    fn shared(lab: &Lab) -> Shared {
        let webhooks = Webhooks::new(Lookups::new(&lab.context, Arc::clone(&lab.stores)), settings());
        State(watch::channel(Some(Arc::new(webhooks))).1)
    }

    async fn text(response: Response) -> String {
        assert_eq!(response.status(), StatusCode::OK);
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_label_is_written_without_a_look_at_its_queue_and_one_that_is_there_without_any() {
        let lab = Lab::start(crate::components::Settings::default(), &["team"]).await;
        lab.install_definitions().await;
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}});
        let metadata = json!({"namespace": "team", "name": "train", "labels": {"project": "missing"}});
        let job =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}});
        let job = lab.create(job).await["metadata"]["uid"].clone();
        let count = |resource: &str| {
            lab.fault(
                Match::verb_on("get", resource),
                Effect::Delay(MOMENT / 10),
                Times::Always,
            )
        };
        let (owners, queues) = (count("jobs"), count("queues"));
        let shared = shared(&lab);
        let named = json!({"kai.scheduler/queue": "missing"});
        let answer = text(mutate_pod(shared.clone(), review("team", &job, &named)).await).await;
        assert!(!answer.contains("patch"), "{answer}");
        assert_eq!((lab.struck(owners), lab.struck(queues)), (0, 0));
        let answer = text(mutate_pod(shared.clone(), review("team", &job, &json!({}))).await).await;
        assert!(answer.contains("patch"), "{answer}");
        assert_eq!((lab.struck(owners), lab.struck(queues)), (1, 0));
        let answer = text(validate_pod(shared, review("team", &job, &named)).await).await;
        assert!(answer.contains("queue \\\"missing\\\""), "{answer}");
        assert_eq!(lab.struck(queues), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_in_exempt_namespaces_draw_the_warning_without_a_look_at_their_owners() {
        let lab = Lab::start(crate::components::Settings::default(), &[]).await;
        lab.fault(Match::verb_on("get", "jobs"), Effect::Hang, Times::Always);
        let since = Instant::now();
        let answer = text(validate_pod(shared(&lab), review("kube-system", &json!("j"), &json!({}))).await).await;
        assert!(
            answer.contains("pods in namespace kube-system are not reviewed"),
            "{answer}"
        );
        assert!(since.elapsed() < MOMENT);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_answered_before_namespaces_and_queues_are_listed() {
    let (server, stores) = (WebhookServer::default(), Stores::default());
    let readiness = Readiness::default().handle("webhooks", "not served yet");
    let admit = server.admit(webhooks(), &stores, &readiness);
    let waits = tokio::time::timeout(Duration::from_secs(3_600), admit).await;
    assert!(waits.is_err() && server.answers.borrow().is_none());
}
