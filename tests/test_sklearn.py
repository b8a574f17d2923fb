"""The estimator agrees with scikit-learn, and keeps its contract."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import undrift as ud

Model = ud.sklearn.FederatedLogisticRegression


@pytest.mark.thorough
@pytest.mark.covering(12)
@parametrize_with_checks([Model()])
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.thorough
@pytest.mark.parametrize("C", [0.02, 0.2])
def test_two_classes_have_the_coefficients_of_liblinear(C):
    heart = ud.data.federation("heart")
    method = ud.Scaffold(lr=0.25)
    model = Model(method, C=C, rounds=3000, tol=1e-9)
    model.fit(heart.features, np.array(heart.card.classes)[heart.target], heart.groups)
    other = LogisticRegression(C=C, solver="liblinear", tol=1e-12, max_iter=10**5)
    other.fit(heart.features, heart.target)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=1e-6)
    assert model.classes_.tolist() == ["healthy", "ill"]
    rows = heart.features[:50]
    np.testing.assert_allclose(model.predict_proba(rows), other.predict_proba(rows), atol=1e-6)
    assert (model.predict(rows) == np.array(["healthy", "ill"])[other.predict(rows)]).all()
    assert model.run_.problem.clients == 4 and 1 < model.n_rounds_ < 3000
    assert model.n_rounds_ == model.run_.history["round"][-1]


@pytest.mark.thorough
def test_several_classes_have_the_coefficients_of_clients_that_count_alike():
    penguins = ud.data.federation("penguins")
    X, y, parts = penguins.features, penguins.target, penguins.parts
    model = Model(C=0.1, tol=1e-10, rounds=500).fit(X, y, penguins.groups)
    counts = np.zeros(len(y))
    for part in parts:
        counts[part] = len(y) / (len(parts) * len(part))
    wide = np.column_stack([X, np.ones(len(X))])
    other = LogisticRegression(C=0.1, fit_intercept=False, tol=1e-12, max_iter=10**4)
    other.fit(wide, y, sample_weight=counts)
    found = np.column_stack([model.coef_, model.intercept_])
    np.testing.assert_allclose(found, other.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(wide), atol=1e-6)
    assert model.score(X, y) == other.score(wide, y)


def test_parameters_travel():
    model = Model(ud.Scaffold(lr=0.25), C=0.1, rounds=5, steps=3, seed=4)
    twin = clone(model).set_params(rounds=7)
    assert twin.get_params() == model.get_params() | {"rounds": 7}
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="after 7 rounds"):
        twin.fit(X[:100], y[:100], np.arange(100) % 3)
    assert twin.n_rounds_ == 7 and twin.run_.problem.clients == 3
    assert twin.run_.method == ud.Scaffold(lr=0.25)


@pytest.mark.parametrize(("steps", "said"), [(3, "take an exact method"), (1, "FedAvg: the grad")])
def test_a_method_that_is_not_exact_is_named(steps, said):
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match=said):
        Model(ud.FedAvg(lr=0.1), rounds=5, steps=steps).fit(X[:100], y[:100], np.arange(100) % 3)


def test_groups_go_with_samples():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        Model().fit(X, y, [0, 1])


def test_without_groups_nothing_is_federated_and_it_says_so():
    heart = ud.data.federation("heart")
    with pytest.warns(UserWarning, match="one client has all samples"):
        model = Model().fit(heart.features, heart.target)
    assert model.run_.problem.clients == 1
    with pytest.raises(ValueError, match="C = -1 is not allowed"):
        Model(C=-1).fit(heart.features, heart.target, heart.groups)


def test_grid_searches_hand_groups_on():
    heart = ud.data.federation("heart")
    with sklearn.config_context(enable_metadata_routing=True):
        model = Model(ud.Scaffold(lr=0.25), rounds=50, tol=1e-2).set_fit_request(groups=True)
        pipeline = make_pipeline(StandardScaler(), model)
        name = "federatedlogisticregression"
        search = GridSearchCV(pipeline, {f"{name}__C": [0.02, 0.2]}, cv=3)
        search.fit(heart.features, heart.target, groups=heart.groups)
    assert search.best_estimator_[-1].run_.problem.clients == 4
