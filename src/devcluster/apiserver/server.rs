//! HTTP: connections, authentication, faults, and dispatch of requests.

use std::{convert::Infallible, sync::Arc};

use axum::body::{Body, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use super::{
    cluster::Cluster,
    discovery,
    faults::{self, Effect, Struck},
    identity::Identity,
    openapi,
    present::{self, Form},
    rbac::Action,
    request::{RequestInfo, Verb},
    rest::{self, Call, Reply},
    service_proxy,
    status::{ApiError, ApiResult},
};

/// Bytes that a request body may have, as etcd's limit demands of real servers.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The connection is to be broken instead of answered.
#[derive(Debug, thiserror::Error)]
#[error("the connection is broken on purpose")]
pub(crate) struct Broken;

/// Answers one request.
pub(crate) async fn handle(cluster: Arc<Cluster>, request: Request<Body>) -> Result<Response<Body>, Broken> {
    let (parts, body) = request.into_parts();
    let identity = match identify(&cluster, &parts.headers) {
        Ok(identity) => identity,
        Err(error) => return Ok(refusal(&error)),
    };
    if let Some(asked) = service_proxy::Asked::parse(&parts.uri) {
        let forwarded = service_proxy::forward(&cluster, &identity, asked, parts, body).await;
        return Ok(forwarded.unwrap_or_else(|error| refusal(&error)));
    }
    let query = parts.uri.query().unwrap_or_default();
    let Some(info) = RequestInfo::parse(&parts.method, parts.uri.path(), query) else {
        return Ok(document(&cluster, parts.uri.path(), &parts.headers).unwrap_or_else(|error| refusal(&error)));
    };
    let body = match axum::body::to_bytes(body, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => {
            return Ok(refusal(&ApiError::new(
                413,
                "RequestEntityTooLarge",
                format!("request body: {error}"),
            )));
        }
    };
    resource(cluster, identity, info, &parts.headers, body).await
}

/// The user of a request, or the one it impersonates; requests without a token are refused.
fn identify(cluster: &Cluster, headers: &HeaderMap) -> ApiResult<Arc<Identity>> {
    let header = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let token = header
        .strip_prefix("Bearer ")
        .or_else(|| header.strip_prefix("bearer "))
        .unwrap_or_default();
    let caller = cluster
        .tokens
        .identify(token.trim())
        .ok_or_else(ApiError::unauthorized)?;
    // The administrator may impersonate any user.
    let may = caller.groups.iter().any(|group| group == "system:masters");
    Ok(impersonated(headers).filter(|_| may).map_or(caller, Arc::new))
}

/// The impersonated user, if any.
fn impersonated(headers: &HeaderMap) -> Option<Identity> {
    let texts = |name: &str| {
        headers
            .get_all(name)
            .into_iter()
            .filter_map(|value| value.to_str().ok())
    };
    let user = texts("impersonate-user").next()?;
    Some(Identity::user(user, &texts("impersonate-group").collect::<Vec<_>>()))
}

/// Serves a request for a resource, with injected faults, and writes the audit log.
async fn resource(
    cluster: Arc<Cluster>,
    identity: Arc<Identity>,
    mut info: RequestInfo,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response<Body>, Broken> {
    let url_name = info.name.clone();
    if info.verb == Verb::Create && info.name.is_empty() {
        info.name = name_in(&body);
    }
    let Struck { delay, effect } = cluster.faults.strike(&info, &identity);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let audited = info.clone();
    info.name = url_name;
    let outcome = match &effect {
        Some(Effect::Refuse { code, retry_after }) => Err(injected(*code, *retry_after)),
        Some(Effect::Drop) => {
            cluster.audit.record(&identity, &audited, 0);
            return Err(Broken);
        }
        Some(Effect::Hang) => {
            cluster.audit.record(&identity, &audited, 0);
            std::future::pending().await
        }
        Some(
            Effect::FailAfter { .. } | Effect::DropAfter | Effect::HangAfter | Effect::Stall { .. } | Effect::Delay(_),
        )
        | None => dispatch(cluster.clone(), identity.clone(), info, headers, body).await,
    };
    let stalls = effect.clone().filter(|effect| matches!(effect, Effect::Stall { .. }));
    let outcome = match effect {
        Some(Effect::FailAfter { code }) if outcome.is_ok() => Err(injected(code, None)),
        Some(Effect::DropAfter) => {
            cluster.audit.record(&identity, &audited, 0);
            return Err(Broken);
        }
        Some(Effect::HangAfter) => {
            cluster.audit.record(&identity, &audited, 0);
            std::future::pending().await
        }
        Some(
            Effect::FailAfter { .. }
            | Effect::Refuse { .. }
            | Effect::Drop
            | Effect::Hang
            | Effect::Stall { .. }
            | Effect::Delay(_),
        )
        | None => outcome,
    };
    let mut response = outcome.map_or_else(|error| refusal(&error), answer);
    cluster.audit.record(&identity, &audited, response.status().as_u16());
    if audited.verb == Verb::Watch {
        response = response.map(|body| cluster.faults.may_be_silenced(body, audited, identity));
    }
    if let Some(Effect::Stall { after }) = stalls {
        response = response.map(|body| faults::stalled(body, after));
    }
    Ok(response)
}

/// The name in the metadata of a body, for faults and the audit log.
fn name_in(body: &Bytes) -> String {
    #[derive(serde::Deserialize, Default)]
    struct Named {
        #[serde(default)]
        metadata: Metadata,
    }
    #[derive(serde::Deserialize, Default)]
    struct Metadata {
        #[serde(default)]
        name: String,
    }
    serde_json::from_slice::<Named>(body).unwrap_or_default().metadata.name
}

fn injected(code: u16, retry_after: Option<u32>) -> ApiError {
    let (reason, message) = match code {
        409 => (
            "Conflict",
            "the object has been modified; please apply your changes to the latest version and try again (injected)",
        ),
        429 => (
            "TooManyRequests",
            "too many requests, please try again later (injected)",
        ),
        500 => ("InternalError", "internal error (injected)"),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request (injected)",
        ),
        504 => ("Timeout", "the request timed out (injected)"),
        _ => ("Unknown", "injected"),
    };
    let mut error = ApiError::new(code, reason, message);
    error.retry_after = retry_after;
    error
}

async fn dispatch(
    cluster: Arc<Cluster>,
    identity: Arc<Identity>,
    info: RequestInfo,
    headers: &HeaderMap,
    body: Bytes,
) -> ApiResult<Reply> {
    let catalog = cluster.registry.catalog();
    let resource = catalog
        .find(&info.group, &info.version, &info.resource)
        .cloned()
        .ok_or_else(ApiError::no_such_resource)?;
    let text = |name: header::HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let action = Action::of(&info);
    if !cluster.rbac.admits(&cluster.store, &identity, &action) {
        let why = format!(
            "User {:?} cannot {} resource {:?} in API group {:?} in the namespace {:?}",
            identity.user, action.verb, action.resource, action.group, action.namespace
        );
        return Err(ApiError::forbidden(&resource.subject(&info.name), &why));
    }
    let form = Form::choose(text(header::ACCEPT), info.query.get("includeObject"))?;
    let content_type = text(header::CONTENT_TYPE).to_owned();
    let deprecation = resource.custom().and_then(|version| version.deprecation.clone());
    let mut reply = rest::serve(&Call {
        cluster,
        identity,
        info,
        resource,
        form,
        content_type,
        body,
    })
    .await?;
    if let (Reply::Json { warnings, .. }, Some(deprecation)) = (&mut reply, deprecation) {
        warnings.push(deprecation);
    }
    Ok(reply)
}

/// Non-resource paths: discovery, OpenAPI, health and the version.
fn document(cluster: &Cluster, path: &str, headers: &HeaderMap) -> ApiResult<Response<Body>> {
    let catalog = cluster.registry.catalog();
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let found = match segments.as_slice() {
        [] => Some(
            json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]}),
        ),
        ["healthz" | "livez" | "readyz", ..] => return Ok(plain("ok")),
        ["version"] => Some(discovery::version()),
        ["api"] | ["apis"] if wants_aggregated(accept) => {
            let document = discovery::aggregated(&catalog, segments == ["api"]);
            return Ok(typed(
                &document,
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            ));
        }
        ["api"] => {
            let host = headers
                .get(header::HOST)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default();
            Some(discovery::core_versions(host))
        }
        ["apis"] => Some(discovery::groups(&catalog)),
        ["api", version] => discovery::resources(&catalog, "", version),
        ["apis", group] => discovery::one_group(&catalog, group),
        ["apis", group, version] => discovery::resources(&catalog, group, version),
        ["openapi", "v2"] if present::accepted(accept).any(|entry| entry.media_type.ends_with("+protobuf")) => {
            return Ok(respond(200, Body::from(openapi::v2_protobuf()), openapi::V2_PROTOBUF));
        }
        ["openapi", "v2"] => Some(openapi::v2(&discovery::described(&catalog))),
        ["openapi", "v3"] => Some(openapi::v3_index(&discovery::described(&catalog))),
        ["openapi", "v3", "api", version] => open_api(&catalog, "", version),
        ["openapi", "v3", "apis", group, version] => open_api(&catalog, group, version),
        _ => None,
    };
    found
        .map(|document| typed(&document, "application/json"))
        .ok_or_else(ApiError::no_such_resource)
}

