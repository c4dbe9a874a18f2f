use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};

use super::*;
use crate::clock;

fn day(day: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + day * 86_400).unwrap()
}

fn names() -> Vec<String> {
    ["unikai.kai-scheduler.svc", "192.0.2.7"].map(str::to_owned).into()
}

/// The API server's side: does a client that trusts the bundle accept what is served?
fn accepted(trusted: &str, served: &Pair, name: &str, now: Timestamp) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let certificate = CertificateDer::from_pem_slice(served.certificate.as_bytes()).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
    verifier
        .verify_server_cert(&certificate, &[], &name, &[], now)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Follows the plan until it says to keep what there is.
fn settle(mut pairs: Pairs, now: Timestamp) -> (Pairs, Timestamp) {
    for _ in 0..3 {
        match pairs.plan(&names(), now).unwrap() {
            Plan::Keep(next) => return (pairs, next),
            Plan::Store(better) => pairs = better,
        }
    }
    panic!("the plan does not settle: {pairs:?}");
}

#[test]
fn a_first_pair_is_trusted_for_all_of_its_names() {
    let (pairs, _) = settle(Pairs::default(), day(0));
    let served = pairs.served(day(0)).unwrap();
    for name in names() {
        accepted(&pairs.bundle(), served, &name, day(0)).unwrap();
    }
    accepted(&pairs.bundle(), served, "example.org", day(0)).unwrap_err();
    server_config(served, None).unwrap();
}

#[test]
fn rotation_over_two_years_breaks_no_connection() {
    let (mut pairs, mut next) = settle(Pairs::default(), day(0));
    let mut history = vec![(day(0), pairs.clone())];
    while next < day(730) {
        let now = next;
        let (settled, then) = settle(pairs.clone(), now);
        (pairs, next) = (settled, then);
        history.push((now, pairs.clone()));
        // An API server, and another replica, may be half an hour behind.
        let behind = history
            .iter()
            .rev()
            .find(|(since, _)| *since + SignedDuration::from_mins(30) <= now);
        let behind = &behind.unwrap_or(&history[0]).1;
        for trusted in [behind, &pairs] {
            for served in [behind, &pairs] {
                let pair = served.served(now).unwrap();
                accepted(&trusted.bundle(), pair, "192.0.2.7", now).unwrap_or_else(|error| panic!("at {now}: {error}"));
            }
        }
        assert!(pairs.pairs.len() <= 2, "old authorities are dropped");
    }
    let issued: std::collections::BTreeSet<Timestamp> = history
        .iter()
        .flat_map(|(_, pairs)| pairs.pairs.iter().map(|pair| pair.issued_at))
        .collect();
    assert_eq!(issued.len(), 1 + 730 / 60);
}

#[test]
fn a_new_pair_is_served_when_it_has_been_trusted_for_the_overlap() {
    let (first, _) = settle(Pairs::default(), day(0));
    let (both, _) = settle(first.clone(), day(60));
    assert_eq!(both.pairs.len(), 2);
    assert_eq!(both.served(day(60)), Some(&first.pairs[0]));
    assert_eq!(both.served(day(60) + OVERLAP), Some(&both.pairs[1]));
}

#[test]
fn other_names_or_an_expired_certificate_make_a_new_pair_at_once() {
    let (first, _) = settle(Pairs::default(), day(0));
    let other = vec!["other.example".to_owned()];
    let Plan::Store(renamed) = first.plan(&other, day(1)).unwrap() else {
        panic!("kept")
    };
    accepted(
        &renamed.bundle(),
        renamed.served(day(1)).unwrap(),
        "other.example",
        day(1),
    )
    .unwrap();

    let Plan::Store(late) = first.plan(&names(), day(200)).unwrap() else {
        panic!("kept")
    };
    accepted(&late.bundle(), late.served(day(200)).unwrap(), "192.0.2.7", day(200)).unwrap();
}

#[test]
fn stored_pairs_are_read_again_and_invalid_ones_are_ignored() {
    let (first, _) = settle(Pairs::default(), day(0));
    let (both, _) = settle(first, day(60));
    let mut data = both.to_data();
    assert_eq!(Pairs::from_data(&data), both);

    let key = format!("{}.tls.key", both.pairs[0].issued_at.as_second());
    data.insert(key, b"nonsense".to_vec());
    assert_eq!(Pairs::from_data(&data).pairs, both.pairs[1..]);
    assert_eq!(Pairs::from_data(&BTreeMap::new()), Pairs::default());
}

#[test]
fn the_key_is_not_printed() {
    let (pairs, _) = settle(Pairs::default(), day(0));
    assert!(!format!("{pairs:?}").contains("PRIVATE"));
}

