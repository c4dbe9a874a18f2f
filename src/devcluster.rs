//! The embedded cluster, in two halves. `apiserver` is an in-memory Kubernetes API over HTTPS; `world` simulates
//! kubelets, workload controllers and garbage collection as an ordinary client of any API server.

pub mod apiserver;
pub mod world;
