//! Every well-known name of the API, once: labels, annotations, conditions, reasons, objects, resources, environment.
//!
//! Names that users can change in Config are given here by their defaults. Absent: messages, which are in the modules that write them.

/// API groups of the product's own kinds.
pub mod group {
    /// Queue, PodGroup, BindRequest.
    pub const SCHEDULING: &str = "scheduling.run.ai";
    /// Topology, Config, SchedulingShard.
    pub const KAI: &str = "kai.scheduler";
}

/// Headers of requests to the operator's HTTP server.
pub mod header {
    /// The caller's token, where a proxy between client and operator removes `Authorization`.
    pub const TOKEN: &str = "x-unikai-token";
}

/// Labels of pods and workloads.
pub mod label {
    /// The workload's queue (default key; Config may name another).
    pub const QUEUE: &str = "kai.scheduler/queue";
    /// On the Leases that replicas of unikai renew as heartbeats: the name of the Lease of the cluster's leader.
    pub const REPLICA_OF: &str = "unikai.dev/replica-of";
    /// The node pool of a node, queue, pod, PodGroup or bind request (default key; Config may name another).
    pub const NODE_POOL: &str = "kai.scheduler/node-pool";
    /// The leaf sub-group of a pod.
    pub const SUBGROUP_NAME: &str = "kai.scheduler/subgroup-name";
    /// The priority of a pod within its pod group, an integer: pods with a higher one are placed first.
    pub const TASK_PRIORITY: &str = "kai.scheduler/task-priority";
    /// `preemptible` or `non-preemptible`, on owners and pods.
    pub const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";
    /// The PriorityClass of a workload, on owners and pods.
    pub const PRIORITY_CLASS_NAME: &str = "priorityClassName";
    /// A legacy source of the queue's name, on owners and pods.
    pub const PROJECT: &str = "project";
    /// The user, on owners and pods; copied to the PodGroup. Also an annotation.
    pub const USER: &str = "user";
    /// The GPU group of a pod that shares one GPU, and of reservation pods.
    pub const GPU_GROUP: &str = "runai-gpu-group";
    /// The prefix of one label per device on pods with parts of several GPUs; the group follows and is the value too.
    pub const GPU_GROUP_PREFIX: &str = "runai-gpu-group/";
    /// The node of a bind request.
    pub const SELECTED_NODE: &str = "selected-node";
    /// Marks reservation and scaling pods, and the product's webhook configurations.
    pub const APP: &str = "app";
    /// The value of [`APP`] on scaling pods.
    pub const SCALING_POD_APP: &str = "scaling-pod";
    /// On scaling pods: the pod whose request it represents.
    pub const SHARED_GPU_POD_NAME: &str = "shared-gpu-pod-name";
    /// On scaling pods: the namespace of that pod.
    pub const SHARED_GPU_POD_NAMESPACE: &str = "shared-gpu-pod-namespace";
    /// On our own objects: the manager of the object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// The version of an application, e.g. on a ClusterPolicy.
    pub const APP_VERSION: &str = "app.kubernetes.io/version";
    /// The name of a namespace, on each namespace.
    pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
    /// Limit on the length of a label's value.
    pub const VALUE_LENGTH_MAX: usize = 63;
}

/// Labels of nodes, read only.
pub mod node_label {
    /// MiB per GPU, as GPU feature discovery writes it; values from 1,048,576 on are bytes.
    pub const GPU_MEMORY: &str = "nvidia.com/gpu.memory";
    /// How many physical GPUs the node has.
    pub const GPU_COUNT: &str = "nvidia.com/gpu.count";
    /// The MIG strategy of the node: `mixed` or `single`; other values mean none.
    pub const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";
    /// The prefix of the label with the memory of AMD GPUs; the size follows.
    pub const AMD_VRAM_PREFIX: &str = "beta.amd.com/gpu.vram.";
    /// The node runs pods without GPU, where node scheduling is restricted.
    pub const CPU_WORKER: &str = "node-role.kubernetes.io/cpu-worker";
    /// The node runs pods with GPU, where node scheduling is restricted.
    pub const GPU_WORKER: &str = "node-role.kubernetes.io/gpu-worker";
    /// The node has several NUMA zones, as node feature discovery writes it.
    pub const MEMORY_NUMA: &str = "feature.node.kubernetes.io/memory-numa";
    /// `true`: its GPUs are fake, for tests.
    pub const FAKE_GPU: &str = "run.ai/fake.gpu";
    /// Whether the node has MIG enabled.
    pub const MIG_ENABLED: &str = "node-role.kubernetes.io/mig-enabled";
}

