use std::io::Read;

use flate2::read::GzDecoder;

use super::*;

#[tokio::test]
async fn long_responses_are_compressed_if_the_client_accepts_it() {
    let text = "workload ".repeat(10_000).into_bytes();
    let plain = body(text.clone(), false).await;
    assert!(!plain.compressed && plain.bytes == text);
    let short = body(b"short".to_vec(), true).await;
    assert!(!short.compressed && short.bytes == b"short"[..]);
    let squeezed = body(text.clone(), true).await;
    assert!(squeezed.compressed && squeezed.bytes.len() < text.len() / 10);
    let mut read = Vec::new();
    GzDecoder::new(&*squeezed.bytes).read_to_end(&mut read).unwrap();
    assert_eq!(read, text);
}
