//! update and patch of objects, their status and finalizers: read the stored state, make the new one, admit, validate,
//! and write it if there was no other write in between.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Call, Reply,
    admit::Admission,
    patch::Patch,
    shape::{self, FieldValidation},
};
use crate::devcluster::apiserver::{
    convert,
    status::{ApiError, ApiResult},
    store::{Object, WriteError},
    strategy, validation,
    webhook::Operation,
};

/// How often a write that asks for no particular revision is tried against concurrent writers.
pub(super) const ATTEMPTS: usize = 16;

pub(super) async fn update(call: &Call) -> ApiResult<Reply> {
    let mut object = call.json_body()?;
    let mut warnings = shape::admit(call, &mut object, FieldValidation::of(call)?)?;
    check_name(call, &mut object)?;
    let any_revision = object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    for _ in 0..ATTEMPTS {
        let old = call.find()?;
        match write(call, &old, object.clone(), &mut warnings).await? {
            Some(reply) => return Ok(reply),
            None if any_revision => {}
            None => break,
        }
    }
    Err(ApiError::modified(&call.subject()))
}

pub(super) async fn patch(call: &Call) -> ApiResult<Reply> {
    let patch = Patch::of(call)?;
    let validation = FieldValidation::of(call)?;
    for _ in 0..ATTEMPTS {
        let old = call.find()?;
        let mut object = patch.apply(call, &convert::served(&call.resource, &old.value))?;
        let mut warnings = shape::admit(call, &mut object, validation)?;
        check_name(call, &mut object)?;
        if let Some(reply) = write(call, &old, object, &mut warnings).await? {
            return Ok(reply);
        }
    }
    Err(ApiError::modified(&call.subject()))
}

/// Admits, validates and writes a new state; `None` when someone else wrote the object in between.
async fn write(call: &Call, old: &Arc<Object>, mut new: Value, warnings: &mut Vec<String>) -> ApiResult<Option<Reply>> {
    let served = convert::served(&call.resource, &old.value);
    check_preconditions(call, &served, &new)?;
    keep_system_fields(&served, &mut new);
    strategy::prepare_update(&call.resource, &call.info.subresource, &served, &mut new);
    let admission = Admission::new(call, Operation::Update, &call.info.name, Some(&served))?;
    if admission.mutate(Some(&mut new), warnings).await? {
        shape::admit(call, &mut new, FieldValidation::Ignore)?;
        keep_system_fields(&served, &mut new);
        strategy::prepare_update(&call.resource, &call.info.subresource, &served, &mut new);
    }
    let errors = validation::on_update(&call.resource, &call.info.subresource, &served, &new);
    if !errors.is_empty() {
        return Err(ApiError::invalid(&call.subject(), &errors));
    }
    admission.validate(Some(&new), warnings).await?;
    let written = commit(call, old, convert::stored(&call.resource, new))?;
    Ok(written.map(|object| call.stored_reply(200, &object, std::mem::take(warnings))))
}

/// Writes the new state, removes the object if it was only waiting for its last finalizer, or leaves it alone if nothing changed;
/// `None` when someone else wrote it in between.
pub(super) fn commit(call: &Call, old: &Arc<Object>, new: Value) -> ApiResult<Option<Arc<Object>>> {
    if call.dry_run()? {
        return Ok(Some(Arc::new(Object::new(new, old.revision))));
    }
    // The new state carries the old revision still.
    if old.value == new {
        return Ok(Some(old.clone()));
    }
    let table = call.table();
    let written = if strategy::is_finished_deletion(&call.resource, &new) {
        table.remove(&call.key(), old.revision, new)
    } else {
        table.replace(&call.key(), old.revision, new)
    };
    match written {
        Ok(object) => {
            call.cluster.reconfigure(&call.resource);
            strategy::finish_definitions(&call.cluster, &call.resource);
            Ok(Some(object))
        }
        Err(WriteError::Modified) => Ok(None),
        Err(WriteError::Missing | WriteError::Exists) => Err(ApiError::not_found(&call.subject())),
    }
}

/// Checks that name and namespace of URL and object agree.
fn check_name(call: &Call, object: &mut Value) -> ApiResult<()> {
    let wanted = [("name", &call.info.name), ("namespace", &call.info.namespace)];
    for (field, wanted) in wanted {
        let given = object["metadata"][field].as_str().unwrap_or_default();
        if given == wanted {
            continue;
        }
        if !given.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the {field} of the object ({given}) does not match the {field} on the URL ({wanted})"
            )));
        }
        if field == "name" {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
            )));
        }
        object["metadata"][field] = json!(wanted);
    }
    Ok(())
}

fn check_preconditions(call: &Call, old: &Value, new: &Value) -> ApiResult<()> {
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let uid = text(new, "uid");
    if !uid.is_empty() && uid != text(old, "uid") {
        let why = precondition_failed(call, "UID", &uid, &text(old, "uid"));
        return Err(ApiError::conflict(&call.subject(), &why));
    }
    let revision = text(new, "resourceVersion");
    if revision.is_empty() {
        return validation::unconditional_update(&call.resource, &call.info.name);
    }
    if revision != text(old, "resourceVersion") {
        return Err(ApiError::modified(&call.subject()));
    }
    Ok(())
}

/// Keeps what no client may change.
fn keep_system_fields(old: &Value, new: &mut Value) {
    let kept = [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ];
    let Some(metadata) = new["metadata"].as_object_mut() else {
        return;
    };
    for field in kept {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
}

/// Writes the main object on behalf of a subresource; `None` when someone else wrote it in between.
pub(super) fn replace(
    call: &Call,
    old: &Arc<Object>,
    served: &Value,
    mut new: Value,
) -> ApiResult<Option<Arc<Object>>> {
    strategy::prepare_update(&call.resource, "", served, &mut new);
    commit(call, old, convert::stored(&call.resource, new))
}

/// The storage error for a failed precondition.
pub(super) fn precondition_failed(call: &Call, label: &str, wanted: &str, found: &str) -> String {
    format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {found}",
        call.resource.plural, call.info.namespace, call.info.name,
    )
}
