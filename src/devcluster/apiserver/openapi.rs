//! OpenAPI documents: `/openapi/v3` (index and one document per group version) and `/openapi/v2`. Custom resources are
//! described in full from their schemas; built-in kinds by their metadata and an open rest. For built-in kinds the
//! documents name no strategic merge patch and v2 no group, version and kind, so that kubectl computes its patches from the
//! types that it was built with: the open schemas here do not have the merge keys of lists.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::crd::CrdVersion;
use super::protobuf::encoded;

/// One served kind, as the documents describe it.
#[derive(Debug, Clone, Copy)]
pub struct Served<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Version.
    pub version: &'a str,
    /// Kind of one object.
    pub kind: &'a str,
    /// Plural, as in URLs.
    pub plural: &'a str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The CRD version, for custom resources.
    pub custom: Option<&'a CrdVersion>,
}

/// Built-in kinds with content in other fields than `metadata`, `spec` and `status`.
const WITHOUT_SPEC: [&str; 20] = [
    "Binding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "ControllerRevision",
    "CSIStorageCapacity",
    "EndpointSlice",
    "Endpoints",
    "Event",
    "Eviction",
    "MutatingWebhookConfiguration",
    "PodTemplate",
    "PriorityClass",
    "Role",
    "RoleBinding",
    "RuntimeClass",
    "Secret",
    "ServiceAccount",
    "StorageClass",
    "ValidatingWebhookConfiguration",
];

const API_VERSION: &str = "Group and version of this representation of the object.";
const KIND: &str = "Kind of the object, in CamelCase.";
const METADATA: &str = "Standard metadata of the object.";

/// The two dialects differ in where schemas live and in how a reference gets a description.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }

    fn described(self, name: &str, description: &str) -> Value {
        match self {
            Self::V2 => {
                let mut reference = self.reference(name);
                reference["description"] = json!(description);
                reference
            }
            Self::V3 => json!({"description": description, "allOf": [self.reference(name)]}),
        }
    }
}

