//! The table of built-in kinds: columns, and the function that fills them.

use jiff::Timestamp;
use serde_json::Value;

use super::{Column, others, pods, workloads};

/// How a kind is printed.
pub(super) struct Kind {
    group: &'static str,
    name: &'static str,
    pub columns: &'static [Column<'static>],
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
}

const fn column(name: &'static str, kind: &'static str, priority: i64) -> Column<'static> {
    Column {
        name,
        kind,
        format: "",
        description: "",
        priority,
    }
}

const fn text(name: &'static str) -> Column<'static> {
    column(name, "string", 0)
}

/// Only shown with `-o wide`.
const fn wide(name: &'static str) -> Column<'static> {
    column(name, "string", 1)
}

const fn integer(name: &'static str) -> Column<'static> {
    column(name, "integer", 0)
}

const fn boolean(name: &'static str) -> Column<'static> {
    column(name, "boolean", 0)
}

const NAME: Column<'static> = Column {
    format: "name",
    ..text("Name")
};
const WIDE_NAME: Column<'static> = Column {
    format: "name",
    ..wide("Name")
};
const AGE: Column<'static> = text("Age");
const CONTAINERS: Column<'static> = wide("Containers");
const IMAGES: Column<'static> = wide("Images");
const SELECTOR: Column<'static> = wide("Selector");

const fn kind(
    group: &'static str,
    name: &'static str,
    columns: &'static [Column<'static>],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
) -> Kind {
    Kind {
        group,
        name,
        columns,
        cells,
    }
}

static OTHER: Kind = kind("", "", &[NAME, column("Created At", "date", 0)], others::created_at);

const EVENT: &[Column<'static>] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    WIDE_NAME,
];
const WEBHOOKS: &[Column<'static>] = &[NAME, integer("Webhooks"), AGE];
const BINDING: &[Column<'static>] = &[
    NAME,
    text("Role"),
    AGE,
    wide("Users"),
    wide("Groups"),
    wide("ServiceAccounts"),
];

static KINDS: &[Kind] = &[
    kind(
        "",
        "Pod",
        &[
            NAME,
            text("Ready"),
            text("Status"),
            text("Restarts"),
            AGE,
            wide("IP"),
            wide("Node"),
            wide("Nominated Node"),
            wide("Readiness Gates"),
        ],
        pods::cells,
    ),
    kind(
        "",
        "Node",
        &[
            NAME,
            text("Status"),
            text("Roles"),
            AGE,
            text("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        others::node,
    ),
    kind("", "Namespace", &[NAME, text("Status"), AGE], others::namespace),
    kind(
        "",
        "Service",
        &[
            NAME,
            text("Type"),
            text("Cluster-IP"),
            text("External-IP"),
            text("Port(s)"),
            AGE,
            SELECTOR,
        ],
        others::service,
    ),
    kind("", "Endpoints", &[NAME, text("Endpoints"), AGE], others::endpoints),
    kind("", "ConfigMap", &[NAME, text("Data"), AGE], others::config_map),
    kind("", "Secret", &[NAME, text("Type"), text("Data"), AGE], others::secret),
    kind("", "ServiceAccount", &[NAME, AGE], others::name_and_age),
    kind("", "Event", EVENT, others::event),
    kind("events.k8s.io", "Event", EVENT, others::event),
    kind(
        "",
        "PersistentVolumeClaim",
        &[
            NAME,
            text("Status"),
            text("Volume"),
            text("Capacity"),
            text("Access Modes"),
            text("StorageClass"),
            text("VolumeAttributesClass"),
            AGE,
            wide("VolumeMode"),
        ],
        others::volume_claim,
    ),
    kind(
        "",
        "PersistentVolume",
        &[
            NAME,
            text("Capacity"),
            text("Access Modes"),
            text("Reclaim Policy"),
            text("Status"),
            text("Claim"),
            text("StorageClass"),
            text("VolumeAttributesClass"),
            text("Reason"),
            AGE,
            wide("VolumeMode"),
        ],
        others::volume,
    ),
    kind(
        "apps",
        "Deployment",
        &[
            NAME,
            text("Ready"),
            text("Up-to-date"),
            text("Available"),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        workloads::deployment,
    ),
    kind(
        "apps",
        "ReplicaSet",
        &[
            NAME,
            integer("Desired"),
            integer("Current"),
            integer("Ready"),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        workloads::replica_set,
    ),
    kind(
        "apps",
        "StatefulSet",
        &[NAME, text("Ready"), AGE, CONTAINERS, IMAGES],
        workloads::stateful_set,
    ),
    kind(
        "apps",
        "DaemonSet",
        &[
            NAME,
            integer("Desired"),
            integer("Current"),
            integer("Ready"),
            integer("Up-to-date"),
            integer("Available"),
            text("Node Selector"),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        workloads::daemon_set,
    ),
    kind(
        "apps",
        "ControllerRevision",
        &[NAME, text("Controller"), text("Revision"), AGE],
        workloads::controller_revision,
    ),
    kind(
        "batch",
        "Job",
        &[
            NAME,
            text("Status"),
            text("Completions"),
            text("Duration"),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        workloads::job,
    ),
    kind(
        "batch",
        "CronJob",
        &[
            NAME,
            text("Schedule"),
            text("Timezone"),
            boolean("Suspend"),
            integer("Active"),
            text("Last Schedule"),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        workloads::cron_job,
    ),
    kind(
        "policy",
        "PodDisruptionBudget",
        &[
            NAME,
            text("Min Available"),
            text("Max Unavailable"),
            integer("Allowed Disruptions"),
            AGE,
        ],
        workloads::disruption_budget,
    ),
    kind(
        "coordination.k8s.io",
        "Lease",
        &[NAME, text("Holder"), AGE],
        others::lease,
    ),
    kind(
        "scheduling.k8s.io",
        "PriorityClass",
        &[
            NAME,
            integer("Value"),
            boolean("Global-Default"),
            AGE,
            text("PreemptionPolicy"),
        ],
        others::priority_class,
    ),
    kind(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        WEBHOOKS,
        others::webhook_configuration,
    ),
    kind(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        WEBHOOKS,
        others::webhook_configuration,
    ),
    kind(
        "storage.k8s.io",
        "StorageClass",
        &[
            NAME,
            text("Provisioner"),
            text("ReclaimPolicy"),
            text("VolumeBindingMode"),
            text("AllowVolumeExpansion"),
            AGE,
        ],
        others::storage_class,
    ),
    kind(
        "storage.k8s.io",
        "CSIDriver",
        &[
            NAME,
            boolean("AttachRequired"),
            boolean("PodInfoOnMount"),
            boolean("StorageCapacity"),
            text("TokenRequests"),
            boolean("RequiresRepublish"),
            text("Modes"),
            AGE,
        ],
        others::csi_driver,
    ),
    kind(
        "storage.k8s.io",
        "CSINode",
        &[NAME, integer("Drivers"), AGE],
        others::csi_node,
    ),
    kind(
        "storage.k8s.io",
        "VolumeAttachment",
        &[
            NAME,
            Column {
                format: "name",
                ..text("Attacher")
            },
            text("PV"),
            text("Node"),
            boolean("Attached"),
            AGE,
        ],
        others::volume_attachment,
    ),
    kind(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        BINDING,
        others::role_binding,
    ),
    kind(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        BINDING,
        others::role_binding,
    ),
    kind(
        "resource.k8s.io",
        "ResourceClaim",
        &[NAME, text("State"), AGE],
        others::resource_claim,
    ),
    kind(
        "resource.k8s.io",
        "ResourceSlice",
        &[NAME, text("Node"), text("Driver"), text("Pool"), AGE],
        others::resource_slice,
    ),
    kind("resource.k8s.io", "DeviceClass", &[NAME, AGE], others::name_and_age),
    kind(
        "resource.k8s.io",
        "ResourceClaimTemplate",
        &[NAME, AGE],
        others::name_and_age,
    ),
    kind(
        "discovery.k8s.io",
        "EndpointSlice",
        &[NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE],
        others::endpoint_slice,
    ),
];

/// How that kind is printed; kinds without an entry show their name and when they were made.
pub(super) fn find(group: &str, name: &str) -> &'static Kind {
    KINDS
        .iter()
        .find(|kind| kind.group == group && kind.name == name)
        .unwrap_or(&OTHER)
}

/// Group and name of every kind with columns of its own.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().map(|kind| (kind.group, kind.name))
}
