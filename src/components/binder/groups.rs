//! The manager of GPU groups: for each group on a node, the reservation pod that holds its device, the pods that use it, and the open
//! binds for it. Single-threaded, without locks: events are method calls, actions are returned as
//! [`Command`]s. Pure, except that it answers waiting binds.
//!
//! A group is created when the first bind requests its device, and removed when its last user has gone and no bind for it is open.
//! State known from a bind (a pod about to use the group) overrides the watch until that has caught up.
//! The users of a group are recorded on its reservation pod before the bind gets the device, so that they are known after a restart
//! even if their own labels have changed.
//! If a reservation pod is deleted although its device is in use, another is created at once: if it gets the same device, its users stay; if not, it is deleted
//! again, and the users are evicted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Toleration};
use kube::ResourceExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{fraction, reservation};
use crate::api::limits;
use crate::components::agenda::Agenda;
use crate::components::bus::PodRef;
use crate::components::fair::InNamespace;
use crate::components::fractions::is_fractional;
use crate::components::fractions::users::{self, Share, User, Users};
use crate::components::pods::{self, OwnPods};
use crate::components::retry::Backoff;

/// How long a group without users is kept, in case the watch shows one late.
const IDLE: Duration = Duration::from_millis(500);
/// How long a group may be without a reservation pod before its users are evicted.
const LOST: Duration = Duration::from_secs(2);
/// Delay before a command without effect is repeated, for example if the API server shows a user that the watch does not.
const AGAIN: Backoff = Backoff {
    first: LOST,
    longest: Duration::from_secs(300),
};

/// How many reservation pods are created for the binds that wait: on a node that is gone, each is deleted at once.
const MOST_CREATED: u32 = 3;

/// A shared GPU: the same group name on two nodes is two GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId {
    /// Its node.
    pub node: Arc<str>,
    /// The group's name.
    pub group: Arc<str>,
}

/// Commands on shared GPUs belong to no namespace.
impl InNamespace for GroupId {
    fn namespace(&self) -> &str {
        ""
    }
}

/// Why a bind gets no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDevice {
    /// The reason.
    pub why: String,
    /// None could be obtained on the node, so that no further GPU should be opened there for some time. Else it is not the node's fault.
    pub of_node: bool,
}

impl NoDevice {
    fn of_node(why: String) -> Self {
        Self { why, of_node: true }
    }

    fn passing(why: &str) -> Self {
        Self {
            why: why.to_owned(),
            of_node: false,
        }
    }
}

/// Where a waiting bind gets the device of a group: the UUID, or why there is none.
pub type Answer = oneshot::Sender<Result<String, NoDevice>>;

/// An action that the manager requests.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Create the reservation pod, and report with [`Groups::made`].
    Make {
        /// The group.
        id: GroupId,
        /// The tolerations of the requesting pod. If none are known, those of a user count.
        tolerations: Vec<Toleration>,
        /// Its future users, by uid.
        users: Users,
    },
    /// Record users on a reservation pod, and report with [`Groups::recorded`].
    Record {
        /// The group.
        id: GroupId,
        /// The reservation pod's name and uid.
        pod: (String, String),
        /// Users to be added.
        add: Users,
        /// Uids of users to be removed.
        gone: Vec<String>,
    },
    /// Delete reservation pods, and report with [`Groups::given_up`].
    Remove {
        /// The group.
        id: GroupId,
        /// Names and uids.
        pods: Vec<(String, String)>,
        /// Only if the API server shows no user of the group.
        unless_used: bool,
    },
    /// Evict users whose device is no longer reserved, unless the API server shows a reservation pod, and report
    /// with [`Groups::given_up`].
    Evict {
        /// The group.
        id: GroupId,
        /// The users.
        users: Vec<PodRef>,
    },
}

impl Command {
    /// The group.
    #[must_use]
    pub fn id(&self) -> &GroupId {
        match self {
            Self::Make { id, .. } | Self::Record { id, .. } | Self::Remove { id, .. } | Self::Evict { id, .. } => id,
        }
    }
}

/// A command that is due.
pub struct DueCommand {
    /// The command.
    pub command: Command,
    /// The term in which it is carried out.
    pub term: u64,
    /// Its number, with which its end is reported.
    pub number: u64,
}

