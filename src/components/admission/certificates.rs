//! The webhooks' certificates: how they are issued, when the next one is issued, and which one is served when.
//!
//! Each pair is a certificate authority of its own and one serving certificate signed by it; the authority's key is
//! not kept. A new pair is issued long before the old one expires, and is served only an hour later, if the webhook configurations have its authority: by
//! then every API server trusts both. Everything is a function of the stored pairs, the configurations and the time, so replicas change over
//! together without communication. Absent: where pairs are stored, and who may write them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, crypto};

/// How long a pair is valid.
const LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);
/// The age at which the next pair is issued.
const RENEW_AT: SignedDuration = SignedDuration::from_hours(60 * 24);
/// How long a new pair is trusted before it is served, and an old one is trusted after that.
const OVERLAP: SignedDuration = SignedDuration::from_hours(1);
/// How far the clocks of the cluster may differ.
const SKEW: SignedDuration = SignedDuration::from_hours(1);

/// A certificate authority and the serving certificate that it signed, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// When it was issued.
    pub issued_at: Timestamp,
    /// The authority's certificate.
    pub authority: String,
    /// The serving certificate.
    pub certificate: String,
    /// The serving certificate's key.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair")
            .field("issued_at", &self.issued_at)
            .finish_non_exhaustive()
    }
}

impl Pair {
    /// When it expires.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.issued_at + LIFETIME
    }

    /// Whether it is valid at that time. One issued by a clock far ahead is not valid yet.
    #[must_use]
    fn is_valid(&self, now: Timestamp) -> bool {
        self.issued_at - SKEW <= now && now < self.expires_at()
    }
}

/// The pairs of a cluster, from the oldest to the newest, and the names that they are valid for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    /// Host names and addresses.
    pub names: Vec<String>,
    /// From the oldest to the newest.
    pub pairs: Vec<Pair>,
}

/// What to do about the stored pairs.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing before this time.
    Keep(Timestamp),
    /// Store these instead.
    Store(Pairs),
}

/// Why no pair could be issued or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be issued.
    #[error("cannot issue a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    /// A certificate or key is not usable.
    #[error("cannot use a certificate: {0}")]
    Use(#[from] rustls::Error),
    /// Client certificates cannot be verified with these authorities.
    #[error("cannot tell clients by their certificates: {0}")]
    Clients(#[from] rustls::server::VerifierBuilderError),
    /// A text without an authority.
    #[error("there is no certificate in it")]
    NoAuthority,
    /// A certificate or key is not PEM.
    #[error("cannot read a certificate: {0}")]
    Read(#[from] rustls::pki_types::pem::Error),
}

impl Pairs {
    /// The pair to serve, of those that are valid: the newest that has been trusted long enough, or else the oldest.
    #[must_use]
    pub fn served(&self, now: Timestamp) -> Option<&Pair> {
        self.served_if(|_| true, now)
    }

    /// The same, where only pairs with a registered authority are trusted.
    #[must_use]
    pub fn served_if(&self, is_registered: impl Fn(&Pair) -> bool, now: Timestamp) -> Option<&Pair> {
        let mut valid = self.pairs.iter().filter(|pair| pair.is_valid(now));
        let is_trusted = |pair: &&Pair| pair.issued_at + OVERLAP <= now && is_registered(pair);
        let trusted = valid.clone().rev().find(is_trusted);
        trusted.or(valid.next())
    }

    /// Whether a valid pair for the same names is not among the next ones.
    #[must_use]
    pub fn loses(&self, next: &Self, now: Timestamp) -> bool {
        let is_lost = |pair: &Pair| pair.is_valid(now) && !next.pairs.contains(pair);
        self.names == next.names && self.pairs.iter().any(is_lost)
    }

    /// The authorities to trust, as PEM.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.pairs.iter().map(|pair| pair.authority.as_str()).collect()
    }

    /// What to do for `names` at `now`.
    ///
    /// # Errors
    /// When a pair had to be issued and could not be.
    pub fn plan(&self, names: &[String], now: Timestamp) -> Result<Plan, Error> {
        let alive: Vec<Pair> = self.pairs.iter().filter(|pair| pair.is_valid(now)).cloned().collect();
        if self.names != names || alive.is_empty() {
            let pairs = vec![issue(names, now)?];
            return Ok(Plan::Store(Self {
                names: names.to_vec(),
                pairs,
            }));
        }
        let mut next = Self {
            names: self.names.clone(),
            pairs: alive,
        };
        // Pairs older than one that has been served for the overlap are no longer trusted.
        let settled = next
            .pairs
            .iter()
            .rposition(|pair| pair.issued_at + OVERLAP + OVERLAP <= now);
        next.pairs.drain(..settled.unwrap_or(0));
        let newest = next.pairs.last().map_or(now, |pair| pair.issued_at);
        if newest + RENEW_AT <= now {
            next.pairs.push(issue(names, now)?);
        }
        Ok(if next == *self {
            Plan::Keep(self.next_change(now))
        } else {
            Plan::Store(next)
        })
    }

    /// The pairs to store when the store was emptied or overwritten while these were in use: a new pair, and the served one, which
    /// stays trusted until the API servers trust the new pair. `None` if no pair is usable.
    ///
    /// # Errors
    /// When no pair could be issued.
    pub fn restored(&self, names: &[String], now: Timestamp) -> Result<Option<Self>, Error> {
        let Some(served) = self.served(now).filter(|_| self.names == names) else {
            return Ok(None);
        };
        Ok(Some(Self {
            names: names.to_vec(),
            pairs: vec![served.clone(), issue(names, now)?],
        }))
    }

    /// When the next action, or the next change of the served pair, is due.
    fn next_change(&self, now: Timestamp) -> Timestamp {
        let of_pair = |pair: &Pair| {
            [
                pair.issued_at + OVERLAP,
                pair.issued_at + OVERLAP + OVERLAP,
                pair.issued_at + RENEW_AT,
            ]
        };
        let coming = self
            .pairs
            .iter()
            .flat_map(of_pair)
            .filter(|instant| *instant > now)
            .min();
        coming.unwrap_or(now + OVERLAP)
    }

    /// The pairs as the data of a Secret.
    #[must_use]
    pub fn to_data(&self) -> BTreeMap<String, Vec<u8>> {
        let mut data = BTreeMap::from([
            ("names".to_owned(), self.names.join("\n").into_bytes()),
            ("ca.crt".to_owned(), self.bundle().into_bytes()),
        ]);
        for pair in &self.pairs {
            let issued = pair.issued_at.as_second();
            data.insert(format!("{issued}.ca.crt"), pair.authority.clone().into_bytes());
            data.insert(format!("{issued}.tls.crt"), pair.certificate.clone().into_bytes());
            data.insert(format!("{issued}.tls.key"), pair.key.clone().into_bytes());
        }
        data
    }

    /// The pairs in the data of a Secret; unusable ones are left out.
    #[must_use]
    pub fn from_data(data: &BTreeMap<String, Vec<u8>>) -> Self {
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.clone()).ok());
        let pair = |issued: &str| {
            let pair = Pair {
                issued_at: Timestamp::from_second(issued.parse().ok()?).ok()?,
                authority: text(&format!("{issued}.ca.crt"))?,
                certificate: text(&format!("{issued}.tls.crt"))?,
                key: text(&format!("{issued}.tls.key"))?,
            };
            server_config(&pair, None).is_ok().then_some(pair)
        };
        let mut pairs: Vec<Pair> = data
            .keys()
            .filter_map(|key| key.strip_suffix(".tls.key"))
            .filter_map(pair)
            .collect();
        pairs.sort_by_key(|pair| pair.issued_at);
        let names = text("names").unwrap_or_default().lines().map(str::to_owned).collect();
        Self { names, pairs }
    }
}

