//! Fault injection for tests: slow responses, errors, writes that take effect although the response is lost, responses that never come or
//! never end, watches that are dropped or stall, and compacted history. Nothing is injected unless a test requests it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Body;
use futures::{StreamExt, stream};
use tokio::sync::watch;

use super::{identity::Identity, request::RequestInfo, store::Store};

/// Selects requests; a field that is `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: Option<String>,
    /// Plural resource, such as `pods`.
    pub resource: Option<String>,
    /// Subresource, such as `binding`; `Some("")` matches requests without one.
    pub subresource: Option<String>,
    /// Namespace.
    pub namespace: Option<String>,
    /// Object name.
    pub name: Option<String>,
    /// User name of the caller.
    pub user: Option<String>,
}

impl Match {
    /// Requests of one verb on one resource.
    #[must_use]
    pub fn verb_on(verb: &str, resource: &str) -> Self {
        Match {
            verb: Some(verb.to_owned()),
            resource: Some(resource.to_owned()),
            ..Match::default()
        }
    }

    /// Bindings of pods, by the subresource.
    #[must_use]
    pub fn bindings() -> Self {
        Match {
            subresource: Some("binding".to_owned()),
            ..Self::verb_on("create", "pods")
        }
    }

    /// Evictions of pods, by the subresource.
    #[must_use]
    pub fn evictions() -> Self {
        Match {
            subresource: Some("eviction".to_owned()),
            ..Self::verb_on("create", "pods")
        }
    }

    fn covers(&self, request: &RequestInfo, identity: &Identity) -> bool {
        let same = |wanted: &Option<String>, given: &str| wanted.as_deref().is_none_or(|wanted| wanted == given);
        same(&self.verb, request.verb.as_str())
            && same(&self.resource, &request.resource)
            && same(&self.subresource, &request.subresource)
            && same(&self.namespace, &request.namespace)
            && same(&self.name, &request.name)
            && same(&self.user, &identity.user)
    }
}

/// The fault for a matched request.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It is served after this time.
    Delay(Duration),
    /// It is refused with this status code without effect; 409, 429, 500 and 503 have their usual reasons.
    Refuse {
        /// HTTP status code.
        code: u16,
        /// Seconds for the `Retry-After` header.
        retry_after: Option<u32>,
    },
    /// The connection is closed without effect.
    Drop,
    /// It takes effect, and the response is this status code.
    FailAfter {
        /// HTTP status code.
        code: u16,
    },
    /// It takes effect, and the connection is closed before the response.
    DropAfter,
    /// No effect and no response; the connection stays open.
    Hang,
    /// It takes effect, without a response; the connection stays open.
    HangAfter,
    /// It takes effect, and the response's body stalls after so many bytes; the connection stays open. A shorter body is sent
    /// completely, without its end.
    Stall {
        /// Bytes that are sent.
        after: usize,
    },
}

/// At which matches a rule applies.
#[derive(Clone, Debug)]
pub enum Times {
    /// At every match.
    Always,
    /// At the next so many matches.
    Next(u32),
    /// At one match, after so many others.
    After(u32),
    /// At each match with this probability, drawn from a sequence that starts at the seed.
    Chance {
        /// 0 to 1.
        probability: f64,
        /// Start of the pseudo-random sequence.
        seed: u64,
    },
}

/// Id of a rule, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(u64);

#[derive(Debug)]
struct Rule {
    id: RuleId,
    matching: Match,
    effect: Effect,
    times: Times,
    struck: u32,
}

#[derive(Debug, Default)]
struct Rules {
    next_id: u64,
    rules: Vec<Rule>,
}

/// Handle for injecting faults into a running server.
#[derive(Clone, Debug)]
pub struct Faults {
    rules: Arc<Mutex<Rules>>,
    /// The matches of all `silence_watches` calls.
    silenced: Arc<watch::Sender<Vec<Match>>>,
    store: Arc<Store>,
}

