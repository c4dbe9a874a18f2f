//! What queues have used over time, as shares of the cluster. Pure: instants are arguments, and nothing is read or written.
//!
//! A [`Ledger`] records what each queue holds whenever that changes, and computes for any instant what share of the cluster each queue has used within a
//! [`Window`], the recent past weighing more if there is a half-life. Its memory is bounded: a sliding window is kept in a fixed number of pieces.

mod ledger;
pub mod promql;
mod settings;
mod window;

pub use ledger::{Ledger, State};
pub use settings::{Metrics, Problem, Prometheus, Settings, Source};
pub use window::{Cron, Window};
