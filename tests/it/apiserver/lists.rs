//! Lists: selectors, pages, revisions, tables and metadata; deletion of collections; discovery.

use serde_json::{Value, json};

use super::harness::{Answer, Cluster, on_each};

async fn make(cluster: &Cluster, names: &[&str]) {
    for name in names {
        let object = json!({"metadata": {"name": name, "labels": {"name": name, "all": "yes"}}});
        cluster.post(&cluster.core("configmaps"), &object).await.ok();
    }
}

fn names(answer: &Answer) -> Vec<&str> {
    let items = answer.body["items"]
        .as_array()
        .unwrap_or_else(|| panic!("no list: {}", answer.body));
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn selectors_choose() {
    on_each(async |cluster: &Cluster| {
        make(cluster, &["a", "b", "c"]).await;
        let list = async |query: &str| cluster.get(&cluster.core(&format!("configmaps?{query}"))).await;
        assert_eq!(names(&list("labelSelector=name%20in%20(a,c)").await), ["a", "c"]);
        assert_eq!(names(&list("labelSelector=all,name!%3Db").await), ["a", "c"]);
        assert_eq!(names(&list("labelSelector=!all").await), Vec::<&str>::new());
        assert_eq!(names(&list("fieldSelector=metadata.name%3Db").await), ["b"]);
        let odd = list("fieldSelector=data.key%3Dx").await;
        assert_eq!(
            odd.refusal(),
            (
                400,
                "BadRequest",
                "\"data.key\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )
        );
        assert_eq!(list("labelSelector=a%20b").await.code, 400);
        let whole = cluster.get(&cluster.core("configmaps")).await;
        assert_eq!(
            whole.body["items"][0]["kind"],
            Value::Null,
            "items of built-in kinds leave their type to the list"
        );
        assert_eq!(
            (&whole.body["kind"], &whole.body["apiVersion"]),
            (&json!("ConfigMapList"), &json!("v1"))
        );
    })
    .await;
}

#[tokio::test]
async fn pages_of_a_list_have_one_revision() {
    on_each(async |cluster: &Cluster| {
        make(cluster, &["a", "b", "d"]).await;
        let all = cluster.core("configmaps");
        let first = cluster.get(&format!("{all}?limit=2")).await;
        assert_eq!(names(&first), ["a", "b"]);
        assert_eq!(first.body["metadata"]["remainingItemCount"], 1);
        make(cluster, &["c", "e"]).await;
        cluster.delete(&format!("{all}/d")).await.ok();
        let token = first.body["metadata"]["continue"].as_str().unwrap();
        let second = cluster.get(&format!("{all}?limit=2&continue={token}")).await;
        assert_eq!(names(&second), ["d"]);
        assert_eq!(second.revision(), first.revision());
        assert_eq!(second.body["metadata"]["continue"].as_str().unwrap_or_default(), "");
        assert_eq!(cluster.get(&format!("{all}?continue=odd")).await.code, 400);
    })
    .await;
}

#[tokio::test]
async fn a_list_can_be_asked_for_at_a_revision() {
    on_each(async |cluster: &Cluster| {
        make(cluster, &["a", "b"]).await;
        let all = cluster.core("configmaps");
        let then = cluster.get(&all).await.revision();
        make(cluster, &["c"]).await;
        cluster.delete(&format!("{all}/a")).await.ok();
        let exact = cluster
            .get(&format!("{all}?resourceVersion={then}&resourceVersionMatch=Exact"))
            .await;
        assert_eq!((names(&exact), exact.revision()), (vec!["a", "b"], then.clone()));
        let newer = cluster
            .get(&format!(
                "{all}?resourceVersion={then}&resourceVersionMatch=NotOlderThan"
            ))
            .await;
        assert_eq!(names(&newer), ["b", "c"]);
        let forbidden =
            |why: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {why}");
        let without = cluster.get(&format!("{all}?resourceVersionMatch=Exact")).await;
        assert_eq!(
            without.message(),
            forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
        );
        let zero = cluster
            .get(&format!("{all}?resourceVersionMatch=Exact&resourceVersion=0"))
            .await;
        assert_eq!(
            zero.message(),
            forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        );
        let future = cluster.get(&format!("{all}?resourceVersion=99999999")).await;
        assert_eq!((future.code, future.body["reason"].as_str()), (504, Some("Timeout")));
        assert!(
            future
                .message()
                .starts_with("Timeout: Too large resource version: 99999999, current: "),
            "{future:?}"
        );
        assert_eq!(cluster.get(&format!("{all}?resourceVersion=odd")).await.code, 400);
    })
    .await;
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    on_each(async |cluster: &Cluster| {
        make(cluster, &["a", "b", "c"]).await;
        let all = cluster.core("configmaps");
        let deleted = cluster.delete(&format!("{all}?labelSelector=name%20in%20(a,b)")).await;
        assert_eq!((deleted.code, names(&deleted)), (200, vec!["a", "b"]));
        assert_eq!(names(&cluster.get(&all).await), ["c"]);
    })
    .await;
}

#[tokio::test]
async fn lists_come_as_tables_and_as_metadata() {
    on_each(async |cluster: &Cluster| {
        make(cluster, &["a"]).await;
        let all = cluster.core("configmaps");
        let table = cluster.get_as(&all, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await.ok();
        assert_eq!(table["kind"], "Table");
        let columns: Vec<&str> = table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
        assert_eq!(columns, ["Name", "Data", "Age"]);
        assert_eq!(table["rows"][0]["cells"][0], "a");
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        if !cluster.real {
            // A real server answers protobuf here; a client that offers JSON as well must cope with this one.
            let metadata = cluster.get_as(&all, accept).await.ok();
            assert_eq!(metadata["kind"], "PartialObjectMetadataList");
        }
        let metadata = cluster.get_as(&format!("{all}/a"), "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").await.ok();
        assert_eq!((&metadata["kind"], &metadata["data"]), (&json!("PartialObjectMetadata"), &Value::Null));
        assert_eq!(metadata["metadata"]["labels"]["name"], "a");
    })
    .await;
}

#[tokio::test]
async fn discovery_lists_what_is_served() {
    on_each(async |cluster: &Cluster| {
        let groups = cluster.get("/apis").await.ok();
        let groups: Vec<&str> = groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["name"].as_str().unwrap())
            .collect();
        for group in [
            "apps",
            "batch",
            "coordination.k8s.io",
            "apiextensions.k8s.io",
            "resource.k8s.io",
            "scheduling.k8s.io",
        ] {
            assert!(groups.contains(&group), "{group} is not in {groups:?}");
        }
        let core = cluster.get("/api/v1").await.ok();
        let pods = core["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|resource| resource["name"] == "pods")
            .unwrap()
            .clone();
        assert_eq!(
            (
                &pods["singularName"],
                &pods["kind"],
                &pods["shortNames"],
                &pods["namespaced"],
                &pods["categories"]
            ),
            (
                &json!("pod"),
                &json!("Pod"),
                &json!(["po"]),
                &json!(true),
                &json!(["all"])
            )
        );
        assert_eq!(
            pods["verbs"],
            json!([
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch"
            ])
        );
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        let aggregated = cluster.get_as("/apis", accept).await.ok();
        assert_eq!(aggregated["kind"], "APIGroupDiscoveryList");
        let apps = aggregated["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|group| group["metadata"]["name"] == "apps")
            .unwrap()
            .clone();
        let resources = apps["versions"][0]["resources"].as_array().unwrap().clone();
        let deployments = resources
            .iter()
            .find(|resource| resource["resource"] == "deployments")
            .unwrap();
        assert_eq!(
            deployments["responseKind"],
            json!({"group": "", "version": "", "kind": "Deployment"})
        );
        assert_eq!(cluster.get("/version").await.ok()["minor"], "35");
        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(cluster.get(path).await.body, "ok", "{path}");
        }
    })
    .await;
}
