//! create: names, system fields, admission and validation of new objects.

use serde_json::{Value, json};

use super::{
    Call, Reply,
    admit::Admission,
    reviews,
    shape::{self, FieldValidation},
};
use crate::devcluster::apiserver::{
    convert,
    registry::{Origin, Stored},
    schema::FieldError,
    status::{ApiError, ApiResult},
    store::{Object, WriteError, key_of},
    strategy, validation,
    webhook::Operation,
};

/// Letters of generated names: no vowels, nothing that looks alike.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(super) async fn create(call: &Call) -> ApiResult<Reply> {
    if call.resource.namespaced && call.info.namespace.is_empty() && call.resource.stored != Stored::Never {
        return Err(ApiError::method_not_allowed());
    }
    let mut object = call.json_body()?;
    let mut warnings = shape::admit(call, &mut object, FieldValidation::of(call)?)?;
    if call.resource.stored == Stored::Never {
        return Ok(reviews::answer(call, object));
    }
    check_namespace(call, &mut object)?;
    check_definition(call, &object)?;
    let generated = generate_name_base(call, &object)?;
    stamp(call, &mut object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let admission = Admission::new(call, Operation::Create, &name, None)?;
    if admission.mutate(Some(&mut object), &mut warnings).await? {
        shape::admit(call, &mut object, FieldValidation::Ignore)?;
    }
    strategy::prepare_create(&call.resource, &mut object, &call.cluster.clock);

    // A generated name that is taken is drawn again, as real servers do.
    for _ in 0..8 {
        let mut attempt = object.clone();
        if let Some(base) = &generated {
            attempt["metadata"]["name"] = json!(format!("{base}{}", random_suffix()));
        }
        let name = attempt["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let errors = validation::on_create(&call.resource, &attempt);
        if !errors.is_empty() {
            return Err(ApiError::invalid(&call.resource.subject(&name), &errors));
        }
        Admission::new(call, Operation::Create, &name, None)?
            .validate(Some(&attempt), &mut warnings)
            .await?;
        match store(call, attempt, &mut warnings)? {
            Some(reply) => return Ok(reply),
            None if generated.is_some() => {}
            None => return Err(ApiError::already_exists(&call.resource.subject(&name))),
        }
    }
    let subject = call.resource.subject(generated.as_deref().unwrap_or_default());
    Err(ApiError::already_exists(&subject))
}

/// Stores the object; `None` when its name is taken.
fn store(call: &Call, object: Value, warnings: &mut Vec<String>) -> ApiResult<Option<Reply>> {
    let table = call.table();
    let stored = convert::stored(&call.resource, object);
    if call.dry_run()? {
        let taken = table.get(&key_of(&stored)).is_some();
        let shown = Object::unstored(stored);
        return Ok((!taken).then(|| call.stored_reply(201, &shown, std::mem::take(warnings))));
    }
    match table.create(stored) {
        Ok(object) => {
            call.cluster.reconfigure(&call.resource);
            Ok(Some(call.stored_reply(201, &object, std::mem::take(warnings))))
        }
        Err(WriteError::Exists) => Ok(None),
        Err(WriteError::Missing | WriteError::Modified) => Err(ApiError::internal("a create met an old object")),
    }
}

/// Checks that the namespaces of URL and object agree.
fn check_namespace(call: &Call, object: &mut Value) -> ApiResult<()> {
    if !call.resource.namespaced {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        return Ok(());
    }
    match object["metadata"]["namespace"].as_str().unwrap_or_default() {
        "" => object["metadata"]["namespace"] = json!(call.info.namespace),
        given if given != call.info.namespace => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        _ => {}
    }
    Ok(())
}

/// Refuses new objects of a terminating CRD.
fn check_definition(call: &Call, object: &Value) -> ApiResult<()> {
    let Origin::Custom { crd, .. } = &call.resource.origin else {
        return Ok(());
    };
    let definitions = call
        .cluster
        .store
        .of("apiextensions.k8s.io", "customresourcedefinitions");
    let definition = definitions.get(&(String::new(), crd.name.clone()));
    if definition.is_some_and(|definition| definition.value["metadata"]["deletionTimestamp"].is_null()) {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let why = "create not allowed while custom resource definition is terminating";
    Err(ApiError::forbidden(&call.resource.subject(name), why))
}

/// `generateName`, if no name is given.
fn generate_name_base(call: &Call, object: &Value) -> ApiResult<Option<String>> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    if !text("name").is_empty() {
        return Ok(None);
    }
    if text("generateName").is_empty() {
        let error = FieldError::required("metadata.name", "name or generateName is required");
        return Err(ApiError::invalid(&call.resource.subject(""), &[error]));
    }
    Ok(Some(text("generateName").chars().take(58).collect()))
}

fn random_suffix() -> String {
    let random = crate::random::uuid();
    random
        .as_bytes()
        .iter()
        .take(5)
        .map(|byte| char::from(SUFFIX_LETTERS[usize::from(*byte) % SUFFIX_LETTERS.len()]))
        .collect()
}

/// Sets what only the server sets.
fn stamp(call: &Call, object: &mut Value) {
    let now = call.cluster.clock.stamp();
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generation",
    ] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), json!(crate::random::uuid().to_string()));
    metadata.insert("creationTimestamp".to_owned(), json!(now));
}
