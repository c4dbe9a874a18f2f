//! Connections that fail are told once, with address and cause, and counted.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, Replica, eventually};
use super::telemetry::scrape;

/// The lines of the log with this message, as JSON.
fn lines(replica: &Replica, message: &str) -> Vec<serde_json::Value> {
    let log = replica.log();
    let lines = log.lines().filter(|line| line.contains(message));
    lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The address and cause of a line.
fn about(line: &serde_json::Value) -> String {
    let field = |name: &str| line[name].as_str().unwrap_or_default();
    format!("{} {}", field("address"), field("cause"))
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_tls_handshakes_are_logged_once_by_address_and_cause() {
    const MESSAGE: &str = "a client's connection to the webhooks failed";
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let replica = lab.replica("one").await;
    let address = ("127.0.0.1", replica.webhooks);
    let before = lines(&replica, MESSAGE).len();
    for _ in 0..20 {
        // No TLS.
        let mut plain = TcpStream::connect(address).await.expect("it listens");
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(10), plain.read_to_end(&mut answer)).await;
        // Ends before the handshake.
        drop(TcpStream::connect(address).await.expect("it listens"));
    }
    // Does not know the authority.
    let config = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let config = Arc::new(config);
    for _ in 0..20 {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(Arc::clone(&config), name).expect("a client");
        let handshake = tokio::task::spawn_blocking(move || {
            let mut stream = std::net::TcpStream::connect(address).expect("it listens");
            while client.is_handshaking() {
                client.complete_io(&mut stream)?;
            }
            std::io::Result::Ok(())
        });
        handshake.await.expect("it ends").expect_err("not trusted");
    }
    let told = eventually("each failure is counted", async || {
        let page = scrape(&replica).await;
        let count = |cause: &str| {
            let labels = [("side", "webhooks"), ("cause", cause)];
            page.values("unikai_connection_failures_total", &labels)
                .iter()
                .sum::<f64>()
        };
        let counts = ["not_tls", "closed", "certificate"].map(count);
        (counts.iter().all(|count| *count >= 20.0))
            .then(|| lines(&replica, MESSAGE))
            .ok_or_else(|| format!("{counts:?}"))
    })
    .await;
    let mut about: Vec<String> = told.iter().skip(before).map(about).collect();
    about.sort();
    assert_eq!(about.len(), 3, "{about:#?}");
    assert!(
        about[0].starts_with("127.0.0.1 closed before the TLS handshake was complete"),
        "{about:#?}"
    );
    assert!(
        about[1].starts_with("127.0.0.1 the other side does not accept our certificate ("),
        "{about:#?}"
    );
    assert!(about[2].starts_with("127.0.0.1 what came is no TLS ("), "{about:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_connections_to_the_api_server_are_logged_once() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let replica = lab.replica_with("one", &["--watch-timeout", "2"]).await;
    let all = Match {
        user: Some(replica.identity.user.clone()),
        ..Match::default()
    };
    lab.server.faults().add(all, Effect::Drop, Times::Always);
    let failures = async || {
        let labels = [("side", "api_server"), ("cause", "closed")];
        let page = scrape(&replica).await;
        page.values("unikai_connection_failures_total", &labels)
            .iter()
            .sum::<f64>()
    };
    eventually("connections fail", async || {
        let failures = failures().await;
        (failures >= 20.0).then_some(()).ok_or_else(|| failures.to_string())
    })
    .await;
    let told = lines(&replica, "the connection to the API server failed");
    let address = lab.server.url().trim_start_matches("https://");
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(about(&told[0]).starts_with(&format!("{address} ")), "{told:#?}");
    let of_watches = lines(&replica, "watch failed; it is retried");
    assert_eq!(of_watches, Vec::<serde_json::Value>::new());

    lab.server.faults().clear();
    eventually("it is told that the server is reached", async || {
        let told = lines(&replica, "the API server is reached again");
        (told.len() == 1).then_some(()).ok_or_else(|| format!("{told:?}"))
    })
    .await;
}
