//! delete and deletecollection: preconditions, grace periods of pods, propagation by finalizers.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Call, Reply, admit::Admission, read, success, update::ATTEMPTS, value_reply};
use crate::devcluster::apiserver::{
    clock, convert,
    present::ListMeta,
    status::{ApiError, ApiResult},
    store::{Object, ObjectKey, WriteError, key_of},
    strategy, validation,
    webhook::Operation,
};

const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// `DeleteOptions`, from the body and the query.
#[derive(Debug, Default)]
pub(super) struct Options {
    grace_seconds: Option<i64>,
    propagation: Option<String>,
    uid: Option<String>,
    revision: Option<String>,
    /// Nothing is to be stored.
    pub dry_run: bool,
}

impl Options {
    fn of(call: &Call) -> ApiResult<Self> {
        let body = if call.body.is_empty() {
            Value::Null
        } else {
            call.json_body()?
        };
        let mut options = Self::read(&body)?;
        options.dry_run |= call.dry_run()?;
        let query = &call.info.query;
        if let Some(text) = query.get("gracePeriodSeconds") {
            let seconds = text
                .parse()
                .map_err(|_| ApiError::bad_request(format!("gracePeriodSeconds: invalid value {text:?}")))?;
            options.grace_seconds = Some(seconds);
        }
        if let Some(policy) = query.get("propagationPolicy") {
            options.propagation = Some(policy.to_owned());
        }
        options.check()
    }

    /// Reads a `DeleteOptions` object, as bodies and evictions carry it.
    pub fn read(body: &Value) -> ApiResult<Self> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let orphan = match body["orphanDependents"].as_bool() {
            Some(true) => Some("Orphan".to_owned()),
            Some(false) => Some("Background".to_owned()),
            None => None,
        };
        Options {
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            propagation: text(&body["propagationPolicy"]).or(orphan),
            uid: text(&body["preconditions"]["uid"]),
            revision: text(&body["preconditions"]["resourceVersion"]),
            dry_run: body["dryRun"]
                .as_array()
                .is_some_and(|values| values.iter().any(|value| value == "All")),
        }
        .check()
    }

    /// The request itself has changed the object: a precondition on its revision is meant for the one before.
    pub fn follow(&mut self, written: &Object) {
        if self.revision.is_some() {
            self.revision = Some(written.revision.to_string());
        }
    }

    fn check(self) -> ApiResult<Self> {
        match self.propagation.as_deref() {
            None | Some("Orphan" | "Background" | "Foreground") => Ok(self),
            Some(other) => Err(ApiError::invalid_options(
                "DeleteOptions",
                validation::not_supported(
                    "propagationPolicy",
                    &json!(other),
                    &["Foreground", "Background", "Orphan", "nil"],
                ),
            )),
        }
    }
}

/// The result of a deletion.
pub(super) enum Deleted {
    /// It is gone; this was its last state.
    Gone(Arc<Object>),
    /// It waits for its grace period or finalizers.
    Pending(Arc<Object>),
}

pub(super) async fn delete(call: &Call) -> ApiResult<Reply> {
    let options = Options::of(call)?;
    let mut warnings = Vec::new();
    if call.resource.is("batch", "jobs") && options.propagation.is_none() {
        warnings.push("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning".to_owned());
    }
    let deleted = delete_one(call, &call.key(), &options, &mut warnings).await?;
    Ok(match deleted {
        Deleted::Pending(object) => call.stored_reply(200, &object, warnings),
        Deleted::Gone(object) if strategy::returns_deleted_object(&call.resource) => {
            call.stored_reply(200, &object, warnings)
        }
        Deleted::Gone(object) => {
            let mut details =
                json!({"name": call.info.name, "kind": call.resource.plural, "uid": object.value["metadata"]["uid"]});
            if !call.resource.group.is_empty() {
                details["group"] = json!(call.resource.group);
            }
            value_reply(200, &success(200, Some(details)), warnings)
        }
    })
}

