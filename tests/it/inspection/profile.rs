//! CPU profiles.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flate2::read::GzDecoder;
use prost::Message;
use tokio::time::timeout;
use unikai::operator::settings::Settings;

use super::{answer, ask, send, token_with, unikai};
use crate::support::{Cluster, eventually};

/// The parts of the format that are read here.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    texts: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    labels: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

impl Profile {
    fn read(file: &[u8]) -> Self {
        let mut bytes = Vec::new();
        GzDecoder::new(file)
            .read_to_end(&mut bytes)
            .expect("a profile is compressed");
        Self::decode(&*bytes).expect("a profile is a protocol buffer")
    }

    fn text(&self, number: i64) -> &str {
        &self.texts[usize::try_from(number).unwrap()]
    }

    /// The names of the functions on a sample's stack, the innermost first.
    fn stack(&self, sample: &Sample) -> Vec<&str> {
        let lines = sample.locations.iter().flat_map(|id| {
            let location = self.locations.iter().find(|location| location.id == *id);
            &location.expect("a location in the table").lines
        });
        lines
            .map(|line| {
                let function = self.functions.iter().find(|function| function.id == line.function);
                self.text(function.expect("a function in the table").name)
            })
            .collect()
    }

    /// CPU time that was spent in the function itself by a thread, in nanoseconds, if the other function called it.
    fn spent(&self, thread: &str, function: &str, caller: &str) -> i64 {
        let of_thread = |sample: &&Sample| {
            let label = &sample.labels[0];
            (self.text(label.key), self.text(label.text)) == ("thread", thread)
        };
        let there = |sample: &&Sample| {
            let stack = self.stack(sample);
            let Some((innermost, callers)) = stack.split_first() else {
                return false;
            };
            innermost.ends_with(function) && callers.iter().any(|name| name.ends_with(caller))
        };
        let samples = self.samples.iter().filter(of_thread).filter(there);
        samples.map(|sample| sample.values[1]).sum()
    }
}

/// A thread that does nothing but count.
struct Busy {
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Busy {
    fn start() -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&enough);
        let thread = std::thread::Builder::new().name("busy".to_owned());
        let thread = Some(thread.spawn(move || count_for_ever(&until)).unwrap());
        Self { enough, thread }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[inline(never)]
fn count_for_ever(until: &AtomicBool) -> u64 {
    let mut count = 0_u64;
    while !until.load(Ordering::Relaxed) {
        count = count_for_a_while(count);
    }
    count
}

/// A function that calls no other, in which nearly all of the time is spent.
#[inline(never)]
fn count_for_a_while(from: u64) -> u64 {
    let mut count = from;
    let mut left = 100_000_u64;
    while left > 0 {
        count = (count >> 1) ^ left;
        left -= 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cpu_profile_shows_where_threads_spend_their_time() {
    const PATH: &str = "/debug/pprof/profile";
    const HALF_A_MINUTE: Duration = Duration::from_secs(30);
    let cluster = Cluster::start().await;
    let running = cluster.ready_operator(Settings::embedded()).await;
    let token = token_with(&cluster, "unikai-maintainer").await;
    let token = Some(&*token);
    for seconds in ["0", "61", "-1", "1.5", "x", ""] {
        assert_eq!(
            ask(&running, "GET", &format!("{PATH}?seconds={seconds}"), token, "").await,
            (400, "seconds: not a whole number from 1 to 60\n".to_owned()),
            "{seconds}"
        );
    }

    // While a profile is recorded, there is no second one. The short one may come first, and then the long one is refused.
    let (minute, refused) = eventually("a second profile is refused", async || {
        let minute = send(&running, "GET", &format!("{PATH}?seconds=60"), token, "").await;
        let (status, why) = ask(&running, "GET", &format!("{PATH}?seconds=1"), token, "").await;
        (status != 200).then_some((minute, (status, why)))
    })
    .await;
    assert_eq!(refused, (429, "another profile is being recorded\n".to_owned()));

    // A client that leaves ends its recording long before the minute is over.
    drop(minute);
    let busy = Busy::start();
    let next = eventually("the next profile shows the busy thread", async || {
        let path = format!("{PATH}?seconds=1");
        let (status, body) = answer(send(&running, "GET", &path, token, "").await).await;
        if status != 200 {
            assert_eq!(status, 429, "{}", String::from_utf8_lossy(&body));
            return None;
        }
        let profile = Profile::read(&body);
        (profile.spent("busy", "::count_for_a_while", "::count_for_ever") > 0).then_some(profile)
    });
    let profile = timeout(HALF_A_MINUTE, next)
        .await
        .expect("the recording ends with its client");
    assert_eq!(profile.texts[0], "", "by which readers recognise the format");

    // The command writes the same to a file, and leaves none if it is refused.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.pb.gz");
    let url = format!("http://{}", running.http);
    let command = [
        "profile",
        "--url",
        &url,
        "--seconds",
        "1",
        "--out",
        file.to_str().unwrap(),
    ];
    let viewer = token_with(&cluster, "unikai-viewer").await;
    let refused = unikai(&command, Some(&viewer)).await;
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        why.contains("403 Forbidden: a ClusterRole must allow verb get"),
        "{why}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let recorded = unikai(&command, token).await;
    assert!(
        recorded.status.success(),
        "{}",
        String::from_utf8_lossy(&recorded.stderr)
    );
    assert!(!Profile::read(&std::fs::read(&file).unwrap()).samples.is_empty());
    drop(busy);
}