/// Annotations of pods.
pub mod annotation {
    /// On webhook configurations: the label key of queues with which they were written.
    pub const QUEUE_LABEL_KEY: &str = "unikai.dev/queue-label-key";
    /// The pod's PodGroup, in its namespace.
    pub const POD_GROUP_NAME: &str = "pod-group-name";
    /// `true` on a pod or any of its owners: make no PodGroup for it.
    pub const SKIP_POD_GROUPER: &str = "kai.scheduler/skip-podgrouper";
    /// A Go duration, on owners or pods: becomes the PodGroup's preemption delay.
    pub const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";
    /// A Go duration, on owners or pods: becomes the PodGroup's staleness grace period.
    pub const STALENESS_GRACE_PERIOD: &str = "kai.scheduler/staleness-grace-period";
    /// The portion of one GPU that a pod asks for.
    pub const GPU_FRACTION: &str = "gpu-fraction";
    /// The MiB of GPU memory that a pod asks for.
    pub const GPU_MEMORY: &str = "gpu-memory";
    /// The number of GPUs of which the pod requests that part.
    pub const GPU_FRACTION_NUM_DEVICES: &str = "gpu-fraction-num-devices";
    /// The container that gets the GPUs.
    pub const GPU_FRACTION_CONTAINER_NAME: &str = "gpu-fraction-container-name";
    /// Whether the pod uses NVIDIA's multi-process service.
    pub const MPS: &str = "mps";
    /// How a bound pod uses GPUs; see [`super::received_resource_type`].
    pub const RECEIVED_RESOURCE_TYPE: &str = "received-resource-type";
    /// The name prefix of the ConfigMaps of a pod that shares a GPU.
    pub const SHARED_GPU_CONFIG_MAP: &str = "runai/shared-gpu-configmap";
    /// The prefix of annotations that request MIG instances (legacy); the profile follows.
    pub const MIG_PREFIX: &str = "nvidia.com/mig-";
    /// The NUMA zones that the kubelet is expected to use, as JSON.
    pub const NUMA_PLACEMENT_PREDICTED: &str = "kai.scheduler/numa-placement-predicted";
    /// The NUMA zones that the kubelet did use, as JSON.
    pub const NUMA_PLACEMENT_OBSERVED: &str = "kai.scheduler/numa-placement-observed";
    /// The UUID of the GPU that a reservation pod holds.
    pub const RESERVED_GPU: &str = "run.ai/reserve_for_gpu_index";
    /// On bind requests of ours: the pod's GPU sharing request when its bind was decided, as JSON.
    pub const GPU_SHARE: &str = "unikai.dev/gpu-share";
    /// The prefix of one annotation per user on a reservation pod; the user's uid follows.
    pub const GPU_USER_PREFIX: &str = "gpu-user.unikai.dev/";
    /// The user, on owners and pods; copied to the PodGroup.
    pub const USER: &str = "user";

