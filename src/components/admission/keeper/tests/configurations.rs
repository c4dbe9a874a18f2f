//! The webhook configurations: what is written, when, and by whom.

use super::*;
use crate::components::Settings as OfComponents;
use crate::components::admission::configurations::tests::settings;
use crate::devcluster::apiserver::RuleId;

/// A cluster without webhook configurations, and the authorities of a process that leads.
pub struct Case {
    pub lab: Lab,
    pub settings: Settings,
    pub bundle: watch::Sender<Option<String>>,
    registered: watch::Sender<Registered>,
    pub warnings: Warnings,
    lookups: RuleId,
}

/// The names of the configurations, that of the mutating webhooks first.
const NAMES: [&str; 4] = [
    object::MUTATING_WEBHOOK,
    object::VALIDATING_WEBHOOK,
    object::QUEUE_WEBHOOK,
    object::POD_GROUP_WEBHOOK,
];
/// The resources of the two kinds.
pub const KINDS: [&str; 2] = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];

/// The configuration of a name, without content.
pub fn configuration(name: &str) -> Value {
    let kind = if name == object::MUTATING_WEBHOOK {
        "MutatingWebhookConfiguration"
    } else {
        "ValidatingWebhookConfiguration"
    };
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}})
}

/// The writes of one verb to all configurations, with this code.
pub fn to_all(verb: &str, code: u16) -> Vec<String> {
    let [mutating, validating] = KINDS;
    let of = |kind: &str| format!("{verb} {kind} {code}");
    vec![of(mutating), of(validating), of(validating), of(validating)]
}

impl Case {
    /// The authorities are known already.
    pub async fn new() -> Self {
        let case = Self::without_authority().await;
        case.trust("first");
        case
    }

    async fn without_authority() -> Self {
        let lab = Lab::start(OfComponents::default(), &[]).await;
        let lookups = Match::verb_on("get", "clusterroles");
        Self {
            lookups: lab.fault(lookups, Effect::Delay(Duration::ZERO), Times::Always),
            lab,
            settings: settings(),
            bundle: watch::channel(None).0,
            registered: watch::channel(None).0,
            warnings: Warnings::from_now_on(),
        }
    }

    /// With the configurations that a leader wrote which has ended since.
    pub async fn written() -> Self {
        let case = Self::new().await;
        case.run(MOMENT).await;
        case.forget_writes();
        case
    }

    pub fn trust(&self, authority: &str) {
        self.bundle.send_replace(Some(authority.to_owned()));
    }

    pub fn start(&self) -> JoinHandle<()> {
        let target = Target::Service {
            name: "unikai".to_owned(),
            namespace: "kai-scheduler".to_owned(),
        };
        tokio::spawn(keep_configurations(
            self.lab.context.clone(),
            self.settings.clone(),
            target,
            self.bundle.subscribe(),
            self.registered.clone(),
            Arc::clone(&self.lab.stores),
        ))
    }

    /// A process runs for a while.
    pub async fn run(&self, time: Duration) {
        let process = self.start();
        sleep(time).await;
        process.abort();
    }

    pub fn forget_writes(&self) {
        self.lab.server.audit().clear();
    }

    pub async fn see(&self, name: &str) -> Value {
        self.lab.see(&configuration(name)).await
    }

    /// The authorities that the API server trusts, of all webhooks.
    async fn trusted(&self) -> Vec<String> {
        let mut all = Vec::new();
        for name in NAMES {
            for webhook in self.see(name).await["webhooks"].as_array().into_iter().flatten() {
                let bundle: ByteString = read(webhook["clientConfig"]["caBundle"].clone());
                all.push(String::from_utf8(bundle.0).unwrap());
            }
        }
        all
    }

    pub async fn delete(&self, name: &str) {
        self.lab.delete(&configuration(name)).await;
    }

    pub async fn delete_all(&self) {
        for name in NAMES {
            self.delete(name).await;
        }
    }

    /// Somebody makes a webhook optional.
    pub async fn edit(&self, name: &str) {
        let mut webhooks = self.see(name).await["webhooks"].clone();
        webhooks[0]["failurePolicy"] = json!("Ignore");
        self.lab
            .patch(&configuration(name), json!({"webhooks": webhooks}))
            .await;
    }

    /// Whether the webhooks of a configuration are required.
    pub async fn is_right(&self, name: &str) -> bool {
        self.see(name).await["webhooks"][0]["failurePolicy"] == "Fail"
    }

    pub fn is_ready(&self) -> bool {
        self.lab.context.readiness.waiting().is_empty()
    }

    /// How often our ClusterRole was looked up.
    pub fn lookups(&self) -> u32 {
        self.lab.struck(self.lookups)
    }