/// `/openapi/v3`: the index of the group versions served. A document's address changes with its content.
pub fn v3_index(served: &[Served<'_>]) -> Value {
    let mut paths = Map::new();
    for one in served {
        let key = match one.group {
            "" => format!("api/{}", one.version),
            group => format!("apis/{group}/{}", one.version),
        };
        if !paths.contains_key(&key) {
            let document = v3_document(one.group, one.version, served).to_string();
            let digest = Sha256::digest(document.as_bytes());
            let hash: String = digest.iter().map(|byte| format!("{byte:02X}")).collect();
            let address = format!("/openapi/v3/{key}?hash={hash}");
            paths.insert(key, json!({"serverRelativeURL": address}));
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/api/v1` or `/openapi/v3/apis/GROUP/VERSION`; `served` may hold other group versions, which are skipped.
pub fn v3_document(group: &str, version: &str, served: &[Served<'_>]) -> Value {
    let mut schemas = metadata_schemas(Dialect::V3);
    let mut paths = Map::new();
    for one in served.iter().filter(|one| one.group == group && one.version == version) {
        schemas.extend(one.schemas(Dialect::V3));
        one.add_paths(&mut paths);
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "unversioned"}, "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// `/openapi/v2`, as JSON.
pub fn v2(served: &[Served<'_>]) -> Value {
    let mut definitions = metadata_schemas(Dialect::V2);
    for one in served {
        definitions.extend(one.schemas(Dialect::V2));
    }
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "unversioned"}, "paths": {}, "definitions": definitions,
    })
}

/// The media type of `/openapi/v2` in protobuf.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2` in protobuf: version and title, no paths and no definitions. kubectl reads it for a kind that no document of v3 describes, and
/// no document of ours describes such a kind; what it cannot read would be an error in place of "no matches for kind".
pub fn v2_protobuf() -> Vec<u8> {
    let info = [encoded(1, b"Kubernetes"), encoded(2, b"unversioned")].concat();
    [encoded(1, b"2.0"), encoded(2, &info), encoded(8, b"")].concat()
}

impl Served<'_> {
    /// The name of the kind's schema, such as `ai.run.scheduling.v2.Queue` or `io.k8s.api.core.v1.Pod`.
    fn schema_name(&self) -> String {
        let package = match (self.custom, self.group) {
            (Some(_), group) => group.split('.').rev().collect::<Vec<_>>().join("."),
            (None, "") => "io.k8s.api.core".to_owned(),
            (None, "apiextensions.k8s.io") => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
            (None, group) => format!("io.k8s.api.{}", group.split('.').next().unwrap_or_default()),
        };
        format!("{package}.{}.{}", self.version, self.kind)
    }

    fn identity(&self, suffix: &str) -> Value {
        json!({"group": self.group, "version": self.version, "kind": format!("{}{suffix}", self.kind)})
    }

    /// The schemas of one object and of a list.
    fn schemas(&self, dialect: Dialect) -> [(String, Value); 2] {
        let name = self.schema_name();
        let mut object = match self.custom {
            Some(version) => custom_schema(version.schema.source(), dialect),
            None => self.built_in_schema(),
        };
        let properties = &mut object["properties"];
        properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
        properties["kind"] = json!({"type": "string", "description": KIND});
        properties["metadata"] = dialect.described(OBJECT_META, METADATA);
        let items = dialect.reference(&name);
        let mut list = json!({
            "type": "object", "description": format!("{0}List is a list of {0}", self.kind), "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": API_VERSION}, "kind": {"type": "string", "description": KIND},
                "metadata": dialect.described(LIST_META, "Standard metadata of the list."),
                "items": {"type": "array", "description": format!("List of {}.", self.plural), "items": items},
            },
        });
        if dialect == Dialect::V3 || self.custom.is_some() {
            object["x-kubernetes-group-version-kind"] = json!([self.identity("")]);
            list["x-kubernetes-group-version-kind"] = json!([self.identity("List")]);
        }
        let list_name = format!("{name}List");
        [(name, object), (list_name, list)]
    }

    fn built_in_schema(&self) -> Value {
        let open = |description: &str| json!({"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true});
        let mut properties = Map::new();
        if !WITHOUT_SPEC.contains(&self.kind) {
            properties.insert(
                "spec".to_owned(),
                open("What is wanted. This server does not describe it further."),
            );
            properties.insert(
                "status".to_owned(),
                open("What was observed last. This server does not describe it further."),
            );
        }
        json!({
            "type": "object", "description": format!("{} is a built-in kind, described here by its metadata alone.", self.kind),
            "properties": properties, "x-kubernetes-preserve-unknown-fields": true,
        })
    }

    /// The paths that clients look up: where a kind is read, and what a patch of it may ask for.
    fn add_paths(&self, paths: &mut Map<String, Value>) {
        let root = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        let collection = if self.namespaced {
            format!("{root}/namespaces/{{namespace}}/{}", self.plural)
        } else {
            format!("{root}/{}", self.plural)
        };
        let operation = |action: &str| {
            let reference = Dialect::V3.reference(&self.schema_name());
            let content = json!({"application/json": {"schema": reference}});
            json!({
                "x-kubernetes-action": action, "x-kubernetes-group-version-kind": self.identity(""),
                "responses": {"200": {"description": "OK", "content": content}},
            })
        };
        let write = |action: &str, media: &[&str]| {
            let mut operation = operation(action);
            operation["parameters"] = json!(["dryRun", "fieldManager", "fieldValidation"].map(query_parameter));
            let body: Map<String, Value> = media
                .iter()
                .map(|media| ((*media).to_owned(), json!({"schema": {"type": "object"}})))
                .collect();
            operation["requestBody"] = json!({"required": true, "content": body});
            operation
        };
        let patches = ["application/json-patch+json", "application/merge-patch+json"];
        paths.insert(
            collection.clone(),
            json!({"get": operation("list"), "post": write("post", &["application/json"])}),
        );
        paths.insert(
            format!("{collection}/{{name}}"),
            json!({
                "get": operation("get"), "put": write("put", &["application/json"]), "patch": write("patch", &patches),
                "delete": operation("delete"),
            }),
        );
    }
}

fn query_parameter(name: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}})
}