    /// The Topology of a workload.
    pub const TOPOLOGY: &str = "kai.scheduler/topology";
    /// The level within one domain of which the workload must run.
    pub const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";
    /// The level within one domain of which the workload should run.
    pub const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";
    /// How many pods form a segment of the workload.
    pub const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";
    /// The level inside one domain of which each segment must run.
    pub const SEGMENT_TOPOLOGY_REQUIRED: &str = "kai.scheduler/segment-topology-required-placement";
    /// The level inside one domain of which each segment should run.
    pub const SEGMENT_TOPOLOGY_PREFERRED: &str = "kai.scheduler/segment-topology-preferred-placement";
    /// How many pods of a Job must run together.
    pub const BATCH_MIN_MEMBER: &str = "kai.scheduler/batch-min-member";
    /// How many pods of a workload of any kind start together.
    pub const MIN_MEMBER: &str = "kai.scheduler/min-member";
    /// The sub-groups of a workload with their minimums: `leader=1,worker=3`.
    pub const SUBGROUPS: &str = "kai.scheduler/subgroups";
    /// The pod label whose value names the pod's sub-group.
    pub const SUBGROUP_LABEL: &str = "kai.scheduler/subgroup-label";
    /// The pod label with the pod's index in the workload.
    pub const POD_INDEX_LABEL: &str = "kai.scheduler/pod-index-label";

    /// On PodGroups: the top owner of the pods, as YAML.
    pub const TOP_OWNER_METADATA: &str = "kai.scheduler/top-owner-metadata";
    /// On PodGroups: since when the running gang has been below its minimum (RFC 3339).
    pub const STALE_TIMESTAMP: &str = "kai.scheduler/stale-podgroup-timestamp";
    /// On PodGroups: when the group last got its first pods (RFC 3339).
    pub const LAST_START_TIMESTAMP: &str = "kai.scheduler/last-start-timestamp";
    /// On PodGroups: when a pod of the group was last evicted for others (RFC 3339).
    pub const LAST_EVICTION_TIMESTAMP: &str = "kai.scheduler/last-eviction-timestamp";

    /// On Deployments: the number of replicas before `unikai migrate` scaled it to 0.
    pub const REPLICAS_BEFORE: &str = "unikai.dev/replicas-before-migration";
    /// On objects that we create: the digest of what we wrote.
    pub const DIGEST: &str = "unikai.dev/digest";
    /// On queues: the namespaces whose workloads may run in the queue and below it, with `*` for any characters. Absent: all.
    pub const ALLOWED_NAMESPACES: &str = "unikai.dev/allowed-namespaces";
    /// On PodGroups and queues: the hold, by which no pending pods are placed; `true`, or the reason.
    pub const HOLD: &str = "unikai.dev/hold";
    /// On queues: quotas and limits by time of day and day of the week, as YAML.
    pub const QUOTA_SCHEDULE: &str = "unikai.dev/quota-schedule";
    /// On reservation pods: keeps Karpenter from disrupting them.
    pub const KARPENTER_DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// On resource claims made for extended resources.
    pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";
    /// The object as kubectl applied it last.
    pub const KUBECTL_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

    /// On eviction events: how many pods the decision evicted.
    pub const NUM_EVICTED_PODS: &str = "num-evicted-pods";
    /// On eviction events: the workload for which pods were evicted.
    pub const EVICTOR_NAME: &str = "evictor-pod-group-name";
    /// On eviction events: the namespace of that workload.
    pub const EVICTOR_NAMESPACE: &str = "evictor-pod-group-namespace";
    /// On eviction events: the action that decided.
    pub const EVICTOR_ACTION: &str = "evictor-action-type";
}

/// Names that Kubernetes uses for volumes.
pub mod volume {
    /// Annotation of a claim whose binding to its volume is complete.
    pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
    /// Annotation of a volume or claim that was bound by a controller, not by its author.
    pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
    /// Annotation of a claim: the node for which a volume is to be provisioned.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
    /// Annotation of claims and volumes that names the storage class (legacy).
    pub const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    /// The provisioner of classes whose volumes are created by an administrator.
    pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
    /// Labels of volumes and nodes with their zone and region.
    pub const PLACES: [&str; 4] = [
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    ];
    /// Separates the zones in such a label of a volume.
    pub const ZONES_BETWEEN: &str = "__";
}

