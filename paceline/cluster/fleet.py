"""Many engines that look like one. Each request goes to one replica; when that is gone it goes on at another, with the
tokens that were received. Everything happens on one event loop of a thread of its own. Knows nothing of Ray."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from itertools import chain, count, repeat
from typing import Any, Protocol

import msgspec

from paceline.cluster.link import Inquiry, Link
from paceline.cluster.messages import Place
from paceline.cluster.reports import health_of, merged, replica_health
from paceline.cluster.roster import OnReplicas
from paceline.cluster.routing import Routes, prefix_hashes
from paceline.engine.request import Failed, Finished, Request
from paceline.errors import EngineClosed, EngineDied
from paceline.process.asking import Asking
from paceline.process.base import Health, Info, OnEvent, OnProgress, Status
from paceline.process.supervisor import Live
from paceline.text.vocabulary import Vocabulary

log = logging.getLogger("paceline")

N_MOVES = 8  # without progress between them, after which a request is given up
DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0)
PATIENCE = 60.0
"""Seconds that the others get when the first replica is ready."""
ANSWERS = 5.0
"""Seconds in which a replica says how it is; else it is as it last was."""


class Placement(Protocol):
    """Who starts replicas, knows where they are, and chooses one. All but `start` and `stop` on the event loop."""

    routes: Routes

    def start(self) -> None:
        """Blocks. What it starts may live as long as the thread it was started on."""

    async def watch(self, on_replicas: OnReplicas) -> None:
        """From now on that is called with all that there are."""

    async def choose(self, hashes: Sequence[int]) -> str:
        """One of those in `routes`; waits until there is one."""

    async def leave(self, *, last: bool) -> None:
        """`last`: no other front uses the replicas."""

    def stop(self) -> None:
        """Whatever was started ends, also where starting has failed."""


class Fleet(Asking):
    """A `Backend`."""

    def __init__(self, placement: Placement, n_replicas: int, on_progress: OnProgress | None = None) -> None:
        self.info: Info
        self.vocabulary: Vocabulary
        self._placement = placement
        self._routes = placement.routes
        self._n_replicas = n_replicas
        self._on_progress = on_progress or (lambda share: None)
        self._links: dict[str, Link] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._numbers: dict[str, int] = {}
        self._records: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._reason = ""
        self._live: dict[int, Live] = {}
        self._at: dict[int, Link] = {}
        self._unasked: list[Inquiry] = []
        self._opened: Future[None] = Future()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-fleet", daemon=True)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self.close()
            raise

    # -- its life

    def _run(self) -> None:
        try:
            self._placement.start()
            if not self._closing.is_set():
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(self._serve())
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            else:
                log.exception("the front of the replicas has ended")
        finally:
            self._placement.stop()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._news = asyncio.Event()
        self._waiting: asyncio.Queue[Live] = asyncio.Queue()
        placing = asyncio.create_task(self._place_all())
        await self._placement.watch(self._on_replicas)
        try:
            await self._open()
            if not self._opened.done():
                self._opened.set_result(None)
            await self._stopping.wait()
        finally:
            self._give_up_all()
            n_fronts = max((link.pulse.n_fronts for link in self._links.values()), default=1)
            self._stopping.set()
            for task in (placing, *self._keeping.values()):
                task.cancel()
            await asyncio.gather(placing, *self._keeping.values(), return_exceptions=True)
            await self._placement.leave(last=n_fronts <= 1)

    async def _open(self) -> None:
        """When all are ready, or nobody else has come for a minute."""
        until = None
        while len(self._links) < self._n_replicas and not self._stopping.is_set():
            try:
                async with asyncio.timeout_at(until):
                    await self._news.wait()
            except TimeoutError:
                log.warning("%d of %d replicas are ready; going on with those", len(self._links), self._n_replicas)
                return
            self._news.clear()
            if self._links and until is None:
                until = self._loop.time() + PATIENCE

    def close(self) -> None:
        self._closing.set()
        self._call_soon(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        self._stopping.set()
        self._news.set()

    def _give_up_all(self) -> None:
        error = EngineClosed("the engine was closed")
        unasked = [*self._unasked, *(each for link in self._links.values() for each in link.inquiries.values())]
        lives, self._live, self._at, self._unasked = list(self._live.values()), {}, {}, []
        for live in lives:
            live.give_up(error)
        for inquiry in unasked:
            inquiry.fail(error)

    def _call_soon(self, work: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError, AttributeError):  # the loop is closed, or was never there
            self._loop.call_soon_threadsafe(work, *args)

    # -- replicas come and go

    def _on_replicas(self, places: Mapping[str, Place]) -> None:
        for id in [id for id in self._keeping if id not in places]:
            self._keeping.pop(id).cancel()
            self._numbers.pop(id)
        for id, place in places.items():
            if id not in self._keeping:
                taken = set(self._numbers.values())
                self._numbers[id] = next(number for number in count() if number not in taken)
                self._keeping[id] = asyncio.create_task(self._keep(id, place))

    async def _keep(self, id: str, place: Place) -> None:
        """A link to this replica, as long as it is said to be there."""
        for delay in chain(DELAYS, repeat(DELAYS[-1])):
            link = Link(id, self._numbers[id], place, self)
            try:
                await link.run(again=hasattr(self, "vocabulary"))
            except (OSError, msgspec.DecodeError) as error:
                log.debug("replica %d at %s:%d: %s", link.number, place.host, place.port, error)
            finally:
                self._lost(link)
            await asyncio.sleep(delay)

    def changed(self, link: Link) -> None:
        if link.refusal and not self._opened.done():
            self._opened.set_exception(link.refusal)
            self._stop()
        elif link.info:
            self._join(link, link.info)
        shares = [1.0] * len(self._links) + ([] if link.info else [link.share])
        self._on_progress(min(1.0, sum(shares) / self._n_replicas))
        self._news.set()

    def _join(self, link: Link, info: Info) -> None:
        if link.vocabulary and not hasattr(self, "vocabulary"):
            self.vocabulary = link.vocabulary
            n_slots = info.limits.n_slots * self._n_replicas
            self.info = msgspec.structs.replace(info, limits=msgspec.structs.replace(info.limits, n_slots=n_slots))
        self._links[link.id] = link
        self._routes.join(link.id)
        for inquiry in self._unasked:
            link.ask(inquiry)
        self._unasked = []

    def _lost(self, link: Link) -> None:
        """What it had goes on elsewhere, in the old order."""
        if self._links.pop(link.id, None) is None:
            return
        self._routes.leave(link.id)
        if self._stopping.is_set():
            return
        self._records[link.number]["restarts"] += 1 + link.pulse.health.n_restarts
        self._reason = f"replica {link.number} is gone"
        log.error("%s; its %d requests go on elsewhere", self._reason, len(link.live))
        for live in link.live.values():
            self._at.pop(live.id, None)
            self._move(live)
        for inquiry in link.inquiries.values():
            if inquiry.bound:
                inquiry.fail(EngineDied(self._reason))
            else:
                self._inquire(inquiry)

    def _move(self, live: Live) -> None:
        live.guilt += 1
        if live.cancelled:
            self._end(live, Finished("cancelled", live.timings))
        elif live.guilt >= N_MOVES:
            error = EngineDied(f"{N_MOVES} replicas have ended over this request; the last: {self._reason}")
            self._live.pop(live.id, None)
            live.give_up(error)
        else:
            self._waiting.put_nowait(live)

    # -- requests

    def submit(self, request: Request, on_event: OnEvent) -> None:
        if self._closing.is_set():
            raise EngineClosed("the engine is closed")
        self._call_soon(self._accept, Live(request, on_event))

    def _accept(self, live: Live) -> None:
        self._live[live.id] = live
        self._waiting.put_nowait(live)

    async def _place_all(self) -> None:
        while True:
            live = await self._waiting.get()
            if live.id in self._live:
                hashes = prefix_hashes(live.request)
                link = self._wanted(live) or await self._choose(hashes)
                if live.id in self._live:
                    self._routes.sent(hashes, link.id)
                    self._at[live.id] = link
                    link.submit(live)

    async def _choose(self, hashes: Sequence[int]) -> Link:
        while (link := self._links.get(await self._placement.choose(hashes))) is None:
            await asyncio.sleep(0)
        return link

    def _wanted(self, live: Live) -> Link | None:
        """The replica of the slot that it asks for; or of the others in its group, which ends as one."""
        slot, group = live.request.slot, live.request.group
        for link in self._links.values():
            if slot is not None and link.slot_zero <= slot < link.slot_zero + link.n_slots:
                return link
            if group is not None and any(other.request.group == group for other in link.live.values()):
                return link
        return None

    def cancel(self, id: int) -> None:
        self._call_soon(self._cancel, id)

    def _cancel(self, id: int) -> None:
        live, link = self._live.get(id), self._at.get(id)
        if live:
            live.cancelled = True
            if link:
                link.cancel(id)
            else:
                self._end(live, Finished("cancelled", live.timings))

    def _end(self, live: Live, event: Finished) -> None:
        self._live.pop(live.id, None)
        live.on_event(event)

    def ended(self, link: Link, live: Live, event: Finished | Failed) -> None:
        self._live.pop(live.id, None)
        self._at.pop(live.id, None)
        self._routes.done(link.id)
        timings = event.timings
        counted = {"prompt": timings.prompt_n, "cached": timings.cache_n, "predicted": timings.predicted_n}
        self._records[link.number].update(counted, requests=1)

    # -- questions

    def _ask(self, name: str, *args: Any) -> Any:
        return self._asked(Inquiry(name, args, Future())).result()

    def _ask_slot(self, name: str, slot: int, *args: Any) -> Any:
        n_slots = self.info.limits.n_slots // self._n_replicas
        link = next((link for link in list(self._links.values()) if link.number == slot // n_slots), None)
        if link is None:
            raise EngineDied(f"the replica of slot {slot} is being started again")
        return self._asked(Inquiry(name, (slot % n_slots, *args), Future(), bound=True), link).result()

    def _asked(self, inquiry: Inquiry, link: Link | None = None) -> Future[Any]:
        if self._closing.is_set():
            raise EngineClosed("the engine is closed")
        self._call_soon(self._inquire, inquiry, link)
        return inquiry.future

    def _inquire(self, inquiry: Inquiry, link: Link | None = None) -> None:
        """Of whoever has the least to do, unless it is for one of them."""
        if self._stopping.is_set():
            inquiry.fail(EngineClosed("the engine is closed"))
        elif link is None and not self._links:
            self._unasked.append(inquiry)
        elif inquiry.bound and link and link.id not in self._links:
            inquiry.fail(EngineDied(self._reason))
        else:
            (link or min(self._links.values(), key=lambda each: len(each.inquiries) + len(each.live))).ask(inquiry)

    # -- how it goes

    def status(self) -> Status:
        """Of all together; one that does not answer in time is as it last was."""
        links = list(self._links.values())
        asked = [self._asked(Inquiry("status", (), Future(), bound=True), link) for link in links]
        wait(asked, ANSWERS)
        for link, future in zip(links, asked, strict=True):
            with suppress(TimeoutError, CancelledError, EngineDied):
                future.cancel()
                link.status = msgspec.convert(future.result(0), Status)
        known = {link.number: link.status for link in links if link.status}
        return merged(known, n_waiting=len(self._live) - len(self._at))

    @property
    def health(self) -> Health:
        links = {link.number: link for link in list(self._links.values())}
        numbers = sorted({*range(self._n_replicas), *links})
        replicas = [replica_health(number, links.get(number), self._records[number]) for number in numbers]
        return health_of(replicas, list(links.values()), self._reason)


def new_loop() -> asyncio.AbstractEventLoop:
    """The quicker one, where there is one for the system."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
