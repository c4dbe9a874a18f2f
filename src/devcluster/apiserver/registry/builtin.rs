//! The table of built-in kinds. What is not in it is not served.

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, batch::v1 as batch, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, flowcontrol::v1 as flowcontrol, node::v1 as node,
    policy::v1 as policy, rbac::v1 as rbac, resource::v1 as resource, scheduling::v1 as scheduling,
    storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;

use super::{Normalise, Origin, Resource, Stored, api_version, normalise};
use crate::devcluster::apiserver::crd::Scale;

/// Fields that field selectors may name, beside the object's name and namespace.
pub(crate) type FieldLabels = &'static [&'static str];

/// One line of the table.
struct Kind {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
    has_status: bool,
    normalise: Normalise,
}

const fn kind(
    (group, version): (&'static str, &'static str),
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    normalise: Normalise,
) -> Kind {
    Kind {
        group,
        version,
        plural,
        kind,
        namespaced: true,
        short_names,
        has_status: false,
        normalise,
    }
}

impl Kind {
    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn status(mut self) -> Self {
        self.has_status = true;
        self
    }
}

const CORE: (&str, &str) = ("", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const BATCH: (&str, &str) = ("batch", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");
const STORAGE: (&str, &str) = ("storage.k8s.io", "v1");
const RESOURCE: (&str, &str) = ("resource.k8s.io", "v1");
const FLOWCONTROL: (&str, &str) = ("flowcontrol.apiserver.k8s.io", "v1");
const ADMISSION: (&str, &str) = ("admissionregistration.k8s.io", "v1");
const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");
const AUTHORIZATION: (&str, &str) = ("authorization.k8s.io", "v1");

static KINDS: &[Kind] = &[
    kind(CORE, "configmaps", "ConfigMap", &["cm"], normalise::<core::ConfigMap>),
    kind(CORE, "endpoints", "Endpoints", &["ep"], normalise::<core::Endpoints>),
    kind(CORE, "events", "Event", &["ev"], normalise::<core::Event>),
    kind(CORE, "namespaces", "Namespace", &["ns"], normalise::<core::Namespace>)
        .cluster()
        .status(),
    kind(CORE, "nodes", "Node", &["no"], normalise::<core::Node>)
        .cluster()
        .status(),
    kind(
        CORE,
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        &["pvc"],
        normalise::<core::PersistentVolumeClaim>,
    )
    .status(),
    kind(
        CORE,
        "persistentvolumes",
        "PersistentVolume",
        &["pv"],
        normalise::<core::PersistentVolume>,
    )
    .cluster()
    .status(),
    kind(CORE, "pods", "Pod", &["po"], normalise::<core::Pod>).status(),
    kind(
        CORE,
        "resourcequotas",
        "ResourceQuota",
        &["quota"],
        normalise::<core::ResourceQuota>,
    )
    .status(),
    kind(CORE, "secrets", "Secret", &[], normalise::<core::Secret>),
    kind(
        CORE,
        "serviceaccounts",
        "ServiceAccount",
        &["sa"],
        normalise::<core::ServiceAccount>,
    ),
    kind(CORE, "services", "Service", &["svc"], normalise::<core::Service>).status(),
    kind(
        APPS,
        "controllerrevisions",
        "ControllerRevision",
        &[],
        normalise::<apps::ControllerRevision>,
    ),
    kind(APPS, "daemonsets", "DaemonSet", &["ds"], normalise::<apps::DaemonSet>).status(),
    kind(
        APPS,
        "deployments",
        "Deployment",
        &["deploy"],
        normalise::<apps::Deployment>,
    )
    .status(),
    kind(
        APPS,
        "replicasets",
        "ReplicaSet",
        &["rs"],
        normalise::<apps::ReplicaSet>,
    )
    .status(),
    kind(
        APPS,
        "statefulsets",
        "StatefulSet",
        &["sts"],
        normalise::<apps::StatefulSet>,
    )
    .status(),
    kind(BATCH, "cronjobs", "CronJob", &["cj"], normalise::<batch::CronJob>).status(),
    kind(BATCH, "jobs", "Job", &[], normalise::<batch::Job>).status(),
    kind(
        ("coordination.k8s.io", "v1"),
        "leases",
        "Lease",
        &[],
        normalise::<coordination::Lease>,
    ),
    kind(
        FLOWCONTROL,
        "flowschemas",
        "FlowSchema",
        &[],
        normalise::<flowcontrol::FlowSchema>,
    )
    .cluster()
    .status(),
    kind(
        FLOWCONTROL,
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
        &[],
        normalise::<flowcontrol::PriorityLevelConfiguration>,
    )
    .cluster()
    .status(),
    kind(
        ("discovery.k8s.io", "v1"),
        "endpointslices",
        "EndpointSlice",
        &[],
        normalise::<discovery::EndpointSlice>,
    ),
    kind(
        ("events.k8s.io", "v1"),
        "events",
        "Event",
        &["ev"],
        normalise::<events::Event>,
    ),
    kind(
        ("node.k8s.io", "v1"),
        "runtimeclasses",
        "RuntimeClass",
        &[],
        normalise::<node::RuntimeClass>,
    )
    .cluster(),
    kind(
        ("policy", "v1"),
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        &["pdb"],
        normalise::<policy::PodDisruptionBudget>,
    )
    .status(),
    kind(
        RBAC,
        "clusterrolebindings",
        "ClusterRoleBinding",
        &[],
        normalise::<rbac::ClusterRoleBinding>,
    )
    .cluster(),
    kind(RBAC, "clusterroles", "ClusterRole", &[], normalise::<rbac::ClusterRole>).cluster(),
    kind(RBAC, "rolebindings", "RoleBinding", &[], normalise::<rbac::RoleBinding>),
    kind(RBAC, "roles", "Role", &[], normalise::<rbac::Role>),
    kind(
        ("scheduling.k8s.io", "v1"),
        "priorityclasses",
        "PriorityClass",
        &["pc"],
        normalise::<scheduling::PriorityClass>,
    )
    .cluster(),
    kind(STORAGE, "csidrivers", "CSIDriver", &[], normalise::<storage::CSIDriver>).cluster(),
    kind(STORAGE, "csinodes", "CSINode", &[], normalise::<storage::CSINode>).cluster(),
    kind(
        STORAGE,
        "csistoragecapacities",
        "CSIStorageCapacity",
        &[],
        normalise::<storage::CSIStorageCapacity>,
    ),
    kind(
        STORAGE,
        "storageclasses",
        "StorageClass",
        &["sc"],
        normalise::<storage::StorageClass>,
    )
    .cluster(),
    kind(
        STORAGE,
        "volumeattachments",
        "VolumeAttachment",
        &[],
        normalise::<storage::VolumeAttachment>,
    )
    .cluster()
    .status(),
    kind(
        RESOURCE,
        "deviceclasses",
        "DeviceClass",
        &[],
        normalise::<resource::DeviceClass>,
    )
    .cluster(),
    kind(
        RESOURCE,
        "resourceclaims",
        "ResourceClaim",
        &[],
        normalise::<resource::ResourceClaim>,
    )
    .status(),
    kind(
        RESOURCE,
        "resourceclaimtemplates",
        "ResourceClaimTemplate",
        &[],
        normalise::<resource::ResourceClaimTemplate>,
    ),
    kind(
        RESOURCE,
        "resourceslices",
        "ResourceSlice",
        &[],
        normalise::<resource::ResourceSlice>,
    )
    .cluster(),
    kind(
        ADMISSION,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        &[],
        normalise::<admission::MutatingWebhookConfiguration>,
    )
    .cluster(),
    kind(
        ADMISSION,
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        &[],
        normalise::<admission::ValidatingAdmissionPolicy>,
    )
    .cluster()
    .status(),
    kind(
        ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        &[],
        normalise::<admission::ValidatingAdmissionPolicyBinding>,
    )
    .cluster(),
    kind(
        ADMISSION,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        &[],
        normalise::<admission::ValidatingWebhookConfiguration>,
    )
    .cluster(),
    kind(
        ("apiextensions.k8s.io", "v1"),
        "customresourcedefinitions",
        "CustomResourceDefinition",
        &["crd", "crds"],
        normalise::<apiextensions::CustomResourceDefinition>,
    )
    .cluster()
    .status(),
    kind(
        AUTHENTICATION,
        "selfsubjectreviews",
        "SelfSubjectReview",
        &[],
        normalise::<authentication::SelfSubjectReview>,
    )
    .cluster(),
    kind(
        AUTHENTICATION,
        "tokenreviews",
        "TokenReview",
        &[],
        normalise::<authentication::TokenReview>,
    )
    .cluster(),
    kind(
        AUTHORIZATION,
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        &[],
        normalise::<authorization::LocalSubjectAccessReview>,
    ),
    kind(
        AUTHORIZATION,
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        &[],
        normalise::<authorization::SelfSubjectAccessReview>,
    )
    .cluster(),
    kind(
        AUTHORIZATION,
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        &[],
        normalise::<authorization::SelfSubjectRulesReview>,
    )
    .cluster(),
    kind(
        AUTHORIZATION,
        "subjectaccessreviews",
        "SubjectAccessReview",
        &[],
        normalise::<authorization::SubjectAccessReview>,
    )
    .cluster(),
];

/// All built-in resources.
pub(super) fn resources() -> impl Iterator<Item = Resource> {
    KINDS.iter().map(Kind::resource)
}

impl Kind {
    fn resource(&self) -> Resource {
        let stored = match self.group {
            "authentication.k8s.io" | "authorization.k8s.io" => Stored::Never,
            "events.k8s.io" => Stored::CoreEvents,
            _ => Stored::AsServed,
        };
        let storage_group = if stored == Stored::CoreEvents { "" } else { self.group };
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        Resource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            short_names: list(self.short_names),
            categories: list(categories(self.plural)),
            namespaced: self.namespaced,
            has_status: self.has_status,
            scale: scale(self.plural),
            subresources: subresources(self.group, self.plural),
            fields: fields(self.group, self.plural),
            stored,
            storage: (storage_group.to_owned(), self.plural.to_owned()),
            storage_api_version: api_version(storage_group, self.version),
            origin: Origin::BuiltIn {
                normalise: self.normalise,
            },
        }
    }
}

fn categories(plural: &str) -> &'static [&'static str] {
    match plural {
        "pods" | "services" | "daemonsets" | "deployments" | "replicasets" | "statefulsets" | "cronjobs" | "jobs" => {
            &["all"]
        }
        "customresourcedefinitions"
        | "mutatingwebhookconfigurations"
        | "validatingadmissionpolicies"
        | "validatingadmissionpolicybindings"
        | "validatingwebhookconfigurations" => &["api-extensions"],
        _ => &[],
    }
}

fn scale(plural: &str) -> Option<Scale> {
    matches!(plural, "deployments" | "replicasets" | "statefulsets").then(|| Scale {
        spec_replicas: ".spec.replicas".to_owned(),
        status_replicas: ".status.replicas".to_owned(),
        label_selector: None,
    })
}

fn subresources(group: &str, plural: &str) -> &'static [(&'static str, &'static str)] {
    match (group, plural) {
        ("", "pods") => &[("binding", "Binding"), ("eviction", "Eviction")],
        ("", "namespaces") => &[("finalize", "Namespace")],
        ("", "serviceaccounts") => &[("token", "TokenRequest")],
        _ => &[],
    }
}

fn fields(group: &str, plural: &str) -> FieldLabels {
    match (group, plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("apps", "replicasets") => &["status.replicas"],
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}
