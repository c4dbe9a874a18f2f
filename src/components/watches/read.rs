//! Decodes objects of watches one at a time, each from its own text, so that one that does not decode, of any depth, does not affect others, and
//! trims each before the next is decoded, so that a page of large objects needs little more memory than its text.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::kinds::{self, Watched};
use crate::api::lenient::Guarded;

/// See the module.
#[derive(Clone, Debug)]
pub struct Read<K>(pub Guarded<K>);

impl<'de, K: Watched> Deserialize<'de> for Read<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text is skipped without being decoded, at any depth.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(read(text.get())))
    }
}

fn read<K: Watched>(text: &str) -> Guarded<K> {
    DeserializeGuard(match K::read(text) {
        Ok(mut object) => {
            kinds::trim(&mut object);
            Ok(object)
        }
        Err(error) => Err(InvalidObject {
            error: error.to_string(),
            metadata: identity(text),
        }),
    })
}

/// Fields that identify an object; all others are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Identity,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Identity {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

fn identity(text: &str) -> ObjectMeta {
    let Named { metadata } = serde_json::from_str(text).unwrap_or_default();
    ObjectMeta {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        ..ObjectMeta::default()
    }
}

impl<K: Resource> Resource for Read<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::api::resource::v1::ResourceClaim;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    /// A claim with parameters for its driver that are so deep; the API server passes these on as they are.
    fn claim(name: &str, depth: usize) -> String {
        let parameters = format!("{}{{}}{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"u","resourceVersion":"7"}},
            "spec":{{"devices":{{"config":[{{"opaque":{{"driver":"d","parameters":{parameters}}}}}]}}}}}}"#
        )
    }

    #[test]
    fn an_object_of_any_depth_hides_no_other() {
        let items = [claim("deep", 1_700), claim("plain", 1)].join(",");
        let page = format!(
            r#"{{"kind":"ResourceClaimList","apiVersion":"resource.k8s.io/v1","metadata":{{"resourceVersion":"9"}},"items":[{items}]}}"#
        );
        let page: ObjectList<Read<ResourceClaim>> = serde_json::from_str(&page).unwrap();
        let names: Vec<_> = page.items.iter().map(|read| read.meta().name.clone()).collect();
        assert_eq!(names, [Some("deep".to_owned()), Some("plain".to_owned())]);
        let read: Vec<bool> = page.items.iter().map(|read| read.0.0.is_ok()).collect();
        assert_eq!(read, [false, true]);
        let event = format!(r#"{{"type":"ADDED","object":{}}}"#, claim("deep", 1_700));
        let event: WatchEvent<Read<ResourceClaim>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Added(Read(DeserializeGuard(Err(_))))));
    }

    #[test]
    fn an_object_is_trimmed_as_it_is_read() {
        let variables = vec![r#"{"name":"A"}"#; 50_000].join(",");
        let pod =
            format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","env":[{variables}]}}]}}}}"#);
        let event = format!(r#"{{"type":"MODIFIED","object":{pod}}}"#);
        let Ok(WatchEvent::Modified(Read(DeserializeGuard(Ok(pod))))) =
            serde_json::from_str::<WatchEvent<Read<Pod>>>(&event)
        else {
            panic!("a pod is read")
        };
        assert_eq!(pod.spec.unwrap().containers[0].env, None);
    }
}
