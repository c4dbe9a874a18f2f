//! Response formats by the Accept header: whole objects, Tables, or metadata only.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{
    clock::Clock,
    convert,
    registry::{Resource, Stored},
    status::{ApiError, ApiResult},
    store::Object,
    table::{self, IncludeObject, Printer},
};

/// The form asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Table(IncludeObject),
    Metadata,
}

/// One entry of an Accept header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Accepted<'a> {
    pub media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Accepted<'_> {
    /// A parameter's value, empty when absent.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    }
}

/// The entries of an Accept header, in its order.
pub(crate) fn accepted(header: &str) -> impl Iterator<Item = Accepted<'_>> {
    header.split(',').map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        Accepted {
            media_type,
            parameters: parts.filter_map(|parameter| parameter.split_once('=')).collect(),
        }
    })
}

impl Form {
    /// The first form of the Accept header that is served here.
    pub fn choose(accept: &str, include_object: Option<&str>) -> ApiResult<Self> {
        for entry in accepted(accept) {
            if !matches!(entry.media_type, "application/json" | "*/*" | "application/*" | "") {
                continue;
            }
            let known = entry.parameter("g") == "meta.k8s.io" && entry.parameter("v") == "v1";
            match entry.parameter("as") {
                "" => return Ok(Form::Whole),
                "PartialObjectMetadata" | "PartialObjectMetadataList" if known => return Ok(Form::Metadata),
                "Table" if known => {
                    let given = include_object.unwrap_or_default();
                    let include = IncludeObject::parse(given)
                        .ok_or_else(|| ApiError::bad_request(format!("unrecognized includeObject value: {given:?}")))?;
                    return Ok(Form::Table(include));
                }
                _ => {}
            }
        }
        Err(ApiError::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        ))
    }
}

/// Metadata of a list answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListMeta {
    pub revision: u64,
    pub continue_token: Option<String>,
    pub remaining: Option<usize>,
}

impl ListMeta {
    fn to_value(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

/// Renders objects of one resource in one form.
#[derive(Clone, Debug)]
pub(crate) struct Presenter<'a> {
    pub resource: &'a Resource,
    pub form: Form,
    pub clock: &'a Clock,
}

impl Presenter<'_> {
    /// One object; `headers` asks a table for its column definitions.
    pub fn object(&self, object: &Object, headers: bool) -> Bytes {
        match self.form {
            Form::Whole if self.resource.stored == Stored::AsServed => object.json().clone(),
            Form::Whole | Form::Table(_) | Form::Metadata => {
                self.value(&convert::served(self.resource, &object.value), headers)
            }
        }
    }

    /// One object in served form that is not stored.
    pub fn value(&self, object: &Value, headers: bool) -> Bytes {
        let rendered = match self.form {
            Form::Whole => return Bytes::from(object.to_string()),
            Form::Metadata => metadata_of(object),
            Form::Table(include) => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                table::table(self.printer(), &metadata, &[object], include, headers, self.clock.now())
            }
        };
        Bytes::from(rendered.to_string())
    }

    /// A list.
    pub fn list<'o>(&self, objects: impl Iterator<Item = &'o Object>, meta: &ListMeta) -> Bytes {
        let metadata = meta.to_value();
        let (kind, api_version) = match self.form {
            Form::Whole => (self.resource.list_kind.clone(), self.resource.api_version()),
            Form::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            Form::Table(include) => {
                let served: Vec<_> = objects
                    .map(|object| convert::served(self.resource, &object.value))
                    .collect();
                let items: Vec<&Value> = served.iter().map(AsRef::as_ref).collect();
                let table = table::table(self.printer(), &metadata, &items, include, true, self.clock.now());
                return Bytes::from(table.to_string());
            }
        };
        let mut out = BytesMut::new();
        out.put_slice(
            format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#).as_bytes(),
        );
        for (index, object) in objects.enumerate() {
            if index > 0 {
                out.put_u8(b',');
            }
            self.list_item(object, &mut out);
        }
        out.put_slice(b"]}");
        out.freeze()
    }

    /// An object in a list, where real servers leave the types of built-in kinds to the list.
    fn list_item(&self, object: &Object, out: &mut BytesMut) {
        let built_in = self.resource.custom().is_none();
        match (self.form, convert::served(self.resource, &object.value).as_ref()) {
            (Form::Whole, Value::Object(fields)) if built_in => {
                let rest = Untyped(fields);
                if let Err(error) = serde_json::to_writer(out.writer(), &rest) {
                    tracing::error!(%error, "object cannot be written");
                }
            }
            _ => out.put_slice(&self.object(object, false)),
        }
    }

    fn printer(&self) -> Printer<'_> {
        match self.resource.custom() {
            Some(version) => Printer::Custom(&version.columns),
            None => Printer::BuiltIn {
                group: &self.resource.group,
                kind: &self.resource.kind,
            },
        }
    }
}

/// An object without `apiVersion` and `kind`.
struct Untyped<'a>(&'a Map<String, Value>);

impl Serialize for Untyped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rest = self
            .0
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind"));
        serializer.collect_map(rest)
    }
}

/// An object's metadata as `PartialObjectMetadata`.
fn metadata_of(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_servable_form_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(
            Form::choose(kubectl, None).unwrap(),
            Form::Table(IncludeObject::Metadata)
        );
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(Form::choose(metadata, None).unwrap(), Form::Metadata);
        assert_eq!(
            Form::choose("application/vnd.kubernetes.protobuf, */*", None).unwrap(),
            Form::Whole
        );
        assert_eq!(Form::choose("", None).unwrap(), Form::Whole);
        assert_eq!(
            Form::choose("application/vnd.kubernetes.protobuf", None)
                .unwrap_err()
                .code,
            406
        );
    }
}
