"""Embedding and output on the tensor-parallel ranks of the first and last stage.

Each rank has a part of the vocabulary (Megatron-LM, arXiv:1909.08053, section 3). The
embedding reduces the vectors of all parts. The output layer computes on each rank the
logits of its part. The loss reduces three numbers per token: the largest logit, the
logit of the next token, and the sum of exponentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.synth.layers import BACKWARD_FACTOR, LayerProgram

if TYPE_CHECKING:
    from chakram.synth.layer_settings import LayerSettings
    from chakram.synth.trace_builder import After, RankSynthesizer

LOSS_SUMS = ("maximum", "target", "sum")
"""Numbers that the loss reduces over the parts of the vocabulary."""

_LOSS_BYTES = 4


class VocabularyProgram:
    """Builder of embedding, output and loss of one rank, if there is a vocabulary."""

    def __init__(
        self, settings: LayerSettings, layers: LayerProgram, rank: RankSynthesizer
    ) -> None:
        self._settings = settings
        self._layers = layers
        self._rank = rank
        self.weights = settings.shape.embedding_parameters // settings.tp
        """Weights of the embedding, or of the output, on this rank."""

    def embed(self, prefix: str, after: After) -> After:
        """Add the forward pass of the embedding."""
        s = self._settings
        if not self.weights:
            return after
        name = f"{prefix}embedding.forward"
        last = self._rank.compute(name, after, touched_bytes=s.activation_bytes)
        return self._layers.scatter(name, last)

    def embed_backward(self, prefix: str, after: After) -> After:
        """Add the backward pass of the embedding."""
        s = self._settings
        if not self.weights:
            return after
        name = f"{prefix}embedding.backward"
        last = self._layers.gather(name, after)
        return self._rank.compute(name, last, touched_bytes=s.activation_bytes)

    def output(self, prefix: str, after: After) -> After:
        """Add the forward pass of the output: logits of this rank's vocabulary part."""
        if not self.weights:
            return after
        name = f"{prefix}output.forward"
        return self._scores(name, self._layers.gather(name, after), 1)

    def loss(self, prefix: str, after: After) -> After:
        """Add the loss."""
        last = after
        if self.weights:
            for what in LOSS_SUMS:
                size_bytes = self._settings.tokens * _LOSS_BYTES
                last = self._layers.sum_up(f"{prefix}loss.{what}", last, size_bytes)
        return last

    def output_backward(self, prefix: str, after: After) -> After:
        """Add the backward pass of the output."""
        if not self.weights:
            return after
        name = f"{prefix}output.backward"
        last = self._layers.gather(name, after, "gather_input")
        return self._layers.scatter(name, self._scores(name, last, BACKWARD_FACTOR))

    def gather_scores(self, prefix: str, after: After, tokens: int) -> After:
        """Add the all-gather of the logits of *tokens* tokens, for inference."""
        s = self._settings
        if not self.weights:
            return after
        part = tokens * s.shape.vocabulary // s.tp * s.bytes_per_element
        return self._layers.gather_shards(f"{prefix}output.gather", after, part)

    def _scores(self, name: str, after: After, factor: int) -> After:
        s = self._settings
        return self._rank.compute(
            name,
            after,
            ops=factor * 2 * s.tokens * self.weights,
            touched_bytes=factor * self.weights * s.bytes_per_element,
        )