/// A reservation pod as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// The device that it holds.
    pub device: Option<String>,
    /// Why it holds no device.
    pub error: Option<String>,
    /// The users recorded on it.
    users: Users,
    /// Its resource version, to order two observations; 0 if unknown.
    version: u64,
}

impl Holder {
    fn of(pod: &Pod, uid: &str) -> Self {
        let version = pod.metadata.resource_version.as_deref();
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            uid: uid.to_owned(),
            device: reservation::device(pod).map(str::to_owned),
            error: reservation::error(pod),
            users: users::of(pod),
            version: version.and_then(|text| text.parse().ok()).unwrap_or_default(),
        }
    }

    /// Whether it is equal except for the resource version.
    fn says(&self, other: &Self) -> bool {
        let at_once = Self {
            version: other.version,
            ..self.clone()
        };
        at_once == *other
    }
}

/// What is known about one group.
#[derive(Default)]
pub struct Group {
    /// Its reservation pods by name; more than one is a fault.
    pub holders: BTreeMap<String, Holder>,
    /// Pods on the node that use it, by uid.
    pub users: BTreeMap<Arc<str>, PodRef>,
    /// Users to be recorded on the reservation pod: current users, and those of open binds.
    named: Users,
    /// The reservation pod may record pods that are no users.
    has_stale_users: bool,
    /// Pods whose bind is open, by uid.
    open: BTreeSet<Arc<str>>,
    waiters: Vec<Answer>,
    tolerations: Vec<Toleration>,
    /// The term, if any, for commands at its last evaluation; `None` before the first.
    term: Option<Option<u64>>,
    /// The number of the command that is running. No other begins before it has ended, also if its term is over.
    busy: Option<u64>,
    /// The running command is of a term that is over.
    outdated: bool,
    /// Number of consecutive commands without effect.
    without_effect: u32,
    /// Since when binds wait for a device.
    asked: Option<Instant>,
    /// Number of reservation pods created since then.
    created: u32,
    /// Since when it has no users.
    idle: Option<Instant>,
    /// Since when its users have no reservation pod.
    lost: Option<Instant>,
    /// Uids of reservation pods deleted since the last command: an answer that shows one is outdated.
    gone: BTreeSet<Arc<str>>,
    /// The device of its users.
    device: Option<String>,
    /// Since when a new reservation pod is to get the same device, after the first was lost.
    restoring: Option<Instant>,
}

/// All groups.
#[derive(Default)]
pub struct Groups {
    groups: BTreeMap<GroupId, Group>,
    /// The groups of each known pod.
    members: HashMap<Arc<str>, Vec<GroupId>>,
    /// Bound pods that the watch does not show as bound yet.
    arrived: HashMap<Arc<str>, Vec<GroupId>>,
    agenda: Agenda<GroupId>,
    /// Number of commands so far.
    commands: u64,
    max_wait: Duration,
    own_pods: OwnPods,
}

impl Groups {
    /// Without groups; `max_wait`: how long a reservation pod may take to report its device.
    #[must_use]
    pub fn new(max_wait: Duration, own_pods: OwnPods) -> Self {
        Self {
            max_wait,
            own_pods,
            ..Self::default()
        }
    }

    /// The scopes with an active term changed: every group is evaluated again.
    pub fn evaluate_all(&mut self, now: Instant) {
        let ids: Vec<_> = self.groups.keys().cloned().collect();
        ids.iter().for_each(|id| self.agenda.plan(id, now));
    }

