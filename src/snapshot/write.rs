//! Writes a snapshot as a stream: one object after the other, each dropped once it is written.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::format::{Additions, MEMBER, Parameters, Partition};
use crate::api::PodGroup;
use crate::api::names::{annotation, label};
use crate::engine::policy::Policy;
use crate::kinds::{Condition, Kind, Object, kinds, types};
use crate::mirror::{Settings, policy};

/// Size of the buffer before compression.
const TEXT: usize = 64 << 10;
/// KAI decides once in a second.
const KAI_PERIOD_NANOS: i64 = 1_000_000_000;

/// The content of a snapshot.
pub struct Cluster {
    /// The mirror's settings. Nodes, queues and pod groups of other shards are left out.
    pub settings: Settings,
    /// The policy.
    pub policy: Policy,
    /// This instant.
    pub now: Timestamp,
    /// Every object that is watched.
    pub objects: Vec<Object>,
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

macro_rules! lists {
    ($($(#[$doc:meta])* $kind:ident, $store:ident, $presence:ident, $condition:ident, $form:ident, $listeners:tt;)*) => {
        #[derive(Default)]
        struct Lists {
            $($store: Vec<Arc<types::$kind>>,)*
        }

        impl Lists {
            fn add(&mut self, object: Object) {
                match object {
                    $(Object::$kind(object) => self.$store.push(object),)*
                }
            }

            fn write(self, out: &mut impl Write, writer: &ObjectWriter) -> io::Result<()> {
                let mut comma = "";
                $(
                    write!(out, "{comma}{}:", json!(camel(stringify!($store))))?;
                    comma = ",";
                    writer.list(out, Kind::$kind, self.$store)?;
                )*
                Ok(())
            }
        }
    };
}
kinds!(lists);

/// Writes the snapshot as a zip archive, from its beginning to its end.
///
/// # Errors
/// If `out` fails; the archive is incomplete then.
pub fn write(out: impl Write, cluster: Cluster) -> io::Result<()> {
    let mut archive = ZipWriter::new_stream(out);
    // How large it becomes is not known at its beginning.
    let options = SimpleFileOptions::default().compression_level(Some(1)).large_file(true);
    archive.start_file(MEMBER, options)?;
    let mut text = BufWriter::with_capacity(TEXT, archive);
    members(&mut text, cluster)?;
    let archive = text.into_inner().map_err(io::IntoInnerError::into_error)?;
    archive.finish()?.into_inner().flush()
}

fn members(out: &mut impl Write, cluster: Cluster) -> io::Result<()> {
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
    let mut lists = Lists::default();
    let drafts = drafts.into_iter().map(Object::PodGroup);
    let ours = |object: &Object| is_ours(&settings, object);
    objects
        .into_iter()
        .chain(drafts)
        .filter(ours)
        .for_each(|object| lists.add(object));
    let writer = ObjectWriter {
        config_maps: settings.config_maps,
        numa: settings.numa.is_some(),
        places,
    };
    lists.write(out, &writer)?;
    write!(out, "}}}}")?;
    out.flush()
}

fn is_ours(settings: &Settings, object: &Object) -> bool {
    match object {
        Object::Node(node) => settings.shard.selects(&**node),
        Object::Queue(queue) => settings.shard.selects(&**queue),
        Object::PodGroup(group) => settings.shard.selects(&**group),
        _ => true,
    }
}

/// The parameters, and beside them what only KAI's tools go by.
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
    if let Some(home) = &settings.home {
        parameters["queueLabelKey"] = json!(home.label);
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
    /// A kind that is not watched is `null`.
    fn list<K: Serialize + ResourceExt>(&self, out: &mut impl Write, kind: Kind, list: Vec<Arc<K>>) -> io::Result<()> {
        let watched = match kind.condition() {
            Condition::Always => true,
            Condition::WithNuma => self.numa,
            Condition::WithConfigMaps => self.config_maps,
        };
        if !watched {
            return write!(out, "null");
        }
        write!(out, "[")?;
        let mut comma = "";
        for object in list {
            write!(out, "{comma}")?;
            comma = ",\n";
            let place = (kind == Kind::Pod).then(|| self.places.get(object.meta().uid.as_deref().unwrap_or_default()));
            serde_json::to_writer(&mut *out, &bare(&*object, place.flatten())?)?;
        }
        write!(out, "]")
    }
}

/// An object in the form of a snapshot: without its type, and a pod with its pod group.
fn bare(object: &impl Serialize, place: Option<&Place>) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(object)?;
    if let Some(members) = value.as_object_mut() {
        members.remove("apiVersion");
        members.remove("kind");
    }
    if let Some(place) = place {
        add(&mut value, "annotations", annotation::POD_GROUP_NAME, &place.group);
        if let Some(sub_group) = &place.sub_group {
            add(&mut value, "labels", label::SUBGROUP_NAME, sub_group);
        }
    }
    Ok(value)
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
