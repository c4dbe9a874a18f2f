//! The same API server without a network: requests are function calls, and watches stream through the body of the answer.
//! For simulations that must not depend on sockets.

use std::ops::Deref;
use std::sync::Arc;

use anyhow::Context;
use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use serde_json::Value;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

use super::cluster::Cluster;
use super::store::Object;
use super::webhook::Answerer;
use super::{Audit, Faults, Identity, Options, bootstrap, server, system};

/// A service that answers requests as those of one identity.
pub type Service = BoxCloneSyncService<Request<kube::client::Body>, Response<Body>, BoxError>;

/// An object as it is stored.
#[derive(Clone, Debug)]
pub struct Stored(Arc<Object>);

impl Stored {
    /// Where this version is in memory: it differs from that of any other version of any object that is there at the same time.
    #[must_use]
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Deref for Stored {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0.value
    }
}

/// An API server in this process; see the module. Clones share it.
#[derive(Clone, Debug)]
pub struct InProcess {
    cluster: Arc<Cluster>,
}

impl InProcess {
    /// A server that holds the namespaces and system objects of a new cluster. The address of the options is not used.
    ///
    /// # Errors
    /// When an object of a new cluster cannot be made.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let cluster = Cluster::new(options.clock, options.history, options.bookmark_every);
        let server = Self {
            cluster: Arc::new(cluster),
        };
        bootstrap(server.client(&system()))
            .await
            .context("cannot make the objects of a new cluster")?;
        server.cluster.audit.clear();
        Ok(server)
    }

    /// Answers requests as those of the identity.
    #[must_use]
    pub fn service(&self, identity: &Identity) -> Service {
        let token = format!("Bearer {}", self.cluster.tokens.issue(identity));
        let token =
            HeaderValue::from_str(&token).unwrap_or_else(|error| unreachable!("a token is hexadecimal: {error}"));
        let cluster = Arc::clone(&self.cluster);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (cluster, token) = (Arc::clone(&cluster), token.clone());
            async move {
                let mut request = request.map(Body::new);
                request.headers_mut().insert(header::AUTHORIZATION, token);
                server::handle(cluster, request).await
            }
        });
        BoxCloneSyncService::new(service.map_err(BoxError::from))
    }

    /// A client that acts as the identity.
    #[must_use]
    pub fn client(&self, identity: &Identity) -> kube::Client {
        kube::Client::new(self.service(identity), "default")
    }

    /// The revision of the last change to the objects of a resource; 0 if there was none.
    #[must_use]
    pub fn changed(&self, group: &str, plural: &str) -> u64 {
        self.cluster.store.of(group, plural).changed()
    }

    /// The stored objects of a resource, by namespace and name.
    #[must_use]
    pub fn objects(&self, group: &str, plural: &str) -> Vec<Stored> {
        let listed = self.cluster.store.of(group, plural).list("");
        listed.objects.into_iter().map(Stored).collect()
    }

    /// Injects faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.cluster.faults
    }

    /// The log of writes.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.cluster.audit
    }

    /// Answers the calls of all webhooks by a function, whatever address they are configured with.
    pub fn answer_webhooks_by(&self, answerer: Answerer) {
        self.cluster.webhooks.answer_by(answerer);
    }
}
