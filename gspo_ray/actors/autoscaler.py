"""What the cluster's autoscaler says: nodes on their way, launches that failed, requests that it can never serve."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply
from ray.experimental.internal_kv import internal_kv_get_gcs_client


@dataclass(frozen=True, slots=True)
class AutoscalerReport:
    round: int  # grows with each of its decisions; 0: none reports here
    coming: dict[str, int]  # node type -> nodes asked for or starting
    failed: tuple[str, ...]  # reasons of launches that failed
    impossible: frozenset[str]  # ids of placement groups that it cannot make room for, with all nodes it may start

    def __str__(self) -> str:
        if not self.round:
            return "No autoscaler reports on this cluster, so somebody else must add nodes."
        nodes = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.coming.items()))
        line = f"The autoscaler is starting {nodes}." if nodes else "The autoscaler is starting no node yet."
        return line + "".join(f" A launch failed: {reason}." for reason in self.failed)


def autoscaler_report() -> AutoscalerReport:
    """As it stands in Ray's control store (autoscaler v2, the default of `ray up` and KubeRay). Blocks; at most 10 s.

    The raw reply: Ray's own `get_cluster_status` leaves out what is infeasible.
    """
    reply = internal_kv_get_gcs_client().get_cluster_status(timeout_s=10)
    state = GetClusterStatusReply.FromString(reply).autoscaling_state
    coming = Counter(node.ray_node_type_name for node in state.pending_instances)
    for launch in state.pending_instance_requests:
        coming[launch.ray_node_type_name] += launch.count
    return AutoscalerReport(
        round=state.autoscaler_state_version,
        coming=dict(coming),
        failed=tuple(
            dict.fromkeys(f"{launch.ray_node_type_name}: {launch.reason}" for launch in state.failed_instance_requests)
        ),
        # "<id>:<strategy>|<state>"
        impossible=frozenset(gang.details.partition(":")[0] for gang in state.infeasible_gang_resource_requests),
    )
