//! Pod groups: the tree of sub-groups, its minimums, and which pods are placed or evicted next.
//!
//! Functions on the tree take the number of active pods per pod set as an argument, so that they apply to a pod group as it is, to what
//! is left of it after evictions, or to a part of it.

pub mod delay;
mod pod_set;

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use smallvec::{SmallVec, smallvec};
use smol_str::SmolStr;

use crate::api::limits;
use crate::api::names::priority_class;
use crate::engine::input::{GroupInput, GroupKey, Keyed, Name, Table, Time, TopologyConstraint};

use delay::EvictionsFor;
pub use pod_set::PodSet;

use super::epochs::Epoch;
use super::ids::{PodId, QueueId};
use super::pod::Status;

/// Pods of a pod group; few pod groups have many.
pub type PodIds = SmallVec<[PodId; 4]>;

/// The pod sets of a pod group; few pod groups have many.
type PodSets = SmallVec<[PodSet; 1]>;

/// A figure for each member of a pod group's tree; few pod groups have many.
pub type PerMember = SmallVec<[usize; 4]>;

/// The name of the root of every tree.
const ROOT: SmolStr = SmolStr::new_static("");
/// The name of the pod set of a pod group without sub-groups.
const DEFAULT: SmolStr = SmolStr::new_static("default");

/// Position of a member in a pod group's tree; the root is 0.
pub type Member = u32;

/// A node of the tree: a set of members, or a pod set.
#[derive(Debug)]
pub struct TreeNode {
    /// Its name; the root's is empty.
    pub name: SmolStr,
    /// Its parent.
    pub parent: Option<Member>,
    /// Set or pod set.
    pub kind: Kind,
    /// Its own topology constraint.
    pub topology: Option<Box<TopologyConstraint>>,
}

/// What a member of a tree is.
#[derive(Debug)]
pub enum Kind {
    /// Has other members, and a minimum number of them.
    Set {
        /// How many of its members it needs.
        need: usize,
        /// Its members.
        members: SmallVec<[Member; 4]>,
    },
    /// Has pods, and a minimum number of them: the index among the pod group's pod sets.
    Pods(u32),
}

/// A pod group.
#[derive(Debug)]
pub struct PodGroup {
    /// Its identity.
    pub key: GroupKey,
    /// What is known about it; `None` until its event arrives, or after it is gone.
    pub input: Option<Box<GroupInput>>,
    /// Its queue, known or not.
    pub queue: Option<QueueId>,
    /// Its tree. The root is the first. All pod groups without sub-groups and topology share one.
    pub tree: Arc<[TreeNode]>,
    /// Its pod sets, in the tree's order.
    sets: PodSets,
    /// The pod sets of a tree with sub-groups, in order of their names.
    by_name: Box<[Member]>,
    /// The PodGroup is unknown: its bound pods are charged, and no other pod is placed.
    pub placeholder: bool,
    /// Its pods are charged to another queue than the one that the PodGroup names, because that one cannot take them.
    pub charged_elsewhere: bool,
    /// The PodGroup is non-preemptible, but its running pods exceed a queue's non-preemptible quota: it stays preemptible until they have ended.
    pub claims_protection: bool,
    /// All its pods.
    pub pods: PodIds,
    /// What is wrong with its sub-groups, if they contradict each other.
    pub broken: Option<Box<str>>,
    /// Epoch of the last permanent change of its pods or settings; unique among pod groups.
    pub changed: Epoch,
    /// Evictions that were decided for it. Not part of what is compared with a model built anew: it begins empty there.
    pub evictions_for: EvictionsFor,
    /// Last start and last eviction as decided here; the object shows them later.
    decided: [Option<Time>; 2],
}

/// A pod group's active pods against its minimum, for the order of pod groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Its minimum is not met.
    Below,
    /// Exactly its minimum is active.
    Exact,
    /// More than its minimum is active.
    Above,
}

impl Keyed for PodGroup {
    type Key = GroupKey;
    fn key(&self) -> &GroupKey {
        &self.key
    }
}

/// The input of a pod group whose PodGroup is unknown: its bound pods are charged to a queue and are preemptible.
#[must_use]
pub fn placeholder(key: GroupKey, queue: Name) -> GroupInput {
    GroupInput {
        created: Time(0),
        priority: i64::from(priority_class::FALLBACK_VALUE),
        preemptible: true,
        back_off: false,
        backed_off: false,
        refused: None,
        held: None,
        preemption_delay: None,
        last_start: None,
        last_eviction: None,
        stale_since: None,
        key,
        uid: Name::from(""),
        queue,
        min_member: None,
        min_sub_group: None,
        sub_groups: Vec::new(),
        topology: None,
        staleness_grace: None,
    }
}

