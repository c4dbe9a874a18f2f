//! Pods that share GPUs: validation of their requests, and the references to the ConfigMaps through which the
//! binder passes the chosen GPU to the container.
//!
//! ```yaml
//! # Pod train-0, owned by Job train, annotation gpu-fraction: "0.5", one container
//! #   annotation runai/shared-gpu-configmap: train-x2b4c6d-shared-gpu
//! #   container 0: NVIDIA_VISIBLE_DEVICES, RUNAI_NUM_OF_GPUS, GPU_PORTION from config map train-x2b4c6d-shared-gpu-0
//! #   envFrom config map train-x2b4c6d-shared-gpu-0-evar, volume train-x2b4c6d-shared-gpu-0-vol
//! ```

use k8s_openapi::api::core::v1::{
    ConfigMapEnvSource, ConfigMapKeySelector, ConfigMapVolumeSource, Container, EnvFromSource, EnvVar, EnvVarSource,
    Pod, Volume,
};

use super::{annotation_of, containers};
use crate::api::gpu_request::{self, Named};
use crate::api::names::{annotation, env, resource};
use crate::components::admission::Settings;
use crate::components::fractions::{Place, capabilities, direct, fraction_place, is_fractional};
use crate::components::pods::is_bound;

/// The characters of a random suffix: no similar ones, and no vowels, so that no words appear.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many of them.
const RANDOM_LENGTH: usize = 7;
/// The longest name of a volume.
const NAME_LENGTH_MAX: usize = 63;

/// A random suffix from random bytes.
#[must_use]
pub fn random_suffix(bytes: [u8; 16]) -> String {
    bytes
        .iter()
        .take(RANDOM_LENGTH)
        .filter_map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()))
        .map(|letter| char::from(*letter))
        .collect()
}

