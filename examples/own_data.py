"""Your own data and your own loop: FedAvg and SCAFFOLD on clients that see different parts of the
world.

python examples/own_data.py
"""

import numpy as np

import undrift as ud

# 600 samples of two classes. Sorted by their first feature and cut into six, so that the clients
# differ.
random = np.random.default_rng(0)
features = random.normal(size=(600, 5))
labels = np.where(features @ [1.0, -2.0, 0.5, 0.0, 1.0] + random.normal(size=600) > 0, 1.0, -1.0)
parts = np.array_split(np.argsort(features[:, 0]), 6)

problem = ud.problems.Logistic(features, labels, parts, l2=0.05)
lr = 0.5 / problem.constants.L  # one step size for both, so that the comparison is fair

for method in (ud.FedAvg(lr=lr), ud.Scaffold(lr=lr)):
    engine = ud.Simulate(method, problem, steps=10)
    print(f"\n{type(method).__name__}\nround  f(x) - f*  vectors per client")
    for _ in range(6):
        spent = engine.ledger.vectors_up + engine.ledger.vectors_down
        print(f"{engine.round:5d}  {problem.metrics(engine.x)['gap']:9.1e}  {spent:18.0f}")
        for _ in range(4):  # anything may happen between two rounds
            engine.run_round()

weights = engine.x.numpy()  # the model: here, the five weights of the regression
accuracy = np.mean(np.sign(features @ weights) == labels)
print(f"\naccuracy of SCAFFOLD's model on these samples: {accuracy:.1%}")
