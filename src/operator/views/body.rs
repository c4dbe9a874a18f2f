//! Bodies of responses, compressed for clients that accept it.

use axum::body::Bytes;

use super::super::compression::{FAST, gzip};

/// Shorter bodies are not compressed.
const WORTH_IT: usize = 4 << 10;

/// The body of an answer.
#[derive(Clone, Debug)]
pub struct Body {
    pub bytes: Bytes,
    /// Whether it is compressed with gzip.
    pub compressed: bool,
    /// The entity tag, if clients may revalidate the content.
    pub tag: Option<String>,
}

impl Body {
    fn plain(text: Vec<u8>) -> Self {
        Self {
            bytes: text.into(),
            compressed: false,
            tag: None,
        }
    }
}

/// The body with that text, compressed where the client accepts it and it is worth it.
pub async fn body(text: Vec<u8>, compress: bool) -> Body {
    if !compress || text.len() < WORTH_IT {
        return Body::plain(text);
    }
    let squeezed = tokio::task::spawn_blocking(move || gzip(&text, FAST).map_err(|_| text));
    match squeezed.await {
        Ok(Ok(bytes)) => Body {
            compressed: true,
            ..Body::plain(bytes)
        },
        Ok(Err(text)) => Body::plain(text),
        Err(_) => Body::plain(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
