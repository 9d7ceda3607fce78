"""KVCacheManager: gives sequences their blocks, shares what is equal, copies before a shared block is written."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.block import Block, Parent
from octavo.core.block_pool import BlockPool
from octavo.core.messages import CacheMiss
from octavo.core.prefix_index import PrefixIndex
from octavo.core.request import Request


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """Computed KV that a request can take over: `num_tokens` tokens in `blocks`, the last of which may be partial.

    A partial block holds foreign tokens after those that match, or is still being filled by the request it is
    forked from; either way the taker copies it before writing.
    """

    blocks: tuple[Block, ...] = ()
    num_tokens: int = 0

    def whole_blocks(self, block_size: int) -> PrefixHit:
        """The same hit without its partial block."""
        num_whole = self.num_tokens // block_size
        return PrefixHit(self.blocks[:num_whole], num_whole * block_size)


class KVCacheManager:
    """Block tables of all running requests over one pool.

    Blocks are taken on demand. A request is *promised* the blocks of the tokens it is known to need when it is
    admitted, so that only growth beyond these can ever find the pool empty.
    """

    def __init__(
        self, num_blocks: int, *, block_size: int, hash_key: bytes, enable_prefix_caching: bool = True
    ) -> None:
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.index = PrefixIndex(hash_key)
        self.pool = BlockPool(num_blocks, self.index)
        self._num_owed = 0  # promised to somebody and not yet taken
        self._copies: list[tuple[int, int]] = []

    @property
    def num_available(self) -> int:
        """Free blocks that are promised to nobody."""
        return self.pool.num_free - self._num_owed

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold the KV of `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def find_hit(self, request: Request) -> PrefixHit:
        """The longest computed prefix that the request may take over, short of its last token.

        One token must be left to compute; a request with prompt_logprobs computes them all.
        """
        if request.has_prompt_logprobs:
            return PrefixHit()
        limit = request.num_tokens - 1
        source = request.fork_source
        if source is not None and source.num_computed_tokens >= limit:
            return PrefixHit(tuple(source.block_table.blocks[: self.num_blocks_for(limit)]), limit)
        if not self.enable_prefix_caching:
            return PrefixHit()
        return self._find_cached(request, limit)

    def explain_miss(self, request: Request, hit: PrefixHit) -> CacheMiss | None:
        """Why `hit` holds no more of the request's tokens; None if it holds all that a request may take over."""
        position = hit.num_tokens
        if position >= request.num_tokens - 1:
            return None
        place = position // self.block_size
        if not self.enable_prefix_caching or request.has_prompt_logprobs:
            return CacheMiss(position, "disabled")
        is_whole = (place + 1) * self.block_size <= request.num_tokens
        if is_whole and self.index.was_evicted(self._block_key(request, place)):
            return CacheMiss(position, "evicted")
        return CacheMiss(position, "differs" if position else "never_seen")

    def admit(self, request: Request, hit: PrefixHit, num_promised_tokens: int, num_spare: int) -> int | None:
        """Give a request the hit's blocks and the promise of `num_promised_tokens` tokens in all.

        Returns how many of the hit's tokens it took, or None, and changes nothing, when fewer than `num_spare`
        unpromised blocks would be left.
        """
        for candidate in (hit, hit.whole_blocks(self.block_size)):
            needed = self._num_blocks_to_admit(candidate, num_promised_tokens)
            if needed + num_spare <= self.num_available:
                self._take(request, candidate, num_promised_tokens)
                return candidate.num_tokens
        return None

    def grow(self, request: Request, num_tokens: int) -> bool:
        """Make room for the KV of the first `num_tokens` tokens. False, and nothing changes, when the pool is short."""
        table = request.block_table
        num_missing = self.num_blocks_for(num_tokens) - len(table.blocks)
        if num_missing <= 0:
            return True
        num_owed = min(num_missing, table.num_owed)
        if num_missing - num_owed > self.num_available:
            return False
        self._num_owed -= num_owed
        for _ in range(num_missing):
            table.blocks.append(self.pool.allocate())
        return True

    def publish(self, request: Request) -> None:
        """Enter the request's newly completed blocks into the prefix index.

        Where the index already holds the same content, the table turns to that block and the duplicate is freed.
        """
        table = request.block_table
        num_full = min(request.num_computed_tokens, request.num_tokens) // self.block_size
        if not self.enable_prefix_caching or num_full <= table.num_published:
            return
        for position in range(table.num_published, num_full):
            parent, key, token_ids = self._content(request, position)
            block = table.blocks[position]
            twin = self.index.find(parent, key, token_ids)
            if twin is not None:
                self._replace(request, position, twin)
            elif not self.index.insert(block, parent, key, token_ids):
                return  # the key collides with other content: this sequence ends its cached prefix here
            table.num_published += 1

    def free(self, request: Request) -> None:
        """Release all blocks of a request, and its promise."""
        table = request.block_table
        self._num_owed -= table.num_owed
        self.pool.release_all(table.blocks)
        table.blocks.clear()
        table.num_published = table.num_promised = table.changed_from = 0

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """The (source, destination) copies decided since the last call, in the order they must be made."""
        copies = tuple(self._copies)
        self._copies.clear()
        return copies

    def _find_cached(self, request: Request, limit: int) -> PrefixHit:
        blocks: list[Block] = []
        num_full = limit // self.block_size
        parent: Parent = request.cache_salt
        for position in range(num_full):
            start = position * self.block_size
            token_ids = tuple(request.token_ids[start : start + self.block_size])
            block = self.index.find(parent, self._block_key(request, position), token_ids)
            if block is None:
                break
            blocks.append(block)
            parent = block.node_id
        start = len(blocks) * self.block_size
        rest = tuple(request.token_ids[start : min(start + self.block_size, limit)])
        partial, num_partial = self.index.find_partial(parent, rest)
        if partial is not None:
            blocks.append(partial)
        return PrefixHit(tuple(blocks), start + num_partial)

    def _num_blocks_to_admit(self, hit: PrefixHit, num_promised_tokens: int) -> int:
        """Blocks that admission takes from the unpromised ones: new ones, and shared ones that were free."""
        num_shared = hit.num_tokens // self.block_size  # a partial block is replaced by a new one
        num_revived = sum(block.ref_count == 0 for block in hit.blocks)
        return self.num_blocks_for(num_promised_tokens) - num_shared + num_revived

    def _take(self, request: Request, hit: PrefixHit, num_promised_tokens: int) -> None:
        table = request.block_table
        for block in hit.blocks:
            self.pool.share(block)
        table.blocks.extend(hit.blocks)
        if hit.num_tokens % self.block_size:
            self._copy_last(table.blocks)
        table.num_published = self._num_published(hit)
        table.num_promised = self.num_blocks_for(num_promised_tokens)
        self._num_owed += table.num_owed
        request.num_computed_tokens = hit.num_tokens

    def _copy_last(self, blocks: list[Block]) -> None:
        """Copy-on-write: the sequence is about to write into its last block, which it shares."""
        source, blocks[-1] = blocks[-1], self.pool.allocate()
        self._copies.append((source.block_id, blocks[-1].block_id))
        self.pool.release(source)

    def _num_published(self, hit: PrefixHit) -> int:
        """Leading blocks of a hit that stand in the index; those of a fork may not."""
        num_published = 0
        while num_published < hit.num_tokens // self.block_size and hit.blocks[num_published].key is not None:
            num_published += 1
        return num_published

    def _content(self, request: Request, position: int) -> tuple[Parent, bytes, tuple[int, ...]]:
        """Parent, key and tokens of a request's full block."""
        start = position * self.block_size
        token_ids = tuple(request.token_ids[start : start + self.block_size])
        parent = request.block_table.blocks[position - 1].node_id if position else request.cache_salt
        return parent, self._block_key(request, position), token_ids

    def _block_key(self, request: Request, position: int) -> bytes:
        """Key of the request's full block at `position`; computed once."""
        keys = request.block_keys
        while len(keys) <= position:
            start = len(keys) * self.block_size
            parent_key = keys[-1] if keys else self.index.root_key(request.cache_salt)
            keys.append(self.index.child_key(parent_key, request.token_ids[start : start + self.block_size]))
        return keys[position]

    def _replace(self, request: Request, position: int, twin: Block) -> None:
        """Point the table at a cached block of the same content before the duplicate is let go."""
        table = request.block_table
        duplicate = table.blocks[position]
        self.pool.share(twin)
        table.blocks[position] = twin
        table.changed_from = min(table.changed_from, position)
        self.pool.release(duplicate)
