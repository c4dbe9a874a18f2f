//! The whole operator as its own process, against the embedded cluster over HTTPS: journeys of users, faults of the API
//! server, and the deaths of the process.

mod charged;
mod check;
mod columns;
mod configuration;
mod connections;
mod crash;
mod devices;
mod events;
mod evictions;
mod faults;
mod figures;
mod journeys;
pub mod lab;
mod matrix;
mod migrate;
mod networks;
mod numa;
mod numa_exporter;
mod page;
mod scaleup;
mod schedule;
mod self_check;
mod shards;
mod sharing;
mod telemetry;
mod uninstall;
mod usage;
mod volumes;
mod waiting;
mod writes;
