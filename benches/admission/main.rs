//! The latency of an admission review, in process: from the bytes of the request to those of the response. Requests are hostile; a response that
//! panics, accepts what cannot be counted, or computes with NaN ends the bench.
//!
//! `cargo bench --bench admission -- 10000000` sends as many; without a number, 200,000.

mod questions;

use std::time::{Duration, Instant};

use questions::{Random, Webhooks};

/// Reviews whose latencies are sorted together.
const BATCH: usize = 200_000;
/// The target latency.
const P99: Duration = Duration::from_millis(2);

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let count = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(BATCH);
    let webhooks = Webhooks::new();
    let mut random = Random::new(7);
    let (mut asked, mut worst, mut spent) = (0, [Duration::ZERO; 2], Duration::ZERO);
    while asked < count {
        let batch = BATCH.min(count - asked);
        let mut latencies = Vec::with_capacity(batch);
        for _ in 0..batch {
            let (kind, question) = random.question();
            let begin = Instant::now();
            let answer = webhooks.answer(kind, &question);
            latencies.push(begin.elapsed());
            assert!(!answer.is_empty());
        }
        latencies.sort_unstable();
        spent += latencies.iter().sum::<Duration>();
        asked += batch;
        worst[0] = worst[0].max(latencies[batch * 99 / 100]);
        worst[1] = worst[1].max(latencies[batch - 1]);
        if asked == batch {
            println!("median of the first {batch}: {:?}", latencies[batch / 2]);
        }
    }
    let mean = spent / u32::try_from(asked).unwrap_or(u32::MAX);
    println!(
        "{asked} reviews: mean {mean:?}, p99 {:?} in the worst batch of {BATCH}, longest {:?}",
        worst[0], worst[1]
    );
    assert!(worst[0] < P99, "a review is to take less than {P99:?}");
}