pub(super) async fn delete_collection(call: &Call) -> ApiResult<Reply> {
    let options = Options::of(call)?;
    let filter = read::filter(call)?;
    let snapshot = call.table().list(&call.info.namespace);
    let mut warnings = Vec::new();
    let mut shown = Vec::new();
    for object in snapshot
        .objects
        .iter()
        .filter(|object| filter.matches(&call.resource, object))
    {
        match delete_one(call, &object.key(), &options, &mut warnings).await {
            Ok(Deleted::Gone(object) | Deleted::Pending(object)) => shown.push(object),
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let meta = ListMeta {
        revision: snapshot.revision,
        ..ListMeta::default()
    };
    let body = call.presenter().list(shown.iter().map(AsRef::as_ref), &meta);
    Ok(Reply::Json {
        code: 200,
        body,
        warnings,
    })
}

/// Deletes one object of the call's resource.
pub(super) async fn delete_one(
    call: &Call,
    key: &ObjectKey,
    options: &Options,
    warnings: &mut Vec<String>,
) -> ApiResult<Deleted> {
    let table = call.table();
    let subject = call.resource.subject(&key.1);
    for _ in 0..ATTEMPTS {
        let old = table.get(key).ok_or_else(|| ApiError::not_found(&subject))?;
        check_preconditions(call, &old, options)?;
        if call.resource.is("", "namespaces") && IMMORTAL_NAMESPACES.contains(&key.1.as_str()) {
            return Err(ApiError::forbidden(&subject, "this namespace may not be deleted"));
        }
        let served = convert::served(&call.resource, &old.value);
        let admission = Admission::new(call, Operation::Delete, &key.1, Some(&served))?;
        admission.mutate(None, warnings).await?;
        admission.validate(None, warnings).await?;
        let (last, gone) = match next_state(call, &old.value, options) {
            Step::Remove(last) => (last, true),
            Step::Mark(marked) => (marked, false),
            Step::Nothing => return Ok(Deleted::Pending(old)),
        };
        if options.dry_run {
            let shown = Arc::new(Object::new(last, old.revision));
            return Ok(if gone {
                Deleted::Gone(shown)
            } else {
                Deleted::Pending(shown)
            });
        }
        let written = if gone {
            table.remove(key, old.revision, last)
        } else {
            table.replace(key, old.revision, last)
        };
        match written {
            Ok(object) => {
                strategy::after_delete(&call.cluster, &call.resource, &object.value);
                call.cluster.reconfigure(&call.resource);
                let still_there = table.get(&key_of(&object.value)).is_some();
                return Ok(if gone || !still_there {
                    Deleted::Gone(object)
                } else {
                    Deleted::Pending(object)
                });
            }
            Err(WriteError::Modified) => {}
            Err(WriteError::Missing | WriteError::Exists) => return Err(ApiError::not_found(&subject)),
        }
    }
    Err(ApiError::modified(&subject))
}

/// Refuses the request if the object is not the one that it is about.
pub(super) fn check_preconditions(call: &Call, object: &Object, options: &Options) -> ApiResult<()> {
    let checks = [
        ("UID", "uid", &options.uid, "deleted and then recreated"),
        ("ResourceVersion", "resourceVersion", &options.revision, "modified"),
    ];
    for (label, field, wanted, cause) in checks {
        let found = object.value["metadata"][field].as_str().unwrap_or_default();
        if let Some(wanted) = wanted
            && wanted != found
        {
            let mut subject = call.resource.subject(&object.key().1);
            subject.resource.clone_from(&subject.kind);
            let why = format!(
                "the {label} in the precondition ({wanted}) does not match the {label} in record ({found}). The object might have been {cause}"
            );
            return Err(ApiError::conflict(&subject, &why));
        }
    }
    Ok(())
}

/// What a deletion does to an object now.
enum Step {
    Remove(Value),
    Mark(Value),
    Nothing,
}

fn next_state(call: &Call, old: &Value, options: &Options) -> Step {
    let mut new = old.clone();
    set_propagation_finalizers(call, &mut new, options);
    strategy::hold_definition(&call.resource, &mut new);
    let grace = strategy::grace_seconds(&call.resource, &new, options.grace_seconds);
    let held = strategy::is_held(&call.resource, &new);
    let marked = !new["metadata"]["deletionTimestamp"].is_null();
    let pending_grace = new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if marked && grace >= pending_grace {
        let waits = held || pending_grace > 0;
        return match (waits, new == *old) {
            (false, _) => Step::Remove(new),
            (true, true) => Step::Nothing,
            (true, false) => Step::Mark(new),
        };
    }
    if !held && grace == 0 {
        new["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        if !marked {
            new["metadata"]["deletionTimestamp"] = json!(call.cluster.clock.stamp());
            raise_generation(&mut new);
        }
        strategy::drop_unless_graceful(&call.resource, &mut new);
        return Step::Remove(new);
    }
    let end = call
        .cluster
        .clock
        .now()
        .saturating_add(SignedDuration::from_secs(grace))
        .unwrap_or(jiff::Timestamp::MAX);
    new["metadata"]["deletionTimestamp"] = json!(clock::seconds(end));
    new["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    if !marked {
        raise_generation(&mut new);
    }
    strategy::mark_terminating(&call.resource, &mut new, &call.cluster.clock);
    Step::Mark(new)
}

fn raise_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

/// Dependents are orphaned or waited for by finalizers, which the garbage collector takes away.
fn set_propagation_finalizers(call: &Call, object: &mut Value, options: &Options) {
    let present = strategy::finalizers(object);
    let default = || {
        if present.iter().any(|finalizer| finalizer == ORPHAN) {
            "Orphan"
        } else if present.iter().any(|finalizer| finalizer == FOREGROUND) {
            "Foreground"
        } else {
            strategy::default_propagation(&call.resource)
        }
    };
    let policy = options.propagation.as_deref().unwrap_or_else(default);
    let wanted = match policy {
        "Orphan" => Some(ORPHAN),
        "Foreground" => Some(FOREGROUND),
        _ => None,
    };
    let mut finalizers: Vec<String> = present
        .iter()
        .filter(|finalizer| !matches!(finalizer.as_str(), ORPHAN | FOREGROUND))
        .cloned()
        .collect();
    finalizers.extend(wanted.map(str::to_owned));
    if finalizers != present {
        object["metadata"]["finalizers"] = json!(finalizers);
    }
}