    fn queue(&self, name: &str, parent: Option<&str>) {
        let queue = json!({"metadata": {"name": name}, "spec": {"parentQueue": parent}});
        self.lab.stores.queues.insert(read(queue));
    }

    /// Whether the API server reviews new pods of a queue only if something else is to be checked.
    async fn is_named(&self, queue: &str) -> bool {
        let conditions = self.see(object::VALIDATING_WEBHOOK).await["webhooks"][0]["matchConditions"].clone();
        conditions.to_string().contains(&format!("'{queue}'"))
    }
}

#[tokio::test(start_paused = true)]
async fn the_leader_registers_the_webhooks_once_the_authority_is_known() {
    let case = Case::without_authority().await;
    case.start();
    sleep(minutes(1)).await;
    assert!(case.lab.writes().is_empty() && !case.is_ready());
    case.trust("first");
    sleep(MOMENT).await;
    assert!(case.is_ready());
    assert_eq!(case.trusted().await, ["first"; 7]);
    sleep(minutes(5)).await;
    assert_eq!(case.lab.writes(), to_all("create", 201));
    assert_eq!((case.lookups(), case.warnings.of("WARN")), (1, 0));
    let owners = case.see(object::QUEUE_WEBHOOK).await["metadata"]["ownerReferences"].clone();
    assert_eq!(owners, Value::Null, "there is no ClusterRole of ours");
}

