//! Flags of metrics.

use std::collections::BTreeMap;

use crate::components::queues::shown::MetricLabel;

/// Flags of metrics.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Metrics")]
pub struct MetricsArgs {
    /// Prefix of the metrics that KAI also has
    #[arg(long, env = "UNIKAI_METRICS_NAMESPACE", value_name = "PREFIX", default_value = crate::operator::metrics::KAI)]
    pub metrics_namespace: String,

    /// Labels of queues that become labels of their metrics, such as `team=team,example.com/cost-centre=cost_centre`
    #[arg(long, env = "UNIKAI_QUEUE_LABEL_TO_METRIC_LABEL", value_name = "KEY=LABEL", value_delimiter = ',', value_parser = pair)]
    pub queue_label_to_metric_label: Vec<(String, String)>,

    /// Values of these labels for queues without them, such as `team=none`
    #[arg(long, env = "UNIKAI_QUEUE_LABEL_TO_DEFAULT_METRIC_VALUE", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    pub queue_label_to_default_metric_value: Vec<(String, String)>,
}

impl MetricsArgs {
    /// The labels of queues that are shown, by key. The last value of a key counts.
    pub fn queue_labels(&self) -> Vec<MetricLabel> {
        let by_key = |pairs: &[(String, String)]| pairs.iter().cloned().collect::<BTreeMap<_, _>>();
        let mut defaults = by_key(&self.queue_label_to_default_metric_value);
        let shown = by_key(&self.queue_label_to_metric_label).into_iter();
        let shown = shown.map(|(label, shown_as)| MetricLabel {
            default: defaults.remove(&label).unwrap_or_default(),
            label,
            shown_as,
        });
        shown.collect()
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not of the form KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
