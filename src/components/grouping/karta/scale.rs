//! The number of pods of a workload's components, by its definition.

use serde_json::Value;

use super::{Failed, Karta, Query, Subject};

impl Karta {
    /// The number of pods of a component: its own scale times the sum of its children, or whichever of the two is not 0.
    ///
    /// # Errors
    /// If a query fails or its result is not a number.
    pub fn scale(&self, component: usize, owner: &Subject) -> Result<i64, Failed> {
        self.counted(component, owner, None)
    }

    /// The same for one instance of the component.
    ///
    /// # Errors
    /// If a query fails or its result is not a number.
    pub fn scale_of_instance(&self, component: usize, owner: &Subject, instance: usize) -> Result<i64, Failed> {
        self.counted(component, owner, Some(instance))
    }

    fn counted(&self, component: usize, owner: &Subject, instance: Option<usize>) -> Result<i64, Failed> {
        let mut below: i64 = 0;
        let mut parts = 0;
        for child in self.children(component) {
            below = below.saturating_add(self.counted(child, owner, None)?);
            parts += 1;
        }
        if !self.components.iter().any(|component| component.is_scaled) {
            let has_pods = self.components.get(component).is_some_and(|known| known.has_pods);
            return match (has_pods, instance) {
                (false, _) => Ok(below),
                (true, Some(_)) => Ok(1),
                (true, None) => self.number_of_instances(component, owner),
            };
        }
        let own = self.own_scale(component, owner, instance)?;
        Ok(match (parts, below, own) {
            (0, _, own) | (_, 0, own) => own,
            (_, below, 0) => below,
            (_, below, own) => own.saturating_mul(below),
        })
    }

    fn number_of_instances(&self, component: usize, owner: &Subject) -> Result<i64, Failed> {
        match self
            .components
            .get(component)
            .and_then(|known| known.instances.as_ref())
        {
            Some(instances) => Ok(i64::try_from(instances.texts(owner)?.len()).unwrap_or(i64::MAX)),
            None => Ok(1),
        }
    }

    fn own_scale(&self, component: usize, owner: &Subject, instance: Option<usize>) -> Result<i64, Failed> {
        let Some(definition) = self.components.get(component) else {
            return Ok(0);
        };
        let instances = self.number_of_instances(component, owner)?;
        let numbers = |query: &Option<Query>| query.as_ref().map(|query| counts(query, owner, instances)).transpose();
        let (replicas, min) = (numbers(&definition.replicas)?, numbers(&definition.min_replicas)?);
        let one = |index: usize| {
            let at = |numbers: &Option<Vec<i64>>| numbers.as_ref().and_then(|numbers| numbers.get(index)).copied();
            let positive = |number: &i64| *number > 0;
            at(&min)
                .filter(positive)
                .or_else(|| at(&replicas).filter(positive))
                .unwrap_or(0)
        };
        let all = 0..usize::try_from(instances).unwrap_or_default();
        Ok(match instance {
            Some(index) => one(index),
            None => all.map(one).fold(0, i64::saturating_add),
        })
    }
}

/// One number per instance; null is none.
fn counts(query: &Query, owner: &Subject, instances: i64) -> Result<Vec<i64>, Failed> {
    let found = query.run(owner)?;
    if i64::try_from(found.len()) != Ok(instances) {
        return Err(format!(
            "{query:?} has {} results for {instances} instances",
            found.len()
        ));
    }
    let number = |value: &Value| match value {
        Value::Null => Ok(0),
        value => {
            let number = value.as_i64().filter(|number| i32::try_from(*number).is_ok());
            number.ok_or_else(|| format!("{query:?} is {value}, which is no whole number"))
        }
    };
    found.iter().map(number).collect()
}
