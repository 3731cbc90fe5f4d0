"""Flags of `paceline serve`: where it listens, who may ask, what it shows."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import SERVE, Flag, Kind, rows
from paceline.config import POOLINGS

LISTEN = [
    Flag(
        names="--host",
        sets="server.host",
        kind=Kind.STR,
        metavar="ADDRESS",
        env="LLAMA_ARG_HOST",
        help="the address to listen on; 0.0.0.0 lets other machines in",
    ),
    Flag(names="--port", sets="server.port", kind=Kind.INT, env="LLAMA_ARG_PORT", help="the port to listen on"),
    Flag(
        names="--allow-host",
        sets="server.allow_hosts",
        kind=Kind.LIST,
        grows=True,
        metavar="NAME",
        help="without a key and on this machine alone, requests for and web pages of this name are served too",
    ),
    Flag(
        names="--api-key",
        sets="server.api_keys",
        kind=Kind.LIST,
        grows=True,
        metavar="KEY",
        env="LLAMA_API_KEY",
        help="clients must show one of these keys, separated by commas",
    ),
    Flag(
        names="--api-key-file",
        sets="server.api_key_file",
        kind=Kind.PATH,
        env="LLAMA_ARG_API_KEY_FILE",
        help="a file of keys, one a line",
    ),
    Flag(
        names="--ssl-key-file",
        sets="server.ssl_key_file",
        kind=Kind.PATH,
        env="LLAMA_ARG_SSL_KEY_FILE",
        help="the private key, for https",
    ),
    Flag(
        names="--ssl-cert-file",
        sets="server.ssl_cert_file",
        kind=Kind.PATH,
        env="LLAMA_ARG_SSL_CERT_FILE",
        help="the certificate, for https",
    ),
    Flag(
        names="--api-prefix",
        sets="server.api_prefix",
        kind=Kind.STR,
        metavar="PATH",
        env="LLAMA_ARG_API_PREFIX",
        help="serve everything below this path",
    ),
    Flag(
        names="-to --timeout",
        sets="server.timeout",
        kind=Kind.INT,
        env="LLAMA_ARG_TIMEOUT",
        help="close a connection that has been idle for N seconds, 75 at most",
    ),
    Flag(
        names="--head-timeout",
        sets="server.head_timeout",
        kind=Kind.INT,
        metavar="SECONDS",
        help="a client gets so long to send a request's first lines; then it is cut off",
    ),
    Flag(
        names="--body-timeout",
        sets="server.body_timeout",
        kind=Kind.INT,
        metavar="SECONDS",
        help="and so long for the rest, longer while at least 4 KiB come a second",
    ),
    Flag(
        names="--max-connections",
        sets="server.max_connections",
        kind=Kind.INT,
        default="3/4 of the files it may open, 4096 at most",
        help="connections in all; when there are more, the one that is idle the longest is closed",
    ),
    Flag(
        names="--max-connections-per-address",
        sets="server.max_connections_per_address",
        kind=Kind.INT,
        help="connections of one other machine",
    ),
    Flag(
        names="--shutdown-timeout",
        sets="server.shutdown_timeout",
        kind=Kind.INT,
        metavar="SECONDS",
        help="at the end answers that are being written get so long to finish; then they are cancelled",
    ),
    Flag(
        names="--path",
        sets="server.static_path",
        kind=Kind.PATH,
        env="LLAMA_ARG_STATIC_PATH",
        help="serve the files of this folder instead of our page",
    ),
    Flag(
        names="--queue",
        sets="engine.n_queue",
        kind=Kind.INT,
        help="requests that may wait for a slot; more are told to come back later (503)",
    ),
    Flag(
        names="--max-body",
        sets="server.max_body_mib",
        kind=Kind.INT,
        metavar="MIB",
        help="the largest request, in MiB",
    ),
    Flag(
        names="--grace",
        sets="server.grace",
        kind=Kind.INT,
        metavar="SECONDS",
        help="how long answers may go on when the server is told to end",
    ),
    Flag(
        names="--webui --ui",
        off="--no-webui --no-ui",
        sets="server.webui",
        env="LLAMA_ARG_UI LLAMA_ARG_WEBUI",
        help="the web page at /: chat, speed, acceptance",
    ),
    Flag(
        names="--sleep-idle-seconds",
        sets="engine.sleep_idle_s",
        kind=Kind.INT,
        convert=values.seconds_or_never,
        metavar="N",
        default="never",
        help="without requests for this long the engine's process ends, and all its memory is free; the next request "
        "starts it again; -1 = never",
    ),
]

REPORT = [
    Flag(
        names="-a --alias",
        sets="server.alias",
        kind=Kind.STR,
        metavar="NAME",
        env="LLAMA_ARG_ALIAS",
        help="the model's name in replies, instead of its file's",
    ),
    Flag(
        names="--metrics",
        sets="server.metrics",
        env="LLAMA_ARG_ENDPOINT_METRICS",
        help="counters for Prometheus at /metrics",
    ),
    Flag(
        names="--slots",
        off="--no-slots",
        sets="server.slots",
        env="LLAMA_ARG_ENDPOINT_SLOTS",
        help="what each slot is doing, at /slots",
    ),
    Flag(
        names="--props",
        sets="server.props",
        env="LLAMA_ARG_ENDPOINT_PROPS",
        help="accept POST /props, which changes nothing yet",
    ),
    Flag(
        names="--slot-save-path",
        sets="server.slot_save_path",
        kind=Kind.PATH,
        metavar="FOLDER",
        help="where clients may save a slot's memory and restore it from",
    ),
    Flag(
        names="--cache-prompt",
        off="--no-cache-prompt",
        sets="server.cache_prompt",
        env="LLAMA_ARG_CACHE_PROMPT",
        help="reuse the part of a prompt that a slot has read already",
    ),
    Flag(
        names="-sps --slot-prompt-similarity",
        sets="engine.slot_similarity",
        kind=Kind.FLOAT,
        help="how alike a prompt must be to a slot's last one to be sent there; 0 = do not look",
    ),
    Flag(
        names="--embeddings --embedding",
        sets="server.embeddings",
        env="LLAMA_ARG_EMBEDDINGS",
        help="answer /v1/embeddings too; takes memory for one more context",
    ),
    Flag(
        names="--pooling",
        sets="context.pooling",
        kind=Kind.CHOICE,
        choices=POOLINGS,
        env="LLAMA_ARG_POOLING",
        default="the model's own, else mean",
        help="how an embedding is made of its tokens' vectors",
    ),
    Flag(
        names="--reasoning-format",
        sets="server.reasoning_format",
        kind=Kind.STR,
        metavar="NAME",
        env="LLAMA_ARG_THINK",
        help="whether a thinking model's thoughts come apart from its answer",
    ),
]

TEMPLATE = [
    Flag(
        names="--chat-template",
        sets="server.chat_template",
        kind=Kind.STR,
        metavar="JINJA",
        env="LLAMA_ARG_CHAT_TEMPLATE",
        default="the model's own",
        help="the chat template, as jinja text; chatml is a name for that one",
    ),
    Flag(
        names="--chat-template-file",
        sets="server.chat_template_file",
        kind=Kind.PATH,
        env="LLAMA_ARG_CHAT_TEMPLATE_FILE",
        help="the chat template, from a file",
    ),
    Flag(
        names="--chat-template-kwargs",
        sets="server.chat_template_kwargs",
        kind=Kind.STR,
        metavar="JSON",
        env="LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
        help='variables for the chat template, as in {"enable_thinking": false}',
    ),
]

ROWS = rows("chat template", SERVE, TEMPLATE) + rows("server", SERVE, LISTEN + REPORT)
