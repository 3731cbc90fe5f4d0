"""Request bodies. Field names are OpenAI's and llama-server's; fields nobody knows are ignored, as theirs are.

Strict: a number is not a text and a text is not a switch. Ranges of sampling parameters are checked in `config`.
`null` is the same as leaving a field out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MAX_STOPS = 1000
MAX_TOOLS = 512
MAX_CHOICES = 128
MAX_PROBS = 100
MAX_FIELDS = 256
MAX_INPUTS = 2048
MAX_MESSAGE = 4096
MAX_COUNT = 2**31 - 1


def whole(value: Any) -> Any:
    """128.0 is a whole number too."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


Int = Annotated[int, BeforeValidator(whole)]
Count = Annotated[int, BeforeValidator(whole), Field(ge=-1, le=MAX_COUNT)]
Stops = str | Annotated[list[str], Field(max_length=MAX_STOPS)]
Tokens = Annotated[list[Int | str], Field(fail_fast=True)]
Pair = Annotated[list[Int | float | bool | str], Field(min_length=2, max_length=2)]


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", populate_by_name=True, protected_namespaces=())


class PromptObject(Body):
    """`multimodal_data` are images and sounds, which nobody here can see or hear."""

    prompt_string: str
    multimodal_data: Any = None


PromptField = str | PromptObject | Annotated[list[Int | str | PromptObject | Tokens], Field(fail_fast=True)]


class SpeculativeBody(Body):
    """A request's wishes about drafting, nested."""

    n_max: Int | None = None
    n_min: Int | None = None
    p_min: float | None = None
    types: str | list[str] | None = None


class AdapterScale(Body):
    """How much one of the server's LoRA adapters counts."""

    id: Int
    scale: Annotated[float, Field(ge=-1e6, le=1e6)]


Adapters = Annotated[list[AdapterScale], Field(max_length=1000)]


class SamplingBody(Body):
    """Everything about drawing and drafting, the same for all three ways to ask."""

    model: str | None = None
    temperature: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    top_k: Int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: Int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: Int | None = None
    dry_penalty_last_n: Int | None = None
    dry_sequence_breakers: Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    mirostat: Int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    min_keep: Int | None = None
    ignore_eos: bool | None = None
    seed: Int | None = None
    samplers: str | Annotated[list[str], Field(max_length=64)] | None = None
    logit_bias: dict[str, float | bool] | Annotated[list[Pair], Field(fail_fast=True)] | None = None

    stream: bool | None = None
    stop: Stops | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n_predict: Count | None = None
    cache_prompt: bool | None = None
    n_keep: Int | None = None
    id_slot: Int | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    t_max_predict_ms: Int | None = None
    n_indent: Count | None = None
    lora: Adapters | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | bool | None = None

    speculative: SpeculativeBody | None = None
    speculative_n_max: Int | None = Field(None, alias="speculative.n_max")
    speculative_n_min: Int | None = Field(None, alias="speculative.n_min")
    speculative_p_min: float | None = Field(None, alias="speculative.p_min")
    speculative_types: str | list[str] | None = Field(None, alias="speculative.types")


class StreamOptions(Body):
    include_usage: bool | None = None


Choices = Annotated[int, BeforeValidator(whole), Field(ge=1, le=MAX_CHOICES)]
Probs = Annotated[int, BeforeValidator(whole), Field(ge=0, le=MAX_PROBS)]


class CompletionBody(SamplingBody):
    """POST /v1/completions."""

    prompt: PromptField
    n: Choices | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: Choices | None = None
    logprobs: Annotated[int, BeforeValidator(whole), Field(ge=0, le=20)] | bool | None = None
    stream_options: StreamOptions | None = None


class NativeBody(SamplingBody):
    """POST /completion, llama-server's own."""

    prompt: PromptField
    n_probs: Probs | None = None
    logprobs: Probs | bool | None = None
    n_cmpl: Choices | None = None
    n: Choices | None = None
    return_tokens: bool | None = None
    post_sampling_probs: bool | None = None
    response_fields: Annotated[list[str], Field(max_length=MAX_FIELDS)] | None = None


class ExtraFile(Body):
    filename: str = "tmp"
    text: str


MixedText = str | Tokens


class InfillBody(NativeBody):
    """POST /infill."""

    prompt: PromptField = ""
    input_prefix: MixedText
    input_suffix: MixedText
    input_extra: list[ExtraFile] | None = None


class ContentPart(Body):
    type: str
    text: str | None = None


class FunctionCall(Body):
    name: str
    arguments: str | dict[str, Any] = "{}"


class MessageToolCall(Body):
    id: str | None = None
    type: str | None = None
    function: FunctionCall


class Message(Body):
    role: str
    content: str | Annotated[list[ContentPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None


class ResponseFormat(Body):
    """json_schema is OpenAI's place for the schema, `schema` that of llama-server."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None
    schema_: dict[str, Any] | bool | None = Field(None, alias="schema")


class Function(Body):
    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Body):
    type: Literal["function"] = "function"
    function: Function


class NamedFunction(Body):
    name: str


class NamedTool(Body):
    type: str | None = None
    function: NamedFunction


Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]
Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS)]


class TemplateBody(Body):
    """What the chat template sees. POST /apply-template."""

    messages: Messages
    tools: Tools | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | str | None = None


class ChatBody(SamplingBody, TemplateBody):
    """POST /v1/chat/completions."""

    n: Choices | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, BeforeValidator(whole), Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    stream_options: StreamOptions | None = None
    parallel_tool_calls: bool | None = None
    echo: bool | None = None
    parse_tool_calls: bool | None = None
    reasoning_format: str | None = None
    reasoning_budget_tokens: Count | None = None
    thinking_budget_tokens: Count | None = None
    reasoning_budget_message: Annotated[str, Field(max_length=MAX_MESSAGE)] | None = None
    verbose: bool | None = None


class PropsBody(SamplingBody):
    """POST /props: what requests get from now on that do not say otherwise."""

    model_config = ConfigDict(extra="forbid")


class TokenizeBody(Body):
    content: MixedText = ""
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(Body):
    tokens: Annotated[list[Int], Field(fail_fast=True)] = []


class SlotFileBody(Body):
    """To erase a slot needs none; clients send {} then."""

    filename: Annotated[str, Field(min_length=1, max_length=255)] | None = None
