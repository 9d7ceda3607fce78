"""EngineSettings: the size of a simulated engine, and how to put its scheduler together."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.block import Block, Parent
from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.prefix_index import PrefixIndex
from octavo.core.scheduler import Scheduler
from octavo.sim.contiguous_kv import ContiguousKVCacheManager

HASH_KEY = b"simulated"  # a fixed one, so that a seed is all it takes to see a run again


class WeakPrefixIndex(PrefixIndex):
    """A prefix index with four keys in all, so that nearly everything collides."""

    num_collisions = 0

    def insert(self, block: Block, parent: Parent, key: bytes, token_ids: tuple[int, ...]) -> bool:
        """Enter a block, and count it if other content stands under its key."""
        is_entered = super().insert(block, parent, key, token_ids)
        self.num_collisions += not is_entered
        return is_entered

    def _digest(self, data: bytes) -> bytes:
        return bytes([super()._digest(data)[0] % 4])


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What `engine.build` would take from a configuration and from the machine's memory."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 64
    max_model_len: int = 1024
    policy: str = "fcfs"
    enable_prefix_caching: bool = True
    has_weak_hash: bool = False
    is_contiguous: bool = False  # a place for max_model_len tokens for each request, as without paging

    def build_scheduler(self) -> Scheduler:
        """The real scheduler over a pool of this size."""
        kv = self._build_kv()
        if self.has_weak_hash:
            kv.index = kv.pool.index = WeakPrefixIndex(HASH_KEY)
        return Scheduler(
            kv,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            policy=self.policy,
        )

    def _build_kv(self) -> KVCacheManager:
        if self.is_contiguous:
            return ContiguousKVCacheManager(
                self.num_blocks, block_size=self.block_size, max_model_len=self.max_model_len, hash_key=HASH_KEY
            )
        return KVCacheManager(
            self.num_blocks,
            block_size=self.block_size,
            enable_prefix_caching=self.enable_prefix_caching,
            hash_key=HASH_KEY,
        )
