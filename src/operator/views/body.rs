//! Bodies of answers, compressed for clients that accept it.

use std::io::Write;

use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Shorter answers are not worth compressing.
const WORTH_IT: usize = 4 << 10;

/// The body of an answer.
#[derive(Clone, Debug)]
pub struct Body {
    /// What is sent.
    pub bytes: Bytes,
    /// Whether it is compressed with gzip.
    pub compressed: bool,
}

/// The body with that text, compressed where the client accepts it and it is worth it.
pub async fn body(text: Vec<u8>, compress: bool) -> Body {
    if !compress || text.len() < WORTH_IT {
        return Body {
            bytes: text.into(),
            compressed: false,
        };
    }
    let squeezed = tokio::task::spawn_blocking(move || {
        let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
        encoder
            .write_all(&text)
            .and_then(|()| encoder.finish())
            .map_err(|_| text)
    });
    match squeezed.await {
        Ok(Ok(bytes)) => Body {
            bytes: bytes.into(),
            compressed: true,
        },
        Ok(Err(text)) => Body {
            bytes: text.into(),
            compressed: false,
        },
        Err(_) => Body {
            bytes: Bytes::new(),
            compressed: false,
        },
    }
}

#[cfg(test)]
mod tests;
