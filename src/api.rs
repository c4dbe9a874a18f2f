//! The API: custom resource types, well-known names, quantities and durations.
//!
//! The types are those of KAI Scheduler's public API. What is absent: behaviour. Defaults that depend on policy live with their
//! readers, and nothing here performs I/O, reads a clock or has a client.
//!
//! Decoding is lenient where users can err: durations are strings with accessors that parse, unknown fields are ignored,
//! `null` reads as absent, and [`lenient`] turns an object that does not decode into a value instead of a failed list.

pub mod bind_request;
pub mod calendar;
pub mod condition;
pub mod config;
pub mod crds;
pub mod duration;
pub mod gpu_request;
pub mod hold;
pub mod label_keys;
pub mod lenient;
pub mod limits;
pub mod names;
pub mod numa;
pub mod pod_group;
pub mod quantity;
pub mod queue;
pub mod queue_access;
pub mod quota_schedule;
pub mod schema;
pub mod shard;
pub mod syntax;
pub mod topology;
pub mod views;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub use bind_request::BindRequest;
pub use config::Config;
pub use numa::NodeResourceTopology;
pub use pod_group::PodGroup;
pub use queue::Queue;
pub use shard::SchedulingShard;
pub use topology::Topology;

/// Resource amounts by resource name, as Kubernetes writes them (`cpu: 500m`, `nvidia.com/gpu: "1"`).
///
/// Values read from JSON numbers as well as from strings. [`quantity::Amount`] is their exact value.
pub type QuantityMap = BTreeMap<String, Quantity>;

/// A JSON object that the product carries but does not interpret, such as the affinity of a deployment it does not have.
pub type Opaque = serde_json::Map<String, serde_json::Value>;