fn open_api(catalog: &super::registry::Catalog, group: &str, version: &str) -> Option<Value> {
    let served = catalog.of(group, version).next().is_some();
    served.then(|| openapi::v3_document(group, version, &discovery::described(catalog)))
}

/// Whether the first servable entry of the Accept header is the aggregated form.
fn wants_aggregated(accept: &str) -> bool {
    present::accepted(accept)
        .find(|entry| {
            let aggregated = entry.parameter("as") == "APIGroupDiscoveryList" && entry.parameter("v") == "v2";
            matches!(entry.media_type, "application/json" | "*/*") && (aggregated || entry.parameter("as").is_empty())
        })
        .is_some_and(|entry| entry.parameter("as") == "APIGroupDiscoveryList")
}

fn answer(reply: Reply) -> Response<Body> {
    match reply {
        Reply::Json { code, body, warnings } => {
            let mut response = respond(code, Body::from(body), "application/json");
            for warning in warnings {
                let text = format!("299 - {warning:?}");
                if let Ok(value) = HeaderValue::from_str(&text) {
                    response.headers_mut().append(header::WARNING, value);
                }
            }
            response
        }
        Reply::Stream(body) => respond(200, body, "application/json"),
    }
}

fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = respond(error.code, Body::from(error.to_value().to_string()), "application/json");
    if let Some(seconds) = error.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn typed(document: &Value, content_type: &'static str) -> Response<Body> {
    respond(200, Body::from(document.to_string()), content_type)
}

fn plain(text: &'static str) -> Response<Body> {
    respond(200, Body::from(text), "text/plain; charset=utf-8")
}

fn respond(code: u16, body: Body, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Accepts connections until the handle shuts down.
pub(crate) async fn listen(
    listener: std::net::TcpListener,
    tls: Arc<rustls::ServerConfig>,
    cluster: Arc<Cluster>,
    handle: axum_server::Handle<std::net::SocketAddr>,
) -> std::io::Result<()> {
    use axum_server::{accept::NoDelayAcceptor, tls_rustls::RustlsConfig};
    let mut server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(tls))?
        .map(|acceptor| acceptor.acceptor(NoDelayAcceptor::new()))
        .handle(handle);
    // Every watch of a client is a stream of its one HTTP/2 connection.
    server.http_builder().http2().max_concurrent_streams(10_000);
    let service = tower::service_fn(move |request: Request<hyper::body::Incoming>| {
        let cluster = cluster.clone();
        async move { self::handle(cluster, request.map(Body::new)).await }
    });
    let make =
        tower::service_fn(move |_: std::net::SocketAddr| std::future::ready(Ok::<_, Infallible>(service.clone())));
    server.serve(make).await
}
