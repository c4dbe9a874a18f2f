//! CustomResourceDefinitions (`apiextensions.k8s.io/v1`): parsing into a compiled form per version, the lifecycle of
//! custom objects (status and scale subresources, generation), and the CRD's own defaults, names and conditions.
//! Conversion webhooks are absent: versions share one shape (strategy `None`).

mod check;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use super::schema::{FieldError, Schema};

/// A compiled CRD.
#[derive(Debug, Clone)]
pub struct Crd {
    /// `metadata.name`: `<plural>.<group>`.
    pub name: String,
    /// API group.
    pub group: String,
    /// Lower-case plural, as in URLs.
    pub plural: String,
    /// Lower-case singular.
    pub singular: String,
    /// Kind of one object.
    pub kind: String,
    /// Kind of a list.
    pub list_kind: String,
    /// Short names for kubectl.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// All versions, in the order of the CRD.
    pub versions: Vec<CrdVersion>,
}

/// One version of a CRD.
#[derive(Debug, Clone)]
pub struct CrdVersion {
    /// `v1`, `v2alpha2`, …
    pub name: String,
    /// Whether requests for this version are answered.
    pub served: bool,
    /// Whether this is the stored version.
    pub storage: bool,
    /// Warning for clients of a deprecated version.
    pub deprecation: Option<String>,
    /// `group/version`, as objects carry it.
    pub api_version: String,
    /// Whether `status` is a subresource.
    pub has_status: bool,
    /// Paths of the scale subresource.
    pub scale: Option<Scale>,
    /// Additional printer columns.
    pub columns: Vec<PrinterColumn>,
    /// The compiled schema.
    pub schema: Schema,
}

/// JSON paths of a scale subresource, such as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Where the desired count is.
    pub spec_replicas: String,
    /// Where the observed count is.
    pub status_replicas: String,
    /// Where the serialized label selector is, if anywhere.
    pub label_selector: Option<String>,
}

/// One `additionalPrinterColumns` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrinterColumn {
    /// Heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// `format` of the column, often empty.
    pub format: String,
    /// Help text.
    pub description: String,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i64,
    /// JSON path of the cell.
    pub path: String,
}

/// Fills in the defaults of a CRD object in place: `listKind`, `singular`, `conversion`.
pub fn default(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(kind) = names
        .get("kind")
        .and_then(Value::as_str)
        .filter(|kind| !kind.is_empty())
    else {
        return;
    };
    let (list_kind, singular) = (format!("{kind}List"), kind.to_lowercase());
    names.entry("listKind").or_insert_with(|| json!(list_kind));
    names.entry("singular").or_insert_with(|| json!(singular));
}

/// The status of a CRD whose names are free: conditions `NamesAccepted` and `Established`, accepted names, stored versions.
/// Conditions and stored versions that `crd` has already are kept. `now` is an RFC 3339 time.
pub fn accepted_status(crd: &Value, now: &str) -> Value {
    let mut stored = list(crd, "/status/storedVersions");
    for version in crd
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let name = version["name"].as_str().unwrap_or_default();
        if version["storage"] == true && !stored.iter().any(|known| known == name) {
            stored.push(name.to_owned());
        }
    }
    let condition = |kind: &str, reason: &str, message: &str| {
        let known = crd
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let known = known
            .into_iter()
            .find(|condition| condition["type"] == kind && condition["status"] == "True");
        let since = known.map_or(&Value::Null, |condition| &condition["lastTransitionTime"]);
        let since = since.as_str().unwrap_or(now);
        json!({"type": kind, "status": "True", "lastTransitionTime": since, "reason": reason, "message": message})
    };
    json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": crd.pointer("/spec/names").cloned().unwrap_or_default(),
        "storedVersions": stored,
    })
}

fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn list(object: &Value, pointer: &str) -> Vec<String> {
    let entries = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    entries.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Crd {
    /// Checks and compiles a (defaulted) CRD object.
    pub fn compile(crd: &Value) -> Result<Self, Vec<FieldError>> {
        let mut errors = check::definition(crd);
        let group = text(crd, "/spec/group");
        let no_versions = Vec::new();
        let versions = crd
            .pointer("/spec/versions")
            .and_then(Value::as_array)
            .unwrap_or(&no_versions);
        let mut compiled = Vec::with_capacity(versions.len());
        for (index, version) in versions.iter().enumerate() {
            // The API server stores fields that are equal in all versions outside of them, and reports errors there.
            let shared = |field: &str| versions.iter().all(|other| other.get(field) == version.get(field));
            let at = |field: &str, hoisted: &str, own: &str| {
                if shared(field) {
                    format!("spec.{hoisted}")
                } else {
                    format!("spec.versions[{index}].{own}")
                }
            };
            if shared("schema") && index > 0 && !errors.is_empty() {
                continue;
            }
            let paths = check::VersionPaths {
                schema: at("schema", "validation.openAPIV3Schema", "schema.openAPIV3Schema"),
                missing_schema: format!("spec.versions[{index}].schema.openAPIV3Schema"),
                scale: at("subresources", "subresources.scale", "subresources.scale"),
                columns: at(
                    "additionalPrinterColumns",
                    "additionalPrinterColumns",
                    "additionalPrinterColumns",
                ),
            };
            match CrdVersion::compile(&group, version, &paths) {
                Ok(version) => compiled.push(version),
                Err(found) => errors.extend(found),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            name: text(crd, "/metadata/name"),
            group,
            plural: text(crd, "/spec/names/plural"),
            singular: text(crd, "/spec/names/singular"),
            kind: text(crd, "/spec/names/kind"),
            list_kind: text(crd, "/spec/names/listKind"),
            short_names: list(crd, "/spec/names/shortNames"),
            categories: list(crd, "/spec/names/categories"),
            namespaced: text(crd, "/spec/scope") == "Namespaced",
            versions: compiled,
        })
    }

    /// The version in which objects are stored.
    pub fn storage(&self) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.storage)
    }
}

impl Scale {
    fn parse(version: &Value) -> Option<Self> {
        let scale = version.pointer("/subresources/scale")?.as_object()?;
        let path = |name: &str| scale.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            spec_replicas: path("specReplicasPath")?,
            status_replicas: path("statusReplicasPath")?,
            label_selector: path("labelSelectorPath"),
        })
    }
}

impl PrinterColumn {
    fn parse(column: &Value) -> Self {
        Self {
            name: text(column, "/name"),
            kind: text(column, "/type"),
            format: text(column, "/format"),
            description: text(column, "/description"),
            priority: column["priority"].as_i64().unwrap_or_default(),
            path: text(column, "/jsonPath"),
        }
    }

    /// What a CRD without columns of its own shows beside the name.
    fn age() -> Self {
        let description = "CreationTimestamp is a timestamp representing the server time when this object was created.";
        Self {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: description.to_owned(),
            priority: 0,
            path: ".metadata.creationTimestamp".to_owned(),
        }
    }
}

impl CrdVersion {
    fn compile(group: &str, version: &Value, paths: &check::VersionPaths) -> Result<Self, Vec<FieldError>> {
        let mut errors = check::version(version, paths);
        let schema = match version.pointer("/schema/openAPIV3Schema") {
            Some(source) => Schema::compile(source, &paths.schema)
                .map_err(|found| errors.extend(found))
                .ok(),
            None => {
                errors.push(FieldError::required(paths.missing_schema.clone(), ""));
                None
            }
        };
        let (Some(schema), true) = (schema, errors.is_empty()) else {
            return Err(errors);
        };
        let name = text(version, "/name");
        let api_version = format!("{group}/{name}");
        let deprecation = (version["deprecated"] == true).then(|| match version["deprecationWarning"].as_str() {
            Some(warning) => warning.to_owned(),
            None => format!("{api_version} is deprecated"),
        });
        let columns: Vec<PrinterColumn> = version["additionalPrinterColumns"]
            .as_array()
            .into_iter()
            .flatten()
            .map(PrinterColumn::parse)
            .collect();
        Ok(Self {
            served: version["served"] == true,
            storage: version["storage"] == true,
            deprecation,
            api_version,
            has_status: version.pointer("/subresources/status").is_some(),
            scale: Scale::parse(version),
            columns: if columns.is_empty() {
                vec![PrinterColumn::age()]
            } else {
                columns
            },
            schema,
            name,
        })
    }

