//! get, list and watch: revisions, pages and selectors.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Call, Reply};
use crate::devcluster::apiserver::{
    present::ListMeta,
    schema::{ErrorKind, FieldError},
    selector::{FieldSelector, LabelSelector},
    status::{ApiError, ApiResult},
    store::{Object, ObjectKey, Snapshot},
    watch::{self, Filter, Start},
};

/// Life of a watch that names no timeout.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45 * 60);

pub(super) fn get(call: &Call) -> ApiResult<Reply> {
    check_not_future(call, asked_revision(call)?)?;
    Ok(call.stored_reply(200, &*call.find()?, Vec::new()))
}

pub(super) fn list(call: &Call) -> ApiResult<Reply> {
    let filter = filter(call)?;
    let limit = number(call, "limit")?
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(0);
    let token = call.info.query.get("continue").map(Token::parse).transpose()?;
    let snapshot = snapshot(call, &filter, token.as_ref())?;
    let matching = snapshot
        .objects
        .iter()
        .filter(|object| filter.matches(&call.resource, object));
    let mut page: Vec<&Arc<Object>> = matching.collect();
    let mut meta = ListMeta {
        revision: snapshot.revision,
        ..ListMeta::default()
    };
    if limit > 0 && page.len() > limit {
        let left = page.len() - limit;
        meta.remaining = (filter.labels.is_empty() && filter.fields.is_empty()).then_some(left);
        page.truncate(limit);
        meta.continue_token = page.last().map(|last| {
            Token {
                revision: snapshot.revision,
                after: last.key(),
            }
            .render()
        });
    }
    let body = call.presenter().list(page.into_iter().map(AsRef::as_ref), &meta);
    Ok(Reply::Json {
        code: 200,
        body,
        warnings: Vec::new(),
    })
}

/// The objects at the revision that the request asks for, from where its page begins.
fn snapshot(call: &Call, filter: &Filter, token: Option<&Token>) -> ApiResult<Snapshot> {
    let table = call.table();
    let asked = asked_revision(call)?;
    let matching = call.info.query.get("resourceVersionMatch");
    let exact = match (token, matching, asked) {
        (Some(_), None, Some(revision)) if revision > 0 => {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        (Some(token), None, _) => Some(token.revision),
        (Some(_), Some(_), _) => {
            return Err(list_options(
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        (None, Some(_), None) => {
            return Err(list_options(
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        (None, Some("Exact"), Some(0)) => {
            return Err(list_options(
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        (None, Some("Exact"), Some(revision)) => Some(revision),
        (None, Some("NotOlderThan") | None, _) => None,
        (None, Some(other), Some(_)) => {
            return Err(ApiError::bad_request(format!(
                "resourceVersionMatch: Unsupported value: {other:?}"
            )));
        }
    };
    check_not_future(call, exact.or(asked))?;
    let Some(revision) = exact else {
        return Ok(table.list(&filter.namespace));
    };
    let after = token.map(|token| &token.after);
    let objects = table.list_at(&filter.namespace, revision, after).ok_or_else(|| match token {
        Some(_) => ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        ),
        None => ApiError::expired("The resourceVersion for the provided list is too old."),
    })?;
    Ok(Snapshot { revision, objects })
}

fn list_options(why: &str) -> ApiError {
    let error = FieldError::plain(ErrorKind::Forbidden, "resourceVersionMatch", why);
    ApiError::invalid_options("ListOptions", error)
}

pub(super) fn watch(call: &Call) -> ApiResult<Reply> {
    let filter = filter(call)?;
    let query = &call.info.query;
    let asked = asked_revision(call)?;
    check_not_future(call, asked)?;
    let table = call.table();
    let bookmarks = query.flag("allowWatchBookmarks");
    let initial_state = |bookmark| {
        let Snapshot { revision, objects } = table.list(&filter.namespace);
        Start::State {
            objects,
            revision,
            bookmark,
        }
    };
    let start = match (query.get("sendInitialEvents"), asked) {
        (Some("true" | "1"), _) => {
            if query.get("resourceVersionMatch") != Some("NotOlderThan") || !bookmarks {
                return Err(list_options(
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            initial_state(true)
        }
        (_, None | Some(0)) => initial_state(false),
        (_, Some(revision)) => Start::After(revision),
    };
    let timeout = number(call, "timeoutSeconds")?.map_or(WATCH_TIMEOUT, Duration::from_secs);
    Ok(Reply::Stream(watch::open(watch::Request {
        resource: call.resource.clone(),
        table,
        form: call.form,
        filter,
        start,
        bookmarks: bookmarks.then_some(call.cluster.bookmark_every),
        timeout,
        clock: call.cluster.clock.clone(),
    })))
}

/// What the request's path and selectors let through.
pub(super) fn filter(call: &Call) -> ApiResult<Filter> {
    let query = &call.info.query;
    let labels = query
        .get("labelSelector")
        .map(LabelSelector::parse)
        .transpose()?
        .unwrap_or_default();
    let selectable = |field: &str| call.resource.fields.contains(&field);
    let bare = call.resource.fields.is_empty() && call.resource.custom().is_none();
    let mut fields = query
        .get("fieldSelector")
        .map(|text| FieldSelector::parse(text, selectable, bare))
        .transpose()?
        .unwrap_or_default();
    if !call.info.name.is_empty() {
        if fields.wanted_name().is_some_and(|wanted| wanted != call.info.name) {
            return Err(ApiError::bad_request(
                "field metadata.name in the selector does not match the name in the URL",
            ));
        }
        fields = fields.and_name(&call.info.name);
    }
    Ok(Filter {
        namespace: call.info.namespace.clone(),
        labels,
        fields,
    })
}

fn asked_revision(call: &Call) -> ApiResult<Option<u64>> {
    let parse = |text: &str| {
        text.parse::<u64>().map_err(|_| {
            ApiError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })
    };
    call.info.query.get("resourceVersion").map(parse).transpose()
}

fn number(call: &Call, key: &str) -> ApiResult<Option<u64>> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|_| ApiError::bad_request(format!("{key}: invalid value {text:?}")))
    };
    call.info.query.get(key).map(parse).transpose()
}

fn check_not_future(call: &Call, asked: Option<u64>) -> ApiResult<()> {
    let current = call.cluster.store.revision();
    match asked {
        Some(asked) if asked > current => Err(ApiError::too_large_resource_version(asked, current)),
        Some(_) | None => Ok(()),
    }
}

/// Where the next page begins.
struct Token {
    revision: u64,
    after: ObjectKey,
}

impl Token {
    fn parse(text: &str) -> ApiResult<Self> {
        let read = || {
            let decoded: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
            let text = |field: &str| decoded[field].as_str().map(str::to_owned);
            Some(Token {
                revision: decoded["rv"].as_u64()?,
                after: (text("namespace")?, text("name")?),
            })
        };
        read().ok_or_else(|| ApiError::bad_request("invalid continue token: continue key is not valid"))
    }

    fn render(&self) -> String {
        let (namespace, name) = &self.after;
        URL_SAFE_NO_PAD.encode(
            json!({"v": "meta.k8s.io/v1", "rv": self.revision, "namespace": namespace, "name": name}).to_string(),
        )
    }
}
