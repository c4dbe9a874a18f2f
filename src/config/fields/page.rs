//! The text of `docs/configuration.md` around the tables of fields.

/// Before the tables.
pub const ABOVE: &str = "\
# Configuration

<!-- Generated from src/config/fields.rs and src/config/fields/page.rs by `cargo gen-docs`. -->

Three places configure unikai, and a later one takes precedence over an earlier one:

1. flags and environment variables of `unikai run` (`unikai run --help`);
2. the Config named `kai-config`, for all node pools;
3. SchedulingShards, for one node pool each.

Config and shards are watched. No change needs a restart of the process: settings of the scheduler apply at once, and for a change of other
settings the components are stopped gracefully and started again within the process, which keeps the Lease and answers webhook calls meanwhile.
Earlier decisions are completed first, so no bind is lost or executed twice.

Some flags have no corresponding field: `unikai run --help` lists all flags. Among these, `--messages plain|kai` sets the wording of conditions and events
about workloads that wait and evicted pods: `plain`, the default, names in the first sentence what would have to change ([why is it pending](pending.md)), `kai` uses
KAI's messages. Reasons and their codes are the same in both.

The leader creates `kai-config` if it does not exist, and the shard `default` if there has been no shard since its process started. It does not change existing objects.

## Conditions

Conditions on both kinds show whether an object is in force, as in KAI: `Deployed`, `Available`, `DependenciesFulfilled` and `Ready` are True with the
`observedGeneration` that is in force:

    kubectl wait schedulingshard/default --for=condition=Ready

`Reconciling` is True while a change is being applied. An invalid object has `Ready` False with the reason `invalid_config` and the path of every invalid
field in the message; its last valid state stays in force, to which the other conditions refer. A process that has seen no valid one, such as after a restart, schedules nothing
until the object is corrected: of the Config in all node pools, of a shard in its pool. Running pods are not touched. An invalid shard does not affect Config. `FieldsIgnored` names fields that are set but have no effect
in unikai, with the reason, and values that KAI accepts but that make no sense, for which the default applies, as in KAI, or the bound.
";

/// Above the table of Config.
pub const CONFIG_IS: &str = "\
Only the object named `kai-config` has an effect.

The admission policies of the manifests contain the scheduler's name and the label keys of queues and node pools. If Config changes `schedulerName`, `queueLabelKey` or
`nodePoolLabelKey`, apply policies with the same names, as the others protect other pods and labels; `unikai check` reports it:

    unikai manifests --dir FOLDER --scheduler-name NAME --queue-label-key LABEL --node-pool-label-key LABEL
    kubectl apply -f FOLDER/35-admission-policies.yaml

The chart's values are `global.schedulerName`, `podgrouper.queueLabelKey` and `global.nodePoolLabelKey`.

If reservation or scaling pods have another namespace or service account than by default, install rights and policies for these:
`unikai manifests --gpu-sharing --reservation-namespace NAME`, with `--reservation-service-account`, `--scale-adjust-namespace` and
`--scale-adjust-service-account` where these differ, too, or the chart's values `global.resourceReservation` and `global.scaleAdjust`.
Change them only while no GPU is shared: reservation pods elsewhere are not recognised as such.

If the ConfigMap of default priorities is not in the operator's namespace, grant the right to read it. Without the right workloads get no default priorities, and
the operator's log has a warning:

    kubectl create role unikai-default-priorities -n NAMESPACE --verb=get --resource=configmaps --resource-name=NAME
    kubectl create rolebinding unikai-default-priorities -n NAMESPACE --role=unikai-default-priorities --serviceaccount=kai-scheduler:unikai";

/// Above the table of SchedulingShard.
pub const SHARD_IS: &str = "\
Each shard schedules one node pool: the nodes, queues and pod groups with the label `kai.scheduler/node-pool` of that value, or those without the
label. One process schedules all shards, each by its own engine and thread. Each shard has a Lease, `kai-scheduler-<partitionLabelValue>`, except that of
the default pool, which is led under the Lease of the cluster, `kai-scheduler`. A value that no object can have in its name, such as `Blue`, is replaced:
`kai-scheduler.<shard>`. The Leases of KAI's schedulers have the same names, except that they begin with `spec.global.schedulerName` of Config: if that is
set, run unikai with `--lease-name` and the same name, so that the two never schedule at the same time. Replicas divide the shards
among them, take over those of a replica that stops, and release some to a new replica once that has listed everything, one shard after the other. With `--node-pool` a process schedules
only one pool. Of several shards of one pool the oldest applies, and the others get the condition `Ready` False with the reason `duplicate_partition`.

A pod gets the label of its pool before it is bound. Pods, pod groups and nodes of a pool without a shard get the event
`NoShardForNodePool`, pods also a condition, and `/state` counts such nodes by pool. If a shard is added, removed, or moved to another pool, the components are restarted.

A node whose label is changed leaves its pool at once, and gets pods of the other pool after ten seconds, when all that was decided in the first one is known. A new node gets pods at once.

While no shard has been created, Config and flags apply to the default pool. If all shards are deleted, nothing is scheduled; with `--node-pool`, neither if the
shard of that pool is deleted. Running processes create no shard then, but one that starts later and finds no shard does; with `--node-pool`, one that starts later and finds no shard of
its pool schedules that pool by Config and flags. To switch scheduling off, set `spec.scheduler.service.enabled` of Config to false.";

/// Below it.
pub const BELOW: &str = "
Plugins and actions are those of KAI, with KAI's arguments. These do not exist in KAI: `devicelocality`, `podtopologyspread`,
`sg-complete`, `spare`. If both `sg-nodelocalgreedy` and `sg-multinodegang` are switched off, `sg-complete` is off as well, unless `spec.plugins` names it:
reclaim, preempt and consolidation then evict nothing, as in KAI.
`predicates`, `kubeflow`, `ray`, `subgrouporder`, `taskorder`, `dynamicresources` and `snapshot` cannot be switched off, and
`priority` comes before `elastic`, `kubeflow` before `ray` and `taskorder`. Of the flags of KAI's scheduler, these are read from `args`: `full-hierarchy-fairness`, `allow-consolidating-reclaim`,
`restrict-node-scheduling`, `schedule-csi-storage`, `detailed-fit-errors`, `cpu-worker-node-label-key`, `gpu-worker-node-label-key`,
`mig-worker-node-label-key`, `max-consolidation-preemptees`, `default-staleness-grace-period`, `stuck-in-releasing-threshold`. `update-pod-eviction-condition` is always on. What has no
effect is named in `FieldsIgnored`, each with its path.
";
