"""Which kind of draft a run makes, and a draft that is there already as a student again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from paceline.distill.head_file import ARCHITECTURE
from paceline.distill.head_run import AGAIN, HeadMaking
from paceline.distill.making import Audience, Making, Recipe
from paceline.distill.reading import GgufFile, Hyperparameters, hyperparameters
from paceline.distill.student import Student
from paceline.distill.target import frequencies, state_of
from paceline.distill.texts import HELD_OUT
from paceline.distill.training import Trainer, TrainingParams
from paceline.errors import ConfigError


class Continuing(Making):
    """A run that starts from a draft model."""

    def trainer(self, params: TrainingParams) -> Trainer:
        params = replace(params, rate=AGAIN * params.rate)
        student = student_from(str(self.recipe.start)).to(self.teacher.device)
        return Trainer(self.teacher, student, self.text.all(), self.text.load(HELD_OUT), params)


def making_of(kind: str, recipe: Recipe, audience: Audience) -> Making:
    """A file that is trained further says by itself what it is."""
    is_head = GgufFile(recipe.start).arch == ARCHITECTURE if recipe.start else kind == "eagle3"
    if recipe.start:
        check_start(recipe)
        if kind == "eagle3" and not is_head:
            raise ConfigError(f"--type eagle3: {Path(recipe.start).name} is no head")
    check_size_flags(recipe, is_head=is_head)
    if is_head:
        return HeadMaking(recipe, audience)
    return (Continuing if recipe.start else Making)(recipe, audience)


def check_size_flags(recipe: Recipe, *, is_head: bool) -> None:
    """Those that would change nothing."""
    if is_head and recipe.size != "auto":
        raise ConfigError("--size is for draft models; a head has --head-tokens and --head-ff")
    if not is_head and (recipe.n_known or recipe.n_ff):
        raise ConfigError("--head-tokens and --head-ff are for heads; a draft model has --size")
    if recipe.start and (recipe.size != "auto" or recipe.n_ff):
        flag = "--head-ff" if is_head else "--size"
        raise ConfigError(f"{flag}: {Path(recipe.start).name} stays as large as it is when it is trained further")


def check_start(recipe: Recipe) -> None:
    """A draft for another target would learn, but very slowly, and nobody wants that."""
    assert recipe.start
    start, target = GgufFile(recipe.start), GgufFile(recipe.target)
    names = [Path(path).name for path in (recipe.start, recipe.target)]
    if start.get("tokenizer.ggml.tokens") != target.get("tokenizer.ggml.tokens"):
        raise ConfigError(f"{names[0]} speaks other tokens than {names[1]}")
    if start.arch != ARCHITECTURE:
        draft_shape(start)
    elif start.number("embedding_length") != target.number("embedding_length"):
        raise ConfigError(f"{names[0]} is a head for a target of another width than {names[1]}")


def draft_shape(file: GgufFile) -> Hyperparameters:
    """Of a plain Llama with tied embeddings, as `distill` makes them."""
    shape = hyperparameters(file)
    if file.arch != "llama" or not shape.tied or "rope_freqs.weight" in file.tensor_names:
        raise ConfigError(f"{Path(file.path).name} was not made by distill, and cannot be trained further")
    return shape


def student_from(path: str) -> Student:
    """The draft in a file, to be trained further."""
    file = GgufFile(path)
    shape = draft_shape(file)
    student = Student(shape)
    state = state_of({name: file.array(name) for name in file.tensor_names}, shape)
    state["frequencies"] = frequencies(shape, None)
    student.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in state.items()})
    return student
