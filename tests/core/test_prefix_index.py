from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.core.block import Block
from octavo.core.prefix_index import MAX_PARTIAL_CANDIDATES, PrefixIndex
from tests.core.hypothesis_settings import SHORT

KEY = b"key of this start"


def enter(index: PrefixIndex, block_id: int, token_ids: tuple[int, ...], parent: Block | None = None) -> Block:
    block = Block(block_id)
    parent_key = index.root_key("") if parent is None else parent.key
    assert parent_key is not None
    key = index.child_key(parent_key, token_ids)
    assert index.insert(block, "" if parent is None else parent.node_id, key, token_ids)
    return block


def test_a_block_is_found_by_parent_key_and_tokens_together():
    index = PrefixIndex(KEY)
    block = enter(index, 0, (1, 2))
    child = enter(index, 1, (1, 2), block)
    assert block.key and child.key and block.key != child.key
    assert index.find("", block.key, (1, 2)) is block
    assert index.find(block.node_id, child.key, (1, 2)) is child
    assert index.find("", block.key, (1, 3)) is None  # a collision: same key, other tokens
    assert index.find(child.node_id, block.key, (1, 2)) is None  # a collision: same key, other parent
    assert index.find("other salt", block.key, (1, 2)) is None
    assert index.find("", b"unknown", (1, 2)) is None


def test_the_first_block_under_a_key_stays():
    index = PrefixIndex(KEY)
    block, late = enter(index, 0, (1, 2)), Block(1)
    assert block.key
    assert not index.insert(late, "", block.key, (3, 4))
    assert late.key is None
    assert index.find_partial("", (3, 4)) == (None, 0)
    assert index.find("", block.key, (1, 2)) is block


def test_a_removed_block_is_found_no_more_and_its_node_never_comes_back():
    index = PrefixIndex(KEY)
    block = enter(index, 0, (1, 2))
    key, node_id = block.key, block.node_id
    assert key
    index.remove(block)
    assert (block.key, block.node_id, block.token_ids, len(index)) == (None, 0, (), 0)
    assert index.find("", key, (1, 2)) is None
    assert index.find_partial("", (1, 2)) == (None, 0)
    assert enter(index, 0, (1, 2)).node_id != node_id


def test_a_partial_match_is_the_child_that_begins_with_most():
    index = PrefixIndex(KEY)
    parent = enter(index, 0, (9, 9, 9, 9))
    enter(index, 1, (1, 2, 0, 0), parent)
    best = enter(index, 2, (1, 2, 3, 0), parent)
    enter(index, 3, (2, 2, 3, 4), parent)
    enter(index, 4, (1, 2, 3, 4))  # under another parent
    assert index.find_partial(parent.node_id, (1, 2, 3, 4)) == (best, 3)
    assert index.find_partial(parent.node_id, (1,))[1] == 1
    assert index.find_partial(parent.node_id, (3, 2, 3, 4)) == (None, 0)
    assert index.find_partial(parent.node_id, ()) == (None, 0)


def test_a_partial_lookup_compares_the_newest_few():
    index = PrefixIndex(KEY)
    oldest = enter(index, 0, (1, 2, 3, 4))
    others = [enter(index, i, (1, 2, i, 0)) for i in range(10, 10 + MAX_PARTIAL_CANDIDATES)]
    assert index.find_partial("", (1, 2, 3, 4)) == (others[-1], 2)
    index.remove(others[0])
    assert index.find_partial("", (1, 2, 3, 4)) == (oldest, 4)


tokens = st.lists(st.integers(0, 2**31 - 1), max_size=4)


@SHORT
@given(tokens, tokens, st.text(max_size=3), st.text(max_size=3))
def test_keys_differ_by_every_token_the_parent_and_the_salt(left, right, salt, other_salt):
    index = PrefixIndex(KEY)
    root = index.root_key(salt)
    assert (index.child_key(root, left) == index.child_key(root, right)) == (left == right)
    assert (root == index.root_key(other_salt)) == (salt == other_salt)
    assert index.child_key(index.child_key(root, left), right) != index.child_key(root, left + right)


def test_keys_differ_between_starts_and_between_kinds():
    index, other = PrefixIndex(KEY), PrefixIndex(b"key of another start")
    assert index.root_key("") != other.root_key("")
    assert index.child_key(b"", [1]) != other.child_key(b"", [1])
    assert index.root_key("\x01" + 7 * "\0") != index.child_key(b"", [1])
    assert index.root_key("\ud800") != index.root_key("")  # a lone surrogate, as JSON may carry