    /// A node changed, or is gone, and may belong to another node pool now; `term`: of that, if this process leads it. Groups that were evaluated in another term
    /// are evaluated again.
    pub fn node(&mut self, name: &str, term: Option<u64>, now: Instant) {
        let first = GroupId {
            node: name.into(),
            group: "".into(),
        };
        let there = self.groups.range(first..).take_while(|(id, _)| &*id.node == name);
        let moved = there.filter(|(_, group)| group.term != Some(term));
        let ids: Vec<_> = moved.map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.agenda.plan(id, now));
    }

    /// What is known about a group.
    #[must_use]
    pub fn get(&self, id: &GroupId) -> Option<&Group> {
        self.groups.get(id)
    }

    /// A pod appeared or changed. Returns the groups concerned. A pod that names more groups than a node can have devices stays in those that it
    /// was in.
    pub fn pod(&mut self, pod: &Pod, now: Instant) -> Vec<GroupId> {
        let reference = pods::pod_ref(pod);
        let bound = pods::node(pod);
        let reserves = reservation::is_reservation_pod(pod, &self.own_pods);
        let uses = !reserves && !pods::is_finished(pod) && is_fractional(pod);
        if fraction::group_labels(pod).nth(limits::GPU_GROUPS_PER_POD).is_some() && !pods::is_finished(pod) {
            return Vec::new();
        }
        let mut groups: Vec<GroupId> = match bound.filter(|_| uses || reserves) {
            Some(node) => fraction::group_labels(pod)
                .map(|(_, group)| GroupId {
                    node: node.into(),
                    group: group.as_str().into(),
                })
                .collect(),
            None => Vec::new(),
        };
        if bound.is_some() || pods::is_finished(pod) {
            self.arrived.remove(&reference.uid);
        } else if let Some(arrived) = self.arrived.get(&reference.uid) {
            groups.clone_from(arrived);
        }
        let mut concerned = self.leave_others(&reference.uid, pod, &groups, now);
        for id in &groups {
            let group = self.groups.entry(id.clone()).or_default();
            let news = if reserves {
                let (name, holder) = (pod.name_any(), Holder::of(pod, &reference.uid));
                let known = group.holders.get(&name).filter(|known| known.uid == holder.uid);
                if known.is_some_and(|known| known.version > holder.version) {
                    continue;
                }
                let news = !known.is_some_and(|known| known.says(&holder));
                group.holders.insert(name, holder);
                news
            } else {
                let named = || User {
                    namespace: reference.namespace.to_string(),
                    name: reference.name.to_string(),
                    share: Share::of_pod(pod),
                };
                group.named.entry(reference.uid.to_string()).or_insert_with(named);
                group
                    .users
                    .insert(Arc::clone(&reference.uid), reference.clone())
                    .is_none()
            };
            if news {
                group.without_effect = 0;
                self.agenda.plan(id, now);
                concerned.push(id.clone());
            }
        }
        if !groups.is_empty() {
            self.members.insert(reference.uid.clone(), groups);
        }
        concerned
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, pod: &Pod, now: Instant) -> Vec<GroupId> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default().into();
        self.arrived.remove(&uid);
        self.leave_others(&uid, pod, &[], now)
    }

    /// Removes a pod from groups that it left.
    fn leave_others(&mut self, uid: &Arc<str>, pod: &Pod, stays: &[GroupId], now: Instant) -> Vec<GroupId> {
        let before = self.members.remove(uid).unwrap_or_default();
        let stays: BTreeSet<&GroupId> = stays.iter().collect();
        let left: Vec<_> = before.into_iter().filter(|id| !stays.contains(id)).collect();
        for id in &left {
            if let Some(group) = self.groups.get_mut(id) {
                group.without_effect = 0;
                group.users.remove(uid);
                group.named.remove(&**uid);
                let name = pod.name_any();
                if group.holders.get(&name).is_some_and(|holder| *holder.uid == **uid) {
                    group.holders.remove(&name);
                    group.gone.insert(Arc::clone(uid));
                }
                self.agenda.plan(id, now);
            }
        }
        left
    }

    /// A bind begins: its groups are kept.
    pub fn open(&mut self, uid: &Arc<str>, ids: &[GroupId]) {
        for id in ids {
            self.groups.entry(id.clone()).or_default().open.insert(Arc::clone(uid));
        }
    }

    /// A bind ended. If the pod is bound, it uses the groups, whatever the watch shows so far.
    pub fn close(&mut self, pod: &PodRef, ids: &[GroupId], bound: bool, now: Instant) {
        self.not_bound(&pod.uid, if bound { ids } else { &[] }, now);
        for id in ids {
            let Some(group) = self.groups.get_mut(id) else { continue };
            group.open.remove(&pod.uid);
            if bound {
                group.users.insert(Arc::clone(&pod.uid), pod.clone());
            } else if !group.users.contains_key(&pod.uid) {
                group.has_stale_users |= group.named.remove(&*pod.uid).is_some();
            }
            self.agenda.plan(id, now);
        }
        if bound && !ids.is_empty() {
            self.arrived.insert(Arc::clone(&pod.uid), ids.to_vec());
            self.members.insert(Arc::clone(&pod.uid), ids.to_vec());
        }
    }

    /// A change has shown the pod bound: its labels say which groups it uses.
    pub fn shown_bound(&mut self, uid: &Arc<str>) {
        self.arrived.remove(uid);
    }

    /// A pod that may have been bound, and that the watch has not shown bound, uses no groups but these.
    pub fn not_bound(&mut self, uid: &Arc<str>, stays: &[GroupId], now: Instant) {
        let Some(before) = self.arrived.remove(uid) else { return };
        self.members.remove(uid);
        for id in before.iter().filter(|id| !stays.contains(id)) {
            let Some(group) = self.groups.get_mut(id) else { continue };
            group.users.remove(uid);
            group.has_stale_users |= group.named.remove(&**uid).is_some();
            self.agenda.plan(id, now);
        }
    }

    /// Whether the pod is the only user of one of these groups.
    #[must_use]
    pub fn is_only_user(&self, pod: &PodRef, ids: &[GroupId]) -> bool {
        ids.iter().any(|id| {
            let users = self.groups.get(id).map(|group| &group.users);
            users.is_some_and(|users| users.len() == 1 && users.contains_key(&pod.uid))
        })
    }

    /// A bind requests the device of its group; `user` (uid and request) is recorded first.
    pub fn ask(
        &mut self,
        id: &GroupId,
        user: (String, User),
        tolerations: Vec<Toleration>,
        answer: Answer,
        now: Instant,
    ) {
        let group = self.groups.entry(id.clone()).or_default();
        group.waiters.push(answer);
        group.named.extend([user]);
        group.tolerations = tolerations;
        self.agenda.plan(id, now);
    }

    /// The group of a command that has ended, and whether its term is over; `None` if another command is running.
    fn ended(&mut self, id: &GroupId, number: u64) -> Option<(&mut Group, bool)> {
        let group = self.groups.get_mut(id)?;
        if group.busy != Some(number) {
            return None;
        }
        group.busy = None;
        let outdated = std::mem::take(&mut group.outdated);
        Some((group, outdated))
    }

    /// The end of the [`Command::Make`] of that number: the pod as the API server returned it, or the error.
    pub fn made(&mut self, id: &GroupId, number: u64, made: Result<&Pod, NoDevice>, now: Instant) {
        let Some((group, outdated)) = self.ended(id, number) else {
            return;
        };
        match made {
            Ok(pod) => {
                // The watch has shown a newer version meanwhile.
                if !group.holders.contains_key(&pod.name_any()) && !group.saw_deletion(pod) {
                    self.pod(pod, now);
                }
            }
            // The binds of that term have got their answer, and those of this one have one to come.
            Err(_) if outdated => {}
            Err(why) => group.answer(&Err(why)),
        }
        self.agenda.plan(id, now);
    }

    /// The end of the [`Command::Record`] of that number: the reservation pod as the API server returned it, or the error.
    pub fn recorded(&mut self, id: &GroupId, number: u64, recorded: Result<&Pod, String>, now: Instant) {
        let Some((group, outdated)) = self.ended(id, number) else {
            return;
        };
        match recorded {
            Ok(pod) => {
                if !group.saw_deletion(pod) {
                    self.pod(pod, now);
                }
                self.agenda.plan(id, now);
            }
            Err(_) if outdated => self.agenda.plan(id, now),
            Err(why) => {
                group.has_stale_users = true;
                group.answer(&Err(NoDevice::passing(&why)));
                self.agenda.plan(id, now + LOST);
            }
        }
    }

    /// The end of the [`Command::Remove`] or [`Command::Evict`] of that number. The watch shows the effect; the command is
    /// repeated if it does not.
    pub fn given_up(&mut self, id: &GroupId, number: u64, now: Instant) {
        let Some((group, outdated)) = self.ended(id, number) else {
            return;
        };
        if outdated {
            return self.agenda.plan(id, now);
        }
        group.lost = None;
        group.without_effect += 1;
        let again = now + AGAIN.wait(group.without_effect);
        self.agenda.plan(id, again);
    }

    /// The next timer.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// The commands that are due; `active`: the term for commands on a group, if this process leads its scope.
    pub fn due(&mut self, now: Instant, active: impl Fn(&GroupId) -> Option<u64>) -> Vec<DueCommand> {
        let mut commands = Vec::new();
        for id in self.agenda.start_due(now) {
            self.agenda.finish(&id);
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let term = active(&id);
            group.set_term(term);
            if let Some(term) = term
                && group.busy.is_none()
            {
                let (command, again) = group.step(&id, self.max_wait, now);
                if let Some(command) = command {
                    self.commands += 1;
                    let number = self.commands;
                    group.busy = Some(number);
                    group.gone.clear();
                    commands.push(DueCommand { command, term, number });
                }
                if let Some(again) = again {
                    self.agenda.plan(&id, again);
                }
            }
            if group.is_empty() {
                self.groups.remove(&id);
            }
        }
        commands
    }
}

