use std::io::{Cursor, Write};

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

/// One node with two GPUs, one queue, one pod that fits and one that does not.
fn cluster() -> Value {
    let free = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let group = |name: &str| json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"queue": "q", "minMember": 1}});
    let pod = |name: &str, gpus: &str| {
        json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": {"pod-group-name": name}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": gpus}}}]},
            "status": {"phase": "Pending"},
        })
    };
    json!({
        "config": {"actions": "allocate", "tiers": null},
        "schedulerParams": {"schedulerName": "kai-scheduler", "partitionParams": {}, "fullHierarchyFairness": true},
        "rawObjects": {
            "nodes": [{"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "10"}}}],
            "queues": [
                {"metadata": {"name": "all", "uid": "all"}, "spec": {"resources": {"cpu": free, "memory": free, "gpu": free}}},
                {"metadata": {"name": "q", "uid": "q"}, "spec": {"parentQueue": "all", "resources": {"cpu": free, "memory": free, "gpu": free}}},
            ],
            "podGroups": [group("small"), group("large")],
            "pods": [pod("small", "1"), pod("large", "4"), {"metadata": {"name": 7}}],
            "bindRequests": null,
            "topologies": [],
        },
    })
}

fn answer(bytes: &[u8]) -> anyhow::Result<Replayed> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("a written file");
    replay(file.path(), Some(NOW.parse().expect("a time")), true)
}

fn zipped(member: &str, content: &[u8]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    archive
        .start_file(member, zip::write::SimpleFileOptions::default())
        .expect("a member");
    archive.write_all(content).expect("a written member");
    archive.finish().expect("an archive").into_inner()
}

/// The decisions alone, as JSON.
fn decided(replayed: &anyhow::Result<Replayed>) -> Value {
    let mut all = render::json("f", replayed);
    let object = all.as_object_mut().expect("an object");
    assert!(
        object.remove("ms").is_some_and(|ms| ms.is_number())
            && object.remove("buildMs").is_some_and(|ms| ms.is_number())
    );
    all
}

#[test]
fn a_snapshot_is_replayed_without_its_unreadable_objects() {
    let mut cluster = cluster();
    let objects = &mut cluster["rawObjects"];
    // A gang of two with one pod.
    let mut gang = [objects["podGroups"][0].clone(), objects["pods"][0].clone()];
    for object in &mut gang {
        object["metadata"]["name"] = json!("gang");
        object["metadata"]["uid"] = json!("gang");
    }
    let [mut group, mut pod] = gang;
    group["spec"]["minMember"] = json!(2);
    pod["metadata"]["annotations"]["pod-group-name"] = json!("gang");
    objects["podGroups"].as_array_mut().expect("a list").push(group);
    objects["pods"].as_array_mut().expect("a list").push(pod);
    let replayed = answer(cluster.to_string().as_bytes());
    let decided = decided(&replayed);
    assert_eq!(decided["file"], "f");
    assert_eq!(
        decided["bind"],
        json!([{"pod": "ns/small", "node": "n", "gpuGroups": [], "resourceType": "Regular", "numaZones": []}])
    );
    assert_eq!((&decided["evict"], &decided["pipeline"]), (&json!([]), &json!([])));
    assert_eq!(decided["unschedulable"][0]["podGroup"], "ns/large");
    assert_eq!(decided["unschedulable"][0]["reasons"], json!(["PodSchedulingErrors"]));
    assert_eq!(decided["unschedulable"].as_array().map(Vec::len), Some(1));
    let text = render::table("f", &replayed);
    assert_eq!(
        text.lines().next(),
        Some("f: 1 to bind, 0 to evict, 0 waiting for room, 1 unschedulable, 1 not ready")
    );
    let told = decided["notes"].as_array().expect("a list").clone();
    let notes = replayed.expect("an answer").notes;
    assert!(matches!(&notes[..], [note] if note.starts_with("Pod ")), "{notes:?}");
    assert_eq!(told, notes);
}

