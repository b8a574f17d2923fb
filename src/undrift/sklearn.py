"""Estimators in the manner of scikit-learn, trained over clients that keep their samples."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from undrift.core.method import Method
from undrift.core.stopping import EarlyStopping
from undrift.data.partition import by_group
from undrift.methods.dane import DANE
from undrift.problems.logistic import Logistic
from undrift.problems.softmax import Softmax
from undrift.runs.api import run
from undrift.runs.results import Run

__all__ = ["FederatedLogisticRegression"]


class FederatedLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Logistic regression over clients, which are the groups of samples that ``fit`` is given.

    It minimises the mean loss plus :math:`|w|^2 / (2CM)` for M samples, as LogisticRegression of
    scikit-learn does, but the intercept is part of w, as in its solver liblinear. With two classes
    every sample counts alike; with more, every client does.

    Args:
        method: how clients and server train; left out: DANE with lam="theory", which needs no step
            size. ``ud.Scaffold(lr=0.1)`` and others take local gradient steps.
        C: inverse of the strength of regularisation.
        rounds: rounds of communication at most.
        steps: local steps of a round, where the method takes any.
        batch: samples of a mini-batch; left out: all that a client has.
        cohort: clients that take part in a round; left out: all of them.
        tol: training ends when the gradient of f is this short.
        seed: decides cohorts and mini-batches.

    After ``fit``: ``coef_``, ``intercept_`` and ``classes_`` as in scikit-learn, ``n_rounds_``, and
    ``run_``, the :class:`undrift.Run` with its history and costs, which a pickled model is without.

    >>> import undrift as ud
    >>> heart = ud.data.federation("heart")
    >>> model = ud.sklearn.FederatedLogisticRegression(ud.Scaffold(lr=0.25), C=0.1)
    >>> model = model.fit(heart.features, heart.target, heart.groups)
    >>> round(model.score(heart.features, heart.target), 2)
    0.84
    """

    def __init__(
        self,
        method: Method | None = None,
        *,
        C: float = 1.0,
        rounds: int = 200,
        steps: int = 10,
        batch: int | None = None,
        cohort: int | None = None,
        tol: float = 1e-4,
        seed: int = 0,
    ):
        self.method, self.C, self.rounds, self.steps = method, C, rounds, steps
        self.batch, self.cohort, self.tol, self.seed = batch, cohort, tol, seed

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train; a client for each of ``groups``, or a single one that has all samples."""
        values, labels = validate_data(self, X, y, dtype=np.float64)
        check_consistent_length(values, groups)
        check_classification_targets(labels)
        self.classes_, which = np.unique(labels, return_inverse=True)
        if not self.C > 0:
            raise ValueError(f"C = {self.C} is not allowed: a number > 0")
        kinds, l2 = len(self.classes_), 1 / (self.C * len(labels))
        if kinds < 2:
            raise ValueError("y has one class; logistic regression needs samples of 2 or more")
        if groups is None:
            warnings.warn(
                "one client has all samples: give fit groups (a grid search: set_fit_request)",
                stacklevel=2,
            )
        parts = by_group(np.zeros(len(labels)) if groups is None else groups)
        if kinds == 2:
            problem: Logistic | Softmax = Logistic(
                np.column_stack([values, np.ones(len(values))]), 2.0 * which - 1, parts, l2
            )
        else:
            problem = Softmax(values, which, parts, l2, kinds)
        self.run_: Run = run(
            self.method or DANE(lam="theory"),
            problem,
            rounds=self.rounds,
            steps=self.steps,
            batch=self.batch,
            cohort=self.cohort,
            seed=self.seed,
            callbacks=[EarlyStopping(metric="grad_norm", target=self.tol)],
        )
        last = self.run_.history.last
        self.n_rounds_ = int(last["round"])
        if not last["grad_norm"] <= self.tol:
            kind = type(self.run_.method)
            warnings.warn(
                f"{kind.__name__}: the gradient is {last['grad_norm']:.1e} after {self.n_rounds_} "
                "rounds: scale the columns of X, raise rounds or tol, or take another step or "
                "method"
                if kind.exact or self.steps == 1
                else f"{kind.__name__} with {self.steps} local steps does not converge to the "
                "optimum of unlike clients: take an exact method, such as FedRecu",
                ConvergenceWarning,
                2,
            )
        weights = self.run_.x.numpy(force=True).astype(np.float64).reshape(-1, values.shape[1] + 1)
        self.coef_, self.intercept_ = weights[:, :-1].copy(), weights[:, -1].copy()
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores of the classes; of two classes, those of the second, ``[samples]``."""
        check_is_fitted(self)
        values = validate_data(self, X, dtype=np.float64, reset=False)
        scores: NDArray[np.float64] = values @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probability of each class, ``[samples, classes]``."""
        from scipy.special import softmax

        scores = self.decision_function(X)
        two = np.column_stack([0 * scores, scores])
        return np.asarray(softmax(two if scores.ndim == 1 else scores, axis=1), np.float64)

    def predict(self, X: ArrayLike) -> NDArray[np.generic]:
        """The most probable class of each sample."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def __getstate__(self) -> dict[str, object]:
        return {name: v for name, v in super().__getstate__().items() if name != "run_"}