#[test]
fn hosts_of_urls() {
    for (url, expected) in [
        ("https://192.0.2.7:9443", "192.0.2.7"),
        ("https://[::1]:9443/x", "::1"),
        ("https://unikai.example:9443", "unikai.example"),
    ] {
        assert_eq!(host(&url.parse().unwrap()).as_deref(), Some(expected));
    }
}

#[test]
fn what_is_served_stays_trusted_when_the_store_is_lost() {
    let (names, start) = (
        vec!["unikai.kai-scheduler.svc".to_owned()],
        Timestamp::UNIX_EPOCH + LIFETIME,
    );
    let Ok(Plan::Store(pairs)) = Pairs::default().plan(&names, start) else {
        panic!("the first pair")
    };
    let later = start + OVERLAP;
    let restored = pairs.restored(&names, later).unwrap().unwrap();
    assert_eq!((restored.pairs.len(), &restored.pairs[0]), (2, &pairs.pairs[0]));
    assert_eq!(restored.served(later), Some(&pairs.pairs[0]));
    assert_eq!(restored.plan(&names, later).unwrap(), Plan::Keep(later + OVERLAP));

    assert_eq!(pairs.restored(&["another.name".to_owned()], later).unwrap(), None);
    assert_eq!(pairs.restored(&names, start + LIFETIME).unwrap(), None, "expired");
    assert_eq!(Pairs::default().restored(&names, later).unwrap(), None);
}

/// A handshake with what is served, by a client that trusts it and may have a certificate of its own.
fn handshake(server: Arc<ServerConfig>, trusted: &str, client: Option<&Pair>) -> Result<(), String> {
    let provider = Arc::new(crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(authorities(trusted).unwrap());
    let config = match client {
        None => config.with_no_client_auth(),
        Some(pair) => {
            let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = ServerName::try_from(names().remove(0)).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = rustls::ServerConnection::new(server).unwrap();
    for _ in 0..8 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() {
            server.read_tls(&mut wire).unwrap();
            server.process_new_packets().map_err(|error| error.to_string())?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() {
            client.read_tls(&mut wire).unwrap();
            client.process_new_packets().map_err(|error| error.to_string())?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(())
}

/// A client's pair.
fn client_pair(now: Timestamp) -> Pair {
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    set_validity(&mut authority, now);
    let mut client = CertificateParams::new(vec!["kube-apiserver".to_owned()]).unwrap();
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    set_validity(&mut client, now);
    let certificate = client
        .signed_by(&key, &Issuer::from_params(&authority, &authority_key))
        .unwrap();
    Pair {
        issued_at: now,
        authority: authority.self_signed(&authority_key).unwrap().pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    }
}

#[test]
fn with_client_authorities_only_their_clients_are_served() {
    let now = clock::now();
    let (pairs, _) = settle(Pairs::default(), now);
    let (served, trusted) = (pairs.served(now).unwrap(), pairs.bundle());
    let (api_server, stranger) = (client_pair(now), client_pair(now));

    let open = server_config(served, None).unwrap();
    assert_eq!(handshake(open, &trusted, None), Ok(()));
    let closed = server_config(served, Some(&api_server.authority)).unwrap();
    assert_eq!(handshake(Arc::clone(&closed), &trusted, Some(&api_server)), Ok(()));
    for other in [None, Some(&stranger)] {
        handshake(Arc::clone(&closed), &trusted, other).unwrap_err();
    }
    assert!(matches!(server_config(served, Some("")), Err(Error::NoAuthority)));
}

/// The clock of the replica that issued it was a day ahead.
#[test]
fn a_pair_that_is_not_valid_yet_is_not_served_and_another_takes_its_place() {
    let (ahead, _) = settle(Pairs::default(), day(1));
    assert_eq!(ahead.served(day(0)), None);
    accepted(&ahead.bundle(), &ahead.pairs[0], "192.0.2.7", day(0)).unwrap_err();
    let (right, _) = settle(ahead.clone(), day(0));
    let served = right.served(day(0)).unwrap();
    accepted(&right.bundle(), served, "192.0.2.7", day(0)).unwrap();

    // It does not get in the way of one that is valid, either.
    let (valid, _) = settle(Pairs::default(), day(-30));
    let both = Pairs {
        pairs: [valid.pairs.clone(), ahead.pairs].concat(),
        ..valid.clone()
    };
    assert_eq!(both.served(day(0)), Some(&valid.pairs[0]));
    assert_eq!(both.plan(&names(), day(0)).unwrap(), Plan::Store(valid));
}

#[test]
fn certificates_tolerate_clock_differences_of_an_hour() {
    let (pairs, _) = settle(Pairs::default(), day(0));
    let behind = day(0) - SKEW;
    accepted(&pairs.bundle(), pairs.served(behind).unwrap(), "192.0.2.7", behind).unwrap();
}