/// A custom resource's own schema, for v2 without what v2 cannot express, as its clients refuse unknown keywords.
fn custom_schema(source: &Value, dialect: Dialect) -> Value {
    let mut schema = source.clone();
    if dialect == Dialect::V2 {
        simplify(&mut schema);
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema
}

fn simplify(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for name in ["oneOf", "anyOf", "not", "nullable", "default", "example"] {
        fields.remove(name);
    }
    let open = ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"];
    if open
        .iter()
        .any(|extension| fields.get(*extension) == Some(&json!(true)))
    {
        // A client that checks types would refuse what is open here.
        for name in ["type", "properties", "items", "additionalProperties"] {
            fields.remove(name);
        }
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(simplify);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(child) = fields.get_mut(name) {
            simplify(child);
        }
    }
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const OWNER_REFERENCE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";

fn field(kind: &str, description: &str) -> Value {
    json!({"type": kind, "description": description})
}

fn strings(description: &str) -> Value {
    json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}})
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

/// The schemas that all kinds share.
fn metadata_schemas(dialect: Dialect) -> Map<String, Value> {
    let whole = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let object_meta = json!({"type": "object", "description": "Metadata that every stored object has.", "properties": {
        "annotations": strings("Free data beside the object, which is not for selecting."),
        "creationTimestamp": time("When the object was stored first; set by the server."),
        "deletionGracePeriodSeconds": whole("Seconds that the object has to end gracefully."),
        "deletionTimestamp": time("When the object is due to go; set by the server."),
        "finalizers": {"type": "array", "description": "Who must agree before the object goes.", "items": {"type": "string"},
                       "x-kubernetes-list-type": "set"},
        "generateName": field("string", "Prefix of the name that the server chooses when there is none."),
        "generation": whole("Counts the changes of what is wanted."),
        "labels": strings("Keys and values to select objects by."),
        "managedFields": {"type": "array", "description": "Which manager set which field.",
                          "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        "name": field("string", "Name, unique in its namespace."),
        "namespace": field("string", "Namespace that the name is unique in."),
        "ownerReferences": {"type": "array", "description": "Objects that this one depends on; gone with the last of them.",
                            "items": dialect.reference(OWNER_REFERENCE), "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["uid"]},
        "resourceVersion": field("string", "Version of the stored object; an update that names an older one is refused."),
        "selfLink": field("string", "Not set any more."),
        "uid": field("string", "Tells this object apart from others of the same name before and after it."),
    }});
    let list_meta = json!({"type": "object", "description": "Metadata of a list.", "properties": {
        "continue": field("string", "Where the next page starts."),
        "remainingItemCount": whole("How many objects follow after this page."),
        "resourceVersion": field("string", "Version of the list, to watch from."),
        "selfLink": field("string", "Not set any more."),
    }});
    let names = ["apiVersion", "kind", "name", "uid"];
    let owner = json!({
        "type": "object", "description": "An object that owns this one.", "required": names,
        "properties": {
            "apiVersion": field("string", "Group and version of the owner."),
            "blockOwnerDeletion": field("boolean", "Whether the owner stays until this object is gone."),
            "controller": field("boolean", "Whether the owner manages this object."),
            "kind": field("string", "Kind of the owner."),
            "name": field("string", "Name of the owner."),
            "uid": field("string", "Uid of the owner."),
        },
    });
    [
        (OBJECT_META, object_meta),
        (LIST_META, list_meta),
        (OWNER_REFERENCE, owner),
    ]
    .map(|(name, schema)| (name.to_owned(), schema))
    .into_iter()
    .collect()
}
