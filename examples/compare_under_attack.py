"""Which methods keep their accuracy when some clients are hostile?

    python examples/compare_under_attack.py

A fifth of the clients flip the sign of what they send. Scores are of the benign clients only. On the command line:

    sartor compare --methods fedavg,ditto,lp-proj-1,local --attack "none,sign-flip(std=10)" --aggregator mean,median
"""

from __future__ import annotations

import sartor as st


def main() -> None:
    clients = st.data.load("digits").split(st.Dirichlet(beta=0.5), clients=10, seed=0)
    model = st.models.layers(64, 10)
    methods = {
        "fedavg": st.FedAvg(),
        "fedavg, median": st.FedAvg(aggregate=st.aggregators.Median()),
        "ditto": st.Ditto(lam=0.1),
        "lp-proj-1": st.LpProj(p=1.0),
        "local": st.LocalOnly(),
    }
    print(f"{'chosen, mean over benign clients':<34} clean  attacked")
    for name, method in methods.items():
        scores = []
        for attack in ("none", st.attacks.SignFlip(std=10.0)):
            result = st.fit(
                method,
                model,
                clients,
                rounds=15,
                attack=st.Attacked(attack=attack, attackers=0.2),
                evaluation=st.Evaluation(diagnostics=False),
            )
            scores.append(result.summary["chosen"]["accuracy_mean"])
        print(f"{name:<34} {scores[0]:.3f}  {scores[1]:.3f}")


if __name__ == "__main__":
    main()
