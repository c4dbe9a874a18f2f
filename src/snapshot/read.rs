//! KAI snapshots: a zip with one member, or the JSON in it → settings, policy and the objects as changes.
//!
//! Absent, null and empty lists are equal; an object that does not decode is reported and left out. Not read: objects that decisions do not
//! depend on, and the server's version and discovery.

use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use jiff::Timestamp;
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::lenient;
use crate::engine::policy::{DisruptionBudgets, Policy};
use crate::kinds::{Object, kinds};
use crate::mirror::policy::{self, SchedulerConfig};
use crate::mirror::{PackedChange, Settings, Shard};

use super::format::{Additions, MEMBER, Parameters};

/// The API group of dynamic resource allocation.
const DEVICES: &str = "resource.k8s.io";

/// A parsed snapshot.
pub struct Snapshot {
    /// The mirror's settings.
    pub settings: Settings,
    /// The policy.
    pub policy: Policy,
    /// All objects, each once, in dependency order.
    pub changes: Vec<PackedChange>,
    /// The time of the snapshot.
    pub now: Option<Timestamp>,
    /// Messages about parts that could not be used.
    pub notes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    now: Option<Timestamp>,
    config: Option<SchedulerConfig>,
    scheduler_params: Option<Parameters>,
    unikai: Option<Additions>,
    raw_objects: Option<RawObjects>,
}

macro_rules! raw_objects {
    ($($(#[$doc:meta])* $kind:ident, $store:ident, $presence:ident, $condition:ident, $form:ident, $listeners:tt;)*) => {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct RawObjects {
            $($store: Option<Vec<Value>>,)*
        }

        fn changes(raw: RawObjects, notes: &mut Vec<String>) -> Vec<PackedChange> {
            let mut changes = Vec::new();
            $(take(raw.$store, Object::$kind, &mut changes, notes);)*
            changes
        }
    };
}
kinds!(raw_objects);

/// Reads a snapshot.
///
/// # Errors
/// If the file cannot be read, is no snapshot, or its configuration is wrong.
pub fn read(file: &Path) -> anyhow::Result<Snapshot> {
    parse(std::fs::read(file).context("the file cannot be read")?)
}

/// Parses the content of a file.
pub(super) fn parse(bytes: Vec<u8>) -> anyhow::Result<Snapshot> {
    let bytes = if bytes.starts_with(b"PK") { unzip(bytes)? } else { bytes };
    let file: File = serde_json::from_slice(&bytes).context("this is not a snapshot")?;
    drop(bytes);
    ensure!(
        file.config.is_some() || file.raw_objects.is_some(),
        "this is not a snapshot: it has neither config nor rawObjects. `unikai snapshot` fetches one; `unikai review` reads manifests"
    );
    let (config, raw_objects) = (file.config.unwrap_or_default(), file.raw_objects.unwrap_or_default());
    let mut notes = Vec::new();
    let config_maps = raw_objects.config_maps.is_some();
    let changes = changes(raw_objects, &mut notes);
    let (mut settings, mut base) = parameters(file.scheduler_params);
    if let Some(additions) = file.unikai {
        additions.put_into(&mut settings, &mut base);
    }
    settings.config_maps = config_maps;
    settings.numa = policy::numa(&config);
    settings.zones_as_reported = policy::zones_as_reported(&config);
    let reading = policy::from_config(&config, base).map_err(|errors| {
        let all: Vec<_> = errors.iter().map(|error| format!("config.{error}")).collect();
        anyhow::anyhow!("the configuration is wrong: {}", all.join("; "))
    })?;
    notes.extend(reading.notes.iter().map(|note| format!("config.{note}")));
    Ok(Snapshot {
        settings,
        policy: reading.policy,
        changes,
        now: file.now,
        notes,
    })
}

/// Checks that an archive is complete.
///
/// # Errors
/// If it is not complete.
pub fn verify(file: &Path) -> anyhow::Result<()> {
    let broken = "the archive is incomplete: the operator closed the connection";
    let mut archive = zip::ZipArchive::new(std::fs::File::open(file)?).context(broken)?;
    let mut member = archive.by_name(MEMBER).context(broken)?;
    std::io::copy(&mut member, &mut std::io::sink()).context(broken)?;
    Ok(())
}

fn unzip(bytes: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).context("the zip archive is damaged")?;
    let mut member = archive
        .by_name(MEMBER)
        .with_context(|| format!("the zip archive has no {MEMBER}"))?;
    let mut json = Vec::new();
    member
        .read_to_end(&mut json)
        .with_context(|| format!("{MEMBER} in the zip archive is damaged"))?;
    Ok(json)
}

/// Settings and policy from the scheduler's parameters; defaults without any. Disruption budgets are ignored, as in KAI.
fn parameters(given: Option<Parameters>) -> (Settings, Policy) {
    let usual = Policy {
        disruption_budgets: DisruptionBudgets::Ignore,
        ..Policy::default()
    };
    let Some(given) = given else {
        return (Settings::default(), usual);
    };
    let shard = given.partition_params.map(|partition| Shard {
        key: partition.node_pool_label_key,
        value: partition.node_pool_label_value,
    });
    let settings = Settings {
        scheduler_name: given.scheduler_name,
        shard: shard.unwrap_or_default(),
        restrict_nodes: given.restrict_scheduling_nodes,
        full_hierarchy: given.full_hierarchy_fairness,
        ..Settings::default()
    };
    let millis = |nanos: i64| nanos / 1_000_000;
    let policy = Policy {
        full_hierarchy: given.full_hierarchy_fairness,
        consolidating_reclaim: given.allow_consolidating_reclaim,
        max_consolidation_victims: policy::max_consolidation_victims(given.max_number_consolidation_preemptees),
        staleness_grace: Some(given.global_default_staleness_grace_period)
            .filter(|grace| *grace >= 0)
            .map(millis),
        stuck_after: if given.stuck_in_releasing_threshold > 0 {
            millis(given.stuck_in_releasing_threshold)
        } else {
            usual.stuck_after
        },
        restrict_nodes: given.restrict_scheduling_nodes,
        node_pool: settings.shard.pool().to_owned(),
        detailed_errors: given.detailed_fit_errors,
        csi_storage: given.schedule_csi_storage,
        ..usual
    };
    (settings, policy)
}

fn take<K>(
    list: Option<Vec<Value>>,
    object: impl Fn(Arc<K>) -> Object,
    changes: &mut Vec<PackedChange>,
    notes: &mut Vec<String>,
) where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    for mut value in list.into_iter().flatten() {
        if K::group(&()) == DEVICES {
            add_type::<K>(&mut value);
        }
        match lenient::decode::<K>(value) {
            Ok(decoded) => changes.push(PackedChange::Applied(object(Arc::new(decoded)).into())),
            Err(rejection) => notes.push(rejection.to_string()),
        }
    }
}

/// Adds the type to objects of dynamic resource allocation, which snapshots hold without their API group.
fn add_type<K: Resource<DynamicType = ()>>(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        object.insert("apiVersion".to_owned(), K::api_version(&()).into());
        object.insert("kind".to_owned(), K::kind(&()).into());
    }
}