/// Labels and annotations of other products by which pods are grouped.
pub mod third_party {
    /// The index of a pod of an Indexed Job.
    pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
    /// The index of a pod of a StatefulSet.
    pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
    /// Kubeflow: `master` and `launcher` come first.
    pub const KUBEFLOW_JOB_ROLE: &str = "training.kubeflow.org/job-role";
    /// Kubeflow: the job of a pod.
    pub const KUBEFLOW_JOB_NAME: &str = "training.kubeflow.org/job-name";
    /// Kubeflow: the kind of replica.
    pub const KUBEFLOW_REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
    /// Kubeflow: the number of the replica.
    pub const KUBEFLOW_REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";
    /// Ray: `head` or `worker`.
    pub const RAY_NODE_TYPE: &str = "ray.io/node-type";
    /// Ray: the group of workers, or `headgroup`.
    pub const RAY_GROUP: &str = "ray.io/group";
    /// Ray, on the owner: the PriorityClass.
    pub const RAY_PRIORITY_CLASS_NAME: &str = "ray.io/priority-class-name";
    /// Spark: the application's id.
    pub const SPARK_APP_SELECTOR: &str = "spark-app-selector";
    /// Spark: the application's name.
    pub const SPARK_APP_NAME: &str = "spark-app-name";
    /// Knative: the revision of a pod.
    pub const KNATIVE_REVISION: &str = "serving.knative.dev/revision";
    /// Knative, annotation: how many pods a revision has at least.
    pub const KNATIVE_MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";
    /// JobSet: the replicated job of a pod.
    pub const JOBSET_REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
    /// JobSet: the number of the job.
    pub const JOBSET_JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
    /// LeaderWorkerSet: the number of the group.
    pub const LWS_GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
    /// LeaderWorkerSet: the number in the group; 0 is the leader.
    pub const LWS_WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
    /// LeaderWorkerSet, annotation: how many pods a group has.
    pub const LWS_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
    /// Grove: the gang of a pod.
    pub const GROVE_POD_GANG: &str = "grove.io/podgang";
    /// Grove, annotation: the Topology of a gang.
    pub const GROVE_TOPOLOGY: &str = "grove.io/topology-name";
    /// Karta: the group of the kind that the object describes.
    pub const KARTA_GROUP: &str = "run.ai/karta-group";
    /// Karta: the version of the kind.
    pub const KARTA_VERSION: &str = "run.ai/karta-version";
    /// Karta: the kind.
    pub const KARTA_KIND: &str = "run.ai/karta-kind";
}

/// Values of [`annotation::RECEIVED_RESOURCE_TYPE`] and of a bind request's `receivedResourceType`.
pub mod received_resource_type {
    /// Whole GPUs, or none.
    pub const REGULAR: &str = "Regular";
    /// Parts of GPUs.
    pub const FRACTION: &str = "Fraction";
    /// MIG instances.
    pub const MIG_INSTANCE: &str = "MigInstance";
}

/// Values of a workload's preemptibility.
pub mod preemptibility {
    /// May be evicted for others.
    pub const PREEMPTIBLE: &str = "preemptible";
    /// May not; counts against its queue's quota.
    pub const NON_PREEMPTIBLE: &str = "non-preemptible";
}

/// Phases of a bind request.
pub mod bind_phase {
    /// The bind succeeded.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The bind failed.
    pub const FAILED: &str = "Failed";
}

/// Condition types.
pub mod condition {
    /// Of pods: whether a node was found.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// Of pods: whether all containers are ready.
    pub const POD_READY: &str = "Ready";
    /// Of pods: whether a resize waits, and for what.
    pub const POD_RESIZE_PENDING: &str = "PodResizePending";
    /// Of pods: whether the bind was carried out.
    pub const POD_BOUND: &str = "PodBound";
    /// Of pods that were not bound as members of the pod group that is named after them or their owner: its message names the pod group that they were
    /// bound in. Unlike the pod's annotations, a tenant cannot change it.
    pub const BOUND_IN_POD_GROUP: &str = "unikai.dev/bound-in-pod-group";
    /// Of pods: they are about to be evicted. A Job's `podFailurePolicy` may ignore such failures.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// Of queues: whether an entry of its schedule is in force.
    pub const QUOTA_SCHEDULE: &str = "QuotaSchedule";
    /// Of PodGroups, per node pool: could not be scheduled.
    pub const UNSCHEDULABLE_ON_NODE_POOL: &str = "UnschedulableOnNodePool";
}

