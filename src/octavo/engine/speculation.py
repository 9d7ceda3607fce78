"""How the part that guesses tokens is put together, and what memory it takes."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.backends.ops import Backend, Model
from octavo.config import EngineConfig, ModelConfig, SpeculativeConfig
from octavo.engine.memory import MemoryPlan, step_activation_bytes
from octavo.models.registry import build_model
from octavo.spec_decode.draft_budget import DraftBudget
from octavo.spec_decode.prompt_lookup import PromptLookup
from octavo.spec_decode.proposer import Proposer
from octavo.weights.checkpoint import Checkpoint, open_checkpoint
from octavo.worker.draft_model import CATCH_UP_TOKENS, DraftModel, num_scratch_blocks
from octavo.worker.drafter import Drafter
from octavo.worker.kv_cache import kv_shape
from octavo.worker.request_table import RequestTable


@dataclass(frozen=True, slots=True)
class LoadedDraft:
    """A draft model's weights, and what it will need besides."""

    model: Model
    config: ModelConfig
    vocab_size: int  # the target's
    max_drafts: int
    max_num_seqs: int

    @property
    def num_scratch_blocks(self) -> int:
        """Blocks behind the target's, over all rows."""
        return self.max_num_seqs * num_scratch_blocks(self.max_drafts)

    def other_bytes(self, kv_cache_dtype: str) -> int:
        """What its largest pass and its scratch blocks take."""
        num_tokens = CATCH_UP_TOKENS + self.max_num_seqs * (1 + self.max_drafts)
        activations = step_activation_bytes(
            self.config, max_num_batched_tokens=num_tokens, max_num_seqs=self.max_num_seqs
        )
        return activations + self.num_scratch_blocks * self.config.block_bytes(kv_cache_dtype)


def load_draft(config: EngineConfig, target: Checkpoint, backend: Backend) -> LoadedDraft | None:
    """Load the draft model, if the configuration names one.

    Raises ValueError if it cannot guess for the target, CheckpointError if it cannot be opened.
    """
    speculative = config.speculative_config
    if speculative is None or speculative.model is None:
        return None
    draft = open_checkpoint(speculative.model)
    max_model_len = config.max_model_len or target.config.max_position_embeddings
    if draft.config.max_position_embeddings < max_model_len:
        raise ValueError(
            f"the draft model {draft.name} has {draft.config.max_position_embeddings} positions and max_model_len is "
            f"{max_model_len}; lower --max-model-len, or take another model in --speculative-config"
        )
    vocab_size = min(target.vocab_size, target.config.vocab_size)
    _check_vocabularies(target, draft, vocab_size)
    model = build_model(draft.config, draft.tensors, backend, max_model_len)
    return LoadedDraft(model, draft.config, vocab_size, speculative.num_speculative_tokens, config.max_num_seqs)


def make_drafter(
    config: SpeculativeConfig, table: RequestTable, draft: LoadedDraft | None, memory: MemoryPlan, backend: Backend
) -> Drafter:
    """What guesses as the configuration says; a draft model gets its KV cache, over the target's blocks and its own."""
    proposer: Proposer
    if draft is None:
        proposer = PromptLookup(table, min_length=config.prompt_lookup_min, max_length=config.prompt_lookup_max)
    else:
        num_blocks = memory.num_blocks + draft.num_scratch_blocks
        kv = backend.allocate_kv(kv_shape(draft.config, num_blocks, memory.kv_cache_dtype))
        proposer = DraftModel(
            backend.prepare(draft.model, kv),
            kv,
            table,
            num_blocks=memory.num_blocks,
            vocab_size=draft.vocab_size,
            max_drafts=draft.max_drafts,
        )
    budget = DraftBudget(config.num_speculative_tokens, proposer.pass_s)
    return Drafter(proposer, budget, table, max_drafts=config.num_speculative_tokens)


def _check_vocabularies(target: Checkpoint, draft: Checkpoint, vocab_size: int) -> None:
    """Both models must mean the same by the same ids, whatever padding their embeddings have."""
    if draft.config.vocab_size < vocab_size:
        raise ValueError(
            f"the draft model {draft.name} has {draft.config.vocab_size} token ids and {target.name} {vocab_size}; it "
            "must have as many: take a model of the same family"
        )
    ours, theirs = target.tokenizer_spec.tokens(), draft.tokenizer_spec.tokens()
    for token_id in sorted(ours.keys() & theirs.keys()):
        if ours[token_id] != theirs[token_id]:
            raise ValueError(
                f"the draft model {draft.name} means {theirs[token_id]!r} by token {token_id} and {target.name} means "
                f"{ours[token_id]!r}; both must have the same tokenizer: take a model of the same family"
            )
