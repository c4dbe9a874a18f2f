//! State shared by all requests: the store, the registry and the handles of tests.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    audit::Audit,
    clock::Clock,
    crd::Crd,
    faults::Faults,
    identity::Tokens,
    policies::Policies,
    rbac::Rbac,
    registry::{Registry, Resource},
    store::Store,
    webhook::Webhooks,
};

/// The state of one API server.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub store: Arc<Store>,
    pub registry: Registry,
    pub clock: Clock,
    pub faults: Faults,
    pub audit: Audit,
    pub tokens: Tokens,
    pub rbac: Rbac,
    pub webhooks: Webhooks,
    pub policies: Policies,
    pub bookmark_every: Duration,
    services: Mutex<BTreeMap<(String, String, u16), SocketAddr>>,
    /// Held while the admission configuration is read and applied, so that the newest one wins.
    reconfiguring: Mutex<()>,
}

impl Cluster {
    /// An empty cluster.
    pub fn new(clock: Clock, history: usize, bookmark_every: Duration) -> Self {
        let store = Arc::new(Store::new(history));
        Cluster {
            faults: Faults::new(store.clone()),
            store,
            registry: Registry::new(),
            clock,
            audit: Audit::default(),
            tokens: Tokens::default(),
            rbac: Rbac::default(),
            webhooks: Webhooks::new(),
            policies: Policies::default(),
            bookmark_every,
            services: Mutex::default(),
            reconfiguring: Mutex::default(),
        }
    }

    /// Sets the address of a Service port.
    pub fn map_service(&self, namespace: &str, name: &str, port: u16, address: SocketAddr) {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        services.insert((namespace.to_owned(), name.to_owned(), port), address);
        self.webhooks.set_services(services.clone());
    }

    /// The address of a Service port; without a port that of the lowest.
    pub fn service(&self, namespace: &str, name: &str, port: Option<u16>) -> Option<SocketAddr> {
        let services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = services.iter();
        let found = known.find(|((of, called, at), _)| {
            (of.as_str(), called.as_str()) == (namespace, name) && port.is_none_or(|port| port == *at)
        });
        found.map(|(_, address)| *address)
    }

    /// Applies a stored change of an object that configures this server.
    pub fn reconfigure(&self, resource: &Resource) {
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("apiextensions.k8s.io", "customresourcedefinitions") => self.reload_definitions(),
            ("admissionregistration.k8s.io", _) => self.reload_admission(),
            _ => {}
        }
    }

    fn reload_admission(&self) {
        let _newest = self.reconfiguring.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = |plural: &str| {
            let objects = self.store.of("admissionregistration.k8s.io", plural).list("").objects;
            objects.iter().map(|object| object.value.clone()).collect::<Vec<_>>()
        };
        self.webhooks.configure(
            &stored("mutatingwebhookconfigurations"),
            &stored("validatingwebhookconfigurations"),
        );
        self.policies.configure(
            &stored("validatingadmissionpolicies"),
            &stored("validatingadmissionpolicybindings"),
        );
    }

    /// Serves exactly the kinds whose CRDs are stored.
    pub fn reload_definitions(&self) {
        let _newest = self.reconfiguring.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = self
            .store
            .of("apiextensions.k8s.io", "customresourcedefinitions")
            .list("")
            .objects;
        let compiled = stored.iter().filter_map(|object| match Crd::compile(&object.value) {
            Ok(crd) => Some(crd),
            Err(errors) => {
                tracing::error!(name = object.key().1, ?errors, "stored definition does not compile");
                None
            }
        });
        self.registry.define(compiled);
    }
}