/// Reasons of events and conditions.
pub mod reason {
    /// Pod event: a node was chosen.
    pub const SCHEDULED: &str = "Scheduled";
    /// Pod event and condition: the pod waits until evicted pods have terminated.
    pub const PIPELINED: &str = "Pipelined";
    /// Pod condition `DisruptionTarget`: its place is for other pods. KAI's and kube-scheduler's word for every eviction by the scheduler.
    pub const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";
    /// Event and condition: no node fits.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// Pod event: the pod or its namespace lacks the labels that the configuration requires.
    pub const NOT_MONITORED: &str = "PodNotMonitored";
    /// Pod event: the pod names another scheduler, although it or its namespace names a queue.
    pub const OTHER_SCHEDULER: &str = "OtherScheduler";
    /// Pod event and condition: the pod group that it names does not exist.
    pub const POD_GROUP_NOT_FOUND: &str = "PodGroupNotFound";
    /// Pod event and condition: scheduling is switched off in the configuration.
    pub const SWITCHED_OFF: &str = "SchedulingSwitchedOff";
    /// Pod event and condition: the pod waits, and the reason is not known.
    pub const NOT_DECIDED: &str = "NotDecided";
    /// Pod condition: a node was chosen, and the bind is in progress.
    pub const BINDING: &str = "Binding";
    /// PodGroup event: fewer of its pods run than its minimum.
    pub const STALE_JOB: &str = "StaleJob";
    /// Pod and PodGroup event: no SchedulingShard schedules their node pool.
    pub const NO_SHARD: &str = "NoShardForNodePool";
    /// PodGroup event, and condition of its pods: pods are missing.
    pub const NOT_READY: &str = "NotReady";
    /// PodGroup event, and condition of its pods: the pod group or its queue is held. A reason at which autoscalers add no nodes.
    pub const HELD: &str = "Held";
    /// PodGroup event: a pod was evicted.
    pub const EVICT: &str = "Evict";
    /// Pod event and condition: the bind was carried out.
    pub const BOUND: &str = "Bound";
    /// Event: a change of a bound pod or of a pod group does not change what is charged, and is ignored.
    pub const CHANGE_IGNORED: &str = "ChangeIgnored";
    /// Pod event and condition: the bind failed.
    pub const BINDING_ERROR: &str = "BindingError";
    /// Event: the object exceeds a limit or cannot be read, and is ignored until it changes.
    pub const SET_ASIDE: &str = "SetAside";
    /// Pod event: the pod could not be grouped.
    pub const POD_GROUPER_WARNING: &str = "PodGrouperWarning";
    /// PodGroup: the workload would exceed the queue's quota.
    pub const NON_PREEMPTIBLE_OVER_QUOTA: &str = "NonPreemptibleOverQuota";
    /// PodGroup: the workload would exceed the queue's limit.
    pub const OVER_LIMIT: &str = "OverLimit";
    /// PodGroup: its queue does not exist.
    pub const QUEUE_DOES_NOT_EXIST: &str = "QueueDoesNotExist";
    /// PodGroup: pods do not fit.
    pub const POD_SCHEDULING_ERRORS: &str = "PodSchedulingErrors";
    /// PodGroup: its preemption delay has not passed.
    pub const PREEMPTION_DELAY_NOT_ELAPSED: &str = "PreemptionDelayNotElapsed";
    /// PodGroup: no topology domain has room for the workload. The reason has spaces; it is part of the API.
    pub const NOT_ENOUGH_RESOURCES: &str = "Not enough resources for the workload";
}

