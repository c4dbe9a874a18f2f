//! Users of a shared GPU as recorded on its reservation pod: one annotation per user, written before the user is bound and removed after it has gone.
//! Tenants cannot write in the namespace of reservation pods, so these records take precedence over the users' own labels and annotations.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::api::names::{annotation, label};
pub use crate::mirror::bind_request::is_share;

/// What a pod requests of shared GPUs, as the texts of its annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(BTreeMap<String, String>);

impl Share {
    /// From annotations.
    pub fn of<'a>(annotations: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let own = annotations.filter(|(key, _)| is_share(key));
        Self(own.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// From the annotations of a pod.
    #[must_use]
    pub fn of_pod(pod: &Pod) -> Self {
        let annotations = pod.metadata.annotations.iter().flatten();
        Self::of(annotations.map(|(key, value)| (&**key, &**value)))
    }

    /// The annotations.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter()
    }

    /// The number of GPUs of which it requests a portion.
    #[must_use]
    pub fn devices(&self) -> usize {
        let devices = self.0.get(annotation::GPU_FRACTION_NUM_DEVICES);
        devices.and_then(|text| text.parse().ok()).unwrap_or(1)
    }

    /// Total length of its texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.values().map(String::len).sum()
    }

    /// Whether it requests nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Users of a shared GPU, by uid.
pub type Users = BTreeMap<String, User>;

/// A user of a shared GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its request at the bind decision.
    pub share: Share,
}

/// The key of the annotation for the user of that uid.
#[must_use]
pub fn key(uid: &str) -> String {
    format!("{}{uid}", annotation::GPU_USER_PREFIX)
}

/// The annotation for a user.
#[must_use]
pub fn annotation(uid: &str, user: &User) -> (String, String) {
    let value = serde_json::to_string(user).unwrap_or_default();
    (key(uid), value)
}

/// The users recorded on a reservation pod, by uid. Unreadable records are ignored.
#[must_use]
pub fn of(reservation: &Pod) -> BTreeMap<String, User> {
    let annotations = reservation.metadata.annotations.iter().flatten();
    let users = annotations.filter_map(|(key, value)| {
        let uid = key.strip_prefix(annotation::GPU_USER_PREFIX)?;
        Some((uid.to_owned(), serde_json::from_str(value).ok()?))
    });
    users.collect()
}

/// The labels of a pod that uses these groups.
#[must_use]
pub fn labels<'a>(groups: impl ExactSizeIterator<Item = &'a str>) -> BTreeMap<String, String> {
    let one = groups.len() == 1;
    let key = |group: &str| {
        if one {
            label::GPU_GROUP.to_owned()
        } else {
            format!("{}{group}", label::GPU_GROUP_PREFIX)
        }
    };
    groups.map(|group| (key(group), group.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::Target;
    use serde_json::json;

    #[test]
    fn the_record_of_a_user_is_read_as_it_was_written() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"annotations": {
            "gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "other": "x"}}}))
        .unwrap();
        let user = User {
            namespace: "team".to_owned(),
            name: "a".to_owned(),
            share: Share::of_pod(&pod),
        };
        assert_eq!(user.share.devices(), 2);
        let (key, value) = annotation("1-2-3", &user);
        let holder = json!({"metadata": {"annotations": {key: value, "unrelated": "x", (super::key("broken")): "{"}}});
        let holder: Pod = serde_json::from_value(holder).unwrap();
        assert_eq!(of(&holder), [("1-2-3".to_owned(), user)].into());
    }

    #[test]
    fn one_group_has_the_plain_label_and_several_have_one_each() {
        assert_eq!(
            labels(["g"].into_iter()),
            [("runai-gpu-group".to_owned(), "g".to_owned())].into()
        );
        let both = labels(["g", "h"].into_iter());
        assert_eq!(
            both.keys().collect::<Vec<_>>(),
            ["runai-gpu-group/g", "runai-gpu-group/h"]
        );
    }

    #[test]
    fn fuzz_records_of_users() {
        let target = Target {
            name: "gpu-users",
            rounds: 1_000,
            words: &[
                "gpu-user.unikai.dev/",
                "gpu-user.unikai.dev/a",
                "namespace",
                "name",
                "share",
                "gpu-fraction",
                "gpu-memory",
                "gpu-fraction-num-devices",
                "team",
                "{",
                "}",
                "\"",
                ":",
                "0.5",
                "2",
            ],
        };
        target.objects(|annotations| {
            let Ok(reservation) = serde_json::from_value::<Pod>(json!({"metadata": {"annotations": annotations}}))
            else {
                return false;
            };
            let users = of(&reservation);
            let again: BTreeMap<String, String> = users.iter().map(|(uid, user)| annotation(uid, user)).collect();
            let again: Pod = serde_json::from_value(json!({"metadata": {"annotations": again}})).unwrap();
            assert_eq!(of(&again), users, "what is read is written so that it is read again");
            !users.is_empty()
        });
    }
}
