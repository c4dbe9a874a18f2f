//! Watches of pods: bytes as they may arrive, in any pieces.

use std::convert::Infallible;

use bytes::Bytes;
use fastrand::Rng;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use kube::core::{DeserializeGuard, WatchEvent};
use serde_json::Value;

use crate::api::lenient::unguard;
use crate::components::compact::Compact;
use crate::components::watches::kinds::trim;
use crate::components::watches::read::Read;
use crate::fuzz::Target;
use crate::mirror::Entry;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "type", "object", "metadata", "spec", "status", "containers", "initContainers", "env",
    "valueFrom", "resources", "requests", "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels", "annotations",
    "ownerReferences", "managedFields", "2026-01-01T00:00:00Z", "1Gi", "\n", "\r\n", "{", "}", "\u{feff}",
];

/// A stream of these pieces, as the client of the watches reads it.
async fn events(pieces: Vec<Vec<u8>>) -> Vec<Result<WatchEvent<Read<Pod>>, String>> {
    let service = tower::service_fn(move |_: Request<Body>| {
        let frames = pieces.clone().into_iter();
        let frames = frames.map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        let response = Response::new(StreamBody::new(stream::iter(frames)));
        async move { Ok::<_, Infallible>(response) }
    });
    let request = Request::get("/api/v1/pods?watch=true").body(Vec::new()).unwrap();
    let client = Client::new(service, "default");
    let events = client.request_events::<Read<Pod>>(request).await.unwrap();
    let events = events.map(|event| event.map_err(|error| error.to_string()));
    events.collect().await
}

fn told(events: &[Result<WatchEvent<Read<Pod>>, String>]) -> Vec<String> {
    let told = |event: &Result<WatchEvent<Read<Pod>>, String>| match event {
        Ok(WatchEvent::Added(Read(pod))) => format!("added {pod:?}"),
        Ok(WatchEvent::Modified(Read(pod))) => format!("modified {pod:?}"),
        Ok(WatchEvent::Deleted(Read(pod))) => format!("deleted {pod:?}"),
        Ok(WatchEvent::Bookmark(bookmark)) => format!("bookmark {}", bookmark.metadata.resource_version),
        Ok(WatchEvent::Error(status)) => format!("error {status:?}"),
        Err(error) => error.clone(),
    };
    events.iter().map(told).collect()
}

fn in_pieces(bytes: &[u8], random: &mut Rng) -> Vec<Vec<u8>> {
    let longest = [1, 7, 64, 4_096][random.usize(..4)];
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(random.usize(1..=longest).min(rest.len()));
        pieces.push(piece.to_vec());
        rest = more;
    }
    pieces
}

/// The pod of an event, if all of its fields are as they should be.
fn whole_pod(line: &[u8]) -> Option<(Pod, String)> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let text = event.get("object")?.to_string();
    Some((serde_json::from_str(&text).ok()?, text))
}

#[test]
fn fuzz_watches_of_pods() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let target = Target {
        name: "watch",
        rounds: 1_500,
        words: WORDS,
    };
    target.bytes(|bytes, random| {
        let events = runtime.block_on(async {
            let whole = events(vec![bytes.to_vec()]).await;
            let parts = events(in_pieces(bytes, random)).await;
            assert_eq!(
                told(&parts),
                told(&whole),
                "the pieces in which the bytes arrive do not matter"
            );
            whole
        });
        for line in bytes.split(|byte| *byte == b'\n') {
            let Some((mut pod, text)) = whole_pod(line) else {
                continue;
            };
            let mut read = <Pod as Entry>::read(&text).expect("a pod that is read in full is read in part");
            trim(&mut pod);
            trim(&mut read);
            assert_eq!(read, pod);
        }
        let mut valid = false;
        for event in events.into_iter().flatten() {
            let (WatchEvent::Added(Read(pod)) | WatchEvent::Modified(Read(pod)) | WatchEvent::Deleted(Read(pod))) =
                event
            else {
                continue;
            };
            let DeserializeGuard(read) = &pod;
            if let Ok(read) = read {
                let mut pod = read.clone();
                let json = Compact::json(&mut pod).expect("a pod is JSON");
                assert_eq!(&pod, read);
                let compact = Compact::<Pod>::of(&json);
                pod.metadata.resource_version = None;
                assert!(compact.is(&json));
                assert_eq!(compact.object(), Some(pod), "what is kept of a pod is the pod");
                valid = true;
            } else {
                let rejection = unguard(pod).unwrap_err();
                assert!(!rejection.reason.is_empty() && rejection.to_string().starts_with("Pod "));
            }
        }
        valid
    });
}
