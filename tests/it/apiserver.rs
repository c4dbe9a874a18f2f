//! The embedded API server, as clients see it. What needs neither faults nor the clock runs against a real etcd and
//! kube-apiserver too when `KUBEBUILDER_ASSETS` names a folder that holds them; where the two differ, the real one is right.

mod claims;
mod definitions;
mod evictions;
mod faults;
pub mod harness;
mod kubectl;
mod lists;
mod objects;
mod pods;
mod policies;
mod watches;
