"""The variables that an agent must pass on to swarm's MCP server."""

from __future__ import annotations

from swarm.stores.registry import SERVER_DRIVERS

FORWARDED = (  # variables that swarm and the clients of its stores read
    *(
        "SWARM_STATE_DIR",
        "AI_SWARM_DIR",
        "SWARM_STORE",
        "AI_SWARM_LOCK_TTL",
        "SWARM_LOG_MAX_BYTES",
        "SWARM_DURABLE",
    ),
    *("SWARM_WORKER", "SWARM_TASK_ID", "SWARM_TOKEN"),
    *(variable for driver in SERVER_DRIVERS for variable in driver.variables),
)