impl Group {
    fn is_empty(&self) -> bool {
        self.holders.is_empty()
            && self.users.is_empty()
            && self.open.is_empty()
            && self.waiters.is_empty()
            && self.busy.is_none()
    }

    fn saw_deletion(&self, pod: &Pod) -> bool {
        pod.metadata.uid.as_deref().is_some_and(|uid| self.gone.contains(uid))
    }

    fn answer(&mut self, answer: &Result<String, NoDevice>) {
        (self.asked, self.created) = (None, 0);
        for waiter in self.waiters.drain(..) {
            // Binds that gave up need no answer.
            let _ = waiter.send(answer.clone());
        }
    }

    /// The command that is due, and the next timer.
    fn step(&mut self, id: &GroupId, max_wait: Duration, now: Instant) -> (Option<Command>, Option<Instant>) {
        let mut working = self.holders.values().filter(|holder| holder.error.is_none()).peekable();
        let held = working.peek().is_some();
        if let Some(device) = working.find_map(|holder| holder.device.clone()) {
            if !self.users.is_empty() && self.device.as_ref().is_some_and(|used| *used != device) {
                self.restoring.get_or_insert(now);
                self.answer(&Err(NoDevice::passing(
                    "the GPU of the group has lost its reservation pod",
                )));
                return (Some(self.removal(id, false)), None);
            }
            (self.device, self.restoring) = (Some(device.clone()), None);
            if let Some(command) = self.record(id) {
                return (Some(command), None);
            }
            self.answer(&Ok(device));
        } else if self.device.is_none() && !self.users.is_empty() {
            // After a restart, a failed reservation pod still shows which device its users have.
            self.device = self.holders.values().find_map(|holder| holder.device.clone());
        }
        if !self.waiters.is_empty() {
            return self.obtain_device(id, max_wait, now);
        }
        if self.users.is_empty() && self.open.is_empty() {
            (self.device, self.restoring) = (None, None);
            return self.release(id, now);
        }
        self.idle = None;
        if self.users.is_empty() || held {
            self.lost = None;
            return match self.restoring.map(|since| since + max_wait) {
                Some(deadline) if now < deadline => (None, Some(deadline)),
                Some(_) => (Some(self.removal(id, false)), None),
                None => (None, None),
            };
        }
        self.recover(id, now)
    }

