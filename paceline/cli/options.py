"""What the commands themselves want to know, beyond the engine's settings. Defaults live here, checks too."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.config.checks import check


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of the command line: the text itself (`-p`), or the file that holds it (`-f`, `-` = stdin)."""

    text: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """Flags that stand beside the work. `draft_params` is a command line of its own, for the draft model."""

    help: bool = False
    version: bool = False
    completion: bool = False
    devices: bool = False
    cached: bool = False
    config: str | bool | None = None
    draft_params: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOptions:
    """Which cores compute, how eagerly they wait for work, how the system ranks them. None = as the system has it."""

    cores: tuple[int, ...] = ()
    strict: bool = False
    priority: int | None = None
    poll: int | None = None

    def __post_init__(self) -> None:
        check(self.priority in (None, *range(-1, 4)), f"--prio goes from -1 (low) to 3 (realtime), got {self.priority}")
        check(self.poll is None or 0 <= self.poll <= 100, f"--poll goes from 0 to 100, got {self.poll}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How much is logged, where to and in which shape. None = decide by the command and the terminal."""

    verbose: bool = False
    verbosity: int | None = None
    file: str | None = None
    disable: bool = False
    colors: bool | None = None
    prefix: bool | None = None
    timestamps: bool | None = None
    jsonl: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """Models by repository or address instead of by file. `file` is one of the model's repository."""

    model: str | None = None
    draft: str | None = None
    file: str | None = None
    token: str | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """How every answer ends; `escape` says whether backslash sequences in prompts and stop strings count."""

    n_predict: int = -1
    stop: tuple[str, ...] = ()
    escape: bool = True
    grammar: str | None = None
    grammar_file: str | None = None
    json_schema: str | None = None
    json_schema_file: str | None = None

    def __post_init__(self) -> None:
        given = [self.grammar, self.grammar_file, self.json_schema, self.json_schema_file]
        check(sum(g is not None for g in given) <= 1, "give one grammar or one JSON schema, not several")
        check(self.n_predict >= -2, f"the number of tokens to predict must be -1 (no limit) or more: {self.n_predict}")

    @property
    def max_tokens(self) -> int | None:
        return self.n_predict if self.n_predict >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """`paceline run`: what to continue and how to show it. None = decide by looking at the terminal."""

    prompts: tuple[Prompt, ...] = ()
    system: str | None = None
    system_file: str | None = None
    conversation: bool | None = None
    single_turn: bool = False
    display_prompt: bool = False
    color: bool | None = None
    show_timings: bool | None = None
    json: bool = False

    def __post_init__(self) -> None:
        check(not (self.json and self.conversation), "--json prints one answer: it cannot be combined with -cnv")
        check(not (self.system and self.system_file), "-sys and -sysf are both given; which one is it?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """`paceline pair`: how long to measure each candidate, and for whom the answer is."""

    seconds: float = 20.0
    json: bool = False

    def __post_init__(self) -> None:
        check(self.seconds > 0, f"--seconds must be more than 0, got {self.seconds:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """`paceline bench`: which methods on which prompts, and how much of it. A limit of 0 takes all prompts."""

    methods: tuple[str, ...] = ("none", "auto")
    prompts: str | None = None
    categories: tuple[str, ...] = ()
    limit: int = 4
    tail: bool = False
    n_tokens: int = 96
    repeat: int = 1
    quick: bool = False
    json: str | None = None

    def __post_init__(self) -> None:
        check(bool(self.methods), "--methods names no method")
        check(self.limit >= 0, f"the limit must be 0 (all prompts) or more, got {self.limit}")
        check(self.n_tokens >= 2, f"at least two tokens are needed to measure a speed, got -n {self.n_tokens}")
        check(self.repeat >= 1, f"--repeat must be at least 1, got {self.repeat}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """`paceline worker`: what it lends and where. Of `cache` the empty name is the folder of our choosing."""

    host: str = "127.0.0.1"
    port: int = 50052
    devices: tuple[str, ...] = ()
    n_threads: int = 0
    cache: str | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        check(1 <= self.port <= 65535, f"a port is between 1 and 65535, got {self.port}")
        check(0 <= self.n_threads <= 512, f"threads must be between 0 (all cores) and 512, got {self.n_threads}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillOptions:
    """`paceline distill`: a draft from which target, how large, in how much time. None = decide by the machine."""

    output: str | None = None
    type: str = "model"
    size: str = "auto"
    minutes: float = 30.0
    stage: tuple[str, ...] = ()
    work: str | None = None
    prompts: tuple[str, ...] = ()
    kind: str = "Q4_0"
    device: str | None = None
    dtype: str | None = None
    rows: int | None = None
    length: int = 768
    text_tokens: int | None = None
    steps: int | None = None
    batch_tokens: int | None = None
    rate: float = 1.0
    save_every: float = 60.0
    seed: int = 0
    head_tokens: int | None = None
    head_ff: int | None = None
    start: str | None = None

    def __post_init__(self) -> None:
        check(self.minutes > 0, f"--minutes must be more than 0, got {self.minutes}")
        check(self.length >= 32, f"texts of {self.length} tokens teach nothing; --length must be at least 32")
        check(self.rate > 0, f"--rate must be more than 0, got {self.rate}")
        check(self.head_ff is None or self.head_ff % 32 == 0, f"--head-ff must be a multiple of 32, got {self.head_ff}")
        for name in ("rows", "text_tokens", "steps", "batch_tokens", "head_tokens", "head_ff"):
            value = getattr(self, name)
            check(value is None or value >= 1, f"--{name.replace('_', '-')} must be at least 1, got {value}")
