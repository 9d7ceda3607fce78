"""KV as it was kept before PagedAttention (Kwon et al. 2023): a place for the longest sequence, for every sequence."""

from __future__ import annotations

from octavo.core.kv_cache_manager import KVCacheManager, PrefixHit
from octavo.core.request import Request


class ContiguousKVCacheManager(KVCacheManager):
    """Promises each request the blocks of `max_model_len` tokens when it is admitted, and shares none.

    It is for comparisons: what is promised counts as taken, so that as many requests run as would on one piece of
    memory for each. A real one loses besides what does not fit between pieces.
    """

    def __init__(self, num_blocks: int, *, hash_key: bytes, block_size: int, max_model_len: int) -> None:
        super().__init__(num_blocks, hash_key=hash_key, block_size=block_size, enable_prefix_caching=False)
        self._num_reserved_tokens = max_model_len - 1  # the last token of a sequence needs no KV

    def admit(self, request: Request, hit: PrefixHit, num_promised_tokens: int, num_spare: int) -> int | None:
        """Give a request its place, if one is left. See KVCacheManager."""
        return super().admit(request, PrefixHit(), self._num_reserved_tokens, 0)