/// Resource names.
pub mod resource {
    /// CPU, in cores.
    pub const CPU: &str = "cpu";
    /// Memory, in bytes.
    pub const MEMORY: &str = "memory";
    /// Pods.
    pub const PODS: &str = "pods";
    /// Local disk, in bytes.
    pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
    /// NVIDIA GPUs.
    pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
    /// AMD GPUs.
    pub const AMD_GPU: &str = "amd.com/gpu";
    /// The resource name of whole GPUs, unless the operator is configured with more.
    pub const WHOLE_GPUS: [&str; 2] = [NVIDIA_GPU, AMD_GPU];
    /// The prefix of NVIDIA MIG instances; the profile follows.
    pub const NVIDIA_MIG_PREFIX: &str = "nvidia.com/mig-";
    /// GPU memory asked for, in MiB, in status sums only.
    pub const GPU_MEMORY: &str = "run.ai/gpu.memory";
    /// The prefix of extended resources that name a device class; the class follows.
    pub const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
}

/// Names of objects that the product reads or creates, or that its manifests define.
pub mod object {
    /// On the cluster in a kubeconfig of `unikai dev`: where the operator serves HTTP.
    pub const KUBECONFIG_EXTENSION: &str = "unikai.dev/operator";
    /// The scheduler that pods name.
    pub const SCHEDULER_NAME: &str = "kai-scheduler";
    /// The product's own namespace.
    pub const NAMESPACE: &str = "kai-scheduler";
    /// The only Config that has an effect.
    pub const CONFIG: &str = "kai-config";
    /// The SchedulingShard that is created where there is none.
    pub const DEFAULT_SHARD: &str = "default";
    /// The namespace of reservation pods.
    pub const RESERVATION_NAMESPACE: &str = "kai-resource-reservation";
    /// The service account of reservation pods.
    pub const RESERVATION_SERVICE_ACCOUNT: &str = "kai-resource-reservation";
    /// The value of the label `app` on reservation pods.
    pub const RESERVATION_APP: &str = "kai-resource-reservation";
    /// The prefix of a reservation pod's name; 16 hexadecimal digits follow.
    pub const RESERVATION_POD_PREFIX: &str = "gpu-reservation-";
    /// The container of a reservation pod.
    pub const RESERVATION_CONTAINER: &str = "resource-reservation";
    /// The namespace of scaling pods.
    pub const SCALE_ADJUST_NAMESPACE: &str = "kai-scale-adjust";
    /// The service account of scaling pods.
    pub const SCALE_ADJUST_SERVICE_ACCOUNT: &str = "kai-scale-adjust";
    /// Where Kubernetes keeps events about objects without a namespace.
    pub const CLUSTER_EVENTS_NAMESPACE: &str = "default";
    /// The name of the node pool of objects without the label.
    pub const DEFAULT_NODE_POOL: &str = "default";
    /// The top queue that exists from the start.
    pub const DEFAULT_PARENT_QUEUE: &str = "default-parent-queue";
    /// The queue of workloads that name none.
    pub const DEFAULT_QUEUE: &str = "default-queue";
    /// The mutating webhook configuration for pods.
    pub const MUTATING_WEBHOOK: &str = "mutating-kai-admission";
    /// The validating webhook configuration for pods and topologies.
    pub const VALIDATING_WEBHOOK: &str = "validating-kai-admission";
    /// The validating webhook configuration for queues.
    pub const QUEUE_WEBHOOK: &str = "kai-queue-validation-v2";
    /// The validating webhook configuration for PodGroups.
    pub const POD_GROUP_WEBHOOK: &str = "kai-podgroup-validation-v2alpha2";
    /// All webhook configurations of the operator, whatever Config says.
    pub const WEBHOOKS: [&str; 4] = [MUTATING_WEBHOOK, VALIDATING_WEBHOOK, QUEUE_WEBHOOK, POD_GROUP_WEBHOOK];
    /// The namespace of the NUMA exporter.
    pub const NUMA_EXPORTER_NAMESPACE: &str = "kai-numa-exporter";
    /// The NUMA exporter: its DaemonSet, its label `app`, its container and its service account.
    pub const NUMA_EXPORTER: &str = "numa-placement-exporter";
    /// The operator: its Deployment, Service, service account and ClusterRole.
    pub const OPERATOR: &str = "unikai";
    /// The ConfigMap in which `unikai migrate` keeps what `unikai migrate back` needs.
    pub const MIGRATION: &str = "unikai-migration";
    /// The secret with the certificates of the webhooks.
    pub const WEBHOOK_SECRET: &str = "unikai-webhook-tls";
    /// The name of the lease of the default shard; other shards append their partition label value.
    pub const LEASE: &str = "kai-scheduler";
    /// The source of the grouper's events.
    pub const GROUPER_EVENT_SOURCE: &str = "pod-grouper";
    /// The source of the binder's events.
    pub const BINDER_EVENT_SOURCE: &str = "binder";
}

