//! How many reviews of rights the API server gets for requests to the API.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::operator::settings::Settings;

use super::people::{Person, get};
use super::{busy_cluster, pod_group};
use crate::support::eventually;

const NAMESPACES: usize = 20;
const REQUESTS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_user_at_the_same_time_have_each_right_reviewed_once() {
    let cluster = busy_cluster().await;
    for number in 0..NAMESPACES {
        let namespace = format!("team-{number}");
        cluster.namespace(&namespace, json!({})).await;
        pod_group(&cluster, &namespace, "train", "team").await;
    }
    let running = cluster.ready_operator(Settings::embedded()).await;
    let viewer = Person::who_sees_all(&cluster, &running).await;
    let nobody = Person::without_rights(&cluster, &running);
    eventually("all pod groups are shown to who may see all", async || {
        (get(&viewer, "/api/v1/workloads").await["total"] == NAMESPACES).then_some(())
    })
    .await;

    let reviews = Match::verb_on("create", "subjectaccessreviews");
    let slow = Effect::Delay(Duration::from_millis(20));
    cluster.server.faults().add(reviews, slow, Times::Always);
    cluster.server.audit().clear();
    let lists = join_all((0..REQUESTS).map(|_| nobody.ask("/api/v1/workloads"))).await;
    for (status, list) in lists {
        assert_eq!((status, &list["total"]), (200, &json!(0)), "{list}");
    }
    let counts = cluster.server.audit().counts();
    let reviews = counts
        .iter()
        .filter(|((_, what, _), _)| what == "create subjectaccessreviews");
    let reviews: usize = reviews.map(|(_, count)| *count).sum();
    // Of pod groups and of pods, in the cluster and in each namespace. Some are repeated if the machine is so slow that answers expire meanwhile.
    let once = 2 * (1 + NAMESPACES);
    assert!(reviews >= once && reviews < 2 * once, "{reviews}");
    running.shut_down().await.unwrap();
}
