//! Compression and entity tags of the HTTP server's responses.

use std::fmt::Write as _;
use std::io::{self, Write};

use axum::http::{HeaderMap, header};
use flate2::Compression;
use flate2::write::GzEncoder;

/// The level for responses that change often.
pub const FAST: Compression = Compression::fast();
/// The level for files that are compressed once.
pub const BEST: Compression = Compression::best();

/// The text, compressed.
///
/// # Errors
/// Never, in memory.
pub fn gzip(text: &[u8], how: Compression) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), how);
    encoder.write_all(text)?;
    encoder.finish()
}

/// Whether the client accepts gzip.
#[must_use]
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let mut all = listed(headers, &header::ACCEPT_ENCODING);
    all.any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && quality.trim() != "q=0"
    })
}

/// An entity tag of a digest. A weak one, since it is the same for compressed and plain content.
#[must_use]
pub fn tag(digest: &[u8]) -> String {
    let mut tag = "W/\"".to_owned();
    for byte in digest.iter().take(12) {
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}

/// Whether the client has the content with this tag already (`If-None-Match`).
#[must_use]
pub fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    listed(headers, &header::IF_NONE_MATCH).any(|known| strong(known) == strong(tag))
}

/// The elements of a header that holds a list.
fn listed<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(name).into_iter();
    all.filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn gzip_is_used_if_the_client_accepts_it() {
        for (text, taken) in [
            ("gzip", true),
            ("deflate, gzip;q=1.0, *;q=0.5", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
        ] {
            assert_eq!(takes_gzip(&with(header::ACCEPT_ENCODING, text)), taken, "{text}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn a_client_names_its_copy_by_the_entity_tag() {
        let tag = tag(&[0xab; 32]);
        assert_eq!(tag, "W/\"abababababababababababab\"");
        for (text, known) in [
            ("W/\"abababababababababababab\"", true),
            ("\"1\", \"abababababababababababab\"", true),
            ("\"1\"", false),
            ("", false),
        ] {
            assert_eq!(is_known(&with(header::IF_NONE_MATCH, text), &tag), known, "{text}");
        }
        assert!(!is_known(&HeaderMap::new(), &tag));
    }
}
