"""The flags: what parses, what is refused when parsed, and the loss that comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import HfArgumentParser, TrainingArguments

import tempplug
from tempplug.errors import ConfigError, UnknownNameError
from tempplug_adapters.huggingface import TemperatureArguments


def parse(flags: str = "") -> TemperatureArguments:
    (arguments,) = HfArgumentParser(TemperatureArguments).parse_args_into_dataclasses(flags.split(), look_for_args_file=False)
    assert isinstance(arguments, TemperatureArguments)
    return arguments


@pytest.mark.parametrize("sign", "-_")
def test_each_flag_parses_in_both_spellings(sign: str) -> None:
    flags = "--temperature+strategy macl:alpha=2 --temperature+args threshold=0.8 base_temperature=0.05"
    flags += " --contrastive+objective dclw:sigma=0.25 --contrastive+negatives same-key&hardness:strength=9"
    arguments = parse(flags.replace("+", sign).replace("&", "+"))
    loss = arguments.create_loss("cross-view", symmetric=True)
    assert [each.name for each in loss.terms] == ["same-key", "hardness"]
    arguments.contrastive_negatives = None
    loss = arguments.create_loss("cross-view", symmetric=True)
    assert loss.strategy.spec() == "macl:base_temperature=0.05,alpha=2,threshold=0.8,floor_ratio=0.1,strict=false"
    assert loss.objective.spec() == "dclw:sigma=0.25"
    assert loss.layout.name == "cross-view"
    noise = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
    view_a, view_b = (torch.eye(4, 8) + 0.2 * noise).unbind()
    torch.testing.assert_close(loss(view_a, view_b), loss(view_b, view_a))
    one_way = arguments.create_loss("cross-view")
    assert not torch.allclose(one_way(view_a, view_b), one_way(view_b, view_a))


def test_without_flags_the_strategy_is_fixed_and_the_objective_infonce() -> None:
    for arguments in (parse(), TemperatureArguments(temperature_strategy=None, contrastive_objective=None)):
        loss = arguments.create_loss()
        assert (loss.strategy.name, loss.objective.name, loss.layout.name) == ("fixed", "infonce", "two-view")


def test_the_flags_stand_beside_training_arguments_and_their_help_names_every_strategy_and_objective(tmp_path: Path) -> None:
    parser = HfArgumentParser((TemperatureArguments, TrainingArguments))
    flags = ["--temperature-strategy", "learnable", "--learning-rate", "0.5", "--output_dir", str(tmp_path), "--use_cpu"]
    temperature, training = parser.parse_args_into_dataclasses(flags, look_for_args_file=False)
    assert (temperature.temperature_strategy, training.learning_rate) == ("learnable", 0.5)
    unbroken = "".join(parser.format_help().split())
    every = [*tempplug.strategies(), *tempplug.objectives(), *tempplug.negatives()]
    assert [info.name for info in every if info.name not in unbroken] == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--temperature-strategy macle", "unknown strategy 'macle'. Did you mean 'macl'?"),
        ("--temperature-strategy macl --temperature-args alhpa=2", "unknown option 'alhpa'.*Did you mean 'alpha'?"),
        ("--contrastive-objective infonec", "unknown objective 'infonec'. Did you mean 'infonce'?"),
        ("--contrastive-negatives same-kye", "unknown negative term 'same-kye'. Did you mean 'same-key'?"),
        ("--contrastive-negatives same-key+same-key", "negative term 'same-key' is given twice"),
        ("--contrastive-negatives hardness:strength=-1", "strength=-1 of negative term 'hardness' must be"),
        ("--temperature-args temperature=-0.1", "temperature=-0.1 of strategy 'fixed' must be greater than 0"),
        ("--temperature-args temperature", "'temperature' is not an option"),
        ("--temperature-strategy macl:alpha=1 --temperature-args alpha=2", "option 'alpha' is given twice"),
        ("--log-record all", "log_record='all' must be one of brief, full"),
        ("--temperature-learning-rate 0", "temperature_learning_rate=0.0 must be greater than 0"),
        ("--temperature-learning-rate 0.1", "no meaning for strategy 'fixed', which has no parameters"),
        (
            "--temperature-strategy learnable:learning_rate=0.1 --temperature-learning-rate 0.2",
            "learning rate of strategy 'learnable' is given twice: as learning_rate=0.1",
        ),
    ],
)
def test_wrong_flags_are_refused_when_parsed(flags: str, message: str) -> None:
    with pytest.raises(UnknownNameError if "unknown" in message or "log_record" in message else ConfigError, match=message):
        parse(flags)


def test_what_the_data_know_is_filled_in_where_the_strategy_takes_it_and_the_flags_do_not_say() -> None:
    arguments = parse("--temperature-strategy head-tail --temperature-args temperature_head=0.5")
    with pytest.raises(ConfigError, match="class_counts"):
        arguments.create_loss()
    options = arguments.create_loss(class_counts=[3, 9], temperature_head=0.7, period=80).strategy.options
    assert (options["class_counts"], options["temperature_head"], "period" in options) == ((3, 9), 0.5, False)
    assert parse("--temperature-strategy schedule").create_loss(period=80).strategy.options["period"] == 80
    assert parse("--contrastive-objective sogclr:gamma=0.5").create_loss(size=7).objective.options["size"] == 7
    for words, size in (("log-q+hardness", 7), ("hardness+log-q:size=5", 5)):
        terms = {each.name: each for each in parse(f"--contrastive-negatives {words}").create_loss(size=7).terms}
        assert (terms["log-q"].options, terms["hardness"].options["strength"]) == ({"size": size}, 5)


def test_a_learning_rate_is_that_of_all_that_the_strategy_learns() -> None:
    def rate(words: str, **known: Any) -> float | None:
        return parse(f"--temperature-strategy {words}").create_loss(**known).strategy.learning_rate

    assert (rate("learnable"), rate("amcl", dimension=4), rate("fixed")) == (0.01, None, None)
    for words in ("learnable", "amcl:dimension=4", "individual:size=3"):
        assert rate(f"{words} --temperature_learning_rate 0.3") == 0.3
    assert rate("amcl --temperature-learning-rate 0.3", dimension=4) == 0.3
    given = parse("--temperature-strategy learnable --temperature-learning-rate 0.3").create_loss()
    assert given.strategy.spec() == "learnable:initial_temperature=0.07,max_scale=100,learning_rate=0.3"


def test_candidates_come_from_all_processes_wherever_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert parse().create_loss().gather is False
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert parse().create_loss().gather is True
    assert parse().create_loss(gather=False).gather is False
