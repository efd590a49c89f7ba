"""Ten clients, two methods: who gains by federating?

    python examples/quickstart.py

`digits` comes with scikit-learn, so nothing is downloaded.
"""

from __future__ import annotations

import sartor as st


def main() -> None:
    # Five clients have two of the ten digits each; the other five have all digits, but very different amounts of them.
    clients = st.data.load("digits").split(st.Hybrid(labels=2, beta=0.5), clients=10, seed=0)
    model = st.models.layers(64, 32, 10)  # or any nn.Module

    together = st.fit(st.FLAME(), model, clients, rounds=20, seed=0)
    alone = st.fit(st.LocalOnly(), model, clients, rounds=20, seed=0)

    # For each client: local, global, personal, and chosen (one of the last two or a mixture, by validation data).
    print(together.table(local=alone))
    chosen = together.summary["chosen"]
    print(f"chosen: {chosen['accuracy_mean']:.3f} on average, {chosen['accuracy_worst10']:.3f} for the worst 10%")
    for warning in together.summary["warnings"]:
        print("warning:", warning)


if __name__ == "__main__":
    main()