/// Tolerated clock difference between replicas, in milliseconds.
const CLOCKS_DIFFER: i64 = 60_000;

impl PodGroup {
    /// A pod group of which only the name is known.
    #[must_use]
    pub fn unknown(key: GroupKey) -> Self {
        Self {
            key,
            input: None,
            queue: None,
            tree: simple(None),
            sets: smallvec![PodSet::of(1)],
            by_name: Box::default(),
            placeholder: false,
            charged_elsewhere: false,
            claims_protection: false,
            pods: PodIds::new(),
            broken: None,
            changed: 0,
            evictions_for: EvictionsFor::default(),
            decided: [None; 2],
        }
    }

    /// Records a start.
    pub fn started(&mut self, now: Time) {
        self.decided[0] = Some(now);
        if let Some(input) = &mut self.input {
            input.last_start = Some(now);
        }
    }

    /// Records an eviction for others.
    pub fn evicted(&mut self, now: Time) {
        self.decided[1] = Some(now);
        if let Some(input) = &mut self.input {
            input.last_eviction = Some(now);
        }
    }

    /// When it was last evicted: as decided here, and as its object shows it.
    #[must_use]
    pub fn eviction_times(&self) -> [Option<Time>; 2] {
        let shown = self.input.as_ref().and_then(|input| input.last_eviction);
        [self.decided[1], shown]
    }

    /// Reverts the record of an eviction to the given times.
    pub fn not_evicted(&mut self, [decided, shown]: [Option<Time>; 2]) {
        self.decided[1] = decided;
        if let Some(input) = &mut self.input {
            input.last_eviction = shown;
        }
    }

    /// Merges later decisions into the times that its object shows. Times in the future are ignored.
    pub fn recall(&mut self, input: &mut GroupInput, now: Time) {
        let past = |time: &mut Option<Time>| *time = time.filter(|time| time.0 <= now.0.saturating_add(CLOCKS_DIFFER));
        past(&mut input.last_start);
        past(&mut input.last_eviction);
        past(&mut input.stale_since);
        let same = |known: &GroupInput| known.uid == input.uid || known.uid.is_empty() || input.uid.is_empty();
        let Some(known) = self.input.as_deref().filter(|known| same(known)) else {
            (self.decided, self.evictions_for) = ([None; 2], EvictionsFor::default());
            return;
        };
        let [started, evicted] = self.decided;
        input.last_start = input.last_start.max(started);
        input.last_eviction = input.last_eviction.max(evicted);
        input.stale_since = input.stale_since.or(known.stale_since);
    }

    /// Builds the tree from the input. The pod sets are empty then.
    pub fn build_tree(&mut self) {
        self.broken = None;
        let grown = self.input.as_deref().map_or(Ok(None), tree_of);
        if let Ok(Some((tree, sets))) = grown {
            let pod_sets = (0..tree.len() as Member).filter(|at| matches!(tree[*at as usize].kind, Kind::Pods(_)));
            let mut by_name: Vec<Member> = pod_sets.collect();
            by_name.sort_by(|left, right| tree[*left as usize].name.cmp(&tree[*right as usize].name));
            (self.tree, self.sets, self.by_name) = (tree.into(), sets, by_name.into());
            return;
        }
        self.broken = grown.err().map(Into::into);
        let input = self.input.as_deref();
        let min = input.and_then(|input| input.min_member).map_or(1, count);
        self.tree = simple(input.and_then(|input| topology(input.topology.as_ref())));
        self.sets = smallvec![PodSet::of(min)];
        self.by_name = Box::default();
    }

    /// The pod set of a sub-group label. While the sub-groups are invalid all pods are in one set, so that what they hold is counted.
    #[must_use]
    pub fn pod_set(&self, sub_group: Option<&Name>) -> Option<Member> {
        let wanted = sub_group.map_or("default", |name| &**name);
        if self.by_name.is_empty() {
            return (wanted == "default" || self.broken.is_some()).then_some(1);
        }
        let name = |at: &Member| self.tree[*at as usize].name.as_str();
        let found = self.by_name.binary_search_by(|at| name(at).cmp(wanted)).ok()?;
        Some(self.by_name[found])
    }

