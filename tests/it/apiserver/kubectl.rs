//! Real kubectl, where there is one on the path.

use std::process::{Command, Output};

use super::harness::{Cluster, on_each};

/// kubectl against a cluster, in the test's namespace.
struct Kubectl<'a>(&'a Cluster);

impl Kubectl<'_> {
    async fn run(&self, arguments: &str, input: &str) -> Output {
        let mut command = Command::new("kubectl");
        command
            .env("KUBECONFIG", &self.0.kubeconfig)
            .args(["-n", &self.0.namespace]);
        command.args(arguments.split_whitespace());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), input).unwrap();
        command.stdin(std::fs::File::open(file.path()).unwrap());
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }

    /// The output of a command that must succeed.
    async fn ok(&self, arguments: &str, input: &str) -> String {
        let output = self.run(arguments, input).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "kubectl {arguments}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    /// The error output of a command that must fail.
    async fn fails(&self, arguments: &str, input: &str) -> String {
        let output = self.run(arguments, input).await;
        assert!(!output.status.success(), "kubectl {arguments} succeeds");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// Runs a test with kubectl on each server; without a kubectl there is nothing to see.
async fn with_kubectl(test: impl AsyncFn(&Kubectl<'_>)) {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        eprintln!("kubectl is not installed: skipped");
        return;
    }
    on_each(async |cluster: &Cluster| test(&Kubectl(cluster)).await).await;
}

/// The text with single spaces.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: 'nginx:1.27', resources: {limits: {cpu: '1', nvidia.com/gpu: '1'}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: alone, labels: {app: alone}}
spec: {automountServiceAccountToken: false, containers: [{name: main, image: ubuntu}]}
";

#[tokio::test]
async fn apply_twice_changes_nothing() {
    with_kubectl(async |kubectl| {
        assert_eq!(
            kubectl.ok("apply -f -", DEPLOYMENT).await,
            "deployment.apps/web created\nservice/web created\n"
        );
        assert_eq!(
            kubectl.ok("apply -f -", DEPLOYMENT).await,
            "deployment.apps/web unchanged\nservice/web unchanged\n"
        );
        let changed = DEPLOYMENT.replace("nginx:1.27", "nginx:1.28");
        assert_eq!(
            kubectl.ok("apply -f -", &changed).await,
            "deployment.apps/web configured\nservice/web unchanged\n"
        );
        assert_eq!(
            kubectl
                .ok(
                    "get deploy web -o jsonpath={.spec.template.spec.containers[0].image}",
                    ""
                )
                .await,
            "nginx:1.28"
        );
        assert_eq!(
            kubectl.ok("delete -f -", DEPLOYMENT).await,
            "deployment.apps \"web\" deleted\nservice \"web\" deleted\n"
        );
        let odd = DEPLOYMENT.replace("replicas: 0", "replicsa: 0");
        let complaint = kubectl.fails("apply -f -", &odd).await;
        assert!(complaint.contains("unknown field \"spec.replicsa\""), "{complaint}");
    })
    .await;
}

#[tokio::test]
async fn get_prints_in_every_form() {
    with_kubectl(async |kubectl| {
        kubectl.ok("create -f -", POD).await;
        kubectl.ok("create -f -", DEPLOYMENT).await;
        let headings = |text: &str| words(text.lines().next().unwrap_or_default());
        assert_eq!(
            headings(&kubectl.ok("get pods", "").await),
            "NAME READY STATUS RESTARTS AGE"
        );
        assert_eq!(
            headings(&kubectl.ok("get pods -o wide", "").await),
            "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"
        );
        let cells = kubectl.ok("get pods --no-headers", "").await;
        assert!(cells.starts_with("alone   0/1   Pending   0"), "{cells}");
        assert_eq!(
            headings(&kubectl.ok("get deploy", "").await),
            "NAME READY UP-TO-DATE AVAILABLE AGE"
        );
        assert_eq!(kubectl.ok("get pods -o name", "").await, "pod/alone\n");
        assert_eq!(
            kubectl
                .ok("get po alone -o custom-columns=N:.metadata.name,S:.status.phase", "")
                .await,
            "N       S\nalone   Pending\n"
        );
        let yaml = kubectl.ok("get pod alone -o yaml", "").await;
        assert!(
            yaml.contains("kind: Pod\n") && yaml.contains("schedulerName: default-scheduler\n"),
            "{yaml}"
        );
        let json: serde_json::Value = serde_json::from_str(&kubectl.ok("get pods -o json", "").await).unwrap();
        assert_eq!(
            (&json["kind"], &json["items"][0]["kind"]),
            (&"List".into(), &"Pod".into())
        );
        let all = kubectl.ok("get all -o name", "").await;
        assert!(
            all.contains("pod/alone\n") && all.contains("deployment.apps/web\n") && all.contains("service/web\n"),
            "{all}"
        );
        assert_eq!(kubectl.ok("get pods -l app=alone -o name", "").await, "pod/alone\n");
        assert_eq!(
            kubectl
                .ok("get pods --field-selector=spec.nodeName=n -o name", "")
                .await,
            ""
        );
        assert!(
            kubectl
                .fails("get pod none", "")
                .await
                .contains("Error from server (NotFound): pods \"none\" not found")
        );
        assert!(
            kubectl
                .fails("get nonsense", "")
                .await
                .contains("the server doesn't have a resource type \"nonsense\"")
        );
    })
    .await;
}

#[tokio::test]
async fn objects_are_described_labelled_patched_scaled_and_deleted() {
    with_kubectl(async |kubectl| {
        kubectl.ok("create -f -", POD).await;
        kubectl.ok("create -f -", DEPLOYMENT).await;
        let described = words(&kubectl.ok("describe pod alone", "").await);
        assert!(
            described.contains("Name: alone Namespace: ") && described.contains("QoS Class: BestEffort"),
            "{described}"
        );
        let described = words(&kubectl.ok("describe deploy web", "").await);
        assert!(described.contains("StrategyType: RollingUpdate"), "{described}");
        assert_eq!(kubectl.ok("label pod alone team=red", "").await, "pod/alone labeled\n");
        assert_eq!(
            kubectl.ok("annotate pod alone note=x", "").await,
            "pod/alone annotated\n"
        );
        assert_eq!(kubectl.ok("get pods -l team=red -o name", "").await, "pod/alone\n");
        for (kind, patch) in [
            ("merge", r#"{"metadata":{"labels":{"team":"blue"}}}"#),
            ("strategic", r#"{"metadata":{"labels":{"team":"green"}}}"#),
            (
                "json",
                r#"[{"op":"replace","path":"/metadata/labels/team","value":"grey"}]"#,
            ),
        ] {
            assert_eq!(
                kubectl
                    .ok(&format!("patch pod alone --type={kind} -p {patch}"), "")
                    .await,
                "pod/alone patched\n"
            );
        }
        assert_eq!(
            kubectl
                .ok("get pod alone -o jsonpath={.metadata.labels.team}", "")
                .await,
            "grey"
        );
        assert_eq!(
            kubectl.ok("scale deploy web --replicas=3", "").await,
            "deployment.apps/web scaled\n"
        );
        assert_eq!(kubectl.ok("get deploy web -o jsonpath={.spec.replicas}", "").await, "3");
        assert_eq!(
            kubectl
                .ok(
                    "wait pod/alone --for=jsonpath={.status.phase}=Pending --timeout=20s",
                    ""
                )
                .await,
            "pod/alone condition met\n"
        );
        assert_eq!(kubectl.ok("delete pod alone", "").await, "pod \"alone\" deleted\n");
    })
    .await;
}

#[tokio::test]
async fn typed_commands_send_protobuf() {
    with_kubectl(async |kubectl| {
        let created = kubectl.ok("create namespace extra -o name --dry-run=server", "").await;
        assert_eq!(created, "namespace/extra\n");
        kubectl
            .ok("create deployment made --image=nginx --replicas=0 --port=80", "")
            .await;
        let json: serde_json::Value = serde_json::from_str(&kubectl.ok("get deploy made -o json", "").await).unwrap();
        assert_eq!(json["spec"]["replicas"], 0);
        assert_eq!(
            json["spec"]["selector"],
            serde_json::json!({"matchLabels": {"app": "made"}})
        );
        let container = &json["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(
            (&container["image"], &container["ports"][0]["containerPort"]),
            (&"nginx".into(), &80.into())
        );
        kubectl.ok("create job sum --image=ubuntu -- echo hello", "").await;
        assert_eq!(
            kubectl
                .ok(
                    "get job sum -o jsonpath={.spec.template.spec.containers[0].command}",
                    ""
                )
                .await,
            "[\"echo\",\"hello\"]"
        );
        kubectl.ok("create configmap settings --from-literal=a=b", "").await;
        kubectl.ok("create secret generic keys --from-literal=a=b", "").await;
        assert_eq!(kubectl.ok("get secret keys -o jsonpath={.data.a}", "").await, "Yg==");
        kubectl.ok("create role reader --verb=get --resource=pods", "").await;
        kubectl
            .ok(
                "create rolebinding readers --role=reader --serviceaccount=default:default",
                "",
            )
            .await;
        assert_eq!(
            kubectl
                .ok("get rolebinding readers -o jsonpath={.roleRef.name}", "")
                .await,
            "reader"
        );
        assert_eq!(kubectl.ok("auth can-i delete nodes", "").await, "yes\n");
        assert!(kubectl.ok("auth whoami", "").await.contains("admin"));
    })
    .await;
}

#[tokio::test]
async fn resources_are_listed_and_explained() {
    with_kubectl(async |kubectl| {
        let resources = kubectl.ok("api-resources --no-headers", "").await;
        for name in [
            "pods",
            "deployments",
            "customresourcedefinitions",
            "leases",
            "resourceclaims",
        ] {
            assert!(
                resources
                    .lines()
                    .any(|line| line.split_whitespace().next() == Some(name)),
                "{name} is not in\n{resources}"
            );
        }
        let explained = kubectl.ok("explain pods", "").await;
        assert!(
            explained.starts_with("KIND:       Pod\nVERSION:    v1\n"),
            "{explained}"
        );
        let versions = kubectl.ok("api-versions", "").await;
        assert!(versions.lines().any(|line| line == "apps/v1"), "{versions}");
    })
    .await;
}

#[tokio::test]
async fn kinds_that_are_not_served_have_no_match() {
    with_kubectl(async |kubectl| {
        for (version, kind) in [("kubeflow.org/v1", "PyTorchJob"), ("apps/v1", "Foo"), ("v1", "Foo")] {
            let object = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n");
            for command in ["apply -f -", "apply --server-side -f -", "create -f -", "delete -f -"] {
                let complaint = kubectl.fails(command, &object).await;
                let expected = format!("no matches for kind \"{kind}\" in version \"{version}\"");
                assert!(complaint.contains(&expected), "{command}: {complaint}");
            }
        }
        let complaint = kubectl.fails("get foos", "").await;
        assert_eq!(complaint, "error: the server doesn't have a resource type \"foos\"\n");
    })
    .await;
}

#[tokio::test]
async fn kubectl_get_watch_ends_on_request() {
    with_kubectl(async |kubectl| {
        kubectl.ok("create -f -", POD).await;
        // The request timeout ends the watch.
        let output = kubectl.run("get pods -w --no-headers --request-timeout=2s", "").await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("alone   0/1   Pending"), "{text}");
    })
    .await;
}