/// Adds the references to the pod. Idempotent.
///
/// # Errors
/// When the pod names a container that it does not have.
pub fn mutate(pod: &mut Pod, random: &str) -> Result<(), String> {
    if !is_fractional(pod) || pod.spec.as_ref().is_none_or(|spec| spec.containers.is_empty()) {
        return Ok(());
    }
    let place = fraction_place(pod)?;
    let given = annotation_of(pod, annotation::SHARED_GPU_CONFIG_MAP).map(str::to_owned);
    let prefix = prefix(pod, place, random);
    let of_another = given.filter(|given| !given.is_empty() && *given != prefix);
    let of_another = of_another.map(|given| names(&given, place));
    let [capabilities, direct, volume] = names(&prefix, place);

    let Some(spec) = pod.spec.as_mut() else { return Ok(()) };
    let container = match place {
        Place::Init(index) => spec.init_containers.as_mut().and_then(|all| all.get_mut(index)),
        Place::Regular(index) => spec.containers.get_mut(index),
    };
    let Some(container) = container else { return Ok(()) };
    let volumes = spec.volumes.get_or_insert_default();
    if let Some([_, direct, volume]) = &of_another {
        // The template was copied from another pod, with its references.
        let sources = container.env_from.get_or_insert_default();
        sources.retain(|source| !is_from(source, direct));
        volumes.retain(|other| other.name != *volume);
    }
    refer(container, &capabilities, &direct);
    volumes.retain(|other| other.name != volume);
    volumes.push(Volume {
        name: volume,
        config_map: Some(ConfigMapVolumeSource {
            name: capabilities,
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    });
    pod.metadata
        .annotations
        .get_or_insert_default()
        .insert(annotation::SHARED_GPU_CONFIG_MAP.to_owned(), prefix);
    Ok(())
}

/// Refuses invalid requests. Requests of the old version of the pod are accepted.
///
/// # Errors
/// What is wrong, for the user.
pub fn validate(pod: &Pod, old: Option<&Pod>, settings: &Settings) -> Result<(), String> {
    let request = request_of(pod, settings);
    if old.is_some_and(|old| request_of(old, settings) == request) {
        return Ok(());
    }
    let share = is_fractional(pod);
    if !settings.gpu_sharing && share {
        let (ns, name) = (
            pod.metadata.namespace.as_deref(),
            pod.metadata.name.as_deref().or(pod.metadata.generate_name.as_deref()),
        );
        let pod = format!("{}/{}", ns.unwrap_or_default(), name.unwrap_or_default());
        return Err(format!(
            "attempting to create a pod {pod} with gpu sharing request, while GPU sharing is disabled"
        ));
    }
    if !share && request.mps == Some("true") {
        return Err("MPS is only supported with GPU fraction request".to_owned());
    }
    let read = gpu_request::read(request.asked.into_iter(), request.named);
    read.map(drop).map_err(|invalid| invalid.in_kais_words())
}

/// Refuses changes of a pod without a node after which its containers would not refer to the ConfigMaps of its own GPU: references cannot be changed.
///
/// # Errors
/// What cannot be changed, for the user.
pub fn validate_update(pod: &Pod, old: &Pod) -> Result<(), String> {
    let (before, after) = (references(old), references(pod));
    // A pod without references shared no GPU, or was created without review.
    if is_bound(old) || before.is_none() || before == after {
        return Ok(());
    }
    let change = match after {
        Some((Err(unknown), _)) => return Err(unknown),
        None if !is_fractional(pod) => {
            "the request for a part of a GPU (gpu-fraction, gpu-memory) cannot be removed from a pod"
        }
        _ => "gpu-fraction-container-name and runai/shared-gpu-configmap of a pod cannot be changed",
    };
    Err(format!(
        "{change}: the references of its containers to the GPU are written when it is created. Delete the pod and create it again"
    ))
}

/// The container that refers to the ConfigMaps of the pod's GPU, and the prefix of their names. `None` for pods that share no GPU, or were created without review.
fn references(pod: &Pod) -> Option<(Result<Place, String>, &str)> {
    let prefix = annotation_of(pod, annotation::SHARED_GPU_CONFIG_MAP)?;
    is_fractional(pod).then(|| (fraction_place(pod), prefix))
}

/// The container that gets the GPU portion; `None` for pods without a sharing request.
///
/// # Errors
/// When the pod names a container that it does not have.
pub fn fraction_container(pod: &Pod) -> Result<Option<&Container>, String> {
    let Some(spec) = pod
        .spec
        .as_ref()
        .filter(|spec| is_fractional(pod) && !spec.containers.is_empty())
    else {
        return Ok(None);
    };
    Ok(match fraction_place(pod)? {
        Place::Init(index) => spec
            .init_containers
            .as_ref()
            .and_then(|containers| containers.get(index)),
        Place::Regular(index) => spec.containers.get(index),
    })
}

/// The same container, mutable, with the name of its ConfigMap that [`mutate`] has chosen.
///
/// # Errors
/// When the pod names a container that it does not have.
pub(super) fn fraction_container_mut(pod: &mut Pod) -> Result<Option<(&mut Container, String)>, String> {
    let prefix = annotation_of(pod, annotation::SHARED_GPU_CONFIG_MAP).map(str::to_owned);
    let Some(prefix) = prefix.filter(|_| is_fractional(pod)) else {
        return Ok(None);
    };
    let place = fraction_place(pod)?;
    let Some(spec) = &mut pod.spec else {
        return Ok(None);
    };
    let container = match place {
        Place::Init(index) => spec
            .init_containers
            .as_mut()
            .and_then(|containers| containers.get_mut(index)),
        Place::Regular(index) => spec.containers.get_mut(index),
    };
    Ok(container.map(|container| (container, capabilities(&prefix, place))))
}

/// The names for a prefix: of the two config maps, and of the volume.
fn names(prefix: &str, place: Place) -> [String; 3] {
    let capabilities = capabilities(prefix, place);
    let direct = direct(&capabilities);
    let volume = volume_name(&format!("{capabilities}-vol"));
    [capabilities, direct, volume]
}

/// The prefix of the names of the pod's config maps. A prefix in a template would be shared by all of its pods, so on a pod
/// with owners only one counts that this webhook generated when it was called for the same request before.
fn prefix(pod: &Pod, place: Place, random: &str) -> String {
    let owner = pod.metadata.owner_references.as_ref().and_then(|owners| owners.first());
    let given = annotation_of(pod, annotation::SHARED_GPU_CONFIG_MAP).filter(|given| !given.is_empty());
    let own = |given: &&str| {
        owner.is_none_or(|owner| is_generated(given, &base(&owner.name, place)) && !is_sent_with_prefix(pod))
    };
    if let Some(given) = given.filter(own) {
        return given.to_owned();
    }
    let names = [
        owner.map(|owner| &owner.name),
        pod.metadata.name.as_ref(),
        pod.metadata.generate_name.as_ref(),
    ];
    let name = names
        .into_iter()
        .flatten()
        .find(|name| !name.is_empty())
        .map_or("pod", String::as_str);
    format!("{}-{random}-shared-gpu", base(name, place))
}

/// Whether the prefix has the form of one that [`prefix`] generates.
fn is_generated(prefix: &str, base: &str) -> bool {
    let rest = prefix.strip_prefix(base).and_then(|rest| rest.strip_prefix('-'));
    let random = rest.and_then(|rest| rest.strip_suffix("-shared-gpu"));
    random.is_some_and(|random| random.len() == RANDOM_LENGTH && random.bytes().all(|byte| ALPHABET.contains(&byte)))
}

/// Whether the client that creates the pod has sent the prefix, by the list of fields that the API server makes before it calls webhooks.
fn is_sent_with_prefix(pod: &Pod) -> bool {
    let key = format!("f:{}", annotation::SHARED_GPU_CONFIG_MAP);
    let entries = pod.metadata.managed_fields.iter().flatten();
    let mut sent = entries.filter_map(|entry| entry.fields_v1.as_ref()?.0.get("f:metadata")?.get("f:annotations"));
    sent.any(|annotations| annotations.get(&key).is_some())
}

/// A name, truncated so that all suffixes fit.
fn base(name: &str, place: Place) -> String {
    let (Place::Init(index) | Place::Regular(index)) = place;
    let room = NAME_LENGTH_MAX - 13 - 10 - index.to_string().len() - 1 - 5;
    let kept: String = name.chars().take(room).collect();
    kept.trim_end_matches(['.', '-']).to_owned()
}

/// A ConfigMap's name as the name of a volume, whose length limit is smaller.
fn volume_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for character in text.to_lowercase().chars() {
        let allowed = character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
        if allowed {
            name.push(character);
        } else if !name.ends_with('\0') {
            name.push('\0');
        }
    }
    name.replace('\0', "-").trim_matches('-').to_owned()
}

fn refer(container: &mut Container, capabilities: &str, direct: &str) {
    let variables = [env::NVIDIA_VISIBLE_DEVICES, env::RUNAI_NUM_OF_GPUS, env::GPU_PORTION];
    let list = container.env.get_or_insert_default();
    list.retain(|variable| !variables.contains(&variable.name.as_str()));
    list.extend(variables.map(|name| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            config_map_key_ref: Some(ConfigMapKeySelector {
                name: capabilities.to_owned(),
                key: name.to_owned(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
    }));
    let sources = container.env_from.get_or_insert_default();
    if !sources.iter().any(|source| is_from(source, direct)) {
        let source = ConfigMapEnvSource {
            name: direct.to_owned(),
            optional: Some(false),
        };
        sources.push(EnvFromSource {
            config_map_ref: Some(source),
            ..EnvFromSource::default()
        });
    }
}

fn is_from(source: &EnvFromSource, config_map: &str) -> bool {
    source
        .config_map_ref
        .as_ref()
        .is_some_and(|reference| reference.name == config_map)
}

/// The GPU sharing annotations of a pod, and its GPU limits.
#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    asked: Vec<(&'a str, &'a str)>,
    mps: Option<&'a str>,
    named: Named,
}

fn request_of<'a>(pod: &'a Pod, settings: &Settings) -> Request<'a> {
    let annotations = pod.metadata.annotations.iter().flatten();
    let annotations = annotations.map(|(key, value)| (key.as_str(), value.as_str()));
    let names = |wanted: &dyn Fn(&String) -> bool| {
        containers(pod).any(|container| {
            let resources = container.resources.as_ref();
            let named = resources
                .into_iter()
                .flat_map(|resources| [&resources.limits, &resources.requests]);
            named.flatten().flat_map(|named| named.keys()).any(wanted)
        })
    };
    Request {
        asked: annotations.filter(|(key, _)| gpu_request::is_part(key)).collect(),
        mps: annotation_of(pod, annotation::MPS),
        named: Named {
            whole: names(&|name| settings.gpu_resources.contains(name)),
            mig: names(&|name| name.starts_with(resource::NVIDIA_MIG_PREFIX)),
        },
    }
}
