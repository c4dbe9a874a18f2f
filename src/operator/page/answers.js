// The fields of responses of /api/v1/ that the page reads. Each function takes the fields of the type in the comment above it,
// and `src/operator/page/tests.rs` compares them with the OpenAPI document.

/** @api Meta */
const meta = ({ asOf, leads, leader, namespacesLeftOut = 0 }) => ({ asOf, leads, leader, namespacesLeftOut });

/** @api Amounts */
const amounts = ({ gpu, cpu, memory }) => ({ gpu, cpu, memory });

/** @api Bounds */
const bounds = ({ gpu, cpu, memory }) => ({ gpu, cpu, memory });

/** @api Verdict */
const verdict = ({ cause, sentence }) => ({ cause, sentence });

/** @api Held */
const held = ({ queue: of, reason }) => ({ queue: of, reason });

/** @api InForce */
const inForce = ({ entry, until }) => ({ entry, until });

/** @api Queue */
const queue = ({
  name, displayName, parent, depth, shard, problem, priority, quota, limit, weight, fairShare, allocated, nonPreemptible,
  requested, usedOverTime, waiting, running, schedule, held: stopped,
}) => ({
  name, displayName, parent, depth, shard, problem, priority, waiting, running,
  quota: bounds(quota),
  limit: bounds(limit),
  weight: amounts(weight),
  fairShare: amounts(fairShare),
  allocated: amounts(allocated),
  nonPreemptible: amounts(nonPreemptible),
  requested: amounts(requested),
  usedOverTime: usedOverTime && amounts(usedOverTime),
  schedule: schedule && inForce(schedule),
  held: stopped && held(stopped),
});

/** @api QueueList */
export const queueList = ({ meta: of, queues }) => ({ meta: meta(of), queues: queues.map(queue) });

/** @api QueueSample */
const queueSample = ({ at, fairShare, allocated, requested }) => ({
  at: Date.parse(at), fairShare: amounts(fairShare), allocated: amounts(allocated), requested: amounts(requested),
});

/** @api QueueHistory */
export const queueHistory = ({ everySeconds, samples }) => ({ everySeconds, samples: samples.map(queueSample) });

/** @api NodeOnMap */
const nodeOnMap = ({ name, state = "Ready", total, free, shared = [] }) => ({ name, state, total, free, shared });

/** @api GpuMap */
export const gpuMap = ({ meta: of, withoutGpus, nodes }) => ({ meta: meta(of), withoutGpus, nodes: nodes.map(nodeOnMap) });

/** @api NodeResource */
const nodeResource = ({ total, free }) => ({ total, free });

/** @api GpuUser */
const gpuUser = ({ namespace, pod, workload, queue: of, gpus, leaving = false }) => ({
  namespace, pod, workload, queue: of, gpus, leaving,
});

/** @api SharedGpu */
const sharedGpu = ({ group, used, users = [], usedByOthers = 0 }) => ({
  group, used, users: users.map(gpuUser), usedByOthers,
});

/** @api NodeGpus */
const nodeGpus = ({ total, free, freeLater, memoryMib, shared = [], users = [], usedByOthers = 0 }) => ({
  total, free, freeLater, memoryMib, shared: shared.map(sharedGpu), users: users.map(gpuUser), usedByOthers,
});

/** @api Node */
export const node = ({ name, shard, ready, cordoned = false, gpus, cpu, memory, pods }) => ({
  name, shard, ready, cordoned, gpus: gpus && nodeGpus(gpus), cpu: nodeResource(cpu), memory: nodeResource(memory), pods,
});

/** @api PodCounts */
const podCounts = ({ min, wanted, running, waiting, gated, leaving, ended }) => ({
  min, wanted, running, waiting, gated, leaving, ended,
});

/** @api Workload */
const workload = ({
  namespace, name, queue: of, shard, priority, preemptible, state, pods, requested, created, started, verdict: said, held: stopped, position,
}) => ({
  namespace, name, queue: of, shard, priority, preemptible, state, created, started, position,
  pods: podCounts(pods),
  requested: amounts(requested),
  verdict: said && verdict(said),
  held: stopped && held(stopped),
});

/** @api WorkloadList */
export const workloadList = ({ meta: of, total, workloads }) => ({
  meta: meta(of), total, workloads: workloads.map(workload),
});

/** @api Pod */
const pod = ({ name, state, subGroup, node: on, requested, gpuGroups = [], message }) => ({
  name, state, subGroup, node: on, requested: amounts(requested), gpuGroups, message,
});

/** @api Moment */
const moment = ({ at, kind, text }) => ({ at, kind, text });

/** @api WorkloadDetails */
export const workloadDetails = ({ meta: of, workload: about, evidence, queues, pods, timeline }) => ({
  meta: meta(of), workload: workload(about), evidence, queues: queues.map(queue), pods: pods.map(pod), timeline: timeline.map(moment),
});

/** @api QueueSide */
const queueSide = ({ queue: of, allocated, quota, fairShare, priority }) => ({
  queue: of, allocated: amounts(allocated), quota: bounds(quota), fairShare: amounts(fairShare), priority,
});

/** @api Eviction */
const eviction = ({
  at, namespace, pod: name, workload: of, queue: inQueue, node: on, action, evictedFor, message, overruledBudgets = [], sides = [],
}) => ({
  at, namespace, pod: name, workload: of, queue: inQueue, node: on, action, evictedFor, message, overruledBudgets,
  sides: sides.map(queueSide),
});

/** @api EvictionList */
export const evictionList = ({ meta: of, since, evictions }) => ({
  meta: meta(of), since, evictions: evictions.map(eviction),
});

/** @api Explanation */
export const explanation = ({ verdict: said, evidence }) => ({ verdict: verdict(said), evidence });

/** @api WouldBind */
const wouldBind = ({ namespace, pod: name, node: on, afterEvictions }) => ({ namespace, pod: name, node: on, afterEvictions });

/** @api WouldEvict */
const wouldEvict = ({ namespace, pod: name, workload: of, action, message }) => ({
  namespace, pod: name, workload: of, action, message,
});

/** @api WouldWait */
const wouldWait = ({ namespace, workload: of, verdict: said, evidence }) => ({
  namespace, workload: of, verdict: verdict(said), evidence,
});

/** @api WhatIf */
export const whatIf = ({ runs, binds, evicts, evictsOthers, waits, notes }) => ({
  runs, binds: binds.map(wouldBind), evicts: evicts.map(wouldEvict), evictsOthers, waits: waits.map(wouldWait), notes,
});

/** @api Problem */
export const problem = ({ error }) => ({ error });