impl Faults {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Faults {
            rules: Arc::default(),
            silenced: Arc::default(),
            store,
        }
    }

    /// Adds a rule. Where several match a request, all delays and the first other effect apply, in the order added.
    pub fn add(&self, matching: Match, effect: Effect, times: Times) -> RuleId {
        let mut rules = self.lock();
        let id = RuleId(rules.next_id);
        rules.next_id += 1;
        rules.rules.push(Rule {
            id,
            matching,
            effect,
            times,
            struck: 0,
        });
        id
    }

    /// Removes a rule; false if it is already gone.
    pub fn remove(&self, id: RuleId) -> bool {
        let mut rules = self.lock();
        let before = rules.rules.len();
        rules.rules.retain(|rule| rule.id != id);
        rules.rules.len() < before
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.lock().rules.clear();
    }

    /// How often a rule has applied; 0 for one that is gone.
    #[must_use]
    pub fn struck(&self, id: RuleId) -> u32 {
        self.lock()
            .rules
            .iter()
            .find(|rule| rule.id == id)
            .map_or(0, |rule| rule.struck)
    }

    /// Closes every open watch of a resource, or all watches, without an event.
    pub fn drop_watches(&self, resource: Option<&str>) {
        self.store.drop_watches(resource);
    }

    /// Stalls the open watches among these requests: nothing is sent on them any more, not even their end.
    pub fn silence_watches(&self, matching: Match) {
        self.silenced.send_modify(|silenced| silenced.push(matching));
    }

    /// Compacts all history: watches that are not up to date, new watches from older revisions and old `continue` tokens get 410 Gone.
    pub fn compact(&self) {
        self.store.compact();
    }

    /// Ends every open watch with a 410 Gone event, as after compaction, and compacts all history.
    pub fn expire_watches(&self, resource: Option<&str>) {
        self.store.compact();
        self.store.expire_watches(resource);
    }

    /// The faults for a request; counts the applied rules.
    pub(crate) fn strike(&self, request: &RequestInfo, identity: &Identity) -> Struck {
        let mut struck = Struck::default();
        let mut rules = self.lock();
        for rule in &mut rules.rules {
            let spent = struck.effect.is_some() && !matches!(rule.effect, Effect::Delay(_));
            if spent || !rule.matching.covers(request, identity) || !rule.times.strikes() {
                continue;
            }
            rule.struck += 1;
            match &rule.effect {
                Effect::Delay(time) => struck.delay += *time,
                effect @ (Effect::Refuse { .. }
                | Effect::Drop
                | Effect::FailAfter { .. }
                | Effect::DropAfter
                | Effect::Hang
                | Effect::HangAfter
                | Effect::Stall { .. }) => {
                    struck.effect = Some(effect.clone());
                }
            }
        }
        struck
    }

    /// Wraps the body of a watch so that `silence_watches` can stall it.
    pub(crate) fn may_be_silenced(&self, body: Body, request: RequestInfo, identity: Arc<Identity>) -> Body {
        let mut silenced = self.silenced.subscribe();
        let before = silenced.borrow_and_update().len();
        let told = async move {
            let covers = |all: &Vec<Match>| all.iter().skip(before).any(|one| one.covers(&request, &identity));
            // The sender is gone: no further calls.
            if silenced.wait_for(covers).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let chunks = body.into_data_stream();
        Body::from_stream(stream::unfold(
            (chunks, Box::pin(told)),
            |(mut chunks, mut told)| async move {
                let chunk = tokio::select! {
                    biased;
                    () = &mut told => std::future::pending().await,
                    chunk = chunks.next() => chunk,
                };
                chunk.map(|chunk| (chunk, (chunks, told)))
            },
        ))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Times {
    fn strikes(&mut self) -> bool {
        match self {
            Times::Always => true,
            Times::Next(left) => {
                let strikes = *left > 0;
                *left = left.saturating_sub(1);
                strikes
            }
            Times::After(left) => {
                let strikes = *left == 0;
                *left = left.wrapping_sub(1);
                strikes
            }
            Times::Chance { probability, seed } => {
                *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = *seed;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^= mixed >> 31;
                #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
                let drawn = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
                drawn < *probability
            }
        }
    }
}

/// A body that stalls after its first bytes.
pub(crate) fn stalled(body: Body, after: usize) -> Body {
    let first = body.into_data_stream().scan(after, |left, chunk| {
        let chunk = chunk.map(|mut chunk| {
            chunk.truncate(*left);
            *left -= chunk.len();
            chunk
        });
        std::future::ready(Some(chunk))
    });
    Body::from_stream(first.chain(stream::pending()))
}

/// The faults for one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Struck {
    /// The delay.
    pub delay: Duration,
    /// The other fault, if any.
    pub effect: Option<Effect>,
}