    /// The pod set for bound pods that name a sub-group which does not exist.
    #[must_use]
    pub fn any_pod_set(&self) -> Option<Member> {
        self.pod_sets().next().map(|(member, _)| member)
    }

    /// Whether a member is `other` or below it.
    #[must_use]
    pub fn is_under(&self, member: Member, other: Member) -> bool {
        std::iter::successors(Some(member), |at| self.tree[*at as usize].parent).any(|at| at == other)
    }

    /// The direct member of a set that contains another member, or is it.
    #[must_use]
    pub fn member_of(&self, set: Member, other: Member) -> Option<Member> {
        let parent = |at: &Member| self.tree[*at as usize].parent;
        std::iter::successors(Some(other), parent).find(|at| parent(at) == Some(set))
    }

    /// The pods of a pod set.
    #[must_use]
    pub fn pods(&self, member: Member) -> Option<&PodSet> {
        match self.tree[member as usize].kind {
            Kind::Pods(at) => Some(&self.sets[at as usize]),
            Kind::Set { .. } => None,
        }
    }

    /// The pods of a pod set, to change.
    pub fn pods_mut(&mut self, member: Member) -> Option<&mut PodSet> {
        match self.tree[member as usize].kind {
            Kind::Pods(at) => Some(&mut self.sets[at as usize]),
            Kind::Set { .. } => None,
        }
    }

    /// All pod sets.
    pub fn pod_sets(&self) -> impl Iterator<Item = (Member, &PodSet)> {
        (0..self.tree.len()).filter_map(|member| self.pods(member as Member).map(|pods| (member as Member, pods)))
    }

    /// Whether it is not tried, even if it fits.
    #[must_use]
    pub fn is_excluded(&self) -> bool {
        self.charged_elsewhere || !self.has_demand()
    }

    /// Whether its pending pods are demand of its queue: its PodGroup is known, and does not exclude it.
    #[must_use]
    pub fn has_demand(&self) -> bool {
        !self.placeholder && self.input.as_ref().is_some_and(|input| !input.is_excluded())
    }

    /// Since when it is below its minimum.
    #[must_use]
    pub fn stale_since(&self) -> Option<Time> {
        self.input.as_ref()?.stale_since
    }

