"""The SimCSE Trainer: views from one forward pass, STS-B dev as evaluation, encoders saved as plain folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer

from tempplug_adapters.huggingface.trainer import TemperatureTrainerMixin
from tempplug_adapters.sentence_evaluation.encoder import SentenceEncoder
from tempplug_adapters.sentence_evaluation.sts import evaluate_stsb
from tempplug_adapters.simcse.model import POOLERS, SimCSEModel


class SimCSETrainer(TemperatureTrainerMixin, Trainer):
    """Trains a `SimCSEModel`; give it ``train_dataset=TokenizedViews`` and ``data_collator=ViewCollator``.

    Args:
        *args: of the Trainer.
        sts_dir: folder with the STS data that evaluation reads; None reads from the Hugging Face hub.
        mlm_weight: weight of the masked-language-model loss, where the collator masks tokens.
        **kwargs: of the Trainer and of `TemperatureTrainerMixin`.
    """

    def __init__(self, *args: Any, sts_dir: str | None = None, mlm_weight: float = 0.0, **kwargs: Any) -> None:
        self.sts_dir = sts_dir
        self.mlm_weight = mlm_weight
        super().__init__(*args, **kwargs)

    def contrastive_views(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Any, ...]:
        """Returns the embeddings of both views, hard negatives and the masked-language-model loss where there are any."""
        outputs = model(**inputs)
        views = outputs["embedding"].chunk(self.train_dataset.views)  # type: ignore[union-attr]
        arguments = {"hard_negatives": views[2]} if len(views) > 2 else {}
        auxiliary = self.mlm_weight * outputs["mlm_loss"] if "mlm_loss" in outputs else None
        return views[0], views[1], arguments, auxiliary

    def sentence_encoder(self) -> SentenceEncoder:
        """Returns the encoder in its present state, pooled as in evaluation: without the training-only head."""
        model: SimCSEModel = self.accelerator.unwrap_model(self.model)
        return SentenceEncoder(model.encoder.base_model, self.processing_class, POOLERS[model.pooler])

    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict[str, float]:
        """Returns ``eval_stsb_spearman``, Spearman × 100 on STS-B dev, and logs it."""
        metrics = {f"{metric_key_prefix}_stsb_spearman": evaluate_stsb(self.sentence_encoder(), self.sts_dir)}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        self.accelerator.unwrap_model(self.model).save_pretrained(folder)
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)
        torch.save(self.args, folder / "training_args.bin")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        self.accelerator.unwrap_model(model or self.model).load_weights(resume_from_checkpoint)
        self._load_contrastive_loss(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        checkpoint = str(self.state.best_model_checkpoint)
        self.accelerator.unwrap_model(self.model).load_weights(checkpoint)
        self._load_contrastive_loss(checkpoint)