    /// The command that records missing users, and at the same time removes those that are gone.
    fn record(&mut self, id: &GroupId) -> Option<Command> {
        let mut holders = self.holders.iter();
        let (name, holder) = holders.find(|(_, holder)| holder.error.is_none() && holder.device.is_some())?;
        let lacks = |(uid, user): &(&String, &User)| holder.users.get(*uid) != Some(*user);
        let add: Users = self
            .named
            .iter()
            .filter(lacks)
            .map(|(uid, user)| (uid.clone(), user.clone()))
            .collect();
        let gone = holder.users.keys();
        let gone: Vec<String> = gone.filter(|uid| !self.named.contains_key(*uid)).cloned().collect();
        if add.is_empty() && (gone.is_empty() || !self.has_stale_users) {
            return None;
        }
        self.has_stale_users = false;
        Some(Command::Record {
            id: id.clone(),
            pod: (name.clone(), holder.uid.clone()),
            add,
            gone,
        })
    }

    /// The group has users but no reservation pod.
    fn recover(&mut self, id: &GroupId, now: Instant) -> (Option<Command>, Option<Instant>) {
        let since = *self.lost.get_or_insert(now);
        if self.device.is_some() && self.holders.is_empty() && self.restoring.is_none() {
            self.restoring = Some(now);
            return (Some(self.creation(id)), None);
        }
        if now < since + LOST {
            return (None, Some(since + LOST));
        }
        if self.device.is_some() && !self.holders.is_empty() {
            return (Some(self.removal(id, false)), None);
        }
        let users = self.users.values().cloned().collect();
        (Some(Command::Evict { id: id.clone(), users }), None)
    }