    /// Some of its pods have a node or are pipelined.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.sets.iter().any(|pods| pods.active() > 0)
    }

    /// Pods of one status, in all pod sets.
    #[must_use]
    pub fn with(&self, status: Status) -> usize {
        self.sets.iter().map(|pods| pods.with(status)).sum()
    }

    /// How many of its pods have a place, pipelined ones included.
    #[must_use]
    pub fn places(&self) -> usize {
        self.sets.iter().map(PodSet::active).sum()
    }

    /// Some of its pods are pending.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.sets.iter().any(|pods| pods.with(Status::Pending) > 0)
    }

    /// Whether a pod set is the one of a pod group without sub-groups.
    #[must_use]
    pub fn is_implicit(&self, member: Member) -> bool {
        self.pod_sets().count() == 1 && self.tree[member as usize].name == DEFAULT
    }

    /// Active pods per member; 0 for sets.
    #[must_use]
    pub fn active(&self) -> PerMember {
        self.per_member(PodSet::active)
    }

    /// A count per pod set; 0 for sets.
    #[must_use]
    pub fn per_member(&self, figure: impl Fn(&PodSet) -> usize) -> PerMember {
        if let Some(pods) = self.only_pod_set() {
            return PerMember::from_buf_and_len([0, figure(pods), 0, 0], 2);
        }
        let figure = |member| self.pods(member).map_or(0, &figure);
        (0..self.tree.len() as Member).map(figure).collect()
    }

    /// Whether a member's minimum is met.
    #[must_use]
    pub fn satisfied(&self, member: Member, active: &[usize]) -> bool {
        let (have, need) = self.have_and_need(member, active);
        have >= need
    }

    /// Active pods per member that are not pipelined; 0 for sets.
    fn placed(&self) -> PerMember {
        self.per_member(|pods| pods.active() - pods.with(Status::Pipelined))
    }

    /// Whether its minimum is met without pipelined pods.
    #[must_use]
    pub fn whole_without_plans(&self) -> bool {
        self.satisfied(0, &self.placed())
    }

    /// Per member, whether its pods wait for pipelined ones, so that none is bound in part: the minimum of the pod group is not met without these, or that of
    /// the member or of one above it is met only with these.
    #[must_use]
    pub fn waiting_for_plans(&self) -> SmallVec<[bool; 4]> {
        let (active, placed) = (self.active(), self.placed());
        let mut waiting: SmallVec<[bool; 4]> = SmallVec::with_capacity(self.tree.len());
        // A member comes after its parent.
        for (member, node) in (0..).zip(self.tree.iter()) {
            let waits = match node.parent {
                Some(parent) if !waiting[parent as usize] => {
                    self.satisfied(member, &active) && !self.satisfied(member, &placed)
                }
                Some(_) => true,
                None => !self.satisfied(member, &placed),
            };
            waiting.push(waits);
        }
        waiting
    }

    /// (active pods, minimum) of a pod set; (satisfied members, minimum) of a set.
    #[must_use]
    fn have_and_need(&self, member: Member, active: &[usize]) -> (usize, usize) {
        match &self.tree[member as usize].kind {
            Kind::Pods(at) => (active[member as usize], self.sets[*at as usize].min),
            Kind::Set { need, members } => (
                members.iter().filter(|&&below| self.satisfied(below, active)).count(),
                *need,
            ),
        }
    }

    /// Members of a set: those below their minimum first, then the least above it; ties by name.
    #[must_use]
    pub fn in_order(&self, set: Member, active: &[usize]) -> SmallVec<[Member; 4]> {
        let Kind::Set { members, .. } = &self.tree[set as usize].kind else {
            return SmallVec::new();
        };
        if let [only] = **members {
            return SmallVec::from_slice(&[only]);
        }
        let mut order: Vec<_> = members
            .iter()
            .map(|&member| (self.have_and_need(member, active), member))
            .collect();
        order.sort_by(|left, right| {
            by_need(left.0, right.0)
                .then_with(|| self.tree[left.1 as usize].name.cmp(&self.tree[right.1 as usize].name))
        });
        order.into_iter().map(|(_, member)| member).collect()
    }

    /// Whether enough pods exist for the pod group to start.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.satisfied(0, &self.per_member(PodSet::ungated))
    }

    /// Whether it is below, at or above its minimum.
    #[must_use]
    pub fn stage(&self, active: &[usize]) -> Stage {
        let Some(pods) = self.only_pod_set() else {
            return self.stage_of_tree(active);
        };
        let stage = match active[1].cmp(&pods.min) {
            Ordering::Less => Stage::Below,
            Ordering::Equal => Stage::Exact,
            Ordering::Greater => Stage::Above,
        };
        debug_assert_eq!(stage, self.stage_of_tree(active));
        stage
    }

    fn stage_of_tree(&self, active: &[usize]) -> Stage {
        if !self.satisfied(0, active) {
            Stage::Below
        } else if self.surplus(0, active) {
            Stage::Above
        } else {
            Stage::Exact
        }
    }

    /// Whether a member, or one below it, has more than its minimum.
    #[must_use]
    pub fn surplus(&self, member: Member, active: &[usize]) -> bool {
        let (have, need) = self.have_and_need(member, active);
        have > need
            || match &self.tree[member as usize].kind {
                Kind::Pods(_) => false,
                Kind::Set { members, .. } => members.iter().any(|&below| self.surplus(below, active)),
            }
    }

    /// Whether it is stale: some pods hold a place, none succeeded, and the minimum is not met.
    #[must_use]
    pub fn stale(&self) -> bool {
        let Some(pods) = self.only_pod_set() else {
            return self.tree_is_stale();
        };
        let used = pods.active_used();
        let stale = used > 0 && used < pods.min && pods.with(Status::Succeeded) == 0;
        debug_assert_eq!(stale, self.tree_is_stale());
        stale
    }

    fn tree_is_stale(&self) -> bool {
        self.with(Status::Succeeded) == 0 && self.is_short(&self.per_member(PodSet::active_used))
    }

    /// Whether these pods are some, but fewer than its minimum.
    fn is_short(&self, pods: &[usize]) -> bool {
        pods.iter().sum::<usize>() > 0 && !self.satisfied(0, pods)
    }

    /// Whether it has other pods than pipelined ones, but without these fewer than its minimum. Releasing pods count.
    #[must_use]
    pub fn is_short_without_plans(&self) -> bool {
        self.is_short(&self.per_member(|pods| pods.active_used() - pods.with(Status::Pipelined)))
    }

    /// The pods to place next, all or none: what the minimum lacks, else one surplus pod or member. `take(member, n)` gives up to n pods of a pod set that
    /// are to be placed, best first.
    pub fn chunk(&self, active: &[usize], take: &dyn Fn(Member, usize) -> PodIds) -> PodIds {
        if let Some(pods) = self.only_pod_set() {
            let lacking = pods.min.saturating_sub(active[1]).max(1);
            let mut pods = take(1, lacking);
            if pods.len() < lacking {
                pods.clear();
            }
            debug_assert_eq!(pods, self.chunk_of(0, active, take));
            return pods;
        }
        self.chunk_of(0, active, take)
    }

    /// The member at which placement begins: the root, or the only pod set of a pod group whose root has no topology constraint.
    #[must_use]
    pub fn top(&self) -> Member {
        Member::from(self.only_pod_set().is_some() && self.tree[0].topology.is_none())
    }

    /// The only pod set of a pod group without sub-groups.
    #[must_use]
    pub fn only_pod_set(&self) -> Option<&PodSet> {
        match &*self.tree {
            [
                TreeNode {
                    kind: Kind::Set { need: 1, .. },
                    ..
                },
                TreeNode {
                    kind: Kind::Pods(_), ..
                },
            ] => self.sets.first(),
            _ => None,
        }
    }

    fn chunk_of(&self, member: Member, active: &[usize], take: &dyn Fn(Member, usize) -> PodIds) -> PodIds {
        let (have, need) = self.have_and_need(member, active);
        if matches!(self.tree[member as usize].kind, Kind::Pods(_)) {
            return take(member, if have >= need { 1 } else { need - have });
        }
        let order = self.in_order(member, active);
        if have >= need {
            // Without a part of a member that cannot be whole yet.
            let growing = order.iter().filter(|below| self.can_form(**below, active, take));
            let mut growth = growing.map(|below| self.chunk_of(*below, active, take));
            return growth.find(|pods| !pods.is_empty()).unwrap_or_default();
        }
        let mut chunk = PodIds::new();
        let mut lacking = need - have;
        for below in order {
            if lacking > 0 && !self.satisfied(below, active) && self.can_form(below, active, take) {
                chunk.extend(self.chunk_of(below, active, take));
                lacking -= 1;
            }
        }
        if lacking > 0 { PodIds::new() } else { chunk }
    }

    /// Whether enough pods are to be placed for a member to meet its minimum.
    fn can_form(&self, member: Member, active: &[usize], take: &dyn Fn(Member, usize) -> PodIds) -> bool {
        let (have, need) = self.have_and_need(member, active);
        match &self.tree[member as usize].kind {
            _ if have >= need => true,
            Kind::Pods(_) => take(member, need - have).len() >= need - have,
            Kind::Set { members, .. } => {
                members
                    .iter()
                    .filter(|&&below| self.can_form(below, active, take))
                    .count()
                    >= need
            }
        }
    }

    /// The pods to evict next: one surplus pod, then surplus members, then all. `last(member)` gives the active pods of a pod set in
    /// pod order.
    pub fn evict_chunk(&self, active: &[usize], pods_of: &dyn Fn(Member) -> PodIds) -> PodIds {
        let surplus = self.evict_surplus(0, active, pods_of);
        if surplus.is_empty() {
            self.all_below(0, pods_of)
        } else {
            surplus
        }
    }

    fn evict_surplus(&self, member: Member, active: &[usize], pods_of: &dyn Fn(Member) -> PodIds) -> PodIds {
        let (have, need) = self.have_and_need(member, active);
        if matches!(self.tree[member as usize].kind, Kind::Pods(_)) {
            return if have > need {
                pods_of(member).last().copied().into_iter().collect()
            } else {
                PodIds::new()
            };
        }
        if have == 0 || !self.surplus(member, active) {
            return PodIds::new();
        }
        let mut order = self.in_order(member, active);
        order.reverse();
        for &below in &order {
            let pods = self.evict_surplus(below, active, pods_of);
            if !pods.is_empty() {
                return pods;
            }
        }
        if have > need {
            let whole = order
                .iter()
                .map(|&below| self.all_below(below, pods_of))
                .find(|pods| !pods.is_empty());
            return whole.unwrap_or_default();
        }
        PodIds::new()
    }

    fn all_below(&self, member: Member, pods_of: &dyn Fn(Member) -> PodIds) -> PodIds {
        match &self.tree[member as usize].kind {
            Kind::Pods(_) => pods_of(member),
            Kind::Set { members, .. } => members
                .iter()
                .flat_map(|&below| self.all_below(below, pods_of))
                .collect(),
        }
    }
}

