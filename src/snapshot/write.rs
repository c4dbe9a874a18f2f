//! Writes a snapshot as a stream: one object after the other, each dropped once it is written.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use serde_json::{Value, json};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::format::{Additions, MEMBER, Parameters, Partition};
use crate::api::PodGroup;
use crate::api::names::{annotation, label};
use crate::engine::policy::Policy;
use crate::kinds::{Condition, Kind, Object, kinds};
use crate::mirror::{Settings, policy};

/// Size of the buffer before compression.
const TEXT: usize = 64 << 10;
/// KAI's interval of scheduling cycles: one second.
const KAI_PERIOD_NANOS: i64 = 1_000_000_000;

/// The content of a snapshot.
pub struct Cluster {
    /// The mirror's settings. Nodes, queues and pod groups of other shards are left out.
    pub settings: Settings,
    /// The policy.
    pub policy: Policy,
    /// The current time.
    pub now: Timestamp,
    /// Every watched object, in the order of the table of kinds. Taken one at a time.
    pub objects: Box<dyn Iterator<Item = Object> + Send>,
    /// Pods that do not name their pod group yet, by uid.
    pub places: HashMap<String, Place>,
    /// Pod groups that are about to be created.
    pub drafts: Vec<Arc<PodGroup>>,
}

/// A pod's place in a pod group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The pod group's name.
    pub group: String,
    /// The sub-group's name.
    pub sub_group: Option<String>,
}

