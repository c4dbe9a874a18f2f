//! The served resources: the built-in kinds in one table, and the kinds of the CRDs that exist at the time.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    crd::{Crd, CrdVersion, Scale},
    request::Verb,
    status::Subject,
    store::ResourceKey,
};

mod builtin;

pub(crate) use builtin::FieldLabels;

/// How a built-in kind is decoded: the object in normal form, without unknown fields, or why its types are wrong.
pub(crate) type Normalise = fn(&Value) -> Result<Value, String>;

/// How objects of a resource are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// As they are served.
    AsServed,
    /// Under another `apiVersion`.
    OtherVersion,
    /// `events.k8s.io` events are kept as core events.
    CoreEvents,
    /// Not at all: reviews, answered at once.
    Never,
}

/// What a resource is made of.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Part of Kubernetes.
    BuiltIn { normalise: Normalise },
    /// Defined by a CRD; the index of the version in it.
    Custom { crd: Arc<Crd>, version: usize },
}

/// One served resource in one version.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub has_status: bool,
    pub scale: Option<Scale>,
    /// Subresources beside `status` and `scale`, with the kind of their body.
    pub subresources: &'static [(&'static str, &'static str)],
    pub fields: FieldLabels,
    pub stored: Stored,
    pub storage: ResourceKey,
    pub storage_api_version: String,
    pub origin: Origin,
}

impl Resource {
    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The CRD version that defines it, if one does.
    pub fn custom(&self) -> Option<&CrdVersion> {
        match &self.origin {
            Origin::BuiltIn { .. } => None,
            Origin::Custom { crd, version } => crd.versions.get(*version),
        }
    }

    /// True for this built-in or custom resource.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// For errors about an object of it.
    pub fn subject(&self, name: &str) -> Subject {
        Subject {
            group: self.group.clone(),
            resource: self.plural.clone(),
            kind: self.kind.clone(),
            name: name.to_owned(),
        }
    }

    /// The verbs that it takes, in discovery's order.
    pub fn verbs(&self) -> &'static [Verb] {
        match self.stored {
            Stored::Never => &[Verb::Create],
            Stored::AsServed | Stored::OtherVersion | Stored::CoreEvents if self.is("", "namespaces") => &[
                Verb::Create,
                Verb::Delete,
                Verb::Get,
                Verb::List,
                Verb::Patch,
                Verb::Update,
                Verb::Watch,
            ],
            Stored::AsServed | Stored::OtherVersion | Stored::CoreEvents => &[
                Verb::Create,
                Verb::Delete,
                Verb::DeleteCollection,
                Verb::Get,
                Verb::List,
                Verb::Patch,
                Verb::Update,
                Verb::Watch,
            ],
        }
    }

    fn custom_of(crd: &Arc<Crd>, index: usize, version: &CrdVersion, storage_api_version: &str) -> Self {
        let stored = if version.api_version == storage_api_version {
            Stored::AsServed
        } else {
            Stored::OtherVersion
        };
        Resource {
            group: crd.group.clone(),
            version: version.name.clone(),
            plural: crd.plural.clone(),
            singular: crd.singular.clone(),
            kind: crd.kind.clone(),
            list_kind: crd.list_kind.clone(),
            short_names: crd.short_names.clone(),
            categories: crd.categories.clone(),
            namespaced: crd.namespaced,
            has_status: version.has_status,
            scale: version.scale.clone(),
            subresources: &[],
            fields: &[],
            stored,
            storage: (crd.group.clone(), crd.plural.clone()),
            storage_api_version: storage_api_version.to_owned(),
            origin: Origin::Custom {
                crd: crd.clone(),
                version: index,
            },
        }
    }
}

/// `v1` or `group/version`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// All served resources at one time, by group, version and plural.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Catalog {
    /// A served resource.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// All resources, by group, version and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// All resources of one group version.
    pub fn of<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.iter()
            .filter(move |resource| resource.group == group && resource.version == version)
    }

    fn insert(&mut self, resource: Resource) {
        let key = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.resources.insert(key, Arc::new(resource));
    }
}

/// The catalog that changes as CRDs do.
#[derive(Debug)]
pub(crate) struct Registry {
    catalog: RwLock<Arc<Catalog>>,
}

impl Registry {
    /// The built-in kinds.
    pub fn new() -> Self {
        let mut catalog = Catalog::default();
        builtin::resources().for_each(|resource| catalog.insert(resource));
        Registry {
            catalog: RwLock::new(Arc::new(catalog)),
        }
    }

    /// What is served now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves the built-in kinds and what these CRDs define, and nothing else.
    pub fn define(&self, definitions: impl Iterator<Item = Crd>) {
        let mut catalog = Catalog::clone(&self.catalog());
        catalog
            .resources
            .retain(|_, resource| matches!(resource.origin, Origin::BuiltIn { .. }));
        for crd in definitions.map(Arc::new) {
            let storage = crd
                .storage()
                .map(|version| version.api_version.clone())
                .unwrap_or_default();
            for (index, version) in crd.versions.iter().enumerate().filter(|(_, version)| version.served) {
                catalog.insert(Resource::custom_of(&crd, index, version, &storage));
            }
        }
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
    }
}

/// Decodes into the published type and encodes again, which refuses wrong types and drops unknown fields.
pub(crate) fn normalise<T: Serialize + DeserializeOwned>(value: &Value) -> Result<Value, String> {
    let typed = T::deserialize(value).map_err(|error| error.to_string())?;
    serde_json::to_value(&typed).map_err(|error| error.to_string())
}
