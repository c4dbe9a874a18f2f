//! The Secret with the certificates: who writes it and when, and which certificate is served.

use jiff::SignedDuration;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConnection};

use super::configurations::KINDS;
use super::*;
use crate::components::Settings;
use crate::components::admission::certificates::{Pair, authorities};
use crate::components::admission::configurations::tests::settings;
use crate::components::tests::TimeOfDay;
use crate::components::tests::recorded::Metrics;

/// The name by which the API server calls the webhooks.
const NAME: &str = "unikai.kai-scheduler.svc";

fn names() -> Vec<String> {
    vec![NAME.to_owned()]
}

/// The time at the start of a scenario, plus so many minutes.
fn at(minutes: i64) -> Timestamp {
    let start: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    start + SignedDuration::from_mins(minutes)
}

/// Minutes of so many days.
fn days(days: i64) -> i64 {
    days * 24 * 60
}

/// A pair that is issued so many minutes after the start.
fn issued(minutes: i64, names: &[String]) -> Pairs {
    match Pairs::default().plan(names, at(minutes)).unwrap() {
        Plan::Store(pairs) => pairs,
        Plan::Keep(_) => panic!("there is none to keep"),
    }
}

/// An API server, before any process serves webhooks.
struct Case {
    lab: Lab,
    registered: watch::Sender<Registered>,
    warnings: Warnings,
    _time: TimeOfDay,
}

/// A process that maintains the certificates.
struct Replica {
    tls: watch::Receiver<Option<Arc<ServerConfig>>>,
    bundle: watch::Receiver<Option<String>>,
    run: JoinHandle<()>,
}

impl Case {
    async fn new() -> Self {
        Self {
            _time: TimeOfDay::simulated(at(0)),
            lab: Lab::start(Settings::default(), &["kai-scheduler"]).await,
            registered: watch::channel(Some(BTreeSet::new())).0,
            warnings: Warnings::from_now_on(),
        }
    }

    /// With a Secret.
    async fn with(pairs: &Pairs) -> Self {
        let case = Self::new().await;
        let data = pairs.to_data().into_iter();
        let secret = Secret {
            metadata: read(secret()["metadata"].clone()),
            data: Some(data.map(|(key, value)| (key, ByteString(value))).collect()),
            ..Secret::default()
        };
        case.lab.create(json!(secret)).await;
        case
    }

    fn start(&self) -> Replica {
        self.start_with(None)
    }

    /// `clients`: the authorities of allowed client certificates.
    fn start_with(&self, clients: Option<String>) -> Replica {
        let (bundle, bundle_seen) = watch::channel(None);
        let (tls, tls_seen) = watch::channel(None);
        let published = Published {
            tls,
            bundle,
            registered: self.registered.subscribe(),
            clients,
        };
        let context = self.lab.context.clone();
        Replica {
            tls: tls_seen,
            bundle: bundle_seen,
            run: tokio::spawn(keep_certificates(
                context,
                "kai-scheduler".to_owned(),
                names(),
                published,
            )),
        }
    }

    /// With a process that registers the webhooks, too.
    fn start_registering(&self) -> Replica {
        let replica = self.start();
        tokio::spawn(keep_configurations(
            self.lab.context.clone(),
            settings(),
            Target::Url("https://192.0.2.7:9443".to_owned()),
            replica.bundle.clone(),
            self.registered.clone(),
            Arc::clone(&self.lab.stores),
        ));
        replica
    }

    /// The webhooks have the authorities of these pairs.
    fn register(&self, pairs: &[&Pair]) {
        let bundle = pairs.iter().map(|pair| pair.authority.as_str()).collect();
        self.registered.send_replace(Some(BTreeSet::from([bundle])));
    }

    /// Somebody stores other pairs.
    async fn store(&self, pairs: &Pairs) {
        let data = pairs.to_data().into_iter();
        let data: BTreeMap<String, ByteString> = data.map(|(key, value)| (key, ByteString(value))).collect();
        self.lab.patch(&secret(), json!({"data": data})).await;
    }

    /// What is stored.
    async fn stored(&self) -> Pairs {
        let secret: Secret = read(self.lab.see(&secret()).await);
        Pairs::from_data(&data_of(Some(&secret)))
    }

    /// When the stored pairs were issued, in minutes after the start.
    async fn ages(&self) -> Vec<i64> {
        let pairs = self.stored().await.pairs;
        let since = |pair: &Pair| (pair.issued_at.as_second() - at(0).as_second()) / 60;
        pairs.iter().map(since).collect()
    }