/// Issues a pair for the names, which are host names or addresses.
fn issue(names: &[String], now: Timestamp) -> Result<Pair, Error> {
    // Whole seconds, because that is what the store keeps.
    let issued_at = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let serial = issued_at.as_second();

    let mut authority = CertificateParams::new(Vec::new())?;
    authority
        .distinguished_name
        .push(DnType::CommonName, format!("unikai webhooks {serial}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    set_validity(&mut authority, issued_at);
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;

    let mut serving = CertificateParams::new(names.to_vec())?;
    serving
        .distinguished_name
        .push(DnType::CommonName, names.first().map_or("unikai", String::as_str));
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    serving.use_authority_key_identifier_extension = true;
    set_validity(&mut serving, issued_at);
    let serving_key = KeyPair::generate()?;
    let certificate = serving.signed_by(&serving_key, &Issuer::from_params(&authority, &authority_key))?;

    Ok(Pair {
        issued_at,
        authority: authority_certificate.pem(),
        certificate: certificate.pem(),
        key: serving_key.serialize_pem(),
    })
}

fn set_validity(params: &mut CertificateParams, issued_at: Timestamp) {
    let at = |instant: Timestamp| {
        let seconds = u64::try_from(instant.as_second()).unwrap_or(0);
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = at(issued_at - SKEW);
    params.not_after = at(issued_at + LIFETIME);
}

/// The TLS configuration of a server with the pair. With `clients` (authorities as PEM), clients must present a certificate of one of them.
///
/// # Errors
/// When the pair or the authorities cannot be used.
pub fn server_config(pair: &Pair, clients: Option<&str>) -> Result<Arc<ServerConfig>, Error> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(pem)?), provider);
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The authorities in a PEM text.
///
/// # Errors
/// When it cannot be read, or holds none.
pub fn authorities(pem: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(authority?)?;
    }
    if roots.is_empty() {
        return Err(Error::NoAuthority);
    }
    Ok(roots)
}

/// The host in a URL or authority such as `https://192.0.2.7:9443/x`, without brackets.
#[must_use]
pub fn host(url: &http::Uri) -> Option<String> {
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    Some(
        host.parse::<IpAddr>()
            .map_or_else(|_| host.to_owned(), |address| address.to_string()),
    )
}

#[cfg(test)]
mod tests;
