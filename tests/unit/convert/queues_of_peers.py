"""Queues as users of other schedulers have them."""

KAI = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: research, uid: u1, generation: 3}
spec:
  displayName: Research
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 24, limit: 32, overQuotaWeight: 2}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
status: {allocated: {}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: vision}
spec:
  parentQueue: research
  priority: 100
  reclaimMinRuntime: 1h30m
  resources:
    cpu: {quota: 64000, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 8.5, limit: -1, overQuotaWeight: 1}
    memory: {quota: 512000, limit: -1, overQuotaWeight: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team-v, labels: {kai.scheduler/queue: vision}}
spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}
"""


KUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: a100}
spec:
  nodeLabels: {nvidia.com/gpu.product: A100}
  nodeTaints: [{key: gpu, effect: NoSchedule}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohortName: research
  namespaceSelector: {}
  queueingStrategy: StrictFIFO
  fairSharing: {weight: "2"}
  preemption: {reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu, pods]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 9}
      - {name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4, lendingLimit: 2}
      - {name: pods, nominalQuota: 100}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: user-queue, namespace: team-v}
spec: {clusterQueue: vision}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: high}
value: 90
description: soon
---
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: team-v
  labels: {kueue.x-k8s.io/queue-name: user-queue, kueue.x-k8s.io/priority-class: high, mine: x}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


RUNAI = """
departments:
- {id: "4", name: research, resources: [
    {nodePool: {id: 1, name: default}, gpu: {deserved: 16, limit: -1, overQuotaWeight: 2}}]}
---
projects:
- id: "22"
  name: vision
  parentId: "4"
  requestedNamespace: runai-vision
  schedulingRules: {trainingJobTimeLimitSeconds: 3600}
  defaultNodePools: [default]
  resources:
  - nodePool: {id: 1, name: default}
    gpu: {deserved: 8, limit: 12, overQuotaWeight: 3}
    cpu: {deserved: 1000, limit: null, overQuotaWeight: 1}
    memory: {deserved: 2048, limit: null, overQuotaWeight: 1, units: Mib}
"""


VOLCANO = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: vision}
spec:
  weight: 4
  reclaimable: true
  parent: root
  deserved: {nvidia.com/gpu: "8", cpu: "32"}
  capability: {nvidia.com/gpu: "12", memory: 512Gi}
  guarantee: {resource: {nvidia.com/gpu: "2"}}
"""
