//! Answers that their clients have not read yet: they take memory for as long as the clients like, up to [`LONGEST`], so that there is room for a limited
//! number of them.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// For answers about the cluster, of all operators in this process.
pub static ANSWERS: Room = Room::new(128 << 20);
/// Shorter answers take no room.
const SHORT: usize = 4 << 10;
/// How long a client may take to read an answer.
pub const LONGEST: Duration = Duration::from_mins(5);
/// Why an answer for which there is no room is refused.
pub const FULL: &str = "too many answers have not been read by their clients yet; try again later";
/// Bytes of a piece of an answer. A few pieces stay in the buffers of the connection until the client reads them or is gone, also after [`LONGEST`].
const PIECE: usize = 16 << 10;

/// The bytes that answers may take together.
pub struct Room {
    most: usize,
    /// The bytes that are taken, by user.
    taken: Mutex<BTreeMap<String, usize>>,
}

/// The part of a room that an answer takes, until this is dropped.
pub struct Place {
    room: &'static Room,
    user: String,
    bytes: usize,
}

impl Room {
    /// Room for so many bytes.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            taken: Mutex::new(BTreeMap::new()),
        }
    }

    /// A place for an answer of this length to a user. Several answers to one user take a quarter of the room at most; a single one may take more, and one
    /// that is longer than the room takes all of it. `None`: there is no room.
    #[must_use]
    pub fn take(&'static self, user: &str, length: usize) -> Option<Place> {
        let bytes = if length < SHORT { 0 } else { length.min(self.most) };
        let mut taken = self.lock();
        let own = taken.get(user).copied().unwrap_or_default();
        let all: usize = taken.values().sum();
        if bytes > 0 && (all + bytes > self.most || (own > 0 && own + bytes > self.most / 4)) {
            return None;
        }
        if bytes > 0 {
            taken.insert(user.to_owned(), own + bytes);
        }
        Some(Place {
            room: self,
            user: user.to_owned(),
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Frees what an answer of this length does not need.
    pub fn shrink(&mut self, length: usize) {
        let bytes = self.bytes.min(length);
        let mut taken = self.room.lock();
        if let Some(own) = taken.get_mut(&self.user) {
            *own -= self.bytes - bytes;
            if *own == 0 {
                taken.remove(&self.user);
            }
        }
        self.bytes = bytes;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

/// The response with this content. It keeps its place until the client has read it or is gone, for [`LONGEST`] at most: then the response is broken off.
pub fn response(content: Bytes, place: impl Send + 'static) -> Response {
    within(LONGEST, content, place)
}

/// As [`response`], with another limit on the time.
pub(super) fn within(longest: Duration, content: Bytes, place: impl Send + 'static) -> Response {
    let length = content.len();
    if length < SHORT {
        return Body::from(content).into_response();
    }
    let content = Arc::new(content);
    // Closed once all pieces are read or dropped. Nothing is sent.
    let (unread, mut end) = mpsc::channel(1);
    let pieces = Pieces {
        content: Arc::downgrade(&content),
        sent: 0,
        length,
        unread,
    };
    // A task of its own, since a response is not polled while its client does not read.
    tokio::spawn(async move {
        let _ = timeout(longest, end.recv()).await;
        drop((content, place));
    });
    let body = Body::from_stream(stream::iter(pieces));
    ([(header::CONTENT_LENGTH, length)], body).into_response()
}

/// What is left to send of a content.
struct Pieces {
    content: Weak<Bytes>,
    sent: usize,
    length: usize,
    unread: mpsc::Sender<()>,
}

/// A copy of a part of the content: the rest need not stay in memory with it.
struct Piece {
    copy: Vec<u8>,
    _unread: mpsc::Sender<()>,
}

impl Iterator for Pieces {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.sent == self.length {
            return None;
        }
        let Some(content) = self.content.upgrade() else {
            self.sent = self.length;
            return Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader is too slow")));
        };
        let end = self.length.min(self.sent + PIECE);
        let piece = Piece {
            copy: content.slice(self.sent..end).to_vec(),
            _unread: self.unread.clone(),
        };
        self.sent = end;
        Some(Ok(Bytes::from_owner(piece)))
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.copy
    }
}

#[cfg(test)]
mod tests;
