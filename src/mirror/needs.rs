//! A pod's requirements on its node, with a small cache: consecutive pods often come from one template and share the result.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::{Container, NodeAffinity, PodSpec, Volume};

use super::packed::{self, Pod};
use super::{Problem, constraints, requests};
use crate::api::gpu_request;
use crate::engine::input::Needs;

/// Cache size.
const REMEMBERED: usize = 4;

/// The last different pods with their needs, most recently used first.
#[derive(Debug, Default)]
pub struct Templates {
    last: RefCell<Vec<Template>>,
}

#[derive(Debug)]
struct Template {
    pod: Arc<Pod>,
    /// Annotations are part of the request.
    annotated: bool,
    needs: Arc<Needs>,
}

impl Templates {
    /// A pod's needs. `gpus`: the resources that are whole GPUs; must be the same for all pods. The annotations of a pod that is not `ours`
    /// are ignored.
    pub fn needs(&self, pod: &Arc<Pod>, ours: bool, gpus: &[String], problems: &mut Vec<Problem>) -> Arc<Needs> {
        let mut known = self.last.borrow_mut();
        let annotated = ours && asked(pod).next().is_some();
        let same = |other: &Template| other.annotated == annotated && alike(&other.pod, pod, annotated);
        if let Some(at) = known.iter().position(same) {
            let template = known.remove(at);
            let needs = Arc::clone(&template.needs);
            known.insert(0, template);
            debug_assert_eq!(*needs, read(pod, ours, gpus, &mut Vec::new()));
            return needs;
        }
        let before = problems.len();
        let needs = Arc::new(read(pod, ours, gpus, problems));
        // Each object has its own list of problems.
        if problems.len() == before {
            known.truncate(REMEMBERED - 1);
            let template = Template {
                pod: Arc::clone(pod),
                annotated,
                needs: Arc::clone(&needs),
            };
            known.insert(0, template);
        }
        needs
    }
}

fn read(pod: &Pod, ours: bool, gpus: &[String], problems: &mut Vec<Problem>) -> Needs {
    static NONE: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);
    let spec = pod.spec().unwrap_or_else(|| &NONE);
    let (request, gpu) = requests::of_pod(pod, ours, gpus, problems);
    Needs {
        request,
        gpu,
        node_selector: constraints::node_selector(spec),
        affinity_required: constraints::required(spec),
        tolerations: constraints::tolerations(spec),
        host_ports: constraints::host_ports(spec),
        constraints: constraints::others(pod.priority_class.as_deref(), pod.priority, some(&spec.volumes)),
    }
}

/// Whether two pods are equal in all that [`read`] uses; annotations only if they are part of the request.
fn alike(left: &Pod, right: &Pod, annotated: bool) -> bool {
    each(&left.containers, &right.containers, same_requests)
        && left.priority == right.priority
        && left.priority_class == right.priority_class
        && each(&left.init_containers, &right.init_containers, same_requests)
        && (!annotated || asked(left).eq(asked(right)))
        && match (left.spec(), right.spec()) {
            (None, None) => true,
            (Some(left), Some(right)) => same_rest(left, right),
            (Some(_), None) | (None, Some(_)) => false,
        }
}

fn same_requests(left: &packed::Container, right: &packed::Container) -> bool {
    left.requests == right.requests && left.stays == right.stays
}

/// The same for fields of the whole objects.
fn same_rest(left: &PodSpec, right: &PodSpec) -> bool {
    each(&left.containers, &right.containers, same_ports)
        && each(some(&left.init_containers), some(&right.init_containers), same_ports)
        && left.node_selector == right.node_selector
        && left.tolerations == right.tolerations
        && left.host_network == right.host_network
        && left.overhead == right.overhead
        && left.resources == right.resources
        && node_affinity(left) == node_affinity(right)
        && each(some(&left.volumes), some(&right.volumes), same_volume)
}

fn same_ports(left: &Container, right: &Container) -> bool {
    left.ports == right.ports
}

fn each<T>(left: &[T], right: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(one, other)| same(one, other))
}

fn some<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

/// Names of volumes are ignored: the token volume's differs in each pod.
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

fn asked(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    pod.annotations.iter().filter(|(key, _)| gpu_request::is_part(key))
}

#[cfg(test)]
mod tests;
