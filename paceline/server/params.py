"""The server's own settings: where it listens, who may ask, what it shows. Names and defaults are llama-server's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.config.checks import check, check_range
from paceline.errors import ConfigError

REASONING_FORMATS = ("auto", "none", "deepseek", "deepseek-legacy")
REASONING = dict.fromkeys(("on", "enabled", "true", "1"), True)
REASONING |= dict.fromkeys(("off", "disabled", "false", "0"), False)
REASONING_AUTO = ("auto", "-1")
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParams:
    """Everything about serving that is not about the model."""

    host: str = "127.0.0.1"
    port: int = 8080
    allow_hosts: tuple[str, ...] = ()
    api_keys: tuple[str, ...] | None = None
    api_key_file: str | None = None
    ssl_key_file: str | None = None
    ssl_cert_file: str | None = None
    api_prefix: str = ""
    timeout: int = 600
    static_path: str | None = None
    webui: bool = True
    alias: str | None = None
    tags: tuple[str, ...] = ()
    strict_model: bool = False
    cors_origins: str | None = None
    cors_methods: str = "GET, POST, DELETE, OPTIONS"
    cors_headers: str = "*"
    cors_credentials: bool = True
    spm_infill: bool = False
    metrics: bool = False
    slots: bool = True
    props: bool = False
    slot_save_path: str | None = None
    cache_prompt: bool = True
    embeddings: bool = False
    embd_normalize: int = 2
    reranking: bool = False
    predict_route: str | None = None
    health_route: str | None = None
    reasoning_format: str = "auto"
    reasoning_budget: int = -1
    reasoning_budget_message: str = ""
    skip_chat_parsing: bool = False
    verbose: bool = False
    chat_template: str | None = None
    chat_template_file: str | None = None
    chat_template_kwargs: str = "{}"
    jinja: bool = True
    prefill_assistant: bool = True
    describe_tools: bool = False
    reasoning: str = "auto"
    reasoning_effort: str = "default"
    reasoning_preserve: bool = True
    lora_init_without_apply: bool = False
    ui_config: str | None = None
    ui_config_file: str | None = None
    log_prompts_dir: str | None = None
    record: str | None = None
    record_max: int = 256
    reuse_port: bool = False
    threads_http: int = -1
    sse_ping_interval: int = 30
    max_body_mib: int = 8
    shutdown_timeout: int = 10
    head_timeout: int = 10
    body_timeout: int = 30
    max_connections: int = 0
    max_connections_per_address: int = 256
    replicas: int = 0
    ray_address: str | None = None
    ray_app: str | None = None

    def __post_init__(self) -> None:
        check_range("the number of HTTP threads", self.threads_http, -1, 1024)
        check_range("the largest log of requests in MiB", self.record_max, 1, 2**20)
        check_range("the seconds between pings", self.sse_ping_interval, -1, 10**6)
        self.ui_settings()
        check(self.port > 0 or len(self.hosts) <= 1, "--port 0 takes a single --host")
        check(bool(self.hosts), "the address to listen on is empty; 127.0.0.1 is this machine alone")
        check_range("port", self.port, 0, 65535)
        check_range("the number of replicas", self.replicas, 0, 4096)
        check_range("timeout", self.timeout, 1, 10**6)
        check_range("the largest request in MiB", self.max_body_mib, 1, 4096)
        check_range("the seconds to finish answers at shutdown", self.shutdown_timeout, 0, 3600)
        check_range("the seconds for a request's head", self.head_timeout, 1, 3600)
        check_range("the seconds for a request's body", self.body_timeout, 1, 3600)
        check_range("the number of connections", self.max_connections, 0, 10**6)
        check_range("the number of connections of one address", self.max_connections_per_address, 1, 10**6)
        check(not self.api_prefix or self.api_prefix.startswith("/"), "an API prefix starts with /")
        check(not self.api_prefix.endswith("/"), "an API prefix does not end with /")
        given = self.api_keys
        check(given is None or (bool(given) and all(given)), "--api-key is empty; give a key, or leave the flag out")
        both = bool(self.ssl_key_file) == bool(self.ssl_cert_file)
        check(both, "https needs both --ssl-key-file and --ssl-cert-file")
        check_range("the reasoning budget", self.reasoning_budget, -1, 2**31 - 1)
        names = ", ".join(REASONING_FORMATS)
        check(self.reasoning_format in REASONING_FORMATS, f"reasoning format {self.reasoning_format!r}: {names}")
        check_range("the norm of embeddings", self.embd_normalize, -1, 100)
        check(not (self.chat_template and self.chat_template_file), "two chat templates are given; which one is it?")
        known = self.reasoning in REASONING or self.reasoning in REASONING_AUTO
        check(known, f"--reasoning {self.reasoning!r}: there are on, off, auto")
        self.template_variables()
        if self.slot_save_path is not None:
            make_folder(self.slot_save_path)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every address to listen on; one that ends in .sock is a file."""
        return tuple(host.strip().strip("[]") for host in self.host.split(",") if host.strip())

    @property
    def max_body(self) -> int:
        return self.max_body_mib * MIB

    @property
    def aliases(self) -> tuple[str, ...]:
        """Sorted, as llama-server sorts them: the first is the model's name in replies."""
        return tuple(sorted({name.strip() for name in (self.alias or "").split(",") if name.strip()}))

    def keys(self) -> tuple[str, ...]:
        """Those of the flag and those of the file. Where keys were asked for there is one: nobody opens by mistake."""
        given = self.api_keys or ()
        if self.api_key_file is None:
            return given
        lines = read_file(self.api_key_file, "key file").splitlines()
        in_file = [line.strip() for line in lines if line.strip()]
        check(bool(in_file), f"there is no key in {self.api_key_file}; write one a line, or leave the flag out")
        return (*given, *in_file)

    def template(self) -> str | None:
        """The chat template to use instead of the model's."""
        if self.chat_template_file is not None:
            return read_file(self.chat_template_file, "chat template")
        return self.chat_template

    def template_variables(self) -> dict[str, Any]:
        """What every chat template gets beside the messages."""
        try:
            variables = json.loads(self.chat_template_kwargs)
        except ValueError as error:
            raise ConfigError(f"--chat-template-kwargs is not JSON: {error}") from None
        check(isinstance(variables, dict), '--chat-template-kwargs is a JSON object, as in {"enable_thinking": false}')
        if self.reasoning in REASONING:
            variables["enable_thinking"] = REASONING[self.reasoning]
        if self.reasoning_effort != "default":
            variables["reasoning_effort"] = self.reasoning_effort
        if not self.reasoning_preserve:
            variables["preserve_reasoning"] = False
        return dict(variables)

    def ui_settings(self) -> dict[str, Any]:
        """What a web page finds in /props to begin with."""
        check(not (self.ui_config and self.ui_config_file), "--ui-config and --ui-config-file are both given")
        text = read_file(self.ui_config_file, "page's settings") if self.ui_config_file else self.ui_config
        try:
            settings = json.loads(text or "{}")
        except ValueError as error:
            raise ConfigError(f"the page's settings are not JSON: {error}") from None
        check(isinstance(settings, dict), 'the page\'s settings are a JSON object, as in {"theme": "dark"}')
        return dict(settings)


def make_folder(path: str) -> None:
    """For slots to be saved in. What they hold is the clients' own: nobody else may look."""
    try:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"slots cannot be saved in {path}: {error.strerror or error}") from None


def read_file(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot read the {what} {path}: {error}") from None
