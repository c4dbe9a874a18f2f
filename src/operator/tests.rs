use super::*;
use crate::engine::policy::DisruptionBudgets;

#[test]
fn what_the_user_sets_of_scheduling_reaches_the_engine() {
    let usual = components::Settings::default();
    let default_policy = policy(&usual, &mirror_settings(&usual).shard);
    assert_eq!(default_policy, Policy::default());
    let settings = components::Settings {
        disruption_budgets: DisruptionBudgets::Respect,
        detailed_fit_errors: true,
        node_pool: Some("blue".to_owned()),
        ..usual
    };
    let expected = Policy {
        disruption_budgets: DisruptionBudgets::Respect,
        detailed_errors: true,
        node_pool: "blue".to_owned(),
        ..Policy::default()
    };
    assert_eq!(policy(&settings, &mirror_settings(&settings).shard), expected);
}