/// Paths and names of webhooks.
pub mod webhook {
    /// Mutates pods.
    pub const MUTATE_POD_PATH: &str = "/mutate--v1-pod";
    /// Validates pods.
    pub const VALIDATE_POD_PATH: &str = "/validate--v1-pod";
    /// Validates topologies.
    pub const VALIDATE_TOPOLOGY_PATH: &str = "/validate-kai-scheduler-v1alpha1-topology";
    /// Validates queues.
    pub const VALIDATE_QUEUE_PATH: &str = "/validate-scheduling-run-ai-v2-queue";
    /// Validates PodGroups.
    pub const VALIDATE_POD_GROUP_PATH: &str = "/validate-scheduling-run-ai-v2alpha2-podgroup";
    /// The webhook for queues.
    pub const QUEUE_NAME: &str = "queue-validation.kai.scheduler";
    /// The webhook that warns of queues that are deleted while they are in use.
    pub const QUEUE_DELETION_NAME: &str = "deletion.queue-validation.kai.scheduler";
    /// The webhook for PodGroups.
    pub const POD_GROUP_NAME: &str = "podgroup-validation.kai.scheduler";
    /// The match condition that selects the pods of our scheduler.
    pub const MATCH_CONDITION: &str = "scheduler-name-match";
}

/// PriorityClasses that the manifests create.
pub mod priority_class {
    /// Training: preemptible.
    pub const TRAIN: &str = "train";
    /// Interactive work: non-preemptible.
    pub const BUILD: &str = "build";
    /// Serving: non-preemptible.
    pub const INFERENCE: &str = "inference";
    /// Reservation pods: kubelets evict them last.
    pub const RESERVATION: &str = "unikai-reservation";
    /// The classes for workloads that the manifests install, with their values.
    pub const INSTALLED: [(&str, i32); 4] = [(TRAIN, 50), ("build-preemptible", 75), (BUILD, 100), (INFERENCE, 125)];
    /// Workloads of this value and above are non-preemptible unless they say otherwise.
    pub const NON_PREEMPTIBLE_FROM: i32 = 100;
    /// The value of workloads whose class does not exist, where no class is the global default.
    pub const FALLBACK_VALUE: i32 = 50;
}

/// Environment variables.
pub mod env {
    /// In pods that we create: their own name.
    pub const POD_NAME: &str = "POD_NAME";
    /// In pods that we create: their own namespace.
    pub const POD_NAMESPACE: &str = "POD_NAMESPACE";
    /// The node that the process runs on, in pods of DaemonSets.
    pub const NODE_NAME: &str = "NODE_NAME";
    /// The GPUs that a container sees.
    pub const NVIDIA_VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
    /// The portion of a GPU that a container has; deprecated.
    pub const RUNAI_NUM_OF_GPUS: &str = "RUNAI_NUM_OF_GPUS";
    /// The portion of a GPU that a container has.
    pub const GPU_PORTION: &str = "GPU_PORTION";
    /// The GPU memory that HAMi-core allows a container.
    pub const CUDA_DEVICE_MEMORY_LIMIT: &str = "CUDA_DEVICE_MEMORY_LIMIT";
}

/// Finalizers.
pub mod finalizer {
    /// On allocated resource claims.
    pub const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";
}
