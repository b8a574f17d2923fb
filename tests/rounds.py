"""Engines some rounds later."""


def after(rounds, *engines):
    """The engines, each so many rounds later, round by round; alone if it is one."""
    for _ in range(rounds):
        for engine in engines:
            engine.run_round()
    return engines[0] if len(engines) == 1 else engines


def played(method, problem, engine, rounds=3, **setting):
    """A new engine, so many rounds later."""
    return after(rounds, engine(method, problem, **setting))