/// Order of two members by (satisfied, minimum).
fn by_need(left: (usize, usize), right: (usize, usize)) -> Ordering {
    let lacks = |member: (usize, usize)| member.0 < member.1;
    match (lacks(left), lacks(right)) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => match (left.1, right.1) {
            (0, 0) => left.0.cmp(&right.0),
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            (_, _) => (left.0 * right.1).cmp(&(right.0 * left.1)),
        },
    }
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

fn topology(constraint: Option<&TopologyConstraint>) -> Option<Box<TopologyConstraint>> {
    constraint.cloned().map(Box::new)
}

/// The tree of a pod group without sub-groups: its root and one pod set.
fn simple(topology: Option<Box<TopologyConstraint>>) -> Arc<[TreeNode]> {
    static PLAIN: LazyLock<Arc<[TreeNode]>> = LazyLock::new(|| tree(None));
    fn tree(topology: Option<Box<TopologyConstraint>>) -> Arc<[TreeNode]> {
        let root = TreeNode {
            name: ROOT,
            parent: None,
            kind: Kind::Set {
                need: 1,
                members: SmallVec::from_slice(&[1]),
            },
            topology,
        };
        let pods = TreeNode {
            name: DEFAULT,
            parent: Some(0),
            kind: Kind::Pods(0),
            topology: None,
        };
        Arc::new([root, pods])
    }
    match topology {
        None => Arc::clone(&PLAIN),
        Some(_) => tree(topology),
    }
}

