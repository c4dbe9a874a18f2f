use std::sync::{Arc, Mutex};

use axum::extract::RawQuery;
use axum::routing::post;
use axum::{Json, Router};
use http::HeaderMap;
use serde_json::json;

use super::*;
use crate::cli::client::tests::served;

#[derive(clap::Parser)]
struct Wrapped {
    #[command(flatten)]
    args: Args,
}

fn args(args: &[&str]) -> Args {
    let all = ["test"].into_iter().chain(args.iter().copied());
    <Wrapped as clap::Parser>::parse_from(all).args
}

/// The parameters, the type and the body of a request.
type Request = (String, String, String);

#[tokio::test]
async fn the_operator_gets_the_manifests_as_they_are() {
    let requests = Arc::new(Mutex::new(Vec::<Request>::new()));
    let seen = Arc::clone(&requests);
    let answer = move |RawQuery(query): RawQuery, headers: HeaderMap, body: String| async move {
        let kind = headers["content-type"].to_str().unwrap().to_owned();
        seen.lock().unwrap().push((query.unwrap_or_default(), kind, body));
        Json(json!({
            "meta": {"asOf": "2026-01-01T00:00:00Z", "leads": true},
            "runs": true, "binds": [], "evicts": [], "evictsOthers": 0, "waits": [], "notes": [],
        }))
    };
    let client = served(Router::new().route("/api/v1/what-if", post(answer))).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.yaml");
    let text = "# Not JSON\nkind: Job\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();

    assert!(ask(&client, &args(&["-f", file])).await.unwrap().runs);
    let elsewhere = args(&["-f", file, "-n", "lab", "--shard", "blue"]);
    assert!(ask(&client, &elsewhere).await.unwrap().runs);
    let request = |query: &str| (query.to_owned(), "application/yaml".to_owned(), text.to_owned());
    assert_eq!(
        *requests.lock().unwrap(),
        [request("namespace=default"), request("namespace=lab&shard=blue")]
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named() {
    let client = served(Router::new()).await;
    let error = ask(&client, &args(&["-f", "missing.yaml"])).await.unwrap_err();
    assert_eq!(error.to_string(), "missing.yaml");
}
