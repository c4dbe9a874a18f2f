//! The one integration-test binary; each module is a family of scenarios.

mod admission;
mod allocations;
mod apiserver;
mod attacks;
mod components;
mod crd_behaviour;
mod crds;
mod docs;
mod filters;
mod free_port;
mod inspection;
mod leadership;
mod manifests;
mod operator;
mod polling;
mod real_server;
mod review_fuzz;
mod support;
mod tidy;
mod verdicts;
mod views;
mod webhooks;
mod world;
