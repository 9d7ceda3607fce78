"""Workload: an engine's size, its users and their whims, all drawn from one seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from octavo.core.messages import EngineRequest
from octavo.core.request import Request, RequestStatus
from octavo.core.sampling_params import SamplingParams
from octavo.sim.engine_settings import EngineSettings

MAX_TEXTS = 24  # token sequences that new prompts may begin with
MAX_LENGTH = 160  # of a prompt with its output


@dataclass(frozen=True, slots=True)
class Scenario:
    """The engine of one seed, and how its users behave."""

    engine: EngineSettings
    vocab_size: int
    max_drafts: int
    error_rate: float  # of rows
    mean_prompt: int  # tokens of new text
    mean_output: int  # tokens
    max_unfinished: int  # choices offered at a time
    arrival_rate: float  # requests a step
    abort_rate: float  # aborts a step
    score_rate: float  # requests that want the log-probabilities of their prompt
    timeout_rate: float  # requests that have a deadline
    salts: tuple[str, ...]


def draw_scenario(random: Random) -> Scenario:
    """An engine, more often a cramped one."""
    block_size = random.choice((2, 4, 16))
    num_blocks = min(random.randint(2, 40), random.randint(2, 40))
    budget = random.choice((1, 2, 3, 5, 8, 16, 33, 64, 256))
    num_slots = num_blocks * block_size
    mean_length = max(1, min(random.choice((4, 10, 20, 40)), num_slots // 2, 8 * budget))
    is_stormy = random.random() < 0.4  # short prompts that grow long: what makes requests preempt each other
    return Scenario(
        engine=EngineSettings(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=16 if is_stormy else random.choice((1, 2, 3, 4, 6)),
            max_num_batched_tokens=budget,
            max_model_len=max(4, min(MAX_LENGTH, int(num_slots * random.uniform(0.5, 1.3)))),
            policy=random.choice(("fcfs", "priority", "fair")),
            enable_prefix_caching=random.random() < 0.85,
            has_weak_hash=random.random() < 0.15,
        ),
        vocab_size=random.choice((12, 30, 100)),
        max_drafts=random.choice((0, 0, 1, 3, 5)),
        error_rate=random.choice((0.0, 0.0, 0.003)),
        mean_prompt=min(block_size, mean_length) if is_stormy else mean_length,
        mean_output=max(mean_length, min(40, num_slots // 3)) if is_stormy else mean_length,
        max_unfinished=20 if is_stormy else random.choice((3, 8, 20)),
        arrival_rate=random.choice((0.2, 0.6, 1.0)),
        abort_rate=random.choice((0.0, 0.02, 0.1)),
        score_rate=random.choice((0.0, 0.1, 0.6)),
        timeout_rate=random.choice((0.0, 0.1, 0.4)),
        salts=random.choice((("",), ("",), ("", "tenant"))),
    )


class Workload:
    """What the users of a scenario do next. Prompts grow into trees: common beginnings, next turns of a talk."""

    def __init__(self, random: Random, scenario: Scenario) -> None:
        self._random = random
        self._scenario = scenario
        self._texts: list[tuple[int, ...]] = [()]
        self._num_requests = 0

    def remember(self, token_ids: Sequence[int]) -> None:
        """Keep a text that later prompts may begin with."""
        if len(self._texts) >= MAX_TEXTS:
            self._texts.pop(self._random.randrange(1, len(self._texts)))
        self._texts.append(tuple(token_ids))

    def arrivals(self, num_unfinished: int, now_s: float) -> Iterator[EngineRequest]:
        """The requests of one step: a burst now and then, and none while too many are unfinished."""
        while (
            num_unfinished < self._scenario.max_unfinished and self._random.random() < self._scenario.arrival_rate / 2
        ):
            request = self._request(now_s)
            num_unfinished += request.sampling_params.n
            yield request

    def abort(self, requests: Sequence[Request]) -> tuple[str, int | None, str] | None:
        """Whom to abort in this step, if anybody: id, choice (None: all) and state; rare states as often as others."""
        if not requests or self._random.random() >= self._scenario.abort_rate:
            return None
        by_state: dict[str, list[Request]] = {}
        for request in requests:
            by_state.setdefault(_state(request), []).append(request)
        state = self._random.choice(list(by_state))
        request = self._random.choice(by_state[state])
        index = request.index if self._random.random() < 0.5 else None
        return request.request_id, index, state

    def _request(self, now_s: float) -> EngineRequest:
        random, scenario = self._random, self._scenario
        self._num_requests += 1
        prompt = self._prompt()
        if random.random() < 0.6:
            self.remember(prompt)
        eos_token_ids = (0, 1) if random.random() < 0.8 else ()
        return EngineRequest(
            f"r{self._num_requests}",
            prompt,
            self._sampling_params(),
            seed=random.choice((7, random.getrandbits(64), 2**64 - 1)),
            eos_token_ids=eos_token_ids,
            priority=random.randrange(-1, 3),
            cache_salt=random.choice(scenario.salts),
            tenant=random.choice(("a", "b", "c")),
            queue_deadline_s=self._deadline(now_s),
            deadline_s=self._deadline(now_s),
        )

    def _deadline(self, now_s: float) -> float | None:
        """A second is a step."""
        is_wanted = self._random.random() < self._scenario.timeout_rate
        return now_s + self._random.randint(1, 20) if is_wanted else None

    def _prompt(self) -> tuple[int, ...]:
        """A known text, whole or cut, and some new words; now and then longer than anything that fits."""
        random, scenario, engine = self._random, self._scenario, self._scenario.engine
        if random.random() < 0.02:
            return self._words(random.choice((engine.max_model_len, engine.num_blocks * engine.block_size + 1)))
        text = random.choice(self._texts)
        if random.random() < 0.5:
            text = text[: random.randint(0, len(text))]
        num_words = random.choice((0, 1, random.randint(1, 2 * scenario.mean_prompt)))
        prompt = text + self._words(num_words)
        return prompt[: engine.max_model_len - 1] or self._words(1)

    def _words(self, num_words: int) -> tuple[int, ...]:
        return tuple(self._random.randrange(self._scenario.vocab_size) for _ in range(num_words))

    def _sampling_params(self) -> SamplingParams:
        random, scenario = self._random, self._scenario
        max_tokens = 1 if random.random() < 0.2 else random.randint(1, 2 * scenario.mean_output)
        return SamplingParams(
            n=random.choice((1, 1, 1, 2, 4)),
            max_tokens=None if random.random() < 0.03 else max_tokens,
            min_tokens=random.choice((0, 0, random.randint(0, max_tokens))),
            ignore_eos=random.random() < 0.4,
            stop_token_ids=random.choice(((), (), (2,), (0, 3), (3, 3))),
            prompt_logprobs=0 if random.random() < scenario.score_rate else None,
        )


def _state(request: Request) -> str:
    """The request's status, and for a running one how far it is."""
    if request.status is RequestStatus.RUNNING:
        return "mid-chunk" if request.num_computed_tokens < request.num_tokens - 1 else "decoding"
    return str(request.status.value)
