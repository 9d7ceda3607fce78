from __future__ import annotations

import pytest

from octavo.core import prefix_index
from octavo.core.kv_cache_manager import KVCacheManager, PrefixHit
from octavo.core.request import Request
from tests.core.engine_requests import make_request, make_tokens

TOKENS = make_tokens(100)


def make_manager(num_blocks: int = 16, **settings) -> KVCacheManager:
    return KVCacheManager(num_blocks, block_size=4, hash_key=b"key", **settings)


def make(token_ids, salt: str = "") -> Request:
    return Request(make_request("r", token_ids, salt=salt), 0, (0, 1, 0), 100)


def admit(kv: KVCacheManager, request: Request, num_spare: int = 0) -> int | None:
    return kv.admit(request, kv.find_hit(request), request.num_tokens, num_spare)


def compute(kv: KVCacheManager, token_ids, salt: str = "") -> Request:
    """A request whose tokens have all been computed."""
    request = make(token_ids, salt)
    assert admit(kv, request) is not None
    assert kv.grow(request, request.num_tokens)
    request.num_computed_tokens = request.num_tokens
    kv.publish(request)
    return request


def table(request: Request) -> list[int]:
    return [block.block_id for block in request.block_table.blocks]


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_blocks_are_counted_whole(num_tokens, num_blocks):
    assert make_manager().num_blocks_for(num_tokens) == num_blocks


@pytest.mark.parametrize(
    ("num_tokens", "num_hit"), [(4, 3), (5, 4), (6, 5), (8, 7), (9, 8), (10, 8), (100, 8)], ids=lambda n: f"{n}"
)
def test_a_hit_is_the_longest_prefix_short_of_the_last_token(num_tokens, num_hit):
    kv = make_manager()
    kv.free(compute(kv, TOKENS[:11]))  # two full blocks are cached, the three tokens in the last are not
    hit = kv.find_hit(make(TOKENS[:num_tokens]))
    assert hit.num_tokens == num_hit
    assert [block.token_ids for block in hit.blocks] == [TOKENS[:4], TOKENS[4:8]][: kv.num_blocks_for(num_hit)]


def test_a_hit_may_be_half_a_block_of_something_else():
    kv = make_manager()
    compute(kv, TOKENS[:12])
    assert kv.find_hit(make(TOKENS[:6] + make_tokens(6, seed=1))).num_tokens == 6


def test_no_hit_across_salts_or_with_caching_off():
    kv = make_manager()
    compute(kv, TOKENS[:12], salt="tenant")
    assert kv.find_hit(make(TOKENS[:12])) == PrefixHit()
    assert kv.find_hit(make(TOKENS[:12], "tenant")).num_tokens == 11
    kv = make_manager(enable_prefix_caching=False)
    compute(kv, TOKENS[:12])
    assert kv.find_hit(make(TOKENS[:12])) == PrefixHit()
    assert len(kv.index) == 0


def test_a_hit_shares_whole_blocks_and_copies_a_partial_one():
    kv = make_manager()
    first, second = compute(kv, TOKENS[:12]), make(TOKENS[:7])
    assert admit(kv, second) == 6
    assert table(second)[:1] == table(first)[:1]
    assert table(second)[1] not in table(first)
    assert kv.take_copies() == ((table(first)[1], table(second)[1]),)
    assert kv.take_copies() == ()
    assert [block.ref_count for block in first.block_table.blocks] == [2, 1, 1]


def test_without_room_for_the_copy_a_hit_shrinks_to_its_whole_blocks():
    kv = make_manager(num_blocks=3)
    kv.free(compute(kv, TOKENS[:12]))
    request = make(TOKENS[:12])
    # All 11 tokens would take the three cached blocks and one more to copy the last into.
    assert admit(kv, request) == 8
    assert kv.take_copies() == ()
    assert kv.grow(request, 12)
    assert kv.pool.num_free == 0


@pytest.mark.parametrize(("num_spare", "num_taken"), [(2, 0), (3, None)])
def test_admission_leaves_as_many_blocks_as_it_is_told(num_spare, num_taken):
    kv = make_manager(num_blocks=5)
    request = make(TOKENS[:9])  # three blocks
    assert admit(kv, request, num_spare) == num_taken
    assert kv.num_available == (2 if num_taken == 0 else 5)
    assert request.block_table.num_promised == (3 if num_taken == 0 else 0)


def test_free_cached_blocks_that_a_hit_takes_count_like_new_ones():
    kv = make_manager(num_blocks=3)
    kv.free(compute(kv, TOKENS[:12]))
    assert admit(kv, make(TOKENS[:12]), num_spare=1) is None
    assert kv.pool.num_free == 3


def test_nobody_grows_into_blocks_that_are_promised_to_others():
    kv = make_manager(num_blocks=4, enable_prefix_caching=False)
    promised, other = make(TOKENS[:12]), make(TOKENS[12:16])
    assert admit(kv, promised) == 0
    assert admit(kv, other) == 0
    assert (kv.pool.num_free, kv.num_available) == (4, 0)
    assert kv.grow(other, 4)
    assert not kv.grow(other, 5)
    assert len(other.block_table.blocks) == 1
    assert kv.grow(promised, 12)
    assert not kv.grow(promised, 13)
    kv.free(other)
    assert kv.grow(promised, 13)
    kv.free(promised)
    assert (kv.pool.num_free, kv.num_available) == (4, 4)


def test_a_promise_that_was_not_used_is_returned():
    kv = make_manager()
    request = make(TOKENS[:12])
    assert admit(kv, request) == 0
    assert kv.num_available == 13
    assert kv.grow(request, 5)
    assert kv.num_available == 13
    kv.free(request)
    assert kv.num_available == 16
    assert table(request) == []