#[tokio::test(start_paused = true)]
async fn right_configurations_are_left_as_they_are() {
    let case = Case::written().await;
    let before = case.lookups();
    case.start();
    sleep(MOMENT).await;
    assert!(case.is_ready());
    case.trust("first");
    sleep(minutes(1)).await;
    assert_eq!(case.lab.writes(), [""; 0]);
    assert_eq!(case.lookups() - before, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_configurations_of_both_kinds_are_listed() {
    for kind in KINDS {
        let case = Case::written().await;
        let lists = Match::verb_on("list", kind);
        case.lab.fault(lists, Effect::Delay(seconds(5)), Times::Next(1));
        case.start();
        sleep(seconds(4)).await;
        case.trust("first");
        sleep(MOMENT).await;
        assert!(!case.is_ready(), "{kind}");
        sleep(seconds(5)).await;
        assert!(case.is_ready(), "{kind}");
        assert_eq!(case.lab.writes(), [""; 0], "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn configurations_that_cannot_be_listed_are_listed_again() {
    for kind in KINDS {
        let case = Case::written().await;
        case.lab
            .fault(Match::verb_on("list", kind), refuse(403), Times::Next(2));
        case.start();
        sleep(MOMENT).await;
        assert_eq!(case.warnings.of("webhook configurations cannot be watched"), 1);
        sleep(minutes(1)).await;
        assert!(case.is_ready() && case.lab.writes().is_empty(), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_authority_is_written_to_all_webhooks_at_once() {
    let case = Case::written().await;
    case.start();
    sleep(MOMENT).await;
    case.trust("second");
    sleep(MOMENT).await;
    assert_eq!(case.trusted().await, ["second"; 7]);
    assert_eq!(case.lab.writes(), to_all("update", 200));
}

#[tokio::test(start_paused = true)]
async fn an_authority_counts_as_registered_once_all_webhooks_have_it() {
    let case = Case::without_authority().await;
    let registered = || {
        let known = case.registered.borrow().clone();
        known.map(|known| known.into_iter().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(registered(), None);
    case.start();
    sleep(MOMENT).await;
    assert_eq!(registered().as_deref(), Some(""), "there are no webhooks");
    case.trust("first");
    sleep(MOMENT).await;
    assert_eq!(registered().as_deref(), Some("first"));
    let refused = Match {
        name: Some(object::QUEUE_WEBHOOK.to_owned()),
        ..Match::verb_on("update", KINDS[1])
    };
    let rule = case.lab.fault(refused, refuse(403), Times::Always);
    case.trust("second");
    sleep(seconds(10)).await;
    assert_eq!(registered().as_deref(), Some("first second"));
    case.lab.server.faults().remove(rule);
    sleep(seconds(3)).await;
    assert_eq!(registered().as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn what_others_change_is_put_back_and_what_they_add_stays() {
    for name in NAMES {
        let case = Case::written().await;
        case.start();
        sleep(MOMENT).await;
        let added = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}});
        case.lab.patch(&configuration(name), added).await;
        sleep(MOMENT).await;
        assert_eq!(case.lab.writes(), [""; 0], "{name}");
        case.edit(name).await;
        sleep(MOMENT).await;
        assert!(case.is_right(name).await, "{name}");
        assert_eq!(case.lab.writes().len(), 1, "{name}");
        let metadata = case.see(name).await["metadata"].clone();
        assert_eq!(
            (&metadata["labels"]["team"], &metadata["annotations"]["b"]),
            (&json!("a"), &json!("c"))
        );
        case.delete(name).await;
        sleep(MOMENT).await;
        assert!(case.is_right(name).await, "{name}");
        assert_eq!(case.lab.writes().len(), 2, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn configurations_of_others_are_left_alone() {
    let case = Case::written().await;
    let client = json!({"url": "https://example.org"});
    let webhook =
        json!({"name": "a.b.c", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    let mut other = configuration("other");
    other["webhooks"] = json!([webhook]);
    let other = case.lab.create(other).await;
    case.run(minutes(1)).await;
    assert_eq!(case.see("other").await, other);
    assert_eq!(case.lab.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_was_deleted_while_the_watch_was_down_comes_back() {
    for (name, kind) in [NAMES[0], NAMES[2]].into_iter().zip(KINDS) {
        let case = Case::written().await;
        case.start();
        sleep(MOMENT).await;
        let faults = case.lab.server.faults();
        let rule = case
            .lab
            .fault(Match::verb_on("watch", kind), refuse(500), Times::Always);
        faults.drop_watches(Some(kind));
        sleep(seconds(1)).await;
        case.delete(name).await;
        faults.compact();
        faults.remove(rule);
        sleep(minutes(1)).await;
        assert!(case.is_right(name).await, "{name}");
        assert_eq!(case.lab.writes(), [format!("create {kind} 201")]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_written_counts_before_the_watch_shows_it() {
    let case = Case::without_authority().await;
    case.start();
    sleep(MOMENT).await;
    for kind in KINDS {
        case.lab.server.faults().silence_watches(Match::verb_on("watch", kind));
    }
    case.trust("first");
    sleep(MOMENT).await;
    assert!(case.is_ready());
    assert_eq!(case.lab.writes(), to_all("create", 201));
    case.forget_writes();
    case.trust("second");
    sleep(seconds(10)).await;
    assert_eq!(case.lab.writes(), to_all("update", 200));
}

#[tokio::test(start_paused = true)]
async fn while_configurations_are_listed_again_they_do_not_count_as_deleted() {
    for kind in KINDS {
        let case = Case::written().await;
        case.start();
        sleep(MOMENT).await;
        let lists = Match::verb_on("list", kind);
        let rule = case.lab.fault(lists, Effect::Delay(seconds(5)), Times::Next(1));
        case.lab.server.faults().expire_watches(Some(kind));
        sleep(minutes(1)).await;
        assert_eq!((case.lab.struck(rule), case.lab.writes()), (1, Vec::new()), "{kind}");
        case.edit(if kind == KINDS[0] { NAMES[0] } else { NAMES[1] }).await;
        sleep(MOMENT).await;
        assert_eq!(case.lab.writes(), [format!("update {kind} 200")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_lead_waits_for_the_leader() {
    let case = Case::new().await;
    case.lab.lose();
    case.start();
    sleep(minutes(1)).await;
    assert!(!case.is_ready() && case.lab.writes().is_empty());
    case.lab.lead(2);
    sleep(MOMENT).await;
    assert!(case.is_ready());
    assert_eq!(case.lab.writes(), to_all("create", 201));
}

#[tokio::test(start_paused = true)]
async fn to_a_replica_that_does_not_lead_what_the_leader_wrote_is_enough() {
    let case = Case::written().await;
    let before = case.lookups();
    for name in NAMES {
        case.edit(name).await;
    }
    case.lab.lose();
    case.start();
    sleep(minutes(1)).await;
    assert!(case.is_ready() && case.lab.writes().is_empty());
    assert_eq!(case.lookups(), before);
    case.lab.lead(2);
    sleep(MOMENT).await;
    for name in NAMES {
        assert!(case.is_right(name).await, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_writes_are_repeated_every_two_seconds() {
    let case = Case::new().await;
    let rules = KINDS.map(|kind| {
        case.lab
            .fault(Match::verb_on("create", kind), refuse(403), Times::Always)
    });
    case.start();
    sleep(seconds(4) - MOMENT).await;
    assert_eq!(
        case.lab.writes(),
        [to_all("create", 403), to_all("create", 403)].concat()
    );
    assert_eq!(case.warnings.of("the webhook configuration cannot be written"), 8);
    assert!(!case.is_ready());
    case.forget_writes();
    for rule in rules {
        case.lab.server.faults().remove(rule);
    }
    sleep(MOMENT * 2).await;
    assert!(case.is_ready());
    sleep(minutes(1)).await;
    assert_eq!(case.lab.writes(), to_all("create", 201));
}

#[tokio::test(start_paused = true)]
async fn one_refused_configuration_keeps_the_replica_from_being_ready_but_not_the_others_from_being_written() {
    for name in [NAMES[0], NAMES[3]] {
        let case = Case::new().await;
        let refused = Match {
            name: Some(name.to_owned()),
            ..Match::verb_on("update", if name == NAMES[0] { KINDS[0] } else { KINDS[1] })
        };
        case.run(MOMENT).await;
        case.forget_writes();
        case.trust("second");
        let rule = case.lab.fault(refused, refuse(403), Times::Always);
        case.start();
        sleep(minutes(1)).await;
        assert!(!case.is_ready(), "{name}");
        let right = case.trusted().await.iter().filter(|bundle| *bundle == "second").count();
        assert_eq!(right, 6, "{name}");
        case.lab.server.faults().remove(rule);
        sleep(seconds(3)).await;
        assert!(case.is_ready(), "{name}");
        assert_eq!(case.trusted().await, ["second"; 7], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_come_too_late_are_repeated_without_a_warning() {
    let case = Case::new().await;
    for kind in KINDS {
        case.lab
            .fault(Match::verb_on("create", kind), refuse(409), Times::Next(2));
    }
    case.start();
    sleep(seconds(10)).await;
    assert!(case.is_ready());
    assert_eq!(case.warnings.of("WARN"), 0);
    let refused = case.lab.writes().iter().filter(|write| write.ends_with("409")).count();
    assert_eq!((refused, case.trusted().await.len()), (4, 7));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_holds_up_the_others_no_longer_than_the_deadline_of_requests() {
    let mut case = Case::new().await;
    case.lab.context.writes = with_deadline(case.lab.context.writes.clone());
    case.lab
        .fault(Match::verb_on("create", KINDS[0]), Effect::Hang, Times::Next(1));
    case.start();
    sleep(seconds(9)).await;
    assert_eq!(case.trusted().await, [""; 0]);
    sleep(seconds(3) + MOMENT).await;
    assert_eq!(case.trusted().await, ["first"; 7]);
    assert!(case.is_ready());
}

#[tokio::test(start_paused = true)]
async fn webhooks_that_are_switched_off_are_taken_out() {
    let mut case = Case::written().await;
    case.settings.scope.queues = false;
    case.run(MOMENT).await;
    assert_eq!(case.see(object::QUEUE_WEBHOOK).await["webhooks"], json!(null));
    assert_eq!(case.lab.writes(), ["update validatingwebhookconfigurations 200"]);
    assert!(case.is_ready());
    case.settings.scope.pods = false;
    case.run(MOMENT).await;
    assert_eq!(case.see(object::MUTATING_WEBHOOK).await["webhooks"], json!(null));
    assert_eq!(case.trusted().await, ["first"], "those of pod groups are left");
}

#[tokio::test(start_paused = true)]
async fn new_queues_are_named_a_second_later_and_those_that_cannot_run_pods_are_removed_at_once() {
    let case = Case::new().await;
    case.queue("old", None);
    case.start();
    sleep(seconds(2)).await;
    assert!(case.is_named("old").await);
    case.forget_writes();
    case.queue("new", None);
    sleep(seconds(1) - MOMENT).await;
    assert!(!case.is_named("new").await);
    sleep(MOMENT * 2).await;
    assert!(case.is_named("old").await && case.is_named("new").await);
    case.queue("child", Some("old"));
    sleep(MOMENT).await;
    assert!(!case.is_named("old").await && !case.is_named("child").await);
    sleep(seconds(1)).await;
    assert!(case.is_named("child").await);
    assert_eq!(case.lab.writes(), ["update validatingwebhookconfigurations 200"; 3]);
}

#[tokio::test(start_paused = true)]
async fn queues_that_appear_before_the_authority_is_known_are_named_at_first() {
    let case = Case::without_authority().await;
    case.start();
    sleep(MOMENT).await;
    case.queue("early", None);
    sleep(seconds(10)).await;
    case.trust("first");
    sleep(MOMENT).await;
    assert!(case.is_named("early").await);
    assert_eq!(case.lab.writes(), to_all("create", 201));
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_the_configurations_stay() {
    let case = Case::new().await;
    let process = case.start();
    sleep(MOMENT).await;
    case.lab.context.shutdown.cancel();
    process.await.unwrap();
    assert_eq!(case.trusted().await, ["first"; 7]);
    assert_eq!(case.lab.writes(), to_all("create", 201));
}
