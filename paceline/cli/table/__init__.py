"""Every flag of every command. A new flag is one row in one of these files; parser, help and docs follow."""

from __future__ import annotations

from paceline.cli.table import (
    bench,
    chat,
    context,
    distill,
    drafters,
    hub,
    ignored,
    log,
    machine,
    model,
    output,
    pair,
    placement,
    refused,
    sampling,
    server,
    speculation,
    worker,
)

TABLE = pair.shared(
    *output.ROWS,
    *pair.ROWS,
    *bench.ROWS,
    *distill.ROWS,
    *model.ROWS,
    *hub.ROWS,
    *placement.ROWS,
    *context.ROWS,
    *machine.ROWS,
    *sampling.ROWS,
    *speculation.ROWS,
    *drafters.ROWS,
    *chat.ROWS,
    *server.ROWS,
    *worker.ROWS,
    *log.ROWS,
    *ignored.ROWS,
    *refused.ROWS,
)
