//! `kubectl delete -f manifests/`: what is left refuses nothing.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Resource, ResourceExt};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::json;
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, TEAM, eventually, pod};

impl Lab {
    /// Deletes every document of a YAML text, as `kubectl delete --ignore-not-found --wait=false` does.
    pub async fn delete(&self, yaml: &str) {
        for document in serde_yaml_ng::Deserializer::from_str(yaml) {
            let object = DynamicObject::deserialize(document).expect("an object");
            let gvk = GroupVersionKind::try_from(object.types.as_ref().expect("a kind")).expect("a kind");
            let resource = ApiResource::from_gvk(&gvk);
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            match api.delete(&object.name_any(), &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => drop(deleted.expect("it may go")),
            }
        }
    }

    async fn names<K>(&self) -> Vec<String>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let all = Api::<K>::all(self.client.clone()).list(&ListParams::default()).await;
        all.expect("listed").iter().map(ResourceExt::name_any).collect()
    }

    /// The webhook configurations that there are.
    async fn registered(&self) -> Vec<String> {
        let mutating = self.names::<MutatingWebhookConfiguration>().await;
        [mutating, self.names::<ValidatingWebhookConfiguration>().await].concat()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_after_the_manifests_are_deleted_refuses_no_pod() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    let mut operator = lab.replica("one").await;
    lab.create(pod("before", 0)).await.unwrap();
    lab.runs("before").await;
    assert_eq!(lab.registered().await.len(), 4);

    // The operator goes on for as long as its pod may take to end.
    for (name, yaml) in unikai::cli::manifests::files("unikai:test") {
        if !name.contains("operator.yaml") {
            lab.delete(&yaml).await;
        }
    }
    let none = async || {
        let left = lab.registered().await;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    };
    eventually("the webhooks go with the manifests", none).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    none().await.expect("and stay away while the operator ends");
    operator.kill();
    // It had no rights any more.
    lab.server.rbac().forget();

    let mut after = pod("after", 0);
    after["metadata"]["labels"] = json!({"kai.scheduler/queue": "whatever"});
    after["metadata"]["namespace"] = json!(TEAM);
    lab.create(after).await.expect("nobody refuses it");
}
