//! An unauthenticated client of the webhooks, as any pod of the cluster could be. It accepts any certificate, and may leave requests incomplete.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use kube::Config;
use kube::client::ConfigExt;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

/// A connection with a request that was sent as far as the server took it.
pub type Connection = StreamOwned<ClientConnection, TcpStream>;

/// How long the server may read nothing.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Sends the bytes to a port of this machine, and keeps the connection. `None` if nothing could be sent.
pub fn send(port: u16, bytes: &[u8]) -> Option<Connection> {
    let socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_write_timeout(Some(MAX_WAIT)).ok()?;
    socket.set_read_timeout(Some(MAX_WAIT)).ok()?;
    let mut config = Config::new(format!("https://localhost:{port}").parse().ok()?);
    config.accept_invalid_certs = true;
    let config = config.rustls_client_config().ok()?;
    let name = ServerName::try_from("localhost").ok()?;
    let session = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut connection = StreamOwned::new(session, socket);
    // A server that does not read on has refused the request.
    let _ = connection.write_all(bytes);
    let _ = connection.flush();
    Some(connection)
}
