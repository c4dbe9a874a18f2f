//! The proxy to Services over plain HTTP: `/api/v1/namespaces/NAMESPACE/services/[http:]NAME[:PORT]/proxy/PATH`. Those Services have endpoints whose
//! ports were given an address by `map_service`.

use std::time::Duration;

use axum::body::Body;
use http::request::Parts;
use http::{Request, Response, Uri, Version, header};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

use super::cluster::Cluster;
use super::identity::Identity;
use super::rbac::Action;
use super::status::{ApiError, ApiResult, Subject};

/// How long a Service may take to begin its answer.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A request to a Service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    namespace: String,
    /// The Service as written in the URL, which is the name that rights are checked for.
    service: String,
    /// Path and query of the request.
    target: String,
}

impl Asked {
    /// Takes a URL apart; `None` for those of anything else.
    pub fn parse(uri: &Uri) -> Option<Self> {
        let rest = uri.path().strip_prefix("/api/v1/namespaces/")?;
        let (namespace, rest) = rest.split_once('/')?;
        let (service, rest) = rest.strip_prefix("services/")?.split_once('/')?;
        let path = rest.strip_prefix("proxy")?;
        if !path.is_empty() && !path.starts_with('/') {
            return None;
        }
        let path = if path.is_empty() { "/" } else { path };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        Some(Self {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            target: format!("{path}{query}"),
        })
    }

    /// Name and port of the Service.
    fn name_and_port(&self) -> Option<(&str, Option<u16>)> {
        let mut parts: Vec<&str> = self.service.split(':').collect();
        if parts.len() == 3 && matches!(parts[0], "http" | "") {
            parts.remove(0);
        }
        match parts.as_slice() {
            [name] | [name, ""] => Some((name, None)),
            [name, port] => Some((name, Some(port.parse().ok()?))),
            _ => None,
        }
    }
}

/// Forwards a request without the headers that identify the caller.
pub(crate) async fn forward(
    cluster: &Cluster,
    identity: &Identity,
    asked: Asked,
    mut parts: Parts,
    body: Body,
) -> ApiResult<Response<Body>> {
    let verb = match parts.method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    };
    let action = Action {
        verb: verb.to_owned(),
        group: String::new(),
        resource: "services/proxy".to_owned(),
        namespace: asked.namespace.clone(),
        name: asked.service.clone(),
        path: String::new(),
    };
    if !cluster.rbac.admits(&cluster.store, identity, &action) {
        let why = format!(
            "User {:?} cannot {verb} resource \"services/proxy\" in API group \"\" in the namespace {:?}",
            identity.user, asked.namespace
        );
        let subject = Subject {
            group: String::new(),
            resource: "services".to_owned(),
            kind: "Service".to_owned(),
            name: asked.service,
        };
        return Err(ApiError::forbidden(&subject, &why));
    }
    let address = asked
        .name_and_port()
        .and_then(|(name, port)| cluster.service(&asked.namespace, name, port))
        .ok_or_else(|| {
            let why = format!("no endpoints available for service {:?}", asked.service);
            ApiError::new(503, "ServiceUnavailable", why)
        })?;
    let unreachable = |error: &dyn std::fmt::Display| {
        let why = format!("error trying to reach service: {error}");
        ApiError::new(503, "ServiceUnavailable", why)
    };
    parts.uri = format!("http://{address}{}", asked.target)
        .parse()
        .map_err(|error: http::uri::InvalidUri| unreachable(&error))?;
    parts.version = Version::HTTP_11;
    for of_this_hop in [header::AUTHORIZATION, header::HOST, header::CONNECTION] {
        parts.headers.remove(of_this_hop);
    }
    let client: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
    let answer = tokio::time::timeout(MAX_WAIT, client.request(Request::from_parts(parts, body))).await;
    let answer = answer.map_err(|_| ApiError::new(504, "Timeout", "the service does not answer"))?;
    let mut answer = answer.map_err(|error| unreachable(&error))?.map(Body::new);
    for of_this_hop in [header::CONNECTION, header::TRANSFER_ENCODING] {
        answer.headers_mut().remove(of_this_hop);
    }
    *answer.version_mut() = Version::default();
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parse = |url: &str| Asked::parse(&url.parse().unwrap());
        let asked = parse("/api/v1/namespaces/n/services/http:s:8080/proxy/a%2Fb?x=%20").unwrap();
        assert_eq!(
            (&*asked.namespace, asked.name_and_port()),
            ("n", Some(("s", Some(8080))))
        );
        assert_eq!(asked.target, "/a%2Fb?x=%20");
        let asked = parse("/api/v1/namespaces/n/services/s/proxy").unwrap();
        assert_eq!((asked.name_and_port(), &*asked.target), (Some(("s", None)), "/"));
        for other in [
            "/api/v1/namespaces/n/services/s",
            "/api/v1/namespaces/n/services/s/proxyx",
            "/api/v1/namespaces/n/pods/s/proxy/",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
        let odd = parse("/api/v1/namespaces/n/services/https:s:1:2/proxy/").unwrap();
        assert_eq!(odd.name_and_port(), None);
    }
}
