//! Plugin arguments: strings by name → typed values. Unknown arguments are noted, and so are values that do not parse, for which the default applies, as
//! in KAI.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use super::{RECONSTRUCT, Report, go_bool};
use crate::api::duration;
use crate::engine::input::Millis;
use crate::engine::policy::{
    COMPLETE_SEARCH_STEPS, DEVICE_LOCALITY, DEVICE_LOCALITY_MOST, MinRuntime, NodePlacement, Proportion, ResolveMethod,
    Strategy,
};

/// Factors are in millionths.
const MILLION: f64 = 1e6;
/// Larger factors count as this one, which is exact in millionths.
const FACTOR_MAX: f64 = 1e9;

/// The arguments of one plugin.
pub struct Arguments<'a> {
    path: &'a str,
    given: &'a BTreeMap<String, String>,
    asked: BTreeSet<&'static str>,
    report: &'a mut Report,
}

impl<'a> Arguments<'a> {
    /// The arguments of the plugin at `path`.
    pub fn new(path: &'a str, given: &'a BTreeMap<String, String>, report: &'a mut Report) -> Self {
        Self {
            path,
            given,
            asked: BTreeSet::new(),
            report,
        }
    }

    /// Notes the arguments that were not read.
    pub fn finish(self) {
        for name in self.given.keys().filter(|name| !self.asked.contains(name.as_str())) {
            self.report.note(
                format!("{}.arguments.{name}", self.path),
                "this plugin has no such argument",
            );
        }
    }

    /// KAI's name of the saturation factor is misspelt; the correct spelling and the documented name are accepted as well.
    pub fn proportion(&mut self) -> Proportion {
        let saturation = [
            "relcaimerSaturationMultiplier",
            "reclaimerSaturationMultiplier",
            "reclaimerUtilizationMultiplier",
        ];
        let found = saturation.map(|name| self.factor(name));
        Proportion {
            k_value: self.factor("kValue").unwrap_or(1_000_000).max(0),
            saturation_multiplier: found.into_iter().flatten().next().unwrap_or(1_000_000).max(1_000_000),
        }
    }

    pub fn node_placement(&mut self) -> NodePlacement {
        NodePlacement {
            gpu: self.strategy("gpu"),
            cpu: self.strategy("cpu"),
        }
    }

    pub fn min_runtime(&mut self) -> MinRuntime {
        let methods = [("lca", ResolveMethod::Lca), ("queue", ResolveMethod::Queue)];
        MinRuntime {
            preempt: self.duration("defaultPreemptMinRuntime"),
            reclaim: self.duration("defaultReclaimMinRuntime"),
            resolve: self.choice("reclaimResolveMethod", methods),
        }
    }

    pub fn complete_search_steps(&mut self) -> usize {
        let steps = |text: &str| text.parse().ok();
        let steps = self.read("maxSteps", "a whole number", steps);
        steps.unwrap_or(COMPLETE_SEARCH_STEPS)
    }

    /// Accepts any arguments: they do not affect decisions.
    pub fn any(&mut self) {
        self.given = const { &BTreeMap::new() };
    }

    /// The size of KAI's expression cache is accepted and ignored.
    pub fn dynamic_resources(&mut self) {
        self.asked.insert("maxCelCacheEntries");
    }

    /// Without the argument, the attributes that Kubernetes defines.
    pub fn device_locality(&mut self) -> Vec<String> {
        let names = |text: &str| -> Option<Vec<String>> {
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            let names: Vec<_> = names.map(str::to_owned).collect();
            (1..=DEVICE_LOCALITY_MOST).contains(&names.len()).then_some(names)
        };
        let given = self.read(
            "attributes",
            "a list of one to three attributes, such as example.com/island",
            names,
        );
        given.unwrap_or_else(|| DEVICE_LOCALITY.map(str::to_owned).into())
    }

    /// Both arguments are read elsewhere.
    pub fn numa(&mut self) {
        self.asked.extend(["ignoreList", RECONSTRUCT]);
        if let Some(text) = self.given.get(RECONSTRUCT).filter(|text| go_bool(text).is_none()) {
            let path = format!("{}.arguments.{RECONSTRUCT}", self.path);
            self.report
                .note(path, format!("{text:?} is not true or false, and counts as true"));
        }
    }

    fn strategy(&mut self, name: &'static str) -> Strategy {
        self.choice(name, [("binpack", Strategy::Binpack), ("spread", Strategy::Spread)])
    }

    fn choice<T: Copy + Default>(&mut self, name: &'static str, choices: [(&str, T); 2]) -> T {
        let expected = format!("{} or {}", choices[0].0, choices[1].0);
        self.read(name, &expected, |text| {
            choices
                .iter()
                .find(|(choice, _)| *choice == text)
                .map(|(_, value)| *value)
        })
        .unwrap_or_default()
    }

    fn factor(&mut self, name: &'static str) -> Option<i64> {
        let factor = |text: &str| text.parse::<f64>().ok().filter(|factor| factor.is_finite());
        let factor = self.read(name, "a number", factor)?;
        let factor = factor.clamp(-FACTOR_MAX, FACTOR_MAX);
        #[expect(clippy::cast_possible_truncation, reason = "within bounds")]
        Some((factor * MILLION).round() as i64)
    }

    fn duration(&mut self, name: &'static str) -> Millis {
        let parse = |text: &str| duration::parse_extended(text).ok();
        self.read(name, "a duration such as 90s, 1h30m or 2d", parse)
            .map_or(0, millis)
            .max(0)
    }

    fn read<T>(&mut self, name: &'static str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.asked.insert(name);
        let text = self.given.get(name)?;
        let value = parse(text);
        if value.is_none() {
            self.report.note(
                format!("{}.arguments.{name}", self.path),
                format!("{text:?} is not {expected}: the default applies"),
            );
        }
        value
    }
}

/// Milliseconds, saturating.
pub fn millis(duration: SignedDuration) -> Millis {
    i64::try_from(duration.as_millis()).unwrap_or(if duration.is_negative() {
        Millis::MIN
    } else {
        Millis::MAX
    })
}