def test_only_full_and_computed_blocks_are_published():
    kv = make_manager()
    request = make(TOKENS[:12])
    assert admit(kv, request) == 0
    assert kv.grow(request, 12)
    for num_computed, num_cached in ((3, 0), (4, 1), (7, 1), (12, 3)):
        request.num_computed_tokens = num_computed
        kv.publish(request)
        assert (len(kv.index), request.block_table.num_published) == (num_cached, num_cached)


def test_computed_drafts_beyond_the_last_token_are_not_published():
    kv = make_manager()
    request = make(TOKENS[:6])
    assert admit(kv, request) == 0
    assert kv.grow(request, 8)
    request.num_computed_tokens = 8
    kv.publish(request)
    assert request.block_table.num_published == 1


def test_a_duplicate_is_let_go_and_the_table_told_from_there_on():
    kv = make_manager()
    first, second = make(TOKENS[:9]), make(TOKENS[:9])
    for request in (first, second):  # both miss: nothing is computed yet
        assert admit(kv, request) == 0
        assert kv.grow(request, 9)
        request.block_table.take_change()
        request.num_computed_tokens = 9
    duplicates = table(second)
    kv.publish(first)
    kv.publish(second)
    assert table(second) == table(first)[:2] + duplicates[2:]
    assert second.block_table.take_change() == (0, tuple(table(second)))
    assert second.block_table.take_change() == (3, ())
    assert [block.ref_count for block in second.block_table.blocks] == [2, 2, 1]
    assert {block.block_id for block in kv.pool.free_blocks()} >= set(duplicates[:2])


def test_a_sequence_is_evicted_from_its_tail():
    kv = make_manager(num_blocks=3)
    kv.free(compute(kv, TOKENS[:12]))
    kv.pool.allocate()
    assert kv.find_hit(make(TOKENS[:12])).num_tokens == 8
    kv.pool.allocate()
    assert kv.find_hit(make(TOKENS[:12])).num_tokens == 4


def test_a_fork_takes_over_all_but_the_last_token_without_any_cache():
    kv = make_manager(enable_prefix_caching=False)
    leader, fork = compute(kv, TOKENS[:6]), make(TOKENS[:6])
    fork.fork_source = leader
    assert admit(kv, fork) == 5
    assert table(fork)[0] == table(leader)[0]
    assert kv.take_copies() == ((table(leader)[1], table(fork)[1]),)
    assert fork.block_table.num_published == 0


def test_a_fork_of_a_whole_block_copies_nothing():
    kv = make_manager(enable_prefix_caching=False)
    leader, fork = compute(kv, TOKENS[:9]), make(TOKENS[:9])
    fork.fork_source = leader
    assert admit(kv, fork) == 8
    assert table(fork) == table(leader)[:2]
    assert kv.take_copies() == ()


def test_a_source_that_lost_its_blocks_is_no_source():
    kv = make_manager(enable_prefix_caching=False)
    leader, fork = compute(kv, TOKENS[:6]), make(TOKENS[:6])
    fork.fork_source = leader
    leader.num_computed_tokens = 4  # preempted, and on its way through the prompt again
    assert kv.find_hit(fork) == PrefixHit()


def test_copies_come_in_the_order_in_which_they_build_on_each_other():
    """A leader that comes back by way of a partial hit can be forked in the same step: its copy is copied on."""
    kv = make_manager()
    kv.free(compute(kv, TOKENS[:8]))
    leader, fork = make(TOKENS[:7]), make(TOKENS[:6])
    assert admit(kv, leader) == 6
    fork.fork_source = leader
    assert admit(kv, fork) == 5
    (cached, leaders), (source, forks) = kv.take_copies()
    assert source == leaders == table(leader)[1]
    assert forks == table(fork)[1]
    assert len({cached, leaders, forks}) == 3


def miss(kv: KVCacheManager, token_ids, salt: str = "") -> tuple[int, str] | None:
    request = make(token_ids, salt)
    found = kv.explain_miss(request, kv.find_hit(request))
    return None if found is None else (found.position, found.reason)


def test_why_the_cache_has_no_more_of_a_prompt():
    kv = make_manager(6)
    other = make_tokens(12, seed=1)
    kv.free(compute(kv, TOKENS[:13]))
    assert miss(kv, TOKENS[:13]) is None
    assert miss(kv, TOKENS[:6] + other) == (6, "differs")
    assert miss(kv, TOKENS[:8] + other) == (8, "differs")
    assert miss(kv, other) == (0, "never_seen")
    assert miss(kv, TOKENS[:13], salt="s") == (0, "never_seen")  # nothing is told of what others asked
    kv.free(compute(kv, make_tokens(16, seed=2)))  # takes the tail of the first, which goes first
    assert miss(kv, TOKENS[:13]) == (8, "evicted")
    assert miss(kv, TOKENS[:11]) == (8, "differs")  # a part of a block has no key to remember it by
    kv.free(compute(kv, TOKENS[:13]))
    assert miss(kv, TOKENS[:13]) is None
    assert miss(make_manager(enable_prefix_caching=False), TOKENS) == (0, "disabled")


def test_few_evictions_are_remembered(monkeypatch):
    monkeypatch.setattr(prefix_index, "MIN_EVICTED", 3)
    kv = make_manager(2)
    for seed in range(9):
        kv.free(compute(kv, make_tokens(5, seed=seed)))
    assert [miss(kv, make_tokens(5, seed=seed)) for seed in (2, 6)] == [(0, "never_seen"), (0, "evicted")]