    /// Somebody overwrites all keys.
    async fn overwrite(&self) {
        let mut data = json!(self.lab.see(&secret()).await["data"]);
        for (key, value) in data.as_object_mut().unwrap() {
            if key.ends_with(".key") {
                *value = json!("bm8ga2V5");
            }
        }
        self.lab.patch(&secret(), json!({"data": data})).await;
    }
}

/// The Secret, without content.
fn secret() -> Value {
    let metadata = json!({"namespace": "kai-scheduler", "name": object::WEBHOOK_SECRET});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
}

/// The time of a client.
#[derive(Debug)]
struct At(Timestamp);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        let since = Duration::from_secs(self.0.as_second().unsigned_abs());
        Some(UnixTime::since_unix_epoch(since))
    }
}

impl Replica {
    /// Whether a client that trusts the published authorities gets this pair's certificate.
    fn serves(&self, pair: &Pair) -> bool {
        let (server, bundle) = (self.tls.borrow().clone(), self.bundle.borrow().clone());
        let (Some(server), Some(bundle)) = (server, bundle) else {
            return false;
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_details(provider, Arc::new(At(clock::now())))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(authorities(&bundle).unwrap())
            .with_no_client_auth();
        let name = ServerName::try_from(NAME).unwrap();
        let mut client = Connection::from(ClientConnection::new(Arc::new(client), name).unwrap());
        let mut server = Connection::from(ServerConnection::new(server).unwrap());
        while client.is_handshaking() || server.is_handshaking() {
            if pass(&mut client, &mut server).is_err() || pass(&mut server, &mut client).is_err() {
                return false;
            }
        }
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        client.peer_certificates() == Some(&[certificate])
    }

    /// Whether these authorities are published.
    fn trusts(&self, pairs: &[&Pair]) -> bool {
        let bundle: String = pairs.iter().map(|pair| pair.authority.as_str()).collect();
        self.bundle.borrow().as_ref() == Some(&bundle)
    }

    /// Whether TLS configuration and authorities were published since the last call.
    fn news(&mut self) -> (bool, bool) {
        let news = (self.tls.has_changed().unwrap(), self.bundle.has_changed().unwrap());
        self.tls.mark_unchanged();
        self.bundle.mark_unchanged();
        news
    }
}

/// Hands over what one side of a connection has to send.
fn pass(from: &mut Connection, to: &mut Connection) -> Result<(), rustls::Error> {
    let mut sent = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut sent).unwrap();
    }
    let mut rest = &sent[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn of_the_first_replicas_one_writes_a_certificate_and_all_serve_it() {
    let case = Case::new().await;
    case.lab.lose();
    let creations = Match::verb_on("create", "secrets");
    case.lab.fault(creations, Effect::Delay(MOMENT / 10), Times::Always);
    let replicas = [case.start(), case.start()];
    sleep(MOMENT).await;
    let stored = case.stored().await;
    assert_eq!(case.ages().await, [0]);
    for replica in &replicas {
        assert!(replica.serves(&stored.pairs[0]) && replica.trusts(&[&stored.pairs[0]]));
    }
    let seen = case.lab.see(&secret()).await;
    assert_eq!(seen["type"], "Opaque");
    assert_eq!(
        seen["metadata"]["labels"],
        json!({"app.kubernetes.io/managed-by": "unikai"})
    );
    sleep(minutes(20)).await;
    let mut writes = case.lab.writes();
    writes.sort();
    assert_eq!(writes, ["create secrets 201", "create secrets 409"]);
    assert_eq!(case.warnings.of("WARN"), 0, "that another came first is no trouble");
}

#[tokio::test(start_paused = true)]
async fn an_existing_certificate_is_served_and_nothing_is_written() {
    let pairs = issued(-120, &names());
    let case = Case::with(&pairs).await;
    let mut replica = case.start();
    sleep(MOMENT).await;
    assert!(replica.serves(&pairs.pairs[0]) && replica.trusts(&[&pairs.pairs[0]]));
    assert_eq!(replica.news(), (true, true));
    case.lab
        .patch(&secret(), json!({"metadata": {"annotations": {"a": "b"}}}))
        .await;
    sleep(minutes(60)).await;
    assert_eq!(replica.news(), (false, false));
    assert_eq!(case.lab.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_time_at_which_the_served_certificate_expires_is_a_metric() {
    let metrics = Metrics::from_now_on();
    let case = Case::with(&issued(-120, &names())).await;
    let _replica = case.start();
    sleep(MOMENT).await;
    let expires = at(days(90) - 120).as_second();
    assert_eq!(
        metrics.of("unikai_certificate_expiry_timestamp_seconds"),
        Some(expires as f64)
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_secret_could_be_read() {
    let pairs = issued(-120, &names());
    let case = Case::with(&pairs).await;
    let rule = case
        .lab
        .fault(Match::verb_on("list", "secrets"), refuse(403), Times::Always);
    let replica = case.start();
    sleep(minutes(5)).await;
    assert!(replica.bundle.borrow().is_none() && replica.tls.borrow().is_none());
    assert!(case.warnings.of("the webhooks' certificate cannot be watched") > 0);
    case.lab.server.faults().remove(rule);
    sleep(minutes(1)).await;
    assert!(replica.serves(&pairs.pairs[0]));
    assert_eq!(case.lab.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn after_sixty_days_a_new_pair_is_trusted_then_served_and_the_old_one_dropped() {
    let old = issued(5 - days(60), &names());
    let case = Case::with(&old).await;
    let mut replica = case.start();
    sleep(minutes(5) - MOMENT).await;
    assert_eq!((replica.news(), case.lab.writes()), ((true, true), Vec::new()));
    sleep(MOMENT * 2).await;
    let both = case.stored().await.pairs;
    assert_eq!(case.ages().await, [5 - days(60), 5]);
    assert!(replica.trusts(&[&both[0], &both[1]]) && replica.serves(&both[0]));
    assert_eq!(replica.news(), (false, true));
    sleep(minutes(60) - MOMENT * 2).await;
    assert!(replica.serves(&both[0]), "not every API server trusts the new one yet");
    sleep(MOMENT * 2).await;
    assert!(replica.serves(&both[1]));
    assert_eq!(replica.news(), (true, false));
    sleep(minutes(60)).await;
    assert_eq!(case.ages().await, [5]);
    assert!(replica.trusts(&[&both[1]]) && replica.serves(&both[1]));
    assert_eq!(replica.news(), (false, true));
    assert_eq!(case.lab.writes(), ["update secrets 200"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_new_pair_is_served_once_the_webhooks_have_its_authority() {
    let old = issued(5 - days(60), &names());
    let case = Case::with(&old).await;
    case.register(&[&old.pairs[0]]);
    let replica = case.start();
    sleep(minutes(5 + 180)).await;
    let both = case.stored().await.pairs;
    assert_eq!(case.ages().await, [5 - days(60), 5], "the old one is in use");
    assert!(replica.trusts(&[&both[0], &both[1]]) && replica.serves(&both[0]));
    case.register(&[&both[0], &both[1]]);
    sleep(MOMENT).await;
    assert!(replica.serves(&both[1]));
    assert_eq!(
        case.ages().await.len(),
        2,
        "other replicas may not have changed over yet"
    );
    sleep(SETTLE + seconds(1)).await;
    assert_eq!(case.ages().await, [5]);
    assert!(replica.trusts(&[&both[1]]) && replica.serves(&both[1]));
}

#[tokio::test(start_paused = true)]
async fn a_pair_without_a_registered_authority_is_served_when_the_old_one_has_expired() {
    let old = issued(65 - days(90), &names());
    let case = Case::with(&old).await;
    case.register(&[&old.pairs[0]]);
    let replica = case.start();
    sleep(minutes(62)).await;
    assert!(replica.serves(&old.pairs[0]));
    sleep(minutes(20)).await;
    assert_eq!(case.ages().await, [0]);
    assert!(replica.serves(&case.stored().await.pairs[0]));
}

#[tokio::test(start_paused = true)]
async fn while_the_configurations_cannot_be_written_the_old_certificate_is_served() {
    let (old, new) = (issued(-180, &names()), issued(-150, &names()));
    let case = Case::with(&old).await;
    let replica = case.start_registering();
    sleep(MOMENT).await;
    let rules = KINDS.map(|kind| {
        case.lab
            .fault(Match::verb_on("update", kind), refuse(403), Times::Always)
    });
    let pairs = [old.pairs.clone(), new.pairs.clone()].concat();
    case.store(&Pairs { pairs, ..old.clone() }).await;
    sleep(minutes(1)).await;
    assert!(replica.serves(&old.pairs[0]));
    assert_eq!(case.ages().await, [-180, -150]);
    for rule in rules {
        case.lab.server.faults().remove(rule);
    }
    sleep(seconds(3)).await;
    assert!(replica.serves(&new.pairs[0]));
    sleep(SETTLE).await;
    assert_eq!(case.ages().await, [-150]);
}

#[tokio::test(start_paused = true)]
async fn a_new_pair_is_trusted_as_soon_as_it_is_written_even_if_the_watch_shows_nothing() {
    let case = Case::with(&issued(5 - days(60), &names())).await;
    let replica = case.start();
    sleep(minutes(5) - seconds(5)).await;
    case.lab
        .server
        .faults()
        .silence_watches(Match::verb_on("watch", "secrets"));
    sleep(seconds(5) + MOMENT).await;
    let both = case.stored().await.pairs;
    assert!(replica.trusts(&[&both[0], &both[1]]));
    sleep(seconds(10)).await;
    assert_eq!(case.lab.writes(), ["update secrets 200"], "it is not written again");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_secret_comes_back_with_the_served_certificate() {
    let old = issued(-120, &names());
    let case = Case::with(&old).await;
    case.lab.lose();
    let replica = case.start();
    sleep(MOMENT).await;
    case.lab.delete(&secret()).await;
    sleep(MOMENT).await;
    let both = case.stored().await.pairs;
    assert_eq!(case.ages().await, [-120, 0]);
    assert_eq!(both[0], old.pairs[0]);
    assert!(replica.trusts(&[&both[0], &both[1]]) && replica.serves(&both[0]));
    sleep(minutes(60)).await;
    assert!(replica.serves(&both[1]));
    assert_eq!(case.lab.writes(), ["create secrets 201"]);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_was_deleted_while_the_watch_was_down_comes_back() {
    let case = Case::with(&issued(-120, &names())).await;
    let _replica = case.start();
    sleep(MOMENT).await;
    let faults = case.lab.server.faults();
    let rule = case
        .lab
        .fault(Match::verb_on("watch", "secrets"), refuse(500), Times::Always);
    faults.drop_watches(Some("secrets"));
    sleep(seconds(1)).await;
    case.lab.delete(&secret()).await;
    faults.compact();
    faults.remove(rule);
    sleep(minutes(1)).await;
    assert_eq!(case.ages().await.len(), 2);
    assert_eq!(case.lab.writes(), ["create secrets 201"]);
}

#[tokio::test(start_paused = true)]
async fn while_the_secret_is_listed_again_it_does_not_count_as_deleted() {
    let case = Case::with(&issued(-120, &names())).await;
    let mut replica = case.start();
    sleep(MOMENT).await;
    replica.news();
    let lists = Match::verb_on("list", "secrets");
    let rule = case.lab.fault(lists, Effect::Delay(seconds(5)), Times::Next(1));
    case.lab.server.faults().expire_watches(Some("secrets"));
    sleep(minutes(1)).await;
    assert_eq!((case.lab.struck(rule), case.lab.writes()), (1, Vec::new()));
    assert_eq!(replica.news(), (false, false));
}

#[tokio::test(start_paused = true)]
async fn an_overwritten_secret_is_put_back_by_the_leader_alone() {
    let old = issued(-120, &names());
    let case = Case::with(&old).await;
    case.lab
        .patch(&secret(), json!({"metadata": {"labels": {"team": "a"}}}))
        .await;
    case.lab.lose();
    let replica = case.start();
    sleep(MOMENT).await;
    case.overwrite().await;
    sleep(minutes(1)).await;
    assert_eq!(case.lab.writes(), [""; 0]);
    assert!(replica.serves(&old.pairs[0]), "it goes on");
    sleep(seconds(1)).await;
    case.lab.lead(2);
    sleep(MOMENT).await;
    assert_eq!(case.ages().await, [-120, 1]);
    assert_eq!(case.lab.writes(), ["update secrets 200"]);
    let labels = case.lab.see(&secret()).await["metadata"]["labels"].clone();
    assert_eq!(labels, json!({"team": "a"}), "what others added stays");
}

#[tokio::test(start_paused = true)]
async fn certificates_that_cannot_be_served_are_replaced_by_the_leader_alone() {
    let other_names = vec!["unikai.elsewhere.svc".to_owned()];
    for (useless, why) in [
        (issued(-days(91), &names()), "it has expired"),
        (issued(120, &names()), "it is not valid yet"),
        (issued(-120, &other_names), "it is for another name"),
    ] {
        let case = Case::with(&useless).await;
        case.lab.lose();
        let replica = case.start();
        sleep(minutes(1)).await;
        assert_eq!(case.lab.writes(), [""; 0], "{why}");
        assert!(!replica.serves(&useless.pairs[0]), "{why}");
        case.lab.lead(2);
        sleep(MOMENT).await;
        let stored = case.stored().await.pairs;
        assert_eq!(case.ages().await, [1], "{why}");
        assert!(replica.trusts(&[&stored[0]]) && replica.serves(&stored[0]), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn certificates_of_another_replica_are_served() {
    let (old, new) = (issued(-180, &names()), issued(-90, &names()));
    let case = Case::with(&old).await;
    case.lab.lose();
    let replica = case.start();
    sleep(MOMENT).await;
    let both = Pairs {
        pairs: vec![old.pairs[0].clone(), new.pairs[0].clone()],
        ..old
    };
    case.store(&both).await;
    sleep(MOMENT).await;
    assert!(replica.trusts(&[&both.pairs[0], &both.pairs[1]]));
    assert!(replica.serves(&both.pairs[1]));
    assert_eq!(case.lab.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_is_repeated_every_two_seconds() {
    let case = Case::new().await;
    case.lab
        .fault(Match::verb_on("create", "secrets"), refuse(403), Times::Next(2));
    let replica = case.start();
    sleep(seconds(4) - MOMENT).await;
    assert_eq!(case.lab.writes(), ["create secrets 403"; 2]);
    assert!(replica.bundle.borrow().is_none());
    assert_eq!(case.warnings.of("the webhooks' certificate cannot be stored"), 2);
    sleep(MOMENT * 2).await;
    let stored = case.stored().await.pairs;
    assert!(replica.serves(&stored[0]));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_repeated_after_the_deadline_of_requests() {
    let mut case = Case::new().await;
    case.lab.context.reads = with_deadline(case.lab.context.reads.clone());
    case.lab
        .fault(Match::verb_on("create", "secrets"), Effect::Hang, Times::Next(1));
    let replica = case.start();
    sleep(seconds(11)).await;
    assert!(replica.bundle.borrow().is_none());
    sleep(seconds(2)).await;
    assert!(replica.serves(&case.stored().await.pairs[0]));
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_not_repeated() {
    let case = Case::with(&issued(5 - days(60), &names())).await;
    case.lab
        .fault(Match::verb_on("update", "secrets"), Effect::DropAfter, Times::Next(1));
    let replica = case.start();
    sleep(minutes(6)).await;
    let both = case.stored().await.pairs;
    assert!(
        replica.trusts(&[&both[0], &both[1]]),
        "the watch shows what was written"
    );
    assert_eq!(case.lab.writes(), ["update secrets 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_comes_too_late_is_left_to_the_next_look() {
    let case = Case::with(&issued(5 - days(60), &names())).await;
    case.lab
        .fault(Match::verb_on("update", "secrets"), refuse(409), Times::Next(1));
    let _replica = case.start();
    sleep(minutes(6)).await;
    assert_eq!(case.lab.writes(), ["update secrets 409", "update secrets 200"]);
    assert_eq!(case.warnings.of("WARN"), 0);
}

#[tokio::test(start_paused = true)]
async fn clients_need_a_certificate_of_the_allowed_authorities() {
    let pairs = issued(-120, &names());
    let case = Case::with(&pairs).await;
    let (allowed, nobody) = (
        case.start_with(Some(pairs.pairs[0].authority.clone())),
        case.start_with(Some("no certificate".to_owned())),
    );
    sleep(MOMENT).await;
    assert!(allowed.tls.borrow().is_some());
    assert!(!allowed.serves(&pairs.pairs[0]), "the client has none");
    assert!(nobody.trusts(&[&pairs.pairs[0]]) && nobody.tls.borrow().is_none());
    assert!(case.warnings.of("the webhooks' certificate cannot be served") > 0);
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_the_certificate_stays() {
    let case = Case::new().await;
    let replica = case.start();
    sleep(MOMENT).await;
    case.lab.context.shutdown.cancel();
    replica.run.await.unwrap();
    assert_eq!(case.ages().await, [0]);
    assert_eq!(case.lab.writes(), ["create secrets 201"]);
}
