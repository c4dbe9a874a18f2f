//! The whole operator as its own process, against the embedded cluster over HTTPS: journeys of users, faults of the API
//! server, and the deaths of the process.

mod crash;
mod devices;
mod faults;
mod journeys;
mod lab;
mod matrix;
mod numa;
mod page;
mod scaleup;
mod sharing;
mod telemetry;
mod volumes;
mod writes;
