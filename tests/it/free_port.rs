//! Ports for processes that a test starts.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A free port for a process that is started later. Below the range of ephemeral ports, as one of those could be taken by an outgoing connection
/// in the meantime.
pub fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports = std::iter::repeat_with(|| {
        let next = std::process::id()
            .wrapping_mul(97)
            .wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        10_000 + (next % 20_000) as u16
    });
    ports.take(20_000).find(free).expect("a free port")
}
