//! What a pod asks of its node. Pods come in runs of equals, from one template each: what was read off the last few is given to those that are alike.

use std::cell::RefCell;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, NodeAffinity, Pod, PodSpec, Volume};

use super::pod::spec;
use super::repeated::Repeated;
use super::{Problem, constraints, requests};
use crate::engine::input::{Name, Needs};

/// How many different pods are remembered.
const REMEMBERED: usize = 4;

/// The last pods that differed, and what each asks for; the one used last comes first.
#[derive(Debug, Default)]
pub struct Templates {
    last: RefCell<Vec<(Arc<Pod>, Arc<Needs>)>>,
    namespaces: Repeated,
}

impl Templates {
    /// The name of a pod's namespace.
    pub fn namespace(&self, text: &str) -> Name {
        self.namespaces.name(text)
    }

    /// What a pod asks of its node. `gpus` names the resources that are whole GPUs; it must be the same for all pods.
    pub fn needs(&self, pod: &Arc<Pod>, gpus: &[String], problems: &mut Vec<Problem>) -> Arc<Needs> {
        let mut known = self.last.borrow_mut();
        if let Some(at) = known.iter().position(|(other, _)| alike(other, pod)) {
            known[..=at].rotate_right(1);
            let needs = Arc::clone(&known[0].1);
            debug_assert_eq!(*needs, read(pod, gpus, &mut Vec::new()));
            return needs;
        }
        let before = problems.len();
        let needs = Arc::new(read(pod, gpus, problems));
        // Whoever has problems is told of his own.
        if problems.len() == before {
            known.truncate(REMEMBERED - 1);
            known.insert(0, (Arc::clone(pod), Arc::clone(&needs)));
        }
        needs
    }
}

fn read(pod: &Pod, gpus: &[String], problems: &mut Vec<Problem>) -> Needs {
    let spec = spec(pod);
    let (request, gpu) = requests::of_pod(pod, gpus, problems);
    Needs {
        request,
        gpu,
        node_selector: constraints::node_selector(spec),
        affinity_required: constraints::required(spec),
        tolerations: constraints::tolerations(spec),
        host_ports: constraints::host_ports(spec),
        constraints: constraints::others(spec),
    }
}

/// Whether two pods are equal in all that [`read`] looks at.
fn alike(left: &Pod, right: &Pod) -> bool {
    let (Some(one), Some(other)) = (&left.spec, &right.spec) else {
        return false;
    };
    each(&one.containers, &other.containers, same_container)
        && one.priority == other.priority
        && one.priority_class_name == other.priority_class_name
        && one.node_selector == other.node_selector
        && one.tolerations == other.tolerations
        && one.host_network == other.host_network
        && one.overhead == other.overhead
        && node_affinity(one) == node_affinity(other)
        && each(some(&one.init_containers), some(&other.init_containers), same_container)
        && each(some(&one.volumes), some(&other.volumes), same_volume)
        && asked(left).eq(asked(right))
}

fn each<T>(left: &[T], right: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(one, other)| same(one, other))
}

fn some<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

fn same_container(left: &Container, right: &Container) -> bool {
    requests::of_container(left) == requests::of_container(right)
        && left.ports == right.ports
        && left.restart_policy == right.restart_policy
}

/// Names of volumes do not count: the one with the pod's token has another in each pod.
fn same_volume(left: &Volume, right: &Volume) -> bool {
    let renamed = || Volume {
        name: right.name.clone(),
        ..left.clone()
    };
    left == right || (left.name != right.name && renamed() == *right)
}

fn node_affinity(spec: &PodSpec) -> Option<&NodeAffinity> {
    spec.affinity.as_ref()?.node_affinity.as_ref()
}

fn asked(pod: &Pod) -> impl Iterator<Item = (&String, &String)> {
    let annotations = pod.metadata.annotations.iter().flatten();
    annotations.filter(|(key, _)| requests::asks(key))
}

#[cfg(test)]
mod tests;