    /// Sets the term for commands. Binds that wait in the previous term fail.
    fn set_term(&mut self, term: Option<u64>) {
        let before = self.term.replace(term);
        if before.is_some_and(|before| before != term) {
            (self.outdated, self.has_stale_users) = (self.busy.is_some(), true);
        }
        if term.is_none() || before.flatten().is_some_and(|before| Some(before) != term) {
            self.answer(&Err(NoDevice::passing("this process does not lead")));
        }
    }

    /// The command that deletes all its reservation pods.
    fn removal(&self, id: &GroupId, unless_used: bool) -> Command {
        let pods = self.holders.iter();
        Command::Remove {
            id: id.clone(),
            pods: pods.map(|(name, holder)| (name.clone(), holder.uid.clone())).collect(),
            unless_used,
        }
    }

    /// Binds wait for a device that no reservation pod holds yet.
    fn obtain_device(&mut self, id: &GroupId, max_wait: Duration, now: Instant) -> (Option<Command>, Option<Instant>) {
        let deadline = *self.asked.get_or_insert(now) + max_wait;
        let remove = |pods| Command::Remove {
            id: id.clone(),
            pods,
            unless_used: true,
        };
        let path = |name: &String, holder: &Holder| format!("{}/{name}", holder.namespace);
        if let Some((name, holder)) = self.holders.iter().find(|(_, holder)| holder.error.is_none()) {
            if now < deadline {
                return (None, Some(deadline));
            }
            let why = format!(
                "failed waiting for GPU reservation pod to allocate: {}",
                path(name, holder)
            );
            let gone = vec![(name.clone(), holder.uid.clone())];
            self.answer(&Err(NoDevice::of_node(why)));
            return (Some(remove(gone)), None);
        }
        if let Some((name, holder)) = self.holders.first_key_value() {
            let why = holder.error.as_deref().unwrap_or_default();
            let why = format!("GPU reservation pod {}: {why}", path(name, holder));
            let gone = vec![(name.clone(), holder.uid.clone())];
            self.answer(&Err(NoDevice::of_node(why)));
            return (Some(remove(gone)), None);
        }
        if self.created == MOST_CREATED {
            let why = format!("all {MOST_CREATED} GPU reservation pods were deleted before they held a GPU");
            self.answer(&Err(NoDevice::of_node(why)));
            return (None, Some(now));
        }
        self.created += 1;
        (Some(self.creation(id)), None)
    }

    /// The command that creates its reservation pod.
    fn creation(&self, id: &GroupId) -> Command {
        Command::Make {
            id: id.clone(),
            tolerations: self.tolerations.clone(),
            users: self.named.clone(),
        }
    }

    /// If the group has no users and no open binds: the command that deletes its reservation pods, or when that is due.
    fn release(&mut self, id: &GroupId, now: Instant) -> (Option<Command>, Option<Instant>) {
        if self.holders.is_empty() {
            return (None, None);
        }
        let since = *self.idle.get_or_insert(now);
        if now < since + IDLE {
            return (None, Some(since + IDLE));
        }
        (Some(self.removal(id, true)), None)
    }
}

#[cfg(test)]
mod tests;
