"""PrefixIndex: which cached block holds the KV of which tokens after which prefix."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from itertools import islice

from octavo.core.block import Block, Parent
from octavo.core.equal_prefix import equal_prefix_length

KEY_BYTES = 16
MIN_EVICTED = 64  # keys of evicted blocks that are remembered in any case
MAX_PARTIAL_CANDIDATES = 8  # newest blocks compared for a partial match, so that a lookup stays short


class PrefixIndex:
    """A forest of cached blocks: each node is one block's tokens after its parent's.

    Blocks are found by a wide keyed hash of (parent's key, tokens), rooted in the salt, so that neither two runs nor
    two tenants share keys. The hash is only the way to a candidate: a hit also needs the same tokens and the same
    parent *node*, so a collision can cost a hit but never an answer.
    """

    def __init__(self, hash_key: bytes) -> None:
        self._hash_key = hash_key
        self._block_by_key: dict[bytes, Block] = {}
        self._children: dict[tuple[Parent, int], dict[int, Block]] = {}  # by (parent, first token), then block_id
        self._evicted: dict[bytes, None] = {}  # keys, the oldest first: what was there cannot be had, only explained
        self._next_node_id = 1

    def __len__(self) -> int:
        return len(self._block_by_key)

    def root_key(self, salt: str) -> bytes:
        """The key that stands before the first block of every sequence with this salt."""
        return self._digest(b"root\0" + salt.encode("utf-8", "surrogatepass"))

    def child_key(self, parent_key: bytes, token_ids: Sequence[int]) -> bytes:
        """The key of one full block of tokens after the block with `parent_key`."""
        return self._digest(b"node\0" + parent_key + array("q", token_ids).tobytes())

    def find(self, parent: Parent, key: bytes, token_ids: tuple[int, ...]) -> Block | None:
        """The cached block that holds exactly these tokens after this parent."""
        block = self._block_by_key.get(key)
        if block is None or block.parent != parent or block.token_ids != token_ids:
            return None
        return block

    def find_partial(self, parent: Parent, token_ids: tuple[int, ...]) -> tuple[Block | None, int]:
        """The cached child of `parent` that begins with the most of these tokens, and how many these are."""
        best: Block | None = None
        best_length = 0
        if token_ids:
            candidates = self._children.get((parent, token_ids[0]), {})
            for block in islice(reversed(candidates.values()), MAX_PARTIAL_CANDIDATES):
                length = equal_prefix_length(block.token_ids, token_ids)
                if length > best_length:
                    best, best_length = block, length
        return best, best_length

    def was_evicted(self, key: bytes) -> bool:
        """Whether a block under this key had to make room for another lately."""
        return key in self._evicted

    def insert(self, block: Block, parent: Parent, key: bytes, token_ids: tuple[int, ...]) -> bool:
        """Enter a block whose KV is computed. False if another block stands under this key: the first one stays."""
        if key in self._block_by_key:
            return False
        self._block_by_key[key] = block
        self._evicted.pop(key, None)
        self._children.setdefault((parent, token_ids[0]), {})[block.block_id] = block
        block.key, block.parent, block.token_ids = key, parent, token_ids
        block.node_id = self._next_node_id
        self._next_node_id += 1
        return True

    def remove(self, block: Block) -> None:
        """Forget a block that is about to be written anew."""
        assert block.key is not None, f"block {block.block_id} is not in the prefix index"
        del self._block_by_key[block.key]
        self._evicted[block.key] = None
        if len(self._evicted) > max(MIN_EVICTED, len(self._block_by_key)):
            del self._evicted[next(iter(self._evicted))]
        siblings_key = (block.parent, block.token_ids[0])
        siblings = self._children[siblings_key]
        del siblings[block.block_id]
        if not siblings:
            del self._children[siblings_key]
        block.key, block.parent, block.token_ids, block.node_id = None, "", (), 0

    def _digest(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=KEY_BYTES, key=self._hash_key).digest()
