use std::collections::BTreeMap;
use std::io::Read as _;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use flate2::read::GzDecoder;
use tower::ServiceExt as _;

use super::super::views;
use super::*;

async fn get(path: &str, headers: &[(HeaderName, &str)]) -> (StatusCode, HeaderMap, Vec<u8>) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    let response = router::<()>().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (parts.status, parts.headers, body.to_vec())
}

#[tokio::test]
async fn every_file_is_served_with_its_type_and_security_headers() {
    for file in FILES {
        let (status, headers, body) = get(file.path, &[]).await;
        assert_eq!(status, StatusCode::OK, "{}", file.path);
        assert_eq!(headers[header::CONTENT_TYPE], file.kind, "{}", file.path);
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
        assert_eq!(body, file.text.as_bytes(), "{}", file.path);
    }
    assert_eq!(get("/page/other.js", &[]).await.0, StatusCode::NOT_FOUND);
    assert_eq!(get("/page/", &[]).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn files_are_compressed_on_request_and_not_sent_again_with_the_same_tag() {
    let (_, headers, body) = get("/page/style.css", &[(header::ACCEPT_ENCODING, "gzip, br")]).await;
    assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
    let mut text = String::new();
    GzDecoder::new(&*body).read_to_string(&mut text).unwrap();
    assert_eq!(text, include_str!("style.css"));

    let tag = headers[header::ETAG].to_str().unwrap().to_owned();
    let (status, _, body) = get("/page/style.css", &[(header::IF_NONE_MATCH, &tag)]).await;
    assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
    let (status, ..) = get("/page/main.js", &[(header::IF_NONE_MATCH, &tag)]).await;
    assert_eq!(status, StatusCode::OK);
}

#[test]
fn the_page_is_small() {
    let sent: usize = READY.iter().map(|file| file.compressed.len()).sum();
    assert!(sent < 48 << 10, "{sent} bytes, compressed");
}

#[test]
fn the_page_renders_no_text_as_markup_and_loads_nothing_from_other_servers() {
    const BANNED: &[&str] = &[
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "http://",
        "https://",
        "DOMParser",
        "srcdoc",
    ];
    for file in FILES {
        // The namespace of SVG is a URL to which no request is sent.
        let text = file.text.replace("http://www.w3.org/2000/svg", "");
        for banned in BANNED {
            assert!(!text.contains(banned), "{}: {banned}", file.path);
        }
    }
    let html = include_str!("index.html");
    assert!(
        !html.contains(" style=") && !html.contains(" onclick="),
        "nothing inline"
    );
    let scripts = html.matches("<script").count();
    assert_eq!(scripts, html.matches("<script type=\"module\" src=").count());
}

#[test]
fn every_imported_file_exists() {
    let known: Vec<&str> = FILES.iter().map(|file| file.path).collect();
    for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
        for named in file
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("import ")?.split('"').nth(1))
        {
            let path = named.replace("./", "/page/");
            assert!(known.contains(&&*path), "{}: {named}", file.path);
        }
    }
    let html = include_str!("index.html");
    for named in html.split('"').filter(|part| part.starts_with("page/")) {
        assert!(known.contains(&&*format!("/{named}")), "index.html: {named}");
    }
    for path in known.iter().filter(|path| **path != "/") {
        assert!(
            html.contains(&format!("\"{}\"", path.trim_start_matches('/'))),
            "index.html lacks {path}"
        );
    }
}

/// The fields that each function of answers.js takes, by the type that stands above it.
fn read_by_the_page() -> BTreeMap<&'static str, Vec<&'static str>> {
    let text = include_str!("answers.js");
    let mut read = BTreeMap::new();
    for part in text.split("/** @api ").skip(1) {
        let (name, rest) = part.split_once(" */").unwrap();
        let (_, rest) = rest.split_once("= ({").unwrap();
        let (fields, _) = rest.split_once("}) =>").unwrap();
        let fields = fields
            .split(',')
            .map(|field| field.split([':', '=']).next().unwrap().trim());
        read.insert(name, fields.filter(|field| !field.is_empty()).collect());
    }
    read
}

#[test]
fn every_field_that_the_page_reads_is_in_the_openapi_document() {
    let document = views::openapi();
    let read = read_by_the_page();
    assert!(read.len() > 25, "{read:?}");
    for (name, fields) in read {
        let schema = &document["components"]["schemas"][name];
        assert!(schema.is_object(), "the API has no {name}");
        for field in fields {
            assert!(
                schema["properties"][field].is_object(),
                "{name} has no field {field}: {schema}"
            );
        }
    }
}

#[test]
fn only_two_files_of_the_page_read_responses() {
    for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
        if !["/page/api.js", "/page/answers.js"].contains(&file.path) {
            assert!(
                !file.text.contains(".json()") && !file.text.contains("fetch("),
                "{}",
                file.path
            );
        }
    }
}
