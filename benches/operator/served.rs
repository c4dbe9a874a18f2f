//! Nodes, pods and pod groups as a real API server shows them, with all that admission, kubelets and field management add.

use serde_json::{Value, json};

/// The scheduler of the pods.
const SCHEDULER: &str = "kai-scheduler";
/// Pods per namespace.
pub const PER_NAMESPACE: usize = 500;

pub fn name(number: usize) -> String {
    format!("train-{number:06}")
}

pub fn namespace(number: usize) -> String {
    format!("team-{:03}", number / PER_NAMESPACE)
}

fn uid(number: usize) -> String {
    format!("5a1d7c3e-0000-4000-8000-{number:012}")
}

fn pod_group_name(number: usize) -> String {
    format!("pg-{}-{}", name(number), uid(number))
}

fn resources() -> Value {
    json!({"cpu": "12", "memory": "160Gi", "nvidia.com/gpu": "1"})
}

pub fn metadata(name: &str, number: usize) -> Value {
    json!({"name": name, "uid": uid(number), "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1})
}

pub fn node(number: usize) -> Value {
    let name = format!("node-{number:05}");
    let resources = json!({"cpu": "128", "memory": "2113392068Ki", "ephemeral-storage": "7000Gi", "pods": "250", "nvidia.com/gpu": "8"});
    let ready = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "KubeletIsFine", "message": "kubelet says so", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mut metadata = metadata(&name, number);
    metadata["labels"] = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": format!("zone-{}", number % 4), "topology.kubernetes.io/rack": format!("rack-{}", number / 32),
        "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"podCIDR": "10.0.0.0/24", "providerID": format!("cloud:///{name}")},
        "status": {
            "allocatable": resources, "capacity": resources,
            "conditions": [ready("MemoryPressure", "False"), ready("DiskPressure", "False"), ready("PIDPressure", "False"), ready("Ready", "True")],
            "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.35.0", "osImage": "Debian", "kernelVersion": "6.12", "containerRuntimeVersion": "containerd://2",
                "bootID": "b", "machineID": "m", "systemUUID": "s", "kubeProxyVersion": "", "operatingSystem": "linux"},
        },
    })
}

/// A pod as `kubectl get pod -o yaml --show-managed-fields` shows one: the token volume, the tolerations and the fields' managers that the API server
/// adds, and a kubelet's status.
pub fn pod(number: usize, nodes: usize) -> Value {
    let name = name(number);
    let token = format!("kube-api-access-{:05x}", number * 7_919 % 0xf_ffff);
    let mut metadata = metadata(&name, number);
    metadata["namespace"] = json!(namespace(number));
    metadata["labels"] = json!({"app": "train", "kai.scheduler/queue": "test", "team": namespace(number)});
    metadata["annotations"] = json!({"pod-group-name": pod_group_name(number)});
    metadata["managedFields"] = json!([
        {"manager": "kubectl-create", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:kai.scheduler/queue": {}, "f:team": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:args": {}, "f:command": {}, "f:env": {".": {}, "k:{\"name\":\"RANK\"}": {".": {}, "f:name": {}, "f:value": {}},
                "k:{\"name\":\"POD_IP\"}": {".": {}, "f:name": {}, "f:valueFrom": {}}}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {},
                "f:memory": {}, "f:nvidia.com/gpu": {}}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}, "f:nvidia.com/gpu": {}}}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}}},
                "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:terminationGracePeriodSeconds": {}}}},
        {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "subresource": "status",
         "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"ContainersReady\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}},
            "k:{\"type\":\"Initialized\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}},
            "k:{\"type\":\"Ready\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}},
            "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:podIPs": {}, "f:startTime": {}}}},
    ]);
    let resources = resources();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let toleration =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {
            "schedulerName": SCHEDULER, "nodeName": format!("node-{:05}", number % nodes), "restartPolicy": "Never", "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "serviceAccount": "default", "serviceAccountName": "default", "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "tolerations": [toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")],
            "volumes": [{"name": token, "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}}],
            "containers": [{
                "name": "main", "image": "registry.example.com/team/train:2026-01-01", "imagePullPolicy": "IfNotPresent",
                "command": ["python", "-m", "torch.distributed.run"], "args": ["--nnodes=1", "--nproc-per-node=1", "train.py", "--config", "/etc/train/config.yaml"],
                "env": [{"name": "RANK", "value": number.to_string()}, {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
                "resources": {"requests": resources, "limits": resources},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]}],
        },
        "status": {
            "phase": "Running", "qosClass": "Guaranteed", "startTime": "2026-01-01T00:00:00Z", "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}], "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}], "observedGeneration": 1,
            "conditions": [condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
            "containerStatuses": [{
                "name": "main", "image": "registry.example.com/team/train:2026-01-01", "ready": true, "started": true, "restartCount": 0, "lastState": {},
                "imageID": "registry.example.com/team/train@sha256:1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c5b6a7988",
                "containerID": "containerd://9f8e7d6c5b4a39289f8e7d6c5b4a39289f8e7d6c5b4a39289f8e7d6c5b4a3928",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "allocatedResources": resources, "resources": {"requests": resources, "limits": resources},
                "volumeMounts": [{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true, "recursiveReadOnly": "Disabled"}]}],
        },
    })
}

/// A pod group as the operator writes it for such a pod.
pub fn pod_group(number: usize) -> Value {
    let (name, uid) = (name(number), uid(number));
    let mut metadata = metadata(&pod_group_name(number), number);
    metadata["namespace"] = json!(namespace(number));
    metadata["labels"] = json!({"app": "train", "kai.scheduler/queue": "test", "team": namespace(number)});
    metadata["annotations"] = json!({
        "kai.scheduler/top-owner-metadata": format!("name: {name}\nuid: {uid}\ngroup: \"\"\nversion: v1\nkind: Pod\n"),
        "kai.scheduler/last-start-timestamp": "2026-01-01T00:00:00Z"});
    metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]);
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata,
        "spec": {"minMember": 1, "queue": "test", "priorityClassName": "train"},
        "status": {"resourcesStatus": {"allocated": resources(), "requested": resources()}, "summary": {"running": "1/1", "state": "Running"}},
    })
}
