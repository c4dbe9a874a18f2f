//! HTTPS calls to webhooks, over connections that stay open: one client per endpoint, made at its first call.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use bytes::Bytes;
use futures::future::BoxFuture;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use super::config::{Endpoint, Location, Webhook};

type Services = BTreeMap<(String, String, u16), SocketAddr>;

/// Calls webhooks.
#[derive(Default)]
pub(super) struct Caller {
    state: Mutex<State>,
}

/// Answers reviews in this process: the path and the body of a request to the status and the body of the answer.
pub type Answerer =
    Arc<dyn Fn(String, Bytes) -> BoxFuture<'static, Result<(http::StatusCode, Bytes), String>> + Send + Sync>;

#[derive(Default)]
struct State {
    /// Answers in place of all endpoints.
    answerer: Option<Answerer>,
    services: Services,
    /// A client certificate and its key.
    identity: Option<kube::config::AuthInfo>,
    clients: BTreeMap<Endpoint, kube::Client>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller")
            .field("services", &self.state().services)
            .finish_non_exhaustive()
    }
}

/// Names of an endpoint, for errors and for TLS.
struct Address {
    /// `https://host:port`, as in errors.
    shown: String,
    path: String,
    /// The name that the certificate of a Service must have.
    server_name: Option<String>,
}

impl Address {
    fn of(location: &Location) -> Result<Self, String> {
        match location {
            Location::Url(url) => {
                let uri: http::Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
                let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
                Ok(Self {
                    shown: format!("https://{authority}"),
                    path: uri.path().to_owned(),
                    server_name: None,
                })
            }
            Location::Service {
                namespace,
                name,
                port,
                path,
            } => {
                let host = format!("{name}.{namespace}.svc");
                let path = if path.is_empty() { "/".to_owned() } else { path.clone() };
                Ok(Self {
                    shown: format!("https://{host}:{port}"),
                    path,
                    server_name: Some(host),
                })
            }
        }
    }
}

impl Caller {
    pub fn set_services(&self, services: Services) {
        let mut state = self.state();
        state
            .clients
            .retain(|endpoint, _| matches!(endpoint.location, Location::Url(_)));
        state.services = services;
    }

    /// See [`super::Webhooks::set_identity`].
    pub fn set_identity(&self, certificate: &str, key: &str) -> Result<(), serde_json::Error> {
        let base64 = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
        let identity = json!({"client-certificate-data": base64(certificate), "client-key-data": base64(key)});
        let mut state = self.state();
        state.identity = Some(serde_json::from_value(identity)?);
        state.clients.clear();
        Ok(())
    }

    /// Drops the clients of endpoints that no webhook has.
    pub fn retain<'a>(&self, webhooks: impl Iterator<Item = &'a Webhook>) {
        let used: Vec<&Endpoint> = webhooks.map(|webhook| &webhook.endpoint).collect();
        self.state().clients.retain(|endpoint, _| used.contains(&endpoint));
    }

    /// Posts a review; the body of a 2xx answer, or an error for people.
    pub async fn post(&self, webhook: &Webhook, body: Bytes) -> Result<Bytes, String> {
        let address = Address::of(&webhook.endpoint.location)?;
        let query = format!("{}?timeout={}s", address.path, webhook.timeout.as_secs());
        let failed = |error: String| format!("Post \"{}{query}\": {error}", address.shown);
        let answerer = self.state().answerer.clone();
        if let Some(answerer) = answerer {
            let answer = tokio::time::timeout(webhook.timeout, answerer(address.path.clone(), body));
            let answer = answer
                .await
                .unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
            let (status, body) = answer.map_err(failed)?;
            return outcome(status, body);
        }
        let client = self.client(&webhook.endpoint, &address).map_err(failed)?;
        let request = http::Request::post(&query)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json")
            .body(kube::client::Body::from(body.to_vec()))
            .map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let response = client.send(request).await?;
            let status = response.status();
            Ok::<_, kube::Error>((status, response.into_body().collect_bytes().await?))
        };
        let (status, answer) = match tokio::time::timeout(webhook.timeout, exchange).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => return Err(failed(innermost(&error))),
            Err(_) => return Err(failed("context deadline exceeded".to_owned())),
        };
        outcome(status, answer)
    }

    /// Has all endpoints answered in this process.
    pub fn answer_by(&self, answerer: Answerer) {
        self.state().answerer = Some(answerer);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, endpoint: &Endpoint, address: &Address) -> Result<kube::Client, String> {
        let mut state = self.state();
        if let Some(client) = state.clients.get(endpoint) {
            return Ok(client.clone());
        }
        let connect = match &endpoint.location {
            Location::Url(_) => address.shown.clone(),
            Location::Service {
                namespace, name, port, ..
            } => {
                let found = state.services.get(&(namespace.clone(), name.clone(), *port));
                format!(
                    "https://{}",
                    found.ok_or_else(|| format!("service {name:?} not found"))?
                )
            }
        };
        let mut config = kube::Config::new(connect.parse().map_err(|error| format!("{error}"))?);
        config.tls_server_name = address.server_name.clone();
        config.disable_compression = true;
        config.default_retry = false;
        if let Some(identity) = &state.identity {
            config.auth_info = identity.clone();
        }
        if !endpoint.ca_bundle.is_empty() {
            config.root_cert = Some(certificates(&endpoint.ca_bundle)?);
        }
        let client = kube::Client::try_from(config).map_err(|error| innermost(&error))?;
        state.clients.insert(endpoint.clone(), client.clone());
        Ok(client)
    }
}

/// Interprets a response.
fn outcome(status: http::StatusCode, answer: Bytes) -> Result<Bytes, String> {
    match status.as_u16() {
        200..=299 => Ok(answer),
        404 => Err("the server could not find the requested resource".to_owned()),
        code @ 400..=499 => Err(format!(
            "the server rejected our request for an unknown reason ({code})"
        )),
        _ => Err("an error on the server (\"unknown\") has prevented the request from succeeding".to_owned()),
    }
}

/// The certificates of a CA bundle, DER.
fn certificates(bundle: &str) -> Result<Vec<Vec<u8>>, String> {
    let pem = base64::engine::general_purpose::STANDARD
        .decode(bundle)
        .map_err(|error| format!("unable to load root certificates: {error}"))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem)
        .map(|der| der.map(|der| der.to_vec()))
        .collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err("unable to load root certificates: no certificate in the bundle".to_owned()),
        Err(error) => Err(format!("unable to load root certificates: {error}")),
    }
}

/// The cause at the bottom of an error, which is the most specific one.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