macro_rules! members {
    ($($(#[$doc:meta])* $kind:ident, $store:ident, $presence:ident, $condition:ident, $form:ident, $listeners:tt;)*) => {
        /// The member that has the objects of a kind.
        fn member(kind: Kind) -> String {
            match kind {
                $(Kind::$kind => camel(stringify!($store)),)*
            }
        }

        /// The JSON of an object, and its uid.
        fn json_of(object: &Object) -> serde_json::Result<(Value, Option<&str>)> {
            Ok(match object {
                $(Object::$kind(object) => (serde_json::to_value(&**object)?, object.meta().uid.as_deref()),)*
            })
        }
    };
}
kinds!(members);

/// Writes the snapshot as a zip archive, from its beginning to its end. Returns how many objects it has.
///
/// # Errors
/// If `out` fails; the archive is incomplete then.
pub fn write(out: impl Write, cluster: Cluster) -> io::Result<usize> {
    let mut archive = ZipWriter::new_stream(out);
    // The size is not known at the beginning.
    let options = SimpleFileOptions::default().compression_level(Some(1)).large_file(true);
    archive.start_file(MEMBER, options)?;
    let mut text = BufWriter::with_capacity(TEXT, archive);
    let objects = members(&mut text, cluster)?;
    let archive = text.into_inner().map_err(io::IntoInnerError::into_error)?;
    archive.finish()?.into_inner().flush()?;
    Ok(objects)
}

fn members(out: &mut impl Write, cluster: Cluster) -> io::Result<usize> {
    let Cluster {
        settings,
        policy,
        now,
        objects,
        places,
        drafts,
    } = cluster;
    let config = policy::to_config(&policy, settings.numa.as_deref(), settings.zones_as_reported);
    write!(out, "{{\"config\":")?;
    serde_json::to_writer(&mut *out, &config)?;
    write!(out, ",\"schedulerParams\":")?;
    serde_json::to_writer(&mut *out, &parameters(&settings, &policy)?)?;
    write!(out, ",\"unikai\":")?;
    serde_json::to_writer(&mut *out, &Additions::of(&settings, &policy))?;
    write!(out, ",\"now\":\"{now}\",\"rawObjects\":{{")?;
    let writer = ObjectWriter {
        config_maps: settings.config_maps,
        numa: settings.numa.is_some(),
        places,
    };
    let ours = |object: &Object| is_ours(&settings, object);
    let mut objects = objects.filter(ours).peekable();
    let mut drafts = drafts.into_iter().map(Object::PodGroup).filter(ours);
    let (mut comma, mut written) = ("", 0);
    for &kind in Kind::ALL {
        write!(out, "{comma}{}:", json!(member(kind)))?;
        comma = ",";
        let known = std::iter::from_fn(|| objects.next_if(|object| object.kind() == kind));
        let drafts = drafts
            .by_ref()
            .take(if kind == Kind::PodGroup { usize::MAX } else { 0 });
        written += writer.list(out, kind, known.chain(drafts))?;
    }
    debug_assert!(objects.next().is_none(), "objects come in the order of the table");
    write!(out, "}}}}")?;
    out.flush()?;
    Ok(written)
}

fn is_ours(settings: &Settings, object: &Object) -> bool {
    match object {
        Object::Node(node) => settings.shard.selects(&**node),
        Object::Queue(queue) => settings.shard.selects(&**queue),
        Object::PodGroup(group) => settings.shard.selects(&**group),
        _ => true,
    }
}

/// The parameters, with those that only KAI's tools read.
fn parameters(settings: &Settings, policy: &Policy) -> serde_json::Result<Value> {
    let nanos = |millis: i64| millis.saturating_mul(1_000_000);
    let most = policy.max_consolidation_victims;
    let parameters = Parameters {
        scheduler_name: settings.scheduler_name.clone(),
        restrict_scheduling_nodes: policy.restrict_nodes,
        partition_params: Some(Partition {
            node_pool_label_key: settings.shard.key.clone(),
            node_pool_label_value: settings.shard.value.clone(),
        }),
        max_number_consolidation_preemptees: most.map_or(-1, |most| i64::try_from(most).unwrap_or(i64::MAX)),
        full_hierarchy_fairness: policy.full_hierarchy,
        allow_consolidating_reclaim: policy.consolidating_reclaim,
        global_default_staleness_grace_period: policy.staleness_grace.map_or(-1, nanos),
        stuck_in_releasing_threshold: nanos(policy.stuck_after),
        detailed_fit_errors: policy.detailed_errors,
        schedule_csi_storage: policy.csi_storage,
    };
    let mut parameters = serde_json::to_value(parameters)?;
    parameters["useSchedulingSignatures"] = json!(true);
    parameters["schedulePeriod"] = json!(KAI_PERIOD_NANOS);
    if let Some(fallback_queue) = &settings.fallback_queue {
        parameters["queueLabelKey"] = json!(fallback_queue.label);
    }
    Ok(parameters)
}

/// How objects are written.
struct ObjectWriter {
    config_maps: bool,
    numa: bool,
    places: HashMap<String, Place>,
}

impl ObjectWriter {
    /// Writes the objects of a kind; returns how many there are. A kind that is not watched is `null`.
    fn list(&self, out: &mut impl Write, kind: Kind, objects: impl Iterator<Item = Object>) -> io::Result<usize> {
        let watched = match kind.condition() {
            Condition::Always => true,
            Condition::WithNuma => self.numa,
            Condition::WithConfigMaps => self.config_maps,
        };
        if !watched {
            write!(out, "null")?;
            objects.for_each(drop);
            return Ok(0);
        }
        write!(out, "[")?;
        let mut written = 0;
        for object in objects {
            let (mut value, uid) = json_of(&object)?;
            let place = (kind == Kind::Pod).then(|| self.places.get(uid.unwrap_or_default()));
            bare(&mut value, place.flatten());
            write!(out, "{}", if written == 0 { "" } else { ",\n" })?;
            serde_json::to_writer(&mut *out, &value)?;
            written += 1;
        }
        write!(out, "]")?;
        Ok(written)
    }
}

/// Converts an object's JSON to the form of snapshots: without its type, and a pod with its pod group.
fn bare(value: &mut Value, place: Option<&Place>) {
    if let Some(members) = value.as_object_mut() {
        members.remove("apiVersion");
        members.remove("kind");
    }
    if let Some(place) = place {
        add(value, "annotations", annotation::POD_GROUP_NAME, &place.group);
        if let Some(sub_group) = &place.sub_group {
            add(value, "labels", label::SUBGROUP_NAME, sub_group);
        }
    }
}

/// Adds an annotation or label, unless there is one of that name.
fn add(object: &mut Value, to: &str, name: &str, value: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let all = metadata.entry(to).or_insert_with(|| json!({}));
    if let Some(all) = all.as_object_mut() {
        all.entry(name).or_insert_with(|| json!(value));
    }
}

/// `resource_slices` → `resourceSlices`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut text = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        text.push_str(&first.to_ascii_uppercase());
        text.push_str(rest);
    }
    text
}
