use serde_json::json;

use super::super::schema::tests::widget;
use super::{Served, v2, v3_document, v3_index};

const POD: Served<'static> = Served {
    group: "",
    version: "v1",
    kind: "Pod",
    plural: "pods",
    namespaced: true,
    custom: None,
};

fn with_widget<T>(check: impl FnOnce(&[Served<'_>]) -> T) -> T {
    let crd = widget();
    let custom = Served {
        group: "test.dev",
        version: "v1",
        kind: "Widget",
        plural: "widgets",
        namespaced: true,
        custom: Some(&crd.versions[0]),
    };
    check(&[POD, custom])
}

#[test]
fn the_index_names_every_group_version_by_its_content() {
    with_widget(|served| {
        let index = v3_index(served);
        let keys: Vec<&String> = index["paths"].as_object().expect("paths").keys().collect();
        assert_eq!(keys, ["api/v1", "apis/test.dev/v1"]);
        let address = index["paths"]["apis/test.dev/v1"]["serverRelativeURL"]
            .as_str()
            .expect("an address");
        assert!(address.starts_with("/openapi/v3/apis/test.dev/v1?hash="), "{address}");
        assert_eq!(v3_index(&served[..1])["paths"]["api/v1"], index["paths"]["api/v1"]);
    });
}

#[test]
fn custom_kinds_are_described_in_full() {
    let document = with_widget(|served| v3_document("test.dev", "v1", served));
    let schemas = &document["components"]["schemas"];
    let widget = &schemas["dev.test.v1.Widget"];
    assert_eq!(
        widget["properties"]["spec"]["properties"]["mode"],
        json!({"type": "string", "enum": ["a", "b"], "default": "a"})
    );
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{"group": "test.dev", "version": "v1", "kind": "Widget"}])
    );
    assert_eq!(
        widget["properties"]["metadata"]["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert!(schemas["dev.test.v1.WidgetList"].is_object());
    assert!(schemas.get("io.k8s.api.core.v1.Pod").is_none(), "another group version");
    let patch = &document["paths"]["/apis/test.dev/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Widget");
    assert!(
        patch["parameters"]
            .as_array()
            .expect("parameters")
            .iter()
            .any(|parameter| parameter["name"] == "fieldValidation")
    );
}

#[test]
fn built_in_kinds_leave_patches_to_their_clients() {
    with_widget(|served| {
        let document = v3_document("", "v1", served);
        let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
        assert!(
            patch["requestBody"]["content"]
                .get("application/strategic-merge-patch+json")
                .is_none()
        );
        let definitions = &v2(served)["definitions"];
        assert!(
            definitions["io.k8s.api.core.v1.Pod"]
                .get("x-kubernetes-group-version-kind")
                .is_none()
        );
        assert!(
            definitions["dev.test.v1.Widget"]
                .get("x-kubernetes-group-version-kind")
                .is_some()
        );
        assert!(
            definitions["dev.test.v1.Widget"]["properties"]["spec"]["properties"]["port"]
                .get("type")
                .is_none()
        );
    });
}

#[test]
fn every_reference_has_a_target() {
    let document = with_widget(|served| v3_document("test.dev", "v1", served));
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().expect("a name");
        assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
    }
}
