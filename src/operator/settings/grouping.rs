//! Flags of grouping: which pods, and by which rules.

use std::collections::BTreeMap;

use crate::api::syntax::{is_label_key, is_label_word};
use crate::components::{PlainPodGroups, Settings};

/// Flags of grouping.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Grouping")]
pub struct GroupingArgs {
    /// Group only pods with all of these labels
    #[arg(long, env = "UNIKAI_POD_LABEL_SELECTOR", value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = label)]
    pub pod_label_selector: Vec<(String, String)>,

    /// Group only pods of namespaces with all of these labels
    #[arg(long, env = "UNIKAI_NAMESPACE_LABEL_SELECTOR", value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = label)]
    pub namespace_label_selector: Vec<(String, String)>,

    /// ConfigMap with default priority classes and preemptibility by kind of workload
    #[arg(
        long,
        env = "UNIKAI_DEFAULT_PRIORITIES_CONFIGMAP",
        value_name = "NAMESPACE/NAME",
        value_parser = place
    )]
    pub default_priorities_configmap: Option<(String, String)>,

    /// Keep pods in the pod groups that older releases of KAI created for them
    #[arg(long, env = "UNIKAI_SEARCH_LEGACY_POD_GROUPS", value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub search_legacy_pod_groups: bool,

    /// Schedule the pods of a Knative revision as a gang; its minimum scale is the minimum
    #[arg(long, env = "UNIKAI_KNATIVE_GANGS", value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub knative_gangs: bool,

    /// Group kinds without a rule by the Karta that describes them
    #[arg(long, env = "UNIKAI_KARTAS", value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub kartas: bool,

    /// Which single pods without an owner get a PodGroup object: `always`, all; `waiting`, those that cannot be placed
    /// at once; `never`, none. A pod without a PodGroup costs the API server two writes instead of four
    #[arg(long, env = "UNIKAI_PLAIN_POD_GROUPS", value_name = "MODE", default_value = "always")]
    pub plain_pod_groups: PlainPodGroups,

    /// Group as KAI does: ignore annotations, versions and wrapper kinds that KAI does not support
    #[arg(long, env = "UNIKAI_GROUP_AS_KAI", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub group_as_kai: bool,
}

impl GroupingArgs {
    /// Applies these flags to the components' settings.
    pub fn settings(self) -> Settings {
        let all = |pairs: Vec<(String, String)>| pairs.into_iter().collect::<BTreeMap<_, _>>();
        Settings {
            pod_labels: all(self.pod_label_selector),
            namespace_labels: all(self.namespace_label_selector),
            default_priorities: self.default_priorities_configmap,
            search_legacy_pod_groups: self.search_legacy_pod_groups,
            knative_gangs: self.knative_gangs,
            kartas: self.kartas,
            plain_pod_groups: self.plain_pod_groups,
            exactly_as_kai: self.group_as_kai,
            ..Settings::default()
        }
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = split(text, '=').ok_or_else(|| "not of the form KEY=VALUE".to_owned())?;
    if !is_label_key(&key) {
        return Err(format!("{key:?} is not a label key, such as example.com/team"));
    }
    if !value.is_empty() && !is_label_word(&value) {
        return Err(format!("{value:?} is not a label value"));
    }
    Ok((key, value))
}

fn place(text: &str) -> Result<(String, String), String> {
    split(text, '/').ok_or_else(|| "not of the form NAMESPACE/NAME".to_owned())
}

fn split(text: &str, at: char) -> Option<(String, String)> {
    let (left, right) = text.split_once(at)?;
    let (left, right) = (left.trim(), right.trim());
    (!left.is_empty() && !right.contains(at)).then(|| (left.to_owned(), right.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_labels_and_object_names_are_refused() {
        assert_eq!(label("a.b/c=d"), Ok(("a.b/c".to_owned(), "d".to_owned())));
        assert_eq!(label("c="), Ok(("c".to_owned(), String::new())));
        assert_eq!(place("ns/map"), Ok(("ns".to_owned(), "map".to_owned())));
        for wrong in ["a", "=b", ""] {
            assert_eq!(label(wrong), Err("not of the form KEY=VALUE".to_owned()), "{wrong}");
        }
        let key = "\"a b\" is not a label key, such as example.com/team";
        assert_eq!(label("a b=c"), Err(key.to_owned()));
        assert_eq!(label("a=b c"), Err("\"b c\" is not a label value".to_owned()));
        for wrong in ["map", "/map", "a/b/c"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
