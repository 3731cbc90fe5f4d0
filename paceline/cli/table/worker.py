"""Flags of `worker`: which devices it lends, and where it listens. The names are rpc-server's."""

from __future__ import annotations

from paceline.cli.table.flag import WORKER, Flag, Kind, rows

LENDING = [
    Flag(
        names="-H --host",
        sets="worker.host",
        kind=Kind.STR,
        metavar="ADDRESS",
        help="the address to listen on; RPC has no password, so anything but loopback is for private networks",
    ),
    Flag(names="-p --port", sets="worker.port", kind=Kind.INT, help="the port to listen on"),
    Flag(
        names="-d -dev --device",
        sets="worker.devices",
        kind=Kind.LIST,
        default="all GPUs, else CPU",
        help="the devices to lend, as in CUDA0,CUDA1 or CPU",
    ),
    Flag(
        names="-t --threads",
        sets="worker.n_threads",
        kind=Kind.INT,
        default="all cores",
        help="threads of the processor, where that is lent",
    ),
    Flag(
        names="--exact",
        sets="worker.exact",
        help="for servers with --exact: processors compute without kernels that round by the size of a batch",
    ),
    Flag(
        names="-c --cache",
        sets="worker.cache",
        kind=Kind.PATH,
        metavar="[FOLDER]",
        bare="",
        default="off; without a name rpc/ in the cache folder",
        help="keep large weights in a folder, so that they need not be sent again at the next start",
    ),
]

ROWS = rows("worker", WORKER, LENDING)
