"""Flags of llama-server that are errors here: without them the answer would not be what its user asked for."""

from __future__ import annotations

from paceline.cli.table.flag import EVERY, MISSING, SERVE, Flag, Kind, rows


def refused(names: str, help: str, why: str, env: str = "") -> Flag:
    return Flag(names=names, kind=Kind.STR, metavar="VALUE", env=env, help=help, refused=True, why=why)


def switch(names: str, help: str, why: str, off: str = "", env: str = "", always: object = MISSING) -> Flag:
    return Flag(names=names, off=off, env=env, help=help, refused=True, why=why, always=always)


STEERING = "the model is used as the file has it"
NO_MEDIA = "no images, sound or video are read here"
NO_TOOLS = "paceline runs no tools; it hands tool calls to the client"
ONE_MODEL = "one server serves one model; start one for each, on ports of their own"
SERVES = "`paceline serve` takes it"

CHANGES_THE_ANSWER = [
    refused(
        "-dr --docker-repo",
        "a model of Docker Hub",
        "models come from a hub (-hf) or by address (-mu)",
        env="LLAMA_ARG_DOCKER_REPO",
    ),
    refused("--control-vector", "steering vectors", STEERING),
    refused("--control-vector-scaled", "steering vectors", STEERING),
    refused("--control-vector-layer-range", "layers that are steered", STEERING),
    refused("-mm --mmproj", "images as input", NO_MEDIA, env="LLAMA_ARG_MMPROJ"),
    refused("-mmu --mmproj-url", "images as input", NO_MEDIA, env="LLAMA_ARG_MMPROJ_URL"),
    refused("--image --audio --video", "media as input", NO_MEDIA),
]

STAYS_OUT = [
    refused("--models-dir", "router mode: a folder of models", ONE_MODEL, env="LLAMA_ARG_MODELS_DIR"),
    refused("--models-preset", "router mode: presets of models", ONE_MODEL, env="LLAMA_ARG_MODELS_PRESET"),
    refused("--tools", "built-in tools", NO_TOOLS, env="LLAMA_ARG_TOOLS"),
    refused("--tools-runtime", "where built-in tools run", NO_TOOLS, env="LLAMA_ARG_TOOLS_RUNTIME"),
    refused("--mcp-servers-config", "MCP servers", NO_TOOLS, env="LLAMA_ARG_MCP_SERVERS_CONFIG"),
    refused("--mcp-servers-json", "MCP servers", NO_TOOLS, env="LLAMA_ARG_MCP_SERVERS_JSON"),
    switch(
        "--ui-mcp-proxy --webui-mcp-proxy",
        "a proxy for MCP servers",
        NO_TOOLS,
        off="--no-ui-mcp-proxy --no-webui-mcp-proxy",
        env="LLAMA_ARG_UI_MCP_PROXY",
        always=False,
    ),
    switch(
        "-ag --agent",
        "built-in tools and the MCP proxy",
        NO_TOOLS,
        off="-no-ag --no-agent",
        env="LLAMA_ARG_AGENT",
        always=False,
    ),
]

NOT_FOR_RUN = [
    refused("--chat-template", "another chat template", SERVES),
    refused("--chat-template-file", "another chat template", SERVES),
    refused("--chat-template-kwargs", "values for the chat template", SERVES),
]

ROWS = rows("not supported", EVERY, CHANGES_THE_ANSWER) + rows("not supported", SERVE, STAYS_OUT)
ROWS += rows("not supported", ("run", "bench"), NOT_FOR_RUN)