/// The tree of a group with sub-groups, and its pod sets; `None` if no pod set hangs under the root.
fn tree_of(input: &GroupInput) -> Result<Option<(Vec<TreeNode>, PodSets)>, String> {
    let subs = &input.sub_groups;
    if subs.is_empty() {
        return Ok(None);
    }
    if subs.len() > limits::SUB_GROUPS_PER_POD_GROUP {
        let (given, most) = (subs.len(), limits::SUB_GROUPS_PER_POD_GROUP);
        return Err(format!("there are {given} subgroups, and at most {most} are possible"));
    }
    let mut positions: Table<&Name, usize> = Table::default();
    for (at, sub) in subs.iter().enumerate() {
        if positions.insert(&sub.name, at).is_some() {
            return Err(format!("subgroup {} already exists", sub.name));
        }
    }
    let (mut top, mut children) = (Vec::new(), vec![Vec::new(); subs.len()]);
    for (at, sub) in subs.iter().enumerate() {
        match &sub.parent {
            None => top.push(at),
            Some(parent) => match positions.get(parent) {
                Some(above) => children[*above].push(at),
                None => return Err(format!("parent subgroup {parent} of {} not found", sub.name)),
            },
        }
    }
    let mut tree = vec![TreeNode {
        name: ROOT,
        parent: None,
        kind: Kind::Set {
            need: input.min_sub_group.map_or(top.len(), count),
            members: SmallVec::new(),
        },
        topology: topology(input.topology.as_ref()),
    }];
    let mut waiting: Vec<(usize, Member, usize)> = top.into_iter().rev().map(|at| (at, 0, 1)).collect();
    let mut sets = SmallVec::new();
    while let Some((at, parent, depth)) = waiting.pop() {
        if depth > limits::SUB_GROUP_DEPTH {
            let most = limits::SUB_GROUP_DEPTH;
            return Err(format!("subgroups are nested more than {most} deep"));
        }
        let sub = &subs[at];
        let below = std::mem::take(&mut children[at]);
        let member = tree.len() as Member;
        if let Kind::Set { members, .. } = &mut tree[parent as usize].kind {
            members.push(member);
        }
        let kind = if below.is_empty() {
            sets.push(PodSet::of(count(sub.min_member.unwrap_or(0))));
            Kind::Pods(sets.len() as u32 - 1)
        } else {
            Kind::Set {
                need: sub.min_sub_group.map_or(below.len(), count),
                members: SmallVec::new(),
            }
        };
        waiting.extend(below.into_iter().rev().map(|at| (at, member, depth + 1)));
        tree.push(TreeNode {
            name: SmolStr::from(&*sub.name),
            parent: Some(parent),
            kind,
            topology: topology(sub.topology.as_ref()),
        });
    }
    Ok((!sets.is_empty()).then_some((tree, sets)))
}

#[cfg(test)]
mod tests;
