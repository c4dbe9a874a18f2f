//! Reading and writing the fields of a Lease. Pure: the caller provides the clocks.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::Params;

/// A Lease as observed by this process.
#[derive(Debug, Clone)]
pub struct Observed {
    lease: Lease,
    /// When its content was first observed, by our clock.
    since: Instant,
    /// When its tenure was first observed.
    tenure_since: Instant,
}

impl Observed {
    /// Seen for the first time.
    pub fn new(lease: Lease, now: Instant) -> Self {
        Self {
            lease,
            since: now,
            tenure_since: now,
        }
    }

    /// Observed again. Only a change of the content restarts the time; older versions are ignored.
    pub fn update(&mut self, lease: Lease, now: Instant) {
        if older(&lease, &self.lease) {
            return;
        }
        if lease.spec != self.lease.spec {
            self.since = now;
        }
        if Tenure::of(&lease) != self.tenure() {
            self.tenure_since = now;
        }
        self.lease = lease;
    }

    /// The object, for the next write.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Who holds it, if anyone.
    pub fn holder(&self) -> Option<&str> {
        holder(&self.lease)
    }

    /// Whether this is the holder.
    pub fn held_by(&self, identity: &str) -> bool {
        self.holder() == Some(identity)
    }

    /// How often it has changed hands.
    pub fn transitions(&self) -> i32 {
        self.lease
            .spec
            .as_ref()
            .and_then(|spec| spec.lease_transitions)
            .unwrap_or(0)
    }

    /// Its tenure: acquire time and number of transitions.
    pub fn tenure(&self) -> Tenure {
        Tenure::of(&self.lease)
    }

    /// For how long its tenure has lasted, as far as this process has observed it.
    pub fn tenure_lasts(&self, now: Instant) -> Duration {
        now - self.tenure_since
    }

    /// Whether the other is a renewal of the same tenure. A release is none.
    pub fn is_renewed_by(&self, later: &Lease) -> bool {
        let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let same = self.tenure() == Tenure::of(later) && self.holder() == holder(later);
        same && !older(later, &self.lease) && renewed(&self.lease) != renewed(later)
    }

    fn duration(&self) -> Duration {
        let seconds = self
            .lease
            .spec
            .as_ref()
            .and_then(|spec| spec.lease_duration_seconds)
            .unwrap_or(0);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
}

/// A tenure: acquire time, and the number of transitions at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    since: Option<MicroTime>,
    transitions: i32,
}

impl Tenure {
    /// The tenure in a Lease.
    pub fn of(lease: &Lease) -> Self {
        let spec = lease.spec.as_ref();
        Self {
            since: spec.and_then(|spec| spec.acquire_time.clone()),
            transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or(0),
        }
    }
}

/// The time in the precision of a Lease.
pub fn in_microseconds(now: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// When a Lease may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Free {
    /// Nobody holds it.
    Now,
    /// It expires then, unless it is renewed before.
    At(Instant),
    /// It has not been observed yet.
    Unknown,
}

impl Free {
    /// When a Lease may be taken; `None` is one that does not exist.
    pub fn of(observed: Option<&Observed>, now: Instant) -> Self {
        let Some(observed) = observed else { return Self::Now };
        if observed.holder().is_none() {
            return Self::Now;
        }
        let expiry = observed.since + observed.duration();
        if expiry <= now { Self::Now } else { Self::At(expiry) }
    }
}

/// Who holds a Lease, if anyone.
pub fn holder(lease: &Lease) -> Option<&str> {
    lease
        .spec
        .as_ref()?
        .holder_identity
        .as_deref()
        .filter(|holder| !holder.is_empty())
}

/// A Lease that did not exist.
pub fn created(params: &Params, now: Timestamp) -> Lease {
    let metadata = ObjectMeta {
        name: Some(params.name.clone()),
        namespace: Some(params.namespace.clone()),
        ..ObjectMeta::default()
    };
    taken(&Lease { metadata, spec: None }, params, now)
}

/// The Lease with this process as its new holder.
pub fn taken(lease: &Lease, params: &Params, now: Timestamp) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    let transitions = before.lease_transitions.map_or(0, |count| count.saturating_add(1));
    let spec = LeaseSpec {
        holder_identity: Some(params.identity.clone()),
        lease_duration_seconds: Some(whole_seconds(params.duration)),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..before
    };
    with(lease, spec)
}

/// The Lease with a new renew time.
pub fn renewed(lease: &Lease, now: Timestamp) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    with(
        lease,
        LeaseSpec {
            renew_time: Some(MicroTime(now)),
            ..before
        },
    )
}

/// The Lease without a holder.
pub fn released(lease: &Lease, now: Timestamp) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    let spec = LeaseSpec {
        holder_identity: None,
        lease_duration_seconds: Some(1),
        renew_time: Some(MicroTime(now)),
        ..before
    };
    with(lease, spec)
}

fn with(lease: &Lease, spec: LeaseSpec) -> Lease {
    let metadata = ObjectMeta {
        managed_fields: None,
        ..lease.metadata.clone()
    };
    Lease {
        metadata,
        spec: Some(spec),
    }
}

/// Rounded up: a standby must not wait too short.
fn whole_seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
}

/// Whether `a` is a version of the same Lease from before `b`. Versions that are no numbers are taken as they come.
fn older(a: &Lease, b: &Lease) -> bool {
    let version = |lease: &Lease| {
        lease
            .metadata
            .resource_version
            .as_deref()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match (version(a), version(b)) {
        (Some(a_version), Some(b_version)) => a.metadata.uid == b.metadata.uid && a_version < b_version,
        (None, _) | (_, None) => false,
    }
}