    /// The decoding half of every write: takes the object to this version's `apiVersion`, prunes unknown fields, applies
    /// defaults. Returns the pruned paths (`spec.foo`) for `fieldValidation` Strict and Warn. Call it again after mutating webhooks.
    pub fn admit_shape(&self, object: &mut Value) -> Vec<String> {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), Value::from(self.api_version.as_str()));
        }
        let pruned = self.schema.prune(object);
        self.schema.default(object);
        pruned
    }

    /// Before a create: drops `status` where that is a subresource, starts `metadata.generation` at 1.
    pub fn prepare_create(&self, object: &mut Value) {
        if self.has_status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        set_generation(object, 1);
    }

    /// Before a write of the main resource: keeps the old `status` where that is a subresource, and raises
    /// `metadata.generation` when anything but metadata (and status) changed.
    pub fn prepare_update(&self, object: &mut Value, old: &Value) {
        if self.has_status
            && let Some(fields) = object.as_object_mut()
        {
            match old.get("status") {
                Some(status) => fields.insert("status".to_owned(), status.clone()),
                None => fields.remove("status"),
            };
        }
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
        set_generation(
            object,
            if self.same_content(object, old) {
                generation
            } else {
                generation + 1
            },
        );
    }

    /// Before a write of the status subresource: everything but `status` stays as it was; of metadata, only the resource
    /// version (the writer's precondition) and managed fields come from the request.
    pub fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        let mut next = old.clone();
        if let Some(fields) = next.as_object_mut() {
            match object.get("status") {
                Some(status) => fields.insert("status".to_owned(), status.clone()),
                None => fields.remove("status"),
            };
            fields.insert("apiVersion".to_owned(), Value::from(self.api_version.as_str()));
        }
        for name in ["resourceVersion", "managedFields"] {
            if let (Some(value), Some(metadata)) = (object["metadata"].get(name), next["metadata"].as_object_mut()) {
                metadata.insert(name.to_owned(), value.clone());
            }
        }
        *object = next;
    }

    fn same_content(&self, one: &Value, other: &Value) -> bool {
        let content = |object: &Value| -> Map<String, Value> {
            let fields = object.as_object().into_iter().flatten();
            let content = fields.filter(|(name, _)| match name.as_str() {
                "apiVersion" | "kind" | "metadata" => false,
                "status" => !self.has_status,
                _ => true,
            });
            content.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        content(one) == content(other)
    }

    /// Validates an object against the schema; `old` is the stored object on updates (transition rules).
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.schema.validate(object, old)
    }

    /// The `autoscaling/v1` Scale of an object; `None` where the version has no scale subresource, an error where the
    /// object does not say how many replicas it wants.
    pub fn read_scale(&self, object: &Value) -> Option<Result<Value, String>> {
        let scale = self.scale.as_ref()?;
        let Some(wanted) = at(object, &scale.spec_replicas).and_then(Value::as_i64) else {
            return Some(Err(format!(
                "the spec replicas field {:?} does not exist",
                scale.spec_replicas
            )));
        };
        let mut status =
            json!({"replicas": at(object, &scale.status_replicas).and_then(Value::as_i64).unwrap_or_default()});
        if let Some(selector) = scale.label_selector.as_ref().and_then(|path| at(object, path)) {
            status["selector"] = selector.clone();
        }
        let mut metadata = Map::new();
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            metadata.extend(
                object["metadata"]
                    .get(name)
                    .map(|value| (name.to_owned(), value.clone())),
            );
        }
        Some(Ok(json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {"replicas": wanted}, "status": status,
        })))
    }

    /// Writes a Scale's `spec.replicas` into the object; the error is a field error of the Scale, or says that the version
    /// has no scale subresource.
    pub fn write_scale(&self, object: &mut Value, scale: &Value) -> Result<(), FieldError> {
        let Some(paths) = &self.scale else {
            return Err(FieldError::required(
                "spec.replicas",
                "the resource has no scale subresource",
            ));
        };
        let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(0));
        if replicas.as_i64().is_none_or(|wanted| wanted < 0) {
            return Err(FieldError::invalid(
                paths.spec_replicas.clone(),
                &replicas,
                "should be a non-negative integer",
            ));
        }
        let mut place = object;
        for name in paths.spec_replicas.split('.').skip(1) {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[name];
        }
        *place = replicas;
        Ok(())
    }
}

/// The value at a simple path such as `.spec.replicas`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').skip(1).try_fold(object, |value, name| value.get(name))
}

fn set_generation(object: &mut Value, generation: i64) {
    let Some(fields) = object.as_object_mut() else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("generation".to_owned(), Value::from(generation));
    }
}
