"""The curves: share of pairs found over their true similarity. Run by the Python of the peers' environment.

python picture.py PATH < report
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

SHOWN = {
    "default": ("#c0392b", 2.6, "-"),
    "datasketch 256 verified": ("#2c6fbb", 1.5, "-"),
    "rensa 128 verified": ("#1b9e77", 1.5, "-"),
    "simhash k=3": ("#7f7f7f", 1.5, "--"),
    "trafilatura Simhash": ("#a6761d", 1.2, ":"),
    "text-dedup settings": ("#e7298a", 1.2, ":"),
    "strict k=3": ("#7b5ea7", 1.5, "--"),
    "strict k=8": ("#7b5ea7", 1.2, ":"),
    "seeds: jieba TF-IDF top 20, k=3": ("#e6a817", 1.5, "--"),
}


def main(report: dict, path: str) -> None:
    edges = report["edges"]
    middle = [(low + high) / 2 for low, high in zip(edges, [*edges[1:], 1.0], strict=True)]
    plt.rcParams |= {"svg.hashsalt": "neardup", "font.size": 9}
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, (language, name) in zip(axes, {"zh": "Chinese", "en": "English"}.items(), strict=True):
        for way, (colour, width, style) in SHOWN.items():
            found = report[language]["ways"].get(way)
            if found:
                axis.plot(middle, found["curve"], style, color=colour, lw=width, label=way)
        axis.axvline(0.8, color="#bbbbbb", lw=0.8)
        axis.set(title=f"{name} revisions", xlabel="true Jaccard similarity of the pair", xlim=(0.5, 1.0))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of pairs named duplicates")
    axes[1].legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(json.load(sys.stdin), sys.argv[1])
