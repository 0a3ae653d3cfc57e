"""Reference implementation of verdicts by their definition: page by page, without tables or batches.

It shares no code with the judge. Candidates are the live anchors in a bucket that the page probes, found by
checking all anchors. In strict mode it is a brute force by distance <= k.

Where the sets of shingles of two pages are known, their similarity is that of the sets if the judge counts
it. If the judge estimates it, the estimate is computed from the sketches as `schemas/journal.md` has it, and
has to be within its noise of that of the sets.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import exp, inf, sqrt

WITHOUT_A_KEY = "http://host/without-a-key"
"""Stands for the URLs of pages without a URL key."""
PAIRS = [(3 * triangle + a, 3 * triangle + b) for triangle in range(10) for a, b in ((0, 1), (1, 2), (0, 2))]
"""The minima of each pair: the first nine pairs, and those in reserve."""
FIRST, EVERY = 9, 30
"""How many pairs a page always looks into, and the number of the bucket of all minima."""


def low_bits(size, bins):
    """Return the number of low bits of each code of a set that is listed."""
    return min(16, bins * 7 // 8 // max(1, size) - 1)


def codes(size, bins):
    """Return how many different codes the elements of such a set may have."""
    return bins // 8 << low_bits(size, bins)


def noise_of_lists(one, two, bins):
    """Return bounds of the similarity of two sets by their lists. It is too high by the elements that have
    equal codes, and too low by those that are expected to."""
    only_one, only_two = len(one - two), len(two - one)
    expected = only_one * only_two / codes(max(len(one), len(two)), bins)
    most = min(only_one, only_two, expected + 6 * sqrt(expected) + 3)
    total, apart = len(one) + len(two), only_one + only_two
    low, high = (total - d for d in (apart + 2 * expected + 1, apart - 2 * most))
    return low / (2 * total - low) - 1e-4, high / (2 * total - high)


def noise_of_bins(one, two, bins):
    """Return bounds of the similarity of two sets by the bins in which an odd number of elements differs."""
    total, apart = len(one) + len(two), len(one ^ two)
    same = exp(-4 * apart / bins)
    deviation = sqrt(max(0, bins / 4 * (1 - same) - apart * same) / same)
    low, high = total - apart - 6 * deviation - 3, min(total, total - apart + 6 * deviation + 3)
    return low / (2 * total - low) - 1e-4, high / (2 * total - high)


@cache
def shingles_apart(unequal, bins):
    """Return by how many shingles, in 1,024ths, two sets differ of which so many bins do."""
    with localcontext() as context:
        context.prec = 30
        one = (1 - Decimal(2) / bins).ln()
        return int((1 - Decimal(2 * unequal) / bins).ln() / one * 1024)


@dataclass
class OraclePage:
    """One fingerprinted page; `status` 0 ready, 1 insufficient, 2 rejected, 3 ready but short."""

    id: object
    url: str | None
    fingerprint: int = 0
    sketch: bytes = b""
    status: int = 0
    shingles: frozenset | None = None
    """The set of shingles that is sketched, if known to the test."""


@dataclass
class OracleVerdict:
    id: object
    verdict: str
    change: str | None = None
    cluster: object = None
    other: object = None
    distance: int | None = None
    similarity: int | None = None
    """In ten-thousandths."""
    superseded: object = None
    number: int | None = None
    """Of the page `other` in journal order: among anchors, or duplicates if it is one."""
    cluster_number: int | None = None
    """If `other` is a duplicate: that of the anchor of `cluster` while that is live, else -1."""
    nearest: object = None
    """Of a unique page: the most similar page that it was compared with, if similar enough to be told."""
    nearest_number: int | None = None
    nearest_similarity: int | None = None


@dataclass
class Anchor:
    page: OraclePage
    entered: set[tuple] = field(default_factory=set)
    out: set[tuple] = field(default_factory=set)
    """The first pairs that were full when it came."""


class Oracle:
    def __init__(
        self, *, strict=False, distance=None, short_distance=0, similarity="0.798", margin="0.002",
        blocks=5, choose=2, bucket_cap=16, compared=64, baselines=2,
        evidence="0.5", bins=1920, width=64, lifetime=None, most_expiring=1 << 15, rows_between=1 << 14,
        most_url_bytes=32 << 20,
    ):  # fmt: skip
        """`lifetime` is in milliseconds."""
        self.strict, self.cap, self.compared = strict, bucket_cap, compared
        self.distance, self.short_distance = distance, short_distance
        self.bins, self.kept = bins, baselines
        self.least = Fraction(similarity) * 10_000
        self.evidence = Fraction(evidence) * 10_000
        self.least_listed = min(Fraction(1), Fraction(similarity) + Fraction(margin)) * 10_000
        small, wide = width // blocks, width % blocks
        sizes = [small + (i < wide) for i in range(blocks)]
        edges = [width - sum(sizes[: i + 1]) for i in range(blocks)]
        masks = [((1 << size) - 1) << edge for size, edge in zip(sizes, edges, strict=True)]
        self.tables = [sum(chosen) for chosen in combinations(masks, choose)]
        # At J = 0.8 a ninth of each set is not in the other; one pair of sets in 1,000 has two equal codes.
        sizes = range(1, self.most_listed + 1)
        self.most_counted = max(n for n in sizes if 1000 * n * n <= 81 * codes(n, bins))
        self.anchors: list[Anchor] = []
        self.baselines: dict[str, list[tuple[OraclePage, object]]] = {}
        self.live: set[object] = set()
        """Ids of the anchors that are not superseded."""
        self.ended: set[object] = set()
        """Ids of those that are, and have neither expired nor been forgotten: of their clusters alone, the
        topic `clusters` has records."""
        self.numbers: dict[object, int] = {}
        """Id of each anchor and duplicate -> how many anchors, or duplicates, came before."""
        self.counts = Counter()
        self.orphans: list[OracleVerdict] = []
        """The verdicts on recrawls that were judged again."""
        self.load: dict[tuple, int] = {}
        self.stayed_out: dict[tuple, int] = {}
        """First pair -> the youngest anchor that stayed out of it, as it was full."""
        self.crowding: dict[object, tuple[bool, bool]] = {}
        """Id of each page that was compared -> whether none of its pairs was open, and whether it had more
        candidates than are compared."""

        self.lifetime, self.most_expiring, self.rows_between = lifetime, most_expiring, rows_between
        self.most_url_bytes = most_url_bytes
        self.time, self.turned, self.slot = 0, -1, max(1000, (lifetime or 0) // 1024)
        """Log time, that of the last turn, and the length of a slot."""
        self.marks = []
        """Log time of the first turn of each slot, with the counts after it."""
        self.oldest = Counter()
        """How many anchors, and duplicates, have expired, by number."""
        self.is_behind, self.judged = False, 0
        """Whether more have expired than the last turn took, and the rows judged since."""
        self.stored = {"unique": {}, "duplicate": {}}
        """Number -> each page that has not expired, with its cluster."""
        self.hit = set()
        """Ids of the pages that verdicts named since they were judged, or carried."""
        self.carried = Counter()

    def begin(self, appended, cap=None):
        """Begin a journal record, before which a turn may be due."""
        self.time = max(self.time, appended if cap is None else min(appended, cap))
        if self.lifetime is None:
            return
        begins_slot = self.time // self.slot > self.turned // self.slot
        if begins_slot or (self.is_behind and self.judged >= self.rows_between):
            self.turn()
            if begins_slot:
                self.marks.append((self.time, Counter(self.counts)))
            self.turned, self.judged = self.time, 0

    def turn(self):
        """Let what was there a lifetime ago expire; what was hit is carried, duplicates first."""
        before = [counts for time, counts in self.marks if time <= self.time - self.lifetime]
        target = before[-1] if before else self.oldest
        bounds = {
            kind: (self.oldest[kind], min(target[kind], self.oldest[kind] + self.most_expiring))
            for kind in self.stored
        }
        for kind in ("duplicate", "unique"):
            number, end = bounds[kind]
            url_bytes = 0
            while number < end:
                page, cluster = self.stored[kind][number]
                carried = page.id in self.hit and self.is_needed(page)
                url_bytes += len(page.url or WITHOUT_A_KEY) if carried else 0
                if url_bytes > self.most_url_bytes:
                    break
                del self.stored[kind][number]
                if carried:
                    self.carry(kind, page, cluster)
                else:
                    self.expire(page)
                self.hit.discard(page.id)
                number += 1
            self.oldest[kind] = number
        self.is_behind = any(self.oldest[kind] < target[kind] for kind in bounds)
        for url, known in self.baselines.items():
            # A superseded anchor is a baseline behind newer ones only.
            while known and known[0][1] == known[0][0].id and known[0][1] not in self.live:
                known = known[1:]
            self.baselines[url] = known

    def is_needed(self, page):
        """Whether a page that was hit is a live anchor, or a duplicate that is a baseline."""
        if page.id in self.live:
            return True
        known = self.baselines.get(page.url, [])
        return any(each is page and cluster != page.id for each, cluster in known)

    def carry(self, kind, page, cluster):
        self.numbers[page.id] = self.counts[kind]
        self.stored[kind][self.counts[kind]] = page, cluster
        self.counts[kind] += 1
        self.carried[kind] += 1
        if kind == "unique":
            anchor = self.leave(page)  # younger than all others, in its buckets
            self.stayed_out |= dict.fromkeys(anchor.out, self.numbers[page.id])
            self.enter(anchor)
        elif cluster in self.live:
            self.hit.add(cluster)

    def expire(self, page):
        anchor = self.leave(page)
        if anchor is not None:
            self.live.remove(page.id)
            for bucket in anchor.entered:
                self.load[bucket] -= 1
        if page.url is not None:
            known = self.baselines[page.url]
            self.baselines[page.url] = [each for each in known if each[0] is not page]
        del self.numbers[page.id]
        self.ended.discard(page.id)

    def buckets(self, page):
        """Return all buckets of a page: by tables of the fingerprint, or by its minima."""
        if self.strict:
            return [(table, page.fingerprint & mask) for table, mask in enumerate(self.tables)]
        minima = self.minima(page)
        pairs = [(pair, minima[one], minima[two]) for pair, (one, two) in enumerate(PAIRS)]
        return [*pairs, (EVERY, *minima)]

    def buckets_to_enter(self, page):
        """Return the buckets that a page enters when it becomes an anchor, and those of which it stays
        out."""
        every = self.buckets(page)
        if self.strict:
            return set(every), set()
        opened = [bucket for bucket in every[:EVERY] if not self.is_full(bucket)][:FIRST]
        opened = opened or [bucket for bucket in every[EVERY:] if not self.is_full(bucket)]
        return set(opened), {bucket for bucket in every[:FIRST] if self.is_full(bucket)}

    def is_full(self, bucket):
        return not self.strict and self.load.get(bucket, 0) >= self.cap

    def looks_into(self, page):
        """Return the buckets into which a page looks: into all if an anchor that has not expired stayed out
        of one of the first pairs."""
        every, first = self.buckets(page), self.oldest["unique"]
        further = self.strict or any(self.stayed_out.get(bucket, -1) >= first for bucket in every[:FIRST])
        return set(every if further else every[:FIRST])

    def candidates(self, page):
        """Return the live anchors in the buckets into which the page looks, oldest first."""
        inside = self.looks_into(page)
        return [a for a in self.anchors if self.strict or a.entered & inside]

    def nearest(self, page):
        """Return the candidates that the page is compared with, oldest first."""
        found = self.candidates(page)
        full = not self.strict and all(map(self.is_full, self.buckets(page)[:EVERY]))
        self.crowding[page.id] = full, False
        if self.strict or not self.compared:
            return found
        apart = [(a.page.fingerprint ^ page.fingerprint).bit_count() for a in found]
        found = [a for a, distance in zip(found, apart, strict=True) if distance <= self.within(page)]
        self.crowding[page.id] = full, len(found) > self.compared
        ranks = [self.rank(page, a.page) for a in found]
        order = sorted(range(len(found)), key=lambda i: (ranks[i], i))[: self.compared]
        return [found[i] for i in sorted(order)]

    def within(self, page):
        """Return the largest distance of a near-duplicate before the page: none in default mode."""
        if not self.strict:
            return inf
        return max(self.distance, self.short_distance) if page.status == 3 else self.distance

    def rank(self, a, b):
        """Return how late one page is compared with the other: by distance, and minima that differ."""
        distance = (a.fingerprint ^ b.fingerprint).bit_count()
        if self.strict:
            return distance
        nine = zip(self.minima(a)[:9], self.minima(b)[:9], strict=True)
        return distance + 2 * sum(x != y for x, y in nine)

    def minima(self, page):
        """Return the thirty minima, from the last 64 bytes of the sketch."""
        words = [int.from_bytes(page.sketch[-64 + at :][:8], "little") for at in range(0, 64, 8)]
        first = [word >> 19 * place & 0x7FFFF for word in words[:3] for place in range(3)]
        further = [word >> 16 * place & 0xFFFF for word in words[3:] for place in range(4)]
        return [*first, *further, sum(word >> 57 << 7 * at for at, word in enumerate(words[:3])) & 0xFFFF]

    def enter(self, anchor):
        self.anchors.append(anchor)

    def leave(self, page):
        """Remove a superseded page from the live anchors, if it was one."""
        gone = next((a for a in self.anchors if a.page is page), None)
        self.anchors = [a for a in self.anchors if a is not gone]
        return gone

    def similar(self, a, b):
        """Distance and similarity of a page to an earlier one, the latter in ten-thousandths, or None."""
        distance = (a.fingerprint ^ b.fingerprint).bit_count()
        if distance > self.within(a):
            return None
        if self.strict:
            return distance, None
        largest = max(self.size(each.sketch) for each in (a, b))
        similarity = self.similarity(a, b, largest)
        least = self.least_listed if largest <= self.most_listed else self.least
        return (distance, similarity) if similarity >= least else None

    def evident(self, a, b):
        """Similarity of a page to an earlier one that it is not similar to, by their sketches alone: the
        less alike two pages are, the likelier is it that those miscount. None if it is no evidence."""
        distance = (a.fingerprint ^ b.fingerprint).bit_count()
        if distance > self.within(a):
            return None
        largest = max(self.size(each.sketch) for each in (a, b))
        similarity = self.by_sketches(a, b, largest)
        return similarity if similarity >= self.evidence else None

    def similarity(self, a, b, largest):
        sets = None if a.shingles is None or b.shingles is None else (a.shingles, b.shingles)
        if sets and largest <= self.most_counted:
            return len(sets[0] & sets[1]) * 10_000 // len(sets[0] | sets[1])
        by_list = largest <= self.most_listed
        similarity = self.by_sketches(a, b, largest)
        if sets and largest <= 5 * self.bins // 2:  # nothing is sampled
            low, high = (noise_of_lists if by_list else noise_of_bins)(*sets, self.bins)
            assert low <= similarity / 10_000 <= high, (similarity, low, high, *map(len, sets))
        return similarity

    def by_sketches(self, a, b, largest):
        return (self.by_lists if largest <= self.most_listed else self.estimate)(a.sketch, b.sketch)

    @property
    def most_listed(self):
        return self.bins * 7 // 8 // 5

    def size(self, sketch):
        return int.from_bytes(sketch[self.bins // 8 : self.bins // 8 + 8], "little")

    def codes(self, sketch, low):
        """Return the codes of a set that is listed, cut to so many low bits."""
        content, size = int.from_bytes(sketch[: self.bins // 8], "little"), self.size(sketch)
        own = self.low(size)
        ones = [bit for bit in range(self.bins) if content >> bit & 1][:size]
        start = self.bins // 8 + size
        codes = [bit - i << own | content >> start + i * own & (1 << own) - 1 for i, bit in enumerate(ones)]
        return [code >> own - low for code in codes]

    def low(self, size):
        return low_bits(size, self.bins)

    def by_lists(self, a, b):
        """Return the similarity of two sets that are listed whole, by their codes."""
        if a[: self.bins // 8 + 8] == b[: self.bins // 8 + 8]:
            return 10_000
        sizes = [self.size(each) for each in (a, b)]
        low = min(map(self.low, sizes))
        one, two = (Counter(self.codes(each, low)) for each in (a, b))
        common = (one & two).total()
        only = [size - common for size in sizes]
        apart = sum(only) + 2 * only[0] * only[1] // (self.bins // 8 << low)
        return max(0, (sum(sizes) - apart) * 10_000 // (sum(sizes) + apart))

    def estimate(self, a, b):
        """Estimate the similarity of two sets from their parity sketches and sizes."""
        bins, size = self.bins, self.bins // 8
        odd = [self.odd_bins(each) for each in (a, b)]
        sizes = [int.from_bytes(each[size : size + 8], "little") for each in (a, b)]
        halved = [next(i for i in range(64) if 2 * n <= 5 * bins << i) for n in sizes]
        if abs(halved[0] - halved[1]) > 1:
            return 0
        if halved[0] != halved[1]:
            even = sum(1 << i for i in range(0, bins, 2))
            for i in range(2):
                joined = odd[i] ^ odd[i] >> 1 if halved[i] > halved[1 - i] else odd[i]
                odd[i] = joined & even
            bins //= 2
        unequal = (odd[0] ^ odd[1]).bit_count()
        if 2 * unequal >= bins:
            return 0
        differing = shingles_apart(unequal, bins) << max(halved)
        differing = max(differing, abs(sizes[0] - sizes[1]) * 1024)
        both = sum(sizes) * 1024
        return max(0, (both - differing) * 10_000 // (both + differing))

    def odd_bins(self, sketch):
        """Return the bits of the bins, which a list begins its codes with."""
        if self.size(sketch) > self.most_listed:
            return int.from_bytes(sketch[: self.bins // 8], "little")
        odd = 0
        for place in self.codes(sketch, 3):
            odd ^= 1 << place
        return odd

    def judge(self, page):
        self.judged += 1
        verdict = self.verdict_on(page)
        if verdict.verdict in ("duplicate", "recrawl"):
            self.hit.add(verdict.other)
            if verdict.cluster != page.id and verdict.cluster in self.live:
                self.hit.add(verdict.cluster)
        return verdict

    def verdict_on(self, page):
        if page.status == 2:
            return OracleVerdict(page.id, "rejected")
        if page.status == 1:
            return OracleVerdict(page.id, "insufficient")
        verdict = OracleVerdict(page.id, "unique", "new")
        # Newest first. Pages without a URL key have no baselines.
        known = [] if page.url is None else self.baselines.setdefault(page.url, [])
        for age, (baseline, cluster) in enumerate(known):
            same = self.similar(page, baseline)
            if same:
                verdict = OracleVerdict(page.id, "recrawl", "unchanged", cluster, baseline.id, *same)
                verdict.number = self.numbers[baseline.id]
                if age == 0 and cluster not in self.live:
                    self.judge_again(page, verdict, known)
                elif cluster != baseline.id:
                    verdict.cluster_number = self.numbers[cluster] if cluster in self.live else -1
                return verdict
        if known:
            verdict.change = "changed"
            baseline = known[0][0]
            anchor = self.leave(baseline)
            if anchor is not None:
                verdict.superseded = baseline.id
                self.ended.add(baseline.id)
                self.live.remove(baseline.id)
                for bucket in anchor.entered:
                    self.load[bucket] -= 1
        best, nearest = self.compare(page)
        if best:
            verdict.verdict, verdict.cluster, verdict.other = "duplicate", best[0].id, best[0].id
            verdict.distance, verdict.similarity = best[1]
            verdict.number = self.numbers[verdict.other]
        else:
            if nearest:
                verdict.nearest, verdict.nearest_similarity = nearest[0].id, nearest[1]
                verdict.nearest_number = self.numbers[verdict.nearest]
            verdict.cluster = page.id
        self.store(page, verdict.cluster, known)
        return verdict

    def judge_again(self, page, verdict, known):
        """Judge a recrawl whose newest baseline is of a cluster without a live anchor. The page takes the
        place of that baseline."""
        best, _ = self.compare(page)
        verdict.cluster = best[0].id if best else page.id
        self.store(page, verdict.cluster, known[1:])
        verdict.cluster_number = self.numbers[verdict.cluster]
        self.orphans.append(verdict)

    def compare(self, page):
        """Return the best of the anchors that the page is like, with distance and similarity, or None; and of
        those that it is not like the nearest, with the similarity, or None."""
        best = nearest = None
        for age, anchor in enumerate(self.nearest(page)):
            same = self.similar(page, anchor.page)
            if same:
                rank = (-(same[1] or 0), same[0], age)
                if best is None or rank < best[0]:
                    best = rank, anchor.page, same
            elif not self.strict and (similarity := self.evident(page, anchor.page)) is not None:
                rank = -similarity, (page.fingerprint ^ anchor.page.fingerprint).bit_count(), age
                if nearest is None or rank < nearest[0]:
                    nearest = rank, anchor.page, similarity
        return best and best[1:], nearest and nearest[1:]

    def forget(self, pages):
        """Forget pages, given by their ids: anchors die, and URLs lose these baselines, each by itself."""
        self.ended -= pages
        for url, known in list(self.baselines.items()):
            self.baselines[url] = [each for each in known if each[0].id not in pages]
        for anchor in [each for each in self.anchors if each.page.id in pages]:
            self.leave(anchor.page)
            self.live.remove(anchor.page.id)
            for bucket in anchor.entered:
                self.load[bucket] -= 1

    def store(self, page, cluster, before):
        """Make a page an anchor, or a member of a cluster, and its URL's newest baseline before others."""
        kind = "unique" if cluster == page.id else "duplicate"
        if kind == "unique":
            self.live.add(page.id)
            anchor = Anchor(page, *self.buckets_to_enter(page))
            self.stayed_out |= dict.fromkeys(anchor.out, self.counts[kind])
            for bucket in anchor.entered:
                self.load[bucket] = self.load.get(bucket, 0) + 1
            self.enter(anchor)
        self.numbers[page.id] = self.counts[kind]
        self.stored[kind][self.counts[kind]] = page, cluster
        self.counts[kind] += 1
        if page.url is not None:
            self.baselines[page.url] = [(page, cluster), *before][: self.kept]
