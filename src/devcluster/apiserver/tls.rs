//! The server's certificates: an authority of its own and one serving certificate, made at every start.

use std::{net::IpAddr, sync::Arc};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// What serves TLS and what clients must trust.
pub(crate) struct Certificates {
    /// The authority, PEM.
    pub ca_pem: String,
    /// Server side, offering HTTP/2 and HTTP/1.1.
    pub server: Arc<ServerConfig>,
}

/// Makes certificates for `localhost`, the in-cluster service names and this address.
pub(crate) fn make(address: IpAddr) -> anyhow::Result<Certificates> {
    let ca_key = KeyPair::generate()?;
    let mut ca_params = CertificateParams::default();
    ca_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca_params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca_params
        .distinguished_name
        .push(DnType::CommonName, "unikai devcluster CA");
    let ca = ca_params.self_signed(&ca_key)?;
    let issuer = Issuer::new(ca_params, ca_key);

    let mut names = vec![
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "127.0.0.1",
        "::1",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect::<Vec<_>>();
    let address = address.to_string();
    if !names.contains(&address) {
        names.push(address);
    }
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "unikai devcluster");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?;

    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .context("the certificate just made is refused")?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Certificates {
        ca_pem: ca.pem(),
        server: Arc::new(server),
    })
}
