from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import pytest

from paceline.cli import build
from paceline.cli.flags import Parsed, parse
from paceline.cli.help import command_help, markdown
from paceline.cli.options import Prompt
from paceline.cli.table import TABLE
from paceline.cli.table.flag import ALL, MISSING, Kind, Support, default_of
from paceline.config import SamplingParams
from paceline.errors import ConfigError

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "flags.md"


def seed_commands() -> list[list[str]]:
    lines = (HERE / "seed_commands.txt").read_text().splitlines()
    return [shlex.split(line) for line in lines if line and not line.startswith("#")]


def run(line: str, **environ: str) -> Parsed:
    return parse(shlex.split(line), "run", environ)


def serve(line: str) -> Parsed:
    return parse(shlex.split(line), "serve")


def refusal(line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        run(line)
    return str(caught.value)


# -- the table


def test_docs_are_up_to_date() -> None:
    assert DOCS.read_text() == markdown(), "run: python -m paceline.cli.flags > docs/flags.md"


def test_every_name_belongs_to_one_row() -> None:
    for command in ALL:
        names = Counter(name for flag in TABLE if command in flag.commands for name in flag.all_names)
        assert [name for name, n in names.items() if n > 1] == []


def test_every_path_leads_to_a_field() -> None:
    for flag in TABLE:
        assert [path for path in flag.fields if default_of(path) is MISSING] == [], flag.names


def test_every_row_teaches() -> None:
    for flag in TABLE:
        assert flag.help
        assert not flag.help.endswith(".")
        assert flag.group
        assert flag.commands
        assert flag.kind is not Kind.CHOICE or flag.choices


@pytest.mark.parametrize("command", ALL)
def test_help_shows_every_flag_that_does_something(command: str) -> None:
    text = command_help(command)
    real = [flag for flag in TABLE if command in flag.commands and flag.status is Support.REAL]
    assert real
    assert [name for flag in real for name in flag.names.split() if name not in text] == []


# -- llama-server's command lines


@pytest.mark.parametrize("words", seed_commands(), ids=lambda words: " ".join(words)[-60:])
def test_seed_command_lines_parse_unchanged(words: list[str]) -> None:
    command = "run" if words[0].endswith("llama-cli") else "serve"
    parsed = parse(words[1:], command)
    build.sampling(parsed)
    build.speculative(parsed)
    build.drafters(parsed)
    build.draft_context(parsed)


def test_the_longest_seed_line_means_what_it_says() -> None:
    line = next(words for words in seed_commands() if any("--seed 3407 -b 4096" in word for word in words))
    parsed = parse(line[1:], "serve")
    settings = build.settings(parsed)
    assert settings.context.n_ctx == 98304
    assert settings.context.cache_type_k == "q8_0"
    assert settings.model.use_mlock
    assert settings.draft is not None
    assert settings.draft.n_gpu_layers == 99
    assert settings.draft_context.cache_type_k == "q4_0"
    assert settings.draft_context.n_threads == 64
    assert settings.engine.drafters.draft_model.window == 98304
    assert settings.engine.drafters.draft_model.n_batch == 4096
    assert settings.engine.spec_types == ("grammar", "suffix", "draft-simple")
    assert build.sampling(parsed).seed == 3407
    assert any("--merge-qkv" in warning for warning in parsed.warnings)


# -- words


def test_negative_numbers_are_values() -> None:
    parsed = run("-c -5 --seed -1 -n -1 --keep -1 --top-n-sigma -1.5 --temp -0")
    assert parsed.values["context.n_ctx"] == -5
    assert parsed.values["sampling.seed"] == -1
    assert parsed.values["request.n_predict"] == -1
    assert parsed.values["sampling.top_n_sigma"] == -1.5


@pytest.mark.parametrize("line", ["-c 512", "-c=512", "--ctx-size 512", "--ctx-size=512", "--ctx_size 512", "-c512"])
def test_ways_to_write_a_value(line: str) -> None:
    assert run(line).values == {"context.n_ctx": 512}


def test_a_value_may_hold_equals_signs_and_dashes() -> None:
    assert run("-p 'a=b --c'").values["run.prompts"] == (Prompt(text="a=b --c"),)
    assert run("--prompt=-p").values["run.prompts"] == (Prompt(text="-p"),)
    assert run("-p ''").values["run.prompts"] == (Prompt(text=""),)


def test_a_forgotten_value_is_noticed() -> None:
    assert "-m needs a value, but the flag --temp follows" in refusal("-m --temp 0.5")
    assert refusal("-p hi -n") == "-n needs a value"


def test_unknown_flags_get_the_nearest_name() -> None:
    assert refusal("--tmep 1") == "unknown flag --tmep; did you mean --temp?"
    assert "did you mean --draft-max?" in refusal("--draft-mx 3")
    assert "--help" in refusal("--qqqqqqqqqqqq")


def test_names_are_never_guessed_from_their_beginning() -> None:
    assert "unknown flag --ctx-siz" in refusal("--ctx-siz 5")


def test_a_flag_of_another_command_says_so() -> None:
    assert refusal("--host 0.0.0.0") == "--host is a flag of `paceline serve`, not of `paceline run`"


def test_stray_words_are_refused() -> None:
    assert "unexpected 'hello'" in refusal("hello")


def test_flags_that_would_change_the_answer_are_refused() -> None:
    assert (
        refusal("--control-vector v.gguf") == "--control-vector is not supported: the model is used as the file has it"
    )


def test_ignored_flags_warn_once() -> None:
    parsed = run("-khad -khad --merge-qkv")
    assert len(parsed.warnings) == 2
    assert parsed.values == {}


def test_a_flag_with_an_optional_value() -> None:
    assert run("-fa").values["context.flash_attn"] is True
    assert run("-fa -c 50").values == {"context.flash_attn": True, "context.n_ctx": 50}
    assert run("-fa off").values["context.flash_attn"] is False
    assert run("-fa auto").values["context.flash_attn"] is None
    assert "none of on, off, auto" in refusal("-fa=perhaps")


def test_switches_turn_off_too() -> None:
    assert run("--no-mmap").values["model.use_mmap"] is False
    assert run("--mmap=off").values["model.use_mmap"] is False
    assert run("-no-cnv").values["run.conversation"] is False
    assert run("--no-color").values["run.color"] is False


# -- the environment


def test_variables_set_what_the_line_does_not() -> None:
    parsed = run("-c 100", LLAMA_ARG_CTX_SIZE="200", LLAMA_ARG_TOP_K="7", LLAMA_ARG_MLOCK="true")
    assert parsed.values == {"context.n_ctx": 100, "sampling.top_k": 7, "model.use_mlock": True}


def test_a_list_of_the_line_replaces_that_of_the_variable() -> None:
    assert run("--spec-type ngram-mod", LLAMA_ARG_SPEC_TYPE="suffix").values["engine.spec_types"] == ("ngram-mod",)


def test_negative_variables_and_wrong_ones() -> None:
    assert run("", LLAMA_ARG_NO_KV_OFFLOAD="1").values["context.offload_kqv"] is False
    with pytest.raises(ConfigError, match="LLAMA_ARG_THREADS: 'many' is not a whole number"):
        run("", LLAMA_ARG_THREADS="many")
    assert run("", LLAMA_ARG_PORT="x").values == {}, "a variable of another command is none of our business"


# -- old and new names


@pytest.mark.parametrize("name", ["--draft", "--draft-n", "--draft-max"])
def test_the_old_name_caps_every_drafter(name: str) -> None:
    parsed = run(f"{name} 7")
    assert build.speculative(parsed).n_max == 7
    assert build.drafters(parsed).draft_model.n_max == 7


@pytest.mark.parametrize(
    ("argv", "pairs"),
    [
        (["--spec-replace", "<s>", "[INST]"], (("<s>", "[INST]"),)),
        (["--spec-replace", "TARGET_STRING DRAFT_STRING", "--no-mmap"], (("TARGET_STRING", "DRAFT_STRING"),)),
        (["--spec-replace", "TARGET DRAFT", "-ngl99"], (("TARGET", "DRAFT"),)),
        (["--spec-replace=a b", "c d", "--spec-replace", "-x", ""], (("a b", "c d"), ("-x", ""))),
    ],
)
def test_texts_to_replace_for_the_draft_come_in_pairs(argv: list[str], pairs: tuple[tuple[str, str], ...]) -> None:
    assert build.drafters(parse(argv, "run")).draft_model.replace == pairs


@pytest.mark.parametrize("argv", [["--spec-replace", "alone"], ["--spec-replace", "alone", "--no-mmap"]])
def test_one_text_to_replace_is_not_enough(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match="--spec-replace: takes two texts"):
        parse(argv, "run")


def test_the_new_name_caps_the_draft_model_only() -> None:
    parsed = run("--spec-draft-n-max 7")
    assert build.speculative(parsed).n_max is None
    assert build.drafters(parsed).draft_model.n_max == 7


@pytest.mark.parametrize("name", ["--spec-ngram-size-n", "--spec-ngram-simple-size-n"])
def test_ngram_sizes(name: str) -> None:
    assert build.drafters(run(f"{name} 9")).ngram_simple.size_n == 9


@pytest.mark.parametrize("names", [("-md", "--model-draft", "--spec-draft-model"), ("-cd", "--ctx-size-draft")])
def test_aliases_agree(names: tuple[str, ...]) -> None:
    assert len({tuple(run(f"{name} 128").values.items()) for name in names}) == 1


def test_types_are_kept_once_and_a_draft_model_joins_in() -> None:
    def types(line: str) -> tuple[str, ...]:
        return build.settings(run(f"-m m.gguf {line}")).engine.spec_types

    assert types("") == ("grammar", "suffix")
    assert types("-md d.gguf") == ("grammar", "suffix", "draft-simple")
    assert types("--spec-type none") == ()
    assert types("--spec-type ngram-simple,ngram-mod --spec-default -md d.gguf") == (
        "ngram-simple",
        "ngram-mod",
        "draft-simple",
    )
    assert types("-md d.gguf --spec-type none") == ()
    with pytest.raises(ConfigError, match="-md"):
        types("--spec-type draft-simple")


# -- values


def test_names_stand_for_files_until_they_are_fetched() -> None:
    settings = build.settings(run("-hf user/model:Q8_0 -hfd user/small"))
    assert settings.model.path == "user/model:Q8_0"
    assert settings.draft is not None
    assert settings.draft.path == "user/small"
    assert settings.engine.spec_types == ("grammar", "suffix", "draft-simple")
    assert build.settings(run("-hf user/model -hfd user/small --spec-type none")).draft is None
    assert run("--draft-params '-hf user/small'").values == {"hub.draft": "user/small"}


def test_presets_stand_for_flags_and_those_that_follow_win() -> None:
    parsed = serve("--fim-qwen-7b-spec --port 99 -c 4096")
    assert parsed.values["server.port"] == 99
    assert parsed.values["context.n_ctx"] == 4096
    assert parsed.values["context.n_batch"] == 1024
    assert parsed.values["hub.draft"] == "ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF/qwen2.5-coder-0.5b-q8_0.gguf"
    assert serve("-c 4096 --fim-qwen-7b-spec").values["context.n_ctx"] == 0, "what stands before does not"
    assert serve("--fim-qwen-7b-default -hf user/other").values["hub.model"] == "user/other"
    assert run("--gpt-oss-20b-default").values["sampling.top_k"] == 0
    assert "is a flag of `paceline serve`" in refusal("--fim-qwen-7b-spec")


def test_every_preset_can_be_meant() -> None:
    presets = [flag for flag in TABLE if flag.stands_for]
    assert len(presets) == 11
    for flag in presets:
        parsed = serve(flag.names)
        settings = build.settings(parsed)
        assert settings.model.path.startswith("ggml-org/")
        assert parsed.warnings == []
        assert all(f"{name} {value}" in flag.help for name, value in flag.stands_for if value != "on")


def test_sampling() -> None:
    line = (
        r"-l 5+1.5 -l 6-inf --dry-sequence-breaker '\n' --samplers 'top-k;temp' --seed 4294967295 --temp 0 --ignore-eos"
    )
    params = build.sampling(run(line))
    assert params.logit_bias == {5: 1.5, 6: float("-inf")}
    assert params.dry_sequence_breakers == ("\n",)
    assert params.samplers == ("top_k", "temperature")
    assert params.seed == -1
    assert params.ignore_eos
    assert build.sampling(run("")) == SamplingParams()
    assert build.sampling(run("--sampler-seq kt")).samplers == ("top_k", "temperature")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-m m.gguf -c -5", "context size"),
        ("-m m.gguf -np 0", "slots must be between"),
        ("-m m.gguf -cd 3", "window"),
        ("-m m.gguf --draft-max -1", "n_max"),
        ("-m m.gguf --draft-min 9 --draft-max 3", "above the maximum"),
        ("-m m.gguf -ctk q9_9", "unknown cache type"),
        ("-m m.gguf --spec-ngram-size-n 0", "n-gram size"),
    ],
)
def test_values_out_of_range(line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build.settings(run(line))


@pytest.mark.parametrize("line", ["--top-p 3", "--temp nan", "--repeat-penalty 0", "--mirostat 3", "--samplers magic"])
def test_sampling_values_out_of_range(line: str) -> None:
    with pytest.raises(ConfigError):
        build.sampling(run(line))


@pytest.mark.parametrize("line", ["-c many", "-c 1.5", "-c 1_000", "-c ''", "--temp warm", "-l 5", "--sampler-seq Q"])
def test_values_of_the_wrong_kind(line: str) -> None:
    refusal(line)


def test_the_request() -> None:
    request = build.request(run(r"-n 5 -r 'User:\n' -r '###'"))
    assert request.max_tokens == 5
    assert request.stop == ("User:\n", "###")
    assert build.request(run(r"-r '\n' --no-escape")).stop == (r"\n",)
    assert build.request(run("-n -1")).max_tokens is None
    with pytest.raises(ConfigError):
        build.request(run("-n -7"))


def test_the_draft_takes_over_what_it_does_not_set() -> None:
    context = build.draft_context(run("-t 8 -tb 16 -fa on -ctk q8_0"))
    assert (context.n_threads, context.n_threads_batch, context.flash_attn) == (8, 16, True)
    assert context.cache_type_k == "f16"
    assert build.draft_context(run("-t 8 -tb 16 -td 4")).threads_batch == 4


def test_slots_may_be_left_to_us() -> None:
    assert build.settings(run("-m m.gguf -np -1")).engine.n_slots == 1
    for line, n_slots, unified in (
        ("", 4, True),
        ("-np -1", 4, True),
        ("-b 2", 2, True),
        ("--no-kv-unified", 4, False),
        ("--exact", 1, None),
        ("-np 2", 2, None),
        ("-np 2 -kvu", 2, True),
    ):
        chosen = build.settings(serve(f"-m m.gguf {line}"))
        assert (chosen.engine.n_slots, chosen.context.kv_unified) == (n_slots, unified), line


def test_a_server_keeps_prompts_in_memory_a_program_does_not() -> None:
    assert build.settings(run("-m m.gguf")).engine.cache_ram == 0
    assert 0 < build.settings(serve("-m m.gguf")).engine.cache_ram <= 8192
    chosen = build.settings(serve("-m m.gguf -cram 100 --no-cache-idle-slots --context-shift --keep -1")).engine
    assert (chosen.cache_ram, chosen.cache_idle_slots, chosen.context_shift, chosen.n_keep) == (100, False, True, -1)


def test_serve_knows_its_own_flags() -> None:
    assert serve("--host 0.0.0.0 --port 8080 --api-key a,b -a name --no-webui --metrics")


def test_the_policy_is_auto_unless_told_otherwise() -> None:
    assert build.settings(run("-m m.gguf")).engine.spec_policy == "auto"
    assert build.settings(run("-m m.gguf --spec-policy fixed")).engine.spec_policy == "fixed"
    assert "none of auto, fixed" in refusal("--spec-policy sometimes")
