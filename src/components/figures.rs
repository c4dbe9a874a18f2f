//! Metrics. Those of the process go to the recorder of the `metrics` crate. Those of the cluster's objects
//! are kept here, because their series must be removed when the object is deleted.
//!
//! `families` lists all of both. Only the leader exports series of objects, so that sums over replicas count each object once.

pub mod families;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use families::Family;

/// Names and values of labels, in the order in which they are shown.
pub type Labels<'a> = [(&'a str, &'a str)];

/// The series of objects. Components set them, and the metrics page renders them.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By family; then by owner and labels, as they are shown.
    series: Arc<Mutex<BTreeMap<&'static str, Series>>>,
}

type Series = BTreeMap<(String, String), f64>;

impl Figures {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the only series that an object has in a family; removes one with other labels.
    pub fn set(&self, family: &Family, owner: &str, labels: &Labels, value: f64) {
        let shown = shown(labels);
        let mut all = self.lock();
        let series = all.entry(family.name).or_default();
        series.retain_others(owner, &shown);
        series.insert((owner.to_owned(), shown), value);
    }

    /// Sets all series that an object has in a family; removes its others.
    pub fn set_all<'a>(&self, family: &Family, owner: &str, new: impl IntoIterator<Item = (&'a Labels<'a>, f64)>) {
        let mut all = self.lock();
        let series = all.entry(family.name).or_default();
        series.retain_others(owner, "");
        series.extend(
            new.into_iter()
                .map(|(labels, value)| ((owner.to_owned(), shown(labels)), value)),
        );
    }

    /// Increases one of the series that an object has in a family.
    pub fn count(&self, family: &Family, owner: &str, labels: &Labels, by: f64) {
        let mut all = self.lock();
        let series = all.entry(family.name).or_default();
        *series.entry((owner.to_owned(), shown(labels))).or_default() += by;
    }

    /// Removes the series of a deleted object in these families.
    pub fn forget(&self, families: &[&Family], owner: &str) {
        let mut all = self.lock();
        for family in families {
            if let Some(series) = all.get_mut(family.name) {
                series.retain_others(owner, "");
            }
        }
    }

    /// Removes the series of all objects in these families.
    pub fn clear(&self, families: &[&Family]) {
        let mut all = self.lock();
        for family in families {
            all.remove(family.name);
        }
    }

    /// The series in the text format of Prometheus. Families without series have their header, too.
    #[must_use]
    pub fn render(&self) -> String {
        let all = self.lock();
        let mut page = String::new();
        for family in families::OF_OBJECTS {
            let (name, help, kind) = (family.name, family.help, family.kind.as_str());
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for ((_, labels), value) in all.get(name).into_iter().flatten() {
                let _ = writeln!(page, "{name}{{{labels}}} {value}");
            }
            page.push('\n');
        }
        page
    }
}

/// The part of a family's series that belongs to one owner.
trait OfOwner {
    fn retain_others(&mut self, owner: &str, but: &str);
}

impl OfOwner for Series {
    /// Removes the owner's series, except the one with these labels.
    fn retain_others(&mut self, owner: &str, but: &str) {
        let from = (owner.to_owned(), String::new());
        let gone: Vec<_> = self
            .range(from..)
            .map(|(key, _)| key)
            .take_while(|(of, _)| of == owner)
            .filter(|(_, labels)| labels != but)
            .cloned()
            .collect();
        for key in gone {
            self.remove(&key);
        }
    }
}

/// Labels in the text format of Prometheus.
fn shown(labels: &Labels) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = write!(text, "{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::families::{QUEUE_ALLOCATED_GPUS, QUEUE_INFO};
    use super::*;

    fn samples(figures: &Figures) -> Vec<String> {
        let page = figures.render();
        page.lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn series_show_the_latest_value_and_are_removed_with_their_object() {
        let figures = Figures::default();
        let labels = |shown| [("queue_name", "a"), ("queue_display_name", shown)];
        figures.set(&QUEUE_INFO, "a", &labels(""), 1.0);
        figures.set(&QUEUE_ALLOCATED_GPUS, "a", &labels(""), 0.5);
        figures.set(&QUEUE_ALLOCATED_GPUS, "ab", &[("queue_name", "ab")], 2.0);
        figures.set(&QUEUE_INFO, "a", &labels("say \"A\"\\\n"), 1.0);
        assert_eq!(
            samples(&figures),
            [
                r#"kai_queue_info{queue_name="a",queue_display_name="say \"A\"\\\n"} 1"#,
                r#"kai_queue_allocated_gpus{queue_name="a",queue_display_name=""} 0.5"#,
                r#"kai_queue_allocated_gpus{queue_name="ab"} 2"#,
            ]
        );
        figures.forget(&[&QUEUE_INFO, &QUEUE_ALLOCATED_GPUS], "a");
        assert_eq!(samples(&figures), [r#"kai_queue_allocated_gpus{queue_name="ab"} 2"#]);
        figures.clear(&[&QUEUE_ALLOCATED_GPUS]);
        assert!(samples(&figures).is_empty());
    }

    #[test]
    fn the_series_of_an_object_are_replaced_as_a_whole() {
        let figures = Figures::default();
        let pending = |owner: &str, causes: &[(&str, f64)]| {
            let labels: Vec<_> = causes
                .iter()
                .map(|(cause, count)| ([("cause", *cause)], *count))
                .collect();
            let series = labels.iter().map(|(labels, count)| (&labels[..], *count));
            figures.set_all(&families::QUEUE_PENDING, owner, series);
        };
        pending("a", &[("fair_share", 2.0), ("taints", 1.0)]);
        pending("ab", &[("gang", 4.0)]);
        pending("a", &[("taints", 3.0)]);
        assert_eq!(
            samples(&figures),
            [
                r#"unikai_queue_pending_pod_groups{cause="taints"} 3"#,
                r#"unikai_queue_pending_pod_groups{cause="gang"} 4"#,
            ]
        );
        pending("a", &[]);
        assert_eq!(
            samples(&figures),
            [r#"unikai_queue_pending_pod_groups{cause="gang"} 4"#]
        );
    }

    #[test]
    fn one_object_may_count_several_things() {
        let figures = Figures::default();
        for action in ["reclaim", "preempt", "reclaim"] {
            figures.count(&families::POD_GROUP_EVICTED_PODS, "uid", &[("action", action)], 1.0);
        }
        assert_eq!(
            samples(&figures),
            [
                r#"kai_pod_group_evicted_pods_total{action="preempt"} 1"#,
                r#"kai_pod_group_evicted_pods_total{action="reclaim"} 2"#,
            ]
        );
    }
}
