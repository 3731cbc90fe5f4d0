"""Which cores a context's threads run on. libllama binds the threads of a pool each time it computes with it, so
contexts that share their threads, as OpenMP's do, can each have cores of their own."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from paceline.config import ContextParams
from paceline.llama.devices import processor_function
from paceline.llama.lib import c, ggml

MOST_CORES = 512  # GGML_MAX_N_THREADS


class PoolParams(ctypes.Structure):
    """ggml_threadpool_params."""

    _fields_ = (
        ("cores", ctypes.c_bool * MOST_CORES),
        ("n_threads", ctypes.c_int),
        ("priority", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


class ThreadPool:
    """So many threads on these cores, `strict`: each on one of them. Free it after the contexts that use it."""

    def __init__(self, n_threads: int, cores: Sequence[int], strict: bool) -> None:
        params = PoolParams()
        ggml("ggml_threadpool_params_init", [ctypes.c_void_p, ctypes.c_int], None)(ctypes.byref(params), n_threads)
        for core in range(MOST_CORES):
            params.cores[core] = core in cores
        params.strict = strict
        make = processor_function("ggml_threadpool_new")
        assert make, "every back end for processors has pools"
        self.handle: int | None = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(make)(ctypes.addressof(params))

    def close(self) -> None:
        free = processor_function("ggml_threadpool_free")
        if self.handle and free:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free)(self.handle)
        self.handle = None


class CoreBinding:
    """A context's threads on its cores: those that write and those that read, which compute more than one token."""

    def __init__(self, context: int, params: ContextParams) -> None:
        self._cores = (params.cores, params.cores_batch)
        self._n_threads = (params.threads, params.threads_batch)
        strict = (bool(params.strict), bool(params.strict_batch))
        self._pools = [ThreadPool(*each) for each in zip(self._n_threads, self._cores, strict, strict=True)]
        c._lib.llama_attach_threadpool(ctypes.c_void_p(context), *(ctypes.c_void_p(p.handle) for p in self._pools))

    def before(self, n_tokens: int) -> None:
        """libllama binds threads when there are several of them; the one that calls it alone is bound here."""
        reads = n_tokens > 1
        if self._n_threads[reads] == 1:
            os.sched_setaffinity(0, self._cores[reads])

    def close(self) -> None:
        for pool in self._pools:
            pool.close()