#[test]
fn explain_prints_the_reasons_level_by_level() {
    let mut cluster = cluster();
    cluster["rawObjects"]["pods"][1]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = json!("2");
    let replayed = answer(cluster.to_string().as_bytes()).expect("an answer");
    let report = &replayed.decisions.unschedulable[0];
    assert_eq!(
        explain::lines(report, &replayed.standings[0]),
        [
            "queue q holds, of its fair share: cpu 0 of 0 (quota unlimited, limit unlimited); memory 0 of 0 (quota unlimited, limit unlimited); gpu 2 of 2 (quota unlimited, limit unlimited)",
            "queue all holds, of its fair share: cpu 0 of 0 (quota unlimited, limit unlimited); memory 0 of 0 (quota unlimited, limit unlimited); gpu 2 of 2 (quota unlimited, limit unlimited)",
            "nodes for ns/small: 1 node(s) didn't have enough resources: GPUs",
        ]
    );
    let levels = explain::levels(report, &replayed.standings[0]);
    assert_eq!(levels[0]["allocated"], json!({"cpu": 0, "memory": 0, "gpu": 2_000_000}));
    assert_eq!(
        levels[2],
        json!({
            "level": "nodes", "pod": "ns/small", "subGroup": "default", "placed": 0, "required": 1, "headline": null,
            "refusals": [{"why": "node(s) didn't have enough resources: GPUs", "nodes": 1}],
        })
    );
}

#[test]
fn the_zip_of_a_snapshot_gives_the_same_answer() {
    let json = cluster().to_string();
    let zip = zipped("snapshot.json", json.as_bytes());
    assert_eq!(decided(&answer(&zip)), decided(&answer(json.as_bytes())));
}

#[test]
fn an_empty_snapshot_decides_nothing() {
    let nothing = json!({"file": "f", "bind": [], "evict": [], "pipeline": [], "unschedulable": [], "notes": []});
    for text in [
        "{\"config\": null, \"rawObjects\": {}}",
        "{\"config\": {}}",
        "{\"rawObjects\": {\"pods\": null, \"nodes\": []}, \"discovery\": null}",
    ] {
        assert_eq!(decided(&answer(text.as_bytes())), nothing, "{text}");
    }
}

#[test]
fn a_file_that_is_no_snapshot_is_an_error() {
    let error = |bytes: &[u8]| {
        render::json("f", &answer(bytes))["error"]
            .as_str()
            .expect("an error")
            .to_owned()
    };
    assert!(error(b"kind: Pod").starts_with("this is not a snapshot: "));
    for other in ["{}", r#"{"kind": "Pod", "apiVersion": "v1"}"#] {
        let says = "this is not a snapshot: it has neither config nor rawObjects. `unikai snapshot` fetches one; `unikai review` reads manifests";
        assert_eq!(error(other.as_bytes()), says);
    }
    assert!(error(b"PK\x03\x04 and no more").starts_with("the zip archive is damaged: "));
    assert!(error(&zipped("other.json", b"{}")).starts_with("the zip archive has no snapshot.json"));
    let wrong = error(br#"{"config": {"actions": "allocate, dance", "queueDepthPerAction": {"dance": 1}}}"#);
    assert_eq!(
        wrong,
        "the configuration is wrong: config.actions: \"dance\" is not an action; use allocate, consolidation, reclaim, preempt, stalegangeviction; \
         config.queueDepthPerAction.dance: \"dance\" is not an action; use allocate, consolidation, reclaim, preempt, stalegangeviction"
    );
    let missing = render::json("f", &replay(Path::new("/nowhere/at/all"), None, false));
    assert!(
        missing["error"]
            .as_str()
            .is_some_and(|error| error.starts_with("the file cannot be read: "))
    );
}

#[test]
fn the_default_output_is_a_table() {
    let mut replayed = answer(cluster().to_string().as_bytes()).expect("an answer");
    (replayed.cycle_ms, replayed.build_ms) = (1.0, 2.0);
    replayed.notes = vec!["a note".to_owned()];
    let text = render::table("f", &Ok(replayed));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "f: 1 to bind, 0 to evict, 0 waiting for room, 1 unschedulable"
    );
    assert_eq!(lines[1], "  bind  ns/small to n");
    assert!(lines[2].starts_with("  none  ns/large: "), "{}", lines[2]);
    assert_eq!(
        lines[lines.len() - 2..],
        ["  note  a note", "  model in 2.00 ms, decisions in 1.00 ms"]
    );
    assert_eq!(render::table("g", &Err(anyhow::anyhow!("no"))), "g: error: no\n");
}

#[test]
fn texts_of_a_snapshot_neither_control_the_terminal_nor_look_like_other_rows() {
    let mut replayed = answer(cluster().to_string().as_bytes()).expect("an answer");
    replayed.standings.clear();
    replayed.decisions.unschedulable[0].message = "Topology \u{1b}[2J\n  bind  ns/forged to n".to_owned();
    replayed.notes = vec!["\u{1b}]0;x\u{7}\n  bind  ns/forged to n".to_owned()];
    let text = render::table("f", &Ok(replayed));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[2..lines.len() - 1],
        [
            r"  none  ns/large: Topology \u{1b}[2J",
            "          bind  ns/forged to n",
            r"  note  \u{1b}]0;x\u{7}\n  bind  ns/forged to n",
        ]
    );
}
