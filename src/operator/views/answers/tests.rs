use super::*;

#[test]
fn who_takes_gzip_says_so() {
    for (text, taken) in [
        ("gzip", true),
        ("deflate, gzip;q=1.0, *;q=0.5", true),
        ("gzip;q=0", false),
        ("br", false),
        ("", false),
    ] {
        let value = HeaderValue::from_static(text);
        assert_eq!(
            takes_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, value)])),
            taken,
            "{text}"
        );
    }
    assert!(!takes_gzip(&HeaderMap::new()));
}
