//! A client of the webhooks who is nobody: any pod of the cluster. It believes any certificate, and need not end what it began.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};

/// A connection with a request that was sent as far as the server took it.
pub type Connection = StreamOwned<ClientConnection, TcpStream>;

/// How long the server may take nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sends the bytes to a port of this machine, and keeps the connection. `None` if nothing could be sent.
pub fn send(port: u16, bytes: &[u8]) -> Option<Connection> {
    let socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believe(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").ok()?;
    let session = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut connection = StreamOwned::new(session, socket);
    // What the server does not take, it refuses.
    let _ = connection.write_all(bytes);
    let _ = connection.flush();
    Some(connection)
}

#[derive(Debug)]
struct Believe(Arc<CryptoProvider>);

impl ServerCertVerifier for Believe {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
