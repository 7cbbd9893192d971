//! Unit tests of `src/store/redis/net/tls.rs`.

use super::*;

#[test]
fn text_that_is_no_pem_is_refused_and_not_shown() {
    let roots = TlsSettings { roots: Some(b"s3crt".to_vec()), client: None };
    let error = Tls::new(&roots, Some("localhost")).expect_err("no certificate").to_string();
    assert!(error.contains("TLS root certificates") && !error.contains("s3crt"), "{error}");
    assert!(!format!("{roots:?}").contains("s3crt"));
}
