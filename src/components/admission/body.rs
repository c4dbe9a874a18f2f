//! Reads request bodies within limits: on the length of a body, on its time, and on the bytes of all bodies that are being read or whose requests wait. The API server
//! sends a body at once; a client that sends slowly, or never completes a body, must not delay others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use futures::StreamExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::limits;

/// Time limit of a body.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// After this time a body may be aborted for a new one if memory is short.
const CHANCE: Duration = Duration::from_millis(250);

/// Why a body was not read: the HTTP status and the sentence.
pub type Refusal = (StatusCode, &'static str);

const TOO_LONG: Refusal = (StatusCode::PAYLOAD_TOO_LARGE, "the question is longer than 3 MiB\n");
const TOO_SLOW: Refusal = (StatusCode::REQUEST_TIMEOUT, "the question did not come in time\n");
const NO_SPACE: Refusal = (StatusCode::SERVICE_UNAVAILABLE, "too many questions at the same time\n");
const BROKEN: Refusal = (StatusCode::BAD_REQUEST, "the question cannot be read to its end\n");

/// The bodies that are being read, and those of requests that wait.
#[derive(Clone)]
pub struct Bodies {
    reading: Arc<Mutex<Reading>>,
    timeout: Duration,
    chance: Duration,
}

#[derive(Default)]
struct Reading {
    held: usize,
    next: u64,
    /// In order of their start.
    readers: BTreeMap<u64, Reader>,
}

struct Reader {
    since: Instant,
    held: usize,
    given_up: CancellationToken,
}

/// A body that was read. It counts until its registration is dropped: its request takes as much memory while it waits.
pub struct Body {
    /// Its bytes.
    pub text: Vec<u8>,
    /// Its registration.
    pub place: Place,
}

impl Bodies {
    /// None yet.
    pub fn new() -> Self {
        Self::with(READ_TIMEOUT, CHANCE)
    }

    fn with(timeout: Duration, chance: Duration) -> Self {
        Self {
            reading: Arc::default(),
            timeout,
            chance,
        }
    }

    /// Reads the body of a request.
    ///
    /// # Errors
    /// If it is too long or too slow, or memory is short.
    pub async fn read(&self, request: Request) -> Result<Body, Refusal> {
        let stated = request.headers().get(header::CONTENT_LENGTH);
        let stated = stated.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if stated.is_some_and(|length| length > limits::WEBHOOK_BODY_BYTES) {
            return Err(TOO_LONG);
        }
        let place = self.begin();
        let reading = async {
            let mut chunks = request.into_body().into_data_stream();
            let mut text = Vec::new();
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk.map_err(|_| BROKEN)?;
                if text.len() + chunk.len() > limits::WEBHOOK_BODY_BYTES {
                    return Err(TOO_LONG);
                }
                place.hold(chunk.len())?;
                text.extend_from_slice(&chunk);
            }
            Ok(text)
        };
        let text = tokio::select! {
            read = tokio::time::timeout(self.timeout, reading) => read.unwrap_or(Err(TOO_SLOW)),
            () = place.given_up() => Err(NO_SPACE),
        }?;
        Ok(Body { text, place })
    }

    fn begin(&self) -> Place {
        let mut reading = self.lock();
        reading.next += 1;
        let (id, given_up) = (reading.next, CancellationToken::new());
        let reader = Reader {
            since: Instant::now(),
            held: 0,
            given_up: given_up.clone(),
        };
        reading.readers.insert(id, reader);
        Place {
            bodies: self.clone(),
            id,
            given_up,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Frees so many bytes for a reader: aborts the oldest body if it has had its minimum time, else the largest one if it is
    /// larger than the reader's. So short requests are answered although other clients send long ones.
    fn free_space(&mut self, id: u64, bytes: usize, chance: Duration) -> bool {
        let own = self.readers.get(&id).map_or(0, |reader| reader.held) + bytes;
        while self.held + bytes > limits::WEBHOOK_BODIES_BYTES {
            let others = || {
                let holds = |(other, reader): &(&u64, &Reader)| **other != id && reader.held > 0;
                self.readers.iter().filter(holds)
            };
            let oldest = others().next().filter(|(_, reader)| reader.since.elapsed() >= chance);
            let largest = || {
                let largest = others().max_by_key(|(_, reader)| reader.held);
                largest.filter(|(_, reader)| reader.held > own)
            };
            let Some((&other, _)) = oldest.or_else(largest) else {
                return false;
            };
            self.end(other);
        }
        true
    }

    fn end(&mut self, id: u64) {
        if let Some(reader) = self.readers.remove(&id) {
            self.held -= reader.held;
            reader.given_up.cancel();
        }
    }
}

/// The registration of one body; removed on drop.
pub struct Place {
    bodies: Bodies,
    id: u64,
    given_up: CancellationToken,
}

impl Place {
    /// Ends when the body, or the request that waits, must make room for others.
    pub async fn given_up(&self) {
        self.given_up.cancelled().await;
    }

    /// Reserves so many more bytes.
    fn hold(&self, bytes: usize) -> Result<(), Refusal> {
        let mut reading = self.bodies.lock();
        if !reading.free_space(self.id, bytes, self.bodies.chance) {
            return Err(NO_SPACE);
        }
        let reader = reading.readers.get_mut(&self.id).ok_or(NO_SPACE)?;
        reader.held += bytes;
        reading.held += bytes;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.bodies.lock().end(self.id);
    }
}

#[cfg(test)]
mod tests;
