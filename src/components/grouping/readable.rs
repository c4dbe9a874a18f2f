//! The kinds of owners, as the API serves them, for the grouper's RBAC rules. An owner that it may
//! not read ends the chain below it, so a kind that KAI may not read, and for which there is no rule, would be grouped differently here.

/// API group and plural names.
#[rustfmt::skip]
pub const OWNERS: &[(&str, &[&str])] = &[
    ("amlarc.azureml.com", &["amljobs"]),
    ("apps", &["deployments", "replicasets", "statefulsets"]),
    ("argoproj.io", &["workflows"]),
    ("batch", &["cronjobs", "jobs"]),
    ("egx.nvidia.io", &["spotrequests"]),
    ("grove.io", &["podcliques", "podcliquescalinggroups", "podcliquesets", "podgangsets"]),
    ("jobset.x-k8s.io", &["jobsets"]),
    ("kubeflow.org", &["jaxjobs", "mpijobs", "notebooks", "pytorchjobs", "scheduledworkflows", "tfjobs", "xgboostjobs"]),
    ("kubevirt.io", &["virtualmachineinstances", "virtualmachines"]),
    ("leaderworkerset.x-k8s.io", &["leaderworkersets"]),
    ("machinelearning.seldon.io", &["seldondeployments"]),
    ("nvidia.com", &["dynamographdeployments"]),
    ("ray.io", &["rayclusters", "rayjobs", "rayservices"]),
    ("run.ai", &["distributedinferenceworkloads", "distributedworkloads", "inferenceworkloads", "interactiveworkloads", "runaijobs",
                 "trainingworkloads"]),
    ("scheduler.grove.io", &["podgangs"]),
    ("serving.knative.dev", &["configurations", "revisions", "services"]),
    ("tekton.dev", &["pipelineruns", "taskruns"]),
    ("trainer.kubeflow.org", &["trainjobs"]),
    ("workspace.devfile.io", &["devworkspaces"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::grouping::rules::known_kinds;

    #[test]
    fn kinds_that_kai_may_not_read_are_not_read() {
        for plural in ["daemonsets", "replicationcontrollers", "dynamocomponentdeployments"] {
            assert!(!OWNERS.iter().any(|(_, plurals)| plurals.contains(&plural)), "{plural}");
        }
    }

    #[test]
    fn every_kind_with_a_rule_can_be_read() {
        for (group, kind) in known_kinds().filter(|(_, kind)| *kind != "Pod") {
            let plural = format!("{}s", kind.to_ascii_lowercase());
            let listed = OWNERS.iter().find(|(listed, _)| *listed == group);
            assert!(
                listed.is_some_and(|(_, plurals)| plurals.contains(&&*plural)),
                "{plural}.{group}"
            );
        }
    }
}
