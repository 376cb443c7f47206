"""Starting one agent process and agreeing on the protocol with it.

The same for a session, a warm process and a question that needs no session. A slot of the pool is
taken by the caller; it belongs to the process from the start on and is given back at its end.
"""

from __future__ import annotations

import secrets

from bridge.errors import BridgeError
from bridge.runtime import environment, handshake
from bridge.runtime.link import AgentLink, LinkOwner
from bridge.runtime.pool import Slot
from bridge.runtime.services import Services
from bridge.runtime.spawn import SpawnPlan
from bridge.runtime.sweep import new_tag

_TAG_BYTES = 8


async def launch(
    services: Services, slot: Slot, owned_by: LinkOwner, *, agent: str, owner: str, cwd: str
) -> AgentLink:
    """A new, initialised process of ``agent`` with the environment of ``owner``.

    Raises ``AgentError`` or ``CapacityError``; then the process is gone and the slot is free.
    """
    link = AgentLink(owned_by, max_line_bytes=services.settings.limits.line_bytes)
    try:
        plan = _plan(services, agent, owner, cwd)
        link.program = plan.argv[0]
        link.secrets = plan.secrets
        await services.stagger(agent).wait()
        link.process = await services.spawn(plan, link)
    except BaseException:
        services.processes.release_slot(slot)
        raise
    services.processes.started(link, slot, plan.tag)
    owned_by.link_started(link)
    try:
        await handshake.initialize(
            link, services.agent(agent), services.settings.limits, services.version
        )
    except BaseException as error:
        link.is_expected_to_end = True
        await link.stop(services)
        if isinstance(error, BridgeError):
            link.explain(error)
        raise
    services.hooks.catalog.learn(agent, link.initialized)
    return link


def _plan(services: Services, agent_name: str, owner_name: str, cwd: str) -> SpawnPlan:
    agent = services.agent(agent_name)
    owner = services.settings.owners.get(owner_name)
    owner_env = environment.owner_variables(owner) if owner else {}
    tag = new_tag(services.state_tag, secrets.token_hex(_TAG_BYTES))
    limits = services.settings.limits
    return SpawnPlan(
        argv=services.hooks.catalog.argv(agent_name),
        cwd=cwd,
        env=environment.build(agent.env, owner_env, tag),
        tag=tag,
        max_stdin_bytes=limits.stdin_bytes,
        max_stderr_bytes=limits.stderr_bytes,
        secrets=environment.secret_values(agent.env, owner_env),
    )
