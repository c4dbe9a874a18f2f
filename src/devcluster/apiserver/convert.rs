//! Conversion between the stored form of objects and the served version: another `apiVersion`, and
//! the field names of the two event APIs.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::registry::{Resource, Stored};

/// Core event field, `events.k8s.io` field.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// The object as this resource serves it.
pub(crate) fn served<'a>(resource: &Resource, stored: &'a Value) -> Cow<'a, Value> {
    match resource.stored {
        Stored::AsServed | Stored::Never => Cow::Borrowed(stored),
        Stored::OtherVersion => {
            let mut object = stored.clone();
            object["apiVersion"] = json!(resource.api_version());
            Cow::Owned(object)
        }
        Stored::CoreEvents => {
            let mut event = stored.clone();
            event["apiVersion"] = json!(resource.api_version());
            EVENT_FIELDS
                .iter()
                .for_each(|(core, newer)| rename(&mut event, core, newer));
            Cow::Owned(event)
        }
    }
}

/// The object in its stored form.
pub(crate) fn stored(resource: &Resource, mut served: Value) -> Value {
    match resource.stored {
        Stored::AsServed | Stored::Never => {}
        Stored::OtherVersion => served["apiVersion"] = json!(resource.storage_api_version),
        Stored::CoreEvents => {
            served["apiVersion"] = json!(resource.storage_api_version);
            EVENT_FIELDS
                .iter()
                .for_each(|(core, newer)| rename(&mut served, newer, core));
        }
    }
    served
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(fields) = object.as_object_mut()
        && let Some(value) = fields.remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}
